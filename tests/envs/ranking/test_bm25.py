"""BM25 against its formula, word by word."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.corpora.pairs.compiled import Ragged
from parley.envs.ranking.groups import LENGTH_SHARE, SATURATION, ReplyIndex, ReplyStatistics

NUM_WORDS = 9
replies = st.lists(st.lists(st.integers(0, NUM_WORDS - 1), min_size=1, max_size=6), min_size=1, max_size=12)


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    return Ragged(np.array([word for row in rows for word in row], dtype=np.int32), np.cumsum([0, *map(len, rows)]))


def plain(train: list[list[int]], reply: list[int], context: list[int]) -> float:
    average = sum(map(len, train)) / len(train)
    score = 0.0
    for word in set(context):
        holding, count = sum(word in each for each in train), reply.count(word)
        idf = math.log(1 + (len(train) - holding + 0.5) / (holding + 0.5))
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * len(reply) / average)
        score += idf * count * (SATURATION + 1) / (count + damping)
    return score


@given(train=replies, searched=replies, context=st.lists(st.integers(0, NUM_WORDS - 1), max_size=6))
def test_scores_are_those_of_the_formula_fitted_on_training_replies(
    train: list[list[int]], searched: list[list[int]], context: list[int]
) -> None:
    index = ReplyIndex(ragged(searched), ReplyStatistics(ragged(train), NUM_WORDS))
    scores = index.scores(np.array(context, dtype=np.int64))
    assert scores == pytest.approx([plain(train, reply, context) for reply in searched], rel=1e-5)


@given(searched=replies, context=st.lists(st.integers(0, NUM_WORDS - 1), max_size=6), num=st.integers(1, 12), data=st.data())
def test_the_nearest_are_the_best_of_a_full_sort(
    searched: list[list[int]], context: list[int], num: int, data: st.DataObject
) -> None:
    eligible = np.array(data.draw(st.lists(st.booleans(), min_size=len(searched), max_size=len(searched))))
    index = ReplyIndex(ragged(searched), ReplyStatistics(ragged(searched), NUM_WORDS))
    words = np.array(context, dtype=np.int64)
    scores = index.scores(words)
    ranked = sorted(np.flatnonzero(eligible & (scores > 0)), key=lambda row: (-scores[row], row))
    assert index.nearest(words, eligible, num).tolist() == ranked[:num]
