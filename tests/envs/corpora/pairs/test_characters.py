from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.tokens import PairText
from parley.envs.corpora.pairs.vocabulary import LETTERS, PTB_CHARACTERS, SPECIALS, TREEBANK, flip, parse_trees, read_treebank

TREES = """
( (S
    (NP-SBJ (NNP Mr.) (NNP Fish) )
    (VP (VBZ does) (RB n't) (VB swim)
      (NP (-NONE- *) )
      (NP (CD 20) (NNS lanes) ) )
    (. .) ))
( (S (NP (PRP It) ) (VP (VBZ floats) ) ))
"""


def spelled(text: PairText, split: str) -> list[tuple[str, str]]:
    utterances = ["".join(words) for words in text.splits[split].utterances()]
    return [(utterances[source], utterances[reply]) for source, reply in text.splits[split].pairs]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(1, 21):
        (tmp_path / f"wsj_{number:04d}.mrg").write_text(TREES)
    return tmp_path


def differing(word: str, other: str) -> int:
    assert len(word) == len(other)
    return sum(a != b for a, b in zip(word, other, strict=True))


def test_trees_give_their_words_without_empty_categories() -> None:
    first = ["mr.", "fish", "does", "n't", "swim", "20", "lanes", "."]
    assert parse_trees(TREES, "here") == [first, ["it", "floats"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("( (S (NN fish) )\n", r"here:1(.|\n)*a bracket too few"),
        ("( (NN fish) )\n( (NN fish) ) )\n", r"here:2(.|\n)*a closing bracket too many"),
    ],
)
def test_brackets_that_do_not_match_are_named(content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_trees(content, "here")


def test_pairs_are_neighbouring_words_of_one_sentence(folder: Path) -> None:
    text = read_treebank(folder)
    assert text.broken == []
    wanted = [("mr.", "fish"), ("fish", "does"), ("does", "n't"), ("n't", "swim"), ("it", "floats")]
    pairs = spelled(text, "train")
    assert len(pairs) == 18 * len(wanted)
    assert [reply for _, reply in pairs] == 18 * [reply for _, reply in wanted]
    changed = [differing(source, word) for (source, _), (word, _) in zip(pairs, 18 * wanted, strict=True)]
    assert set(changed) == {0, 1}
    assert 0.35 < np.mean(changed) < 0.65


def test_every_twentieth_file_is_for_validation_and_another_for_the_test(folder: Path) -> None:
    text = read_treebank(folder)
    assert [text.splits[split].num_pairs for split in ("train", "val", "test")] == [90, 5, 5]


def test_the_same_files_give_the_same_pairs_whatever_else_is_there(folder: Path) -> None:
    before = spelled(read_treebank(folder), "train")
    (folder / "wsj_0021.mrg").write_text(TREES)
    after = spelled(read_treebank(folder), "train")
    assert after[: len(before)] == before


def test_a_broken_file_is_reported_and_the_others_are_read(folder: Path) -> None:
    (folder / "wsj_0002.mrg").write_text("( (S (NN fish) )")
    text = read_treebank(folder)
    assert [str(error.where) for error in text.broken] == [f"{folder / 'wsj_0002.mrg'}:1"]
    assert text.splits["train"].num_pairs == 85


def test_a_flip_changes_one_character_to_another_letter() -> None:
    generator = np.random.default_rng(0)
    for word in ["a", "n't", "u.s.", "fish"]:
        flipped = {flip(word, generator) for _ in range(400)}
        assert all(differing(word, other) == 1 for other in flipped)
        assert len(flipped) > 20 * len(word) * 0.8
    assert all(set(flip("zzz", generator)) <= {*LETTERS} for _ in range(50))


def test_files_are_looked_for_where_nltk_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLTK_DATA", f"{tmp_path / 'one'}:{tmp_path / 'two'}")
    place = tmp_path / "two" / "corpora" / TREEBANK / "combined"
    place.mkdir(parents=True)
    (place / "wsj_0001.mrg").write_text(TREES)
    assert PTB_CHARACTERS.folder(data_root()) == place
    PTB_CHARACTERS.require_files(data_root())


def test_missing_files_name_the_command_that_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.envs.corpora.pairs.vocabulary.nltk_folders", lambda: [tmp_path])
    with pytest.raises(DataError, match=r"python -m nltk\.downloader treebank"):
        PTB_CHARACTERS.fingerprint(data_root())


@pytest.mark.data
@pytest.mark.skipif(PTB_CHARACTERS.missing(data_root()) != (), reason="NLTK's folders hold no sample of the Penn Treebank")
def test_the_sample_of_the_penn_treebank(tmp_path: Path) -> None:
    corpus = load_pairs(PTB_CHARACTERS.name, cache=tmp_path)
    assert [len(split) for split in corpus.splits.values()] == [59_725, 2_588, 2_959]
    assert {*corpus.vocabulary.words[len(SPECIALS) :]} == {*LETTERS, "'", "."}
    assert len(corpus.vocabulary) == 33
