"""Contexts of several turns: as ids against a plain loop, as text against the lines they came from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.corpora.pairs.compiled import PairCorpus, PairSplit, Ragged, load_pairs
from parley.envs.corpora.pairs.contexts import (
    afterwards,
    chains,
    contexts,
    dialogues,
    examples,
    windows,
    with_eot,
    with_replies,
)
from parley.envs.corpora.pairs.turns import Example
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from tests.envs.corpora.pairs.made_up import write_lines

EOT_ID = 99


def split_of(rows: list[list[int]], pairs: list[tuple[int, int]]) -> PairSplit:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    values = np.array([word for row in rows for word in row], dtype=np.int32)
    return PairSplit(Ragged(values, offsets), np.array(pairs, dtype=np.int64).reshape(-1, 2))


@st.composite
def splits(draw: st.DrawFn) -> PairSplit:
    rows = draw(st.lists(st.lists(st.integers(3, 9), max_size=4), min_size=1, max_size=9))
    places = st.integers(0, len(rows) - 1)
    pairs = (
        draw(st.lists(st.tuples(places, places).filter(lambda pair: pair[0] < pair[1]), max_size=8)) if len(rows) > 1 else []
    )
    return split_of(rows, pairs)


def plain_context(split: PairSplit, source: int, turns: int) -> list[int]:
    """The context one turn at a time."""
    chain = [source]
    while len(chain) < turns:
        before = [int(first) for first, reply in split.pairs if reply == chain[0]]
        if not before:
            break
        chain.insert(0, before[0])
    words: list[int] = []
    for number, utterance in enumerate(chain):
        words += [EOT_ID] * bool(number) + split.utterances[utterance].tolist()
    return words


@given(splits(), st.integers(1, 4))
def test_a_window_is_the_turns_before_a_reply(split: PairSplit, turns: int) -> None:
    made = windows(split, turns, EOT_ID)
    assert len(made) == len(split)
    for (source, reply), (window, same_reply) in zip(split.pairs, made.pairs, strict=True):
        assert made.utterances[int(window)].tolist() == plain_context(split, int(source), turns)
        assert made.utterances[int(same_reply)].tolist() == split.utterances[int(reply)].tolist()
    alone = contexts(split, turns, EOT_ID)
    assert [row.tolist() for row in alone] == [made.utterances[int(window)].tolist() for window in made.pairs[:, 0]]
    assert made.utterances.values.dtype == np.int32
    assert made.utterances.offsets.dtype == np.int64


@given(splits())
def test_pairs_that_are_linked_are_of_one_dialogue(split: PairSplit) -> None:
    members = [{*pair.tolist()} for pair in split.pairs]
    for first in members:
        for other in members:
            if first & other and first is not other:
                first |= other
                other.clear()
    while any(len(one & other) for i, one in enumerate(members) for other in members[:i]):
        for i, one in enumerate(members):
            for other in members[:i]:
                if one & other:
                    one |= other
                    other.clear()
    wanted = [next(i for i, group in enumerate(members) if int(source) in group) for source, _ in split.pairs]
    numbers = dialogues(split).tolist()
    assert len({*zip(wanted, numbers, strict=True)}) == len({*wanted}) == len({*numbers})


def test_windows_and_chosen_replies_keep_their_dialogues() -> None:
    split = split_of([[5], [6, 6], [7], [8], [9]], [(0, 1), (1, 2), (3, 4)])
    assert dialogues(windows(split, 2, EOT_ID)).tolist() == dialogues(split).tolist() == [0, 0, 3]
    assert dialogues(with_replies(windows(split, 2, EOT_ID), 0, 1)).tolist() == [0, 3]
    assert dialogues(with_replies(split, 0, 1)).tolist() == [0, 3]
    assert dialogues(windows(split, 2, EOT_ID).first(1)).tolist() == [0]


def test_the_first_of_several_pairs_counts() -> None:
    split = split_of([[5], [6], [7], [8]], [(1, 2), (0, 2), (2, 3)])
    assert chains(split, 3).tolist() == [[1, -1, -1], [0, -1, -1], [2, 1, -1]]


def test_what_followed_a_reply_is_the_first_that_replied_to_it() -> None:
    split = split_of([[5], [6], [7], [8], [9]], [(0, 1), (1, 2), (1, 3), (3, 4)])
    assert afterwards(split).tolist() == [2, -1, 4, -1]
    # Turns of a context that are no pairs follow one another, too.
    assert afterwards(replace(split, pairs=split.pairs[:1], links=split.pairs[1:])).tolist() == [2]
    assert afterwards(split_of([], [])).tolist() == []


def test_a_split_without_pairs_has_no_windows() -> None:
    assert len(windows(split_of([[5]], []), 2, EOT_ID)) == 0
    assert len(windows(split_of([], []), 2, EOT_ID)) == 0


@pytest.fixture
def corpus(tmp_path: Path) -> PairCorpus:
    write_lines(tmp_path / "own" / "train.tsv", "a a\tb", "b\trare c")
    write_lines(tmp_path / "own" / "val.tsv", "new\ta")
    write_lines(tmp_path / "own" / "test.tsv", "one\ttwo", "two\tthree", "three\tfour", "other\tone")
    return load_pairs(str(tmp_path / "own"), every_word=True, cache=tmp_path / "cache")


def test_with_every_word_nothing_is_unknown(corpus: PairCorpus, tmp_path: Path) -> None:
    words = ["a", "b", "rare", "c", "new", "one", "two", "three", "four", "other"]
    assert set(corpus.vocabulary.words) == {*SPECIALS, *words}
    usual = load_pairs(str(tmp_path / "own"), cache=tmp_path / "cache")
    assert usual.folder != corpus.folder
    assert "new" not in usual.vocabulary.index


def test_examples_are_the_text_of_the_corpus_in_its_order(corpus: PairCorpus) -> None:
    found = examples(corpus, "test", turns=2)
    assert list(found) == [
        Example("test-000000", ((("one",),),), (("two",),)),
        Example("test-000001", ((("one",),), (("two",),)), (("three",),)),
        Example("test-000002", ((("two",),), (("three",),)), (("four",),)),
        Example("test-000003", ((("other",),),), (("one",),)),
    ]
    assert [each.after for each in found] == [(("three",),), (("four",),), None, None]
    assert found[-1] == found[3]
    assert found[1:3] == [found[1], found[2]]
    assert len(found) == 4
    with pytest.raises(IndexError):
        found[4]


def test_a_key_names_the_pair_whatever_is_left_out(corpus: PairCorpus) -> None:
    assert [each.key for each in examples(corpus, "test", turns=2, min_turns=2)] == ["test-000001", "test-000002"]
    assert [len(each.context) for each in examples(corpus, "test", turns=3, min_turns=2)] == [2, 3]


def test_utterances_of_a_turn_are_told_apart(tmp_path: Path) -> None:
    vocabulary = PairVocabulary((*SPECIALS, "yes", "no"))
    split = split_of([[5, 3, 6], [6]], [(0, 1)])
    corpus = PairCorpus("made-up", tmp_path, vocabulary, {"test": split})
    assert examples(corpus, "test", turns=2)[0].context == ((("yes",), ("no",)),)


def test_the_mark_between_turns_is_the_last_word_of_the_vocabulary() -> None:
    vocabulary = PairVocabulary((*SPECIALS, "yes"))
    assert with_eot(vocabulary).words == (*SPECIALS, "yes", "<eot>")
