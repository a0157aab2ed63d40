"""Byte pair encoding: what is learnt, that words come back as they were, and vocabularies that are damaged."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from benchmarks.plain_subwords import learn, merged
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.pairs.compiled import learn_pieces, load_pairs, pieces_of, spelt, word_counts
from parley.envs.corpora.pairs.contexts import windows, with_eot
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import EOT as SEPARATOR
from parley.envs.corpora.pairs.vocabulary import EOU, MARKS, SPECIALS, UNK, UNK_ID, PairVocabulary

COUNTS = {"low": 5, "lower": 2, "newest": 6, "widest": 3, "<url>": 9, "<eot>": 4}
"""The example of Sennrich et al. 2016 (algorithm 1), and two marks."""
KNOWN = some.text(alphabet="lowernstid", min_size=1)
ANY = some.text(alphabet=some.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda word: not word.isspace())


@pytest.fixture(scope="module")
def pieces() -> PairVocabulary:
    return learn_pieces(COUNTS, 10)


def test_the_most_frequent_pairs_are_merged(pieces: PairVocabulary) -> None:
    # "es" stands 9 times, "est" too, "lo" and "low" 7 times.
    assert pieces.merges is not None
    assert pieces.merges[:2] == (("e", "s"), ("es", "t "))
    assert ("l", "o") in pieces.merges
    assert [pieces.words[unit] for unit in pieces.encode(["lowest"])][-1] == "est "


def test_merges_are_those_of_a_plain_learner() -> None:
    line = "the cat sat on the mat and the other cat sat on that hat then they all ate the rat at the other flat"
    text = Counter(line.split())
    found = learn_pieces(text, 12).merges
    assert found is not None
    for number, pair in enumerate(found):
        # Pairs that are as frequent may come in another order.
        counts = learn(text, found[:number])
        assert counts[pair] == max(counts.values())


def test_it_is_the_same_in_every_order_of_words(pieces: PairVocabulary) -> None:
    assert learn_pieces(dict(reversed(COUNTS.items())), 10) == pieces


def test_a_text_without_frequent_pairs_has_fewer_merges() -> None:
    assert learn_pieces({"abc": 1}, 100).merges == ()


def test_no_merges_leave_characters() -> None:
    characters = learn_pieces(COUNTS, 0)
    assert [characters.words[unit] for unit in characters.encode(["low"])] == ["l", "o", "w "]
    assert characters.decode(characters.encode(["low", EOU, "new"])) == ["low", EOU, "new"]


@given(words=some.lists(some.one_of(KNOWN, some.sampled_from([EOU, EOT, "<url>", "<path>"]))))
def test_words_of_known_characters_come_back(pieces: PairVocabulary, words: list[str]) -> None:
    assert pieces.decode(pieces.encode(words)) == words
    assert pieces.ends[pieces.encode(words)].sum() == len(words)
    lengths = [1 if word in (EOU, EOT) else len(word) + 1 for word in words]
    assert pieces.num_characters[pieces.encode(words)].sum() == sum(lengths)


@given(words=some.lists(ANY))
def test_bytes_spell_every_word(words: list[str]) -> None:
    spelling = learn_pieces(COUNTS, 10, in_bytes=True)
    words = ["".join(word.split()) for word in words]
    words = [word for word in words if word and word not in SPECIALS]
    assert spelling.decode(spelling.encode(words)) == words
    assert UNK_ID not in spelling.encode(words)


@given(text=some.lists(ANY, max_size=6), asked=some.lists(ANY, max_size=3))
def test_whatever_a_text_holds_it_is_spelt(text: list[str], asked: list[str]) -> None:
    words = [word for word in ("".join(each.split()) for each in text) if word and word not in MARKS]
    learnt = learn_pieces(Counter(words * 3), 20)
    assert learnt.decode(learnt.encode(words)) == words
    assert all(word in learnt for word in words)
    assert len(learnt.encode(asked)) >= len(asked)


def test_a_text_that_spells_a_mark_makes_none() -> None:
    words = ["<pad>x", "</w>", "<eou>?"]
    learnt = learn_pieces(dict.fromkeys(words, 9), 50)
    assert learnt.decode(learnt.encode(words)) == words


def test_each_unknown_character_is_one_unknown(pieces: PairVocabulary) -> None:
    ids = pieces.encode(["low☃er", "☃☃", "😀"])
    assert (ids == UNK_ID).sum() == 4
    assert pieces.decode(ids) == ["low", UNK, "er", UNK, UNK, UNK]
    assert "low☃er" not in pieces
    assert pieces.encode([]).tolist() == []


def test_words_are_known_that_can_be_spelt_and_marks_are_none(pieces: PairVocabulary) -> None:
    assert "wisest" in pieces
    assert "zoo" not in pieces
    assert UNK not in pieces
    words = PairVocabulary((*SPECIALS, "low"))
    assert "low" in words
    assert "lower" not in words


def test_between_words_of_one_letter_stands_no_blank() -> None:
    assert PairVocabulary((*SPECIALS, "a", "bc")).num_characters[-2:].tolist() == [2, 3]
    letters = PairVocabulary((*SPECIALS, "a", "b"))
    assert letters.num_characters.tolist() == [1] * len(letters)


def test_a_word_that_breaks_off_is_one(pieces: PairVocabulary) -> None:
    cut = pieces.encode(["newer"])[:-1]
    assert pieces.decode([*cut, pieces.index[EOU], *pieces.encode(["low"])]) == ["newe", EOU, "low"]
    assert pieces.parted(cut) == ([], "newe")


def test_it_is_stored_as_json(tmp_path: Path, pieces: PairVocabulary) -> None:
    pieces.save(tmp_path / "vocabulary.json")
    assert set(json.loads((tmp_path / "vocabulary.json").read_text())) == {"pieces", "merges"}
    read = PairVocabulary.load(tmp_path / "vocabulary.json")
    assert read == pieces
    assert read.digest == pieces.digest != PairVocabulary(pieces.words).digest
    assert pickle.loads(pickle.dumps(read)) == pieces  # noqa: S301  # as workers get it


def test_a_vocabulary_of_words_stays_a_list(tmp_path: Path) -> None:
    words = PairVocabulary((*SPECIALS, "low"))
    words.save(tmp_path / "vocabulary.json")
    assert json.loads((tmp_path / "vocabulary.json").read_text()) == [*SPECIALS, "low"]
    assert PairVocabulary.load(tmp_path / "vocabulary.json") == words


def test_a_file_cut_short_is_no_json(tmp_path: Path, pieces: PairVocabulary) -> None:
    path = tmp_path / "vocabulary.json"
    pieces.save(path)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter"):
        PairVocabulary.load(path)


def test_pieces_and_merges_belong_together(pieces: PairVocabulary) -> None:
    assert pieces.merges is not None
    with pytest.raises(DataError, match=r"a merge names pieces that the vocabulary lacks\n.*merge 10"):
        PairVocabulary(pieces.words[:-1], pieces.merges)
    with pytest.raises(DataError, match="must start with <pad>"):
        PairVocabulary((*SPECIALS, "l", "o"), (("l", "o"),))


def test_a_corpus_is_learnt_on_its_training_text_alone(tmp_path: Path) -> None:
    for split, line in (("train", "abab ab\tab"), ("val", "cdcd cd\tcd"), ("test", "cdcd cd\tab")):
        (tmp_path / f"{split}.tsv").write_text(f"{line}\n" * 4)
    corpus = load_pairs(str(tmp_path), every_word=True, cache=tmp_path / "cache")
    found = pieces_of(corpus.first(1), 5, cache=tmp_path / "cache")
    assert "cd" not in found
    assert "abab" in found
    assert found == learn_pieces(word_counts(corpus), 5) == pieces_of(corpus, 5, cache=tmp_path / "cache")
    with pytest.raises(ConfigError, match="needs a number of merges"):
        pieces_of(corpus, 0, cache=tmp_path / "cache")


def test_a_split_in_pieces_says_the_same() -> None:
    corpus = load_pairs("helpdesk", every_word=True)
    found, words = pieces_of(corpus, 60), with_eot(corpus.vocabulary)
    split = windows(corpus.splits["test"], 2, len(corpus.vocabulary))
    in_pieces = spelt(split, words, found)
    assert len(in_pieces.utterances) == len(split.utterances)
    np.testing.assert_array_equal(in_pieces.pairs, split.pairs)
    for row in range(len(split.utterances)):
        said = words.decode(split.utterances[row])
        assert found.decode(in_pieces.utterances[row]) == said
        np.testing.assert_array_equal(in_pieces.utterances[row], found.encode(said))
    assert spelt(split, words, words) is split


@given(words=some.lists(KNOWN, max_size=8))
def test_pieces_are_those_of_a_plain_merge_loop(pieces: PairVocabulary, words: list[str]) -> None:
    assert pieces.merges is not None
    ranks = {pair: rank for rank, pair in enumerate(pieces.merges)}
    assert [pieces.words[unit] for unit in pieces.encode(words)] == [piece for word in words for piece in merged(word, ranks)]


def test_a_mark_has_one_name() -> None:
    assert EOT == SEPARATOR
