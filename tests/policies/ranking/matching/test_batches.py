"""Blocks: each text once, nothing lost, little padded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.envs.corpora.pairs.vocabulary import PAD_ID, UNK_ID, PairVocabulary
from parley.policies.ranking.matching.batches import Alphabet, Block, Padded, Reader, buckets
from parley.policies.ranking.matching.settings import MatcherSizes, MrfnSizes
from tests.policies.ranking.matching.made_up import SIZES, VOCABULARY, pairs

CPU = torch.device("cpu")


def read(asked: list[tuple[tuple[tuple[str, ...], ...], list[tuple[str, ...]]]], sizes: MatcherSizes) -> Block:
    return Reader(VOCABULARY, sizes).read(asked, CPU)


@settings(deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(1, 10), st.integers(1, 50)), min_size=1, max_size=300), most=st.integers(1, 5_000))
def test_buckets_hold_every_row_once_and_no_more_cells_than_allowed(sizes: list[tuple[int, int]], most: int) -> None:
    table = np.array(sizes)
    found = list(buckets(table, most))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(sizes)))
    for rows in found:
        assert len(rows) == 1 or len(rows) * table[rows].max(0).prod() <= most


def test_many_rows_are_hardly_padded() -> None:
    table = np.random.default_rng(0).integers(1, 51, size=(5_000, 2))
    padded = sum(len(rows) * table[rows].max(0).prod() for rows in buckets(table, 1 << 16))
    assert padded < 1.4 * table.prod(1).sum()


def test_a_text_that_comes_again_is_held_once() -> None:
    turn, reply = ("w1", "w2"), ("w3",)
    block = read([((turn, reply), [reply, turn]), ((turn,), [reply])], SIZES["smn"])
    assert len(block.lengths_T) == 2
    assert block.turns_CK.tolist() == [[0, 1], [0, -1]]
    assert block.pairs_P2.tolist() == [[0, 1], [0, 0], [1, 1]]
    met, sessions = block.matches
    assert met.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert sessions.tolist() == [[1, 3], [0, 2], [1, 4]]


def test_unknown_words_are_one_or_have_numbers_of_their_own_within_an_example() -> None:
    asked = [((("w1", "foo"), ("bar",)), [("foo", "baz"), ("qux",)]), ((("bar",),), [("bar",)])]
    one = read(asked, MatcherSizes())
    assert set(one.words_W.tolist()) == {VOCABULARY.index["w1"], UNK_ID}
    apart, first = read(asked, MatcherSizes(unknowns=9)), len(VOCABULARY)
    texts = [apart.words_W[start : start + size].tolist() for start, size in zip(apart.starts_T, apart.lengths_T, strict=True)]
    assert [texts[text] for text in apart.turns_CK[0]] == [[VOCABULARY.index["w1"], first], [first + 1]]
    assert [texts[text] for text in apart.pairs_P2[:, 1]] == [[first, first + 2], [first + 2], [first]]
    assert texts[apart.turns_CK[1, 0]] == [first], "numbers begin anew in each context"


def test_rows_point_behind_the_memory_where_nothing_stands() -> None:
    block = read([((("w1", "w2"), ("w3",)), [("w4",)])], MatcherSizes())
    rows = block.rows(block.turns_CK[0])
    assert rows.places_RN.tolist() == [[0, 1], [2, 4]]
    assert rows.read_RN.tolist() == rows.real_RN.tolist() == [[True, True], [True, False]]
    assert block.sessions[0].tolist() == [0, 1]


def test_as_released_all_is_of_full_size() -> None:
    block = read([((("w1", "w2"),), [("w4",)])], MatcherSizes(padding="released", turns=3, words=5))
    assert block.turns_CK.tolist() == [[0, 1, 1]], "what is not there is a text without words"
    assert block.lengths_T.tolist() == [2, 0, 1]
    assert block.rooms_T.tolist() == [5, 5, 5]
    assert (block.words_W == PAD_ID).sum() == 12
    rows = block.rows(block.turns_CK)
    assert rows.real_RN.all()
    assert rows.read_RN.sum() == 2


def test_letters_are_those_of_most_words() -> None:
    vocabulary = PairVocabulary((*VOCABULARY.SPECIALS, "aab", "ba", "xyz"))
    alphabet = Alphabet(vocabulary, MrfnSizes(alphabet=2, letters=4))
    assert alphabet.spell(["ab", "xa", "", "babab"]).tolist() == [[2, 3, 0, 0], [1, 2, 0, 0], [0] * 4, [3, 2, 3, 2]]


@pytest.mark.parametrize("kind", SIZES)
def test_every_word_of_every_text_has_a_place(kind: str) -> None:
    block = read(pairs(30), SIZES[kind])
    size = len(block.words_W)
    texts, values_WD = block.padded(64), torch.arange(float(size)).unsqueeze(1)
    assert len(texts.rows) > 3
    assert texts.places_X.tolist() == list(range(size))
    spread = list(texts.spread(torch.cat([values_WD, torch.zeros(1, 1)])))
    assert torch.equal(texts.joined(spread), values_WD)
    assert not any(part[~rows.real_RN].any() for part, rows in zip(spread, texts.rows, strict=True))
    some = np.array([3, 0, 2])
    chosen = Padded(block, some, [np.array([2, 0]), np.array([1])])
    places = [range(block.starts_T[text], block.starts_T[text] + block.rooms_T[text]) for text in some]
    assert chosen.places_X.tolist() == [place for each in places for place in each]
    joined = chosen.joined(list(chosen.spread(torch.cat([values_WD, torch.zeros(1, 1)]))))
    assert joined.flatten().tolist() == chosen.places_X.tolist()
    if kind == "mrfn":
        assert block.letters_SL.shape == (block.spelt_W.max() + 1, 3)
