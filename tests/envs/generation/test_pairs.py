"""Pairs of a corpus in the words of a model: no context that a model learns from is one that it is measured on."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs
from parley.envs.corpora.pairs.contexts import examples, with_eot
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.generation.game import pairs_in_words

LINES = {
    "train": ["hello\tgood morning", "who is rare ?\tit is me", "it is me\tthen come in"],
    # The first source of each stands in train; so does the second with one turn of context, not with two.
    "val": ["hello\tgood evening", "is it you ?\tit is me", "it is me\tthen go away", "who is scarce ?\tit is him"],
    "test": ["hello\tbye", "hello\tgood night", "is that so ?\tit is me"],
}


@pytest.fixture
def corpus(tmp_path: Path) -> PairCorpus:
    (tmp_path / "own").mkdir()
    for split, lines in LINES.items():
        (tmp_path / "own" / f"{split}.tsv").write_text("".join(f"{line}\n" for line in lines))
    return load_pairs(str(tmp_path / "own"), every_word=True, cache=tmp_path / "cache")


@pytest.fixture
def few_words(corpus: PairCorpus, tmp_path: Path) -> PairVocabulary:
    """Of a model that knows neither "rare" nor "scarce"."""
    return with_eot(load_pairs(str(tmp_path / "own"), vocabulary=8, cache=tmp_path / "cache").vocabulary)


@pytest.mark.parametrize(("turns", "wanted"), [(1, (3, 2, 1)), (2, (3, 3, 1))])
def test_contexts_of_train_are_left_out_of_the_other_splits(
    corpus: PairCorpus, few_words: PairVocabulary, turns: int, wanted: tuple[int, ...]
) -> None:
    assert "rare" not in few_words.index, "what a model cannot tell apart is still not the same source"
    found = pairs_in_words(corpus, few_words, turns=turns, min_reply=1, max_reply=9)
    assert tuple(map(len, found.splits.values())) == wanted
    asked = [examples(corpus, split, turns, unseen=True) for split in LINES]
    assert tuple(map(len, asked)) == wanted
    known = {each.context for each in asked[0]}
    assert not known & {each.context for split in asked[1:] for each in split}
    assert f"{4 - wanted[1]} of 4 val pairs are left out" in found.note
    assert "2 of 3 test pairs are left out, for their contexts stand in the training split." in found.note
    assert "train pairs" not in found.note


def test_only_pairs_that_would_be_asked_are_counted(corpus: PairCorpus) -> None:
    found = pairs_in_words(corpus, with_eot(corpus.vocabulary), turns=2, min_reply=2, max_reply=9)
    assert "1 of 2 test pairs are left out" in found.note
    assert not pairs_in_words(corpus, with_eot(corpus.vocabulary), turns=2, min_reply=3, max_reply=9).note


def test_no_note_where_nothing_is_left_out(corpus: PairCorpus) -> None:
    assert [each.key for each in examples(corpus, "test", 1, unseen=True)] == ["test-000002"], "keys name the pair"
    assert len(examples(corpus, "train", 1, unseen=True)) == 3
