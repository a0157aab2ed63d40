"""Shared words of contexts and replies, and a metric by how many they are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from parley.engine.ranking.metrics.erasure import ALPHA_EDGES, Overlap, figure_1, histogram, overlap_of
from parley.engine.ranking.metrics.ranking import only
from parley.engine.ranking.metrics.ranks import group_metrics
from parley.envs.ranking.groups import CandidateGroup
from tests.engine.perturb.replies.groups import group


def overlap(of: CandidateGroup) -> Overlap | None:
    return overlap_of(of.context, of.candidates, of.labels)


def overlaps(groups: Sequence[CandidateGroup]) -> np.ndarray:
    return np.array([overlap(each) or (math.nan, math.nan) for each in groups])


def test_alpha_and_beta_count_sets_of_words() -> None:
    found = overlap(group("my disk disk is full|try it", "+the disk is it", "is my disk my", "no"))
    assert found is not None
    assert found.alpha == 3 / 4
    assert found.beta == 3 / 3


def test_of_several_right_replies_the_nearest_counts() -> None:
    found = overlap(group("a b c", "+a x", "+a b", "b", "y"))
    assert found == (2 / 2, 1 / 2)


def test_a_right_reply_that_shares_no_word_is_behind_a_wrong_one_that_does() -> None:
    assert overlap(group("a b", "+x", "a")) == (0.0, math.inf)
    assert overlap(group("a b", "+x", "y")) == (0.0, 1.0)


@pytest.mark.parametrize("replies", [("a", "b"), ("+a", "+b"), ("+", "b")])
def test_where_nothing_can_be_compared_there_is_no_overlap(replies: tuple[str, ...]) -> None:
    assert overlap(group("a", *replies)) is None
    assert overlap(group("", "+a", "b")) is None


def test_every_value_is_in_one_bin_and_the_last_one_has_its_end() -> None:
    values = [0.0, 0.1, 0.5, 1.0, 0.05]
    bins = histogram(values, [1, 0, 1, 0, 0], ALPHA_EDGES)
    assert sum(each.estimate.n for each in bins) == len(values)
    assert [each.estimate.value for each in (bins[0], bins[1], bins[-1])] == [0.5, 0.0, 0.5]


def test_figure_1_joins_overlap_and_metrics_by_key() -> None:
    groups = [group("a b", "+a b", "x", key="one"), group("a b", "+x", "a", key="two"), group("a", "b", "c", key="none")]
    metrics = group_metrics([0, 0, 1, 1, 2, 2], [1, 0, 0, 1, 1, 0], [True, False] * 3)
    by_alpha, by_beta = figure_1(overlaps(groups), only(metrics, "r@1"))
    assert [(each.estimate.value, each.estimate.n) for each in (by_alpha[0], by_alpha[-1])] == [(0.0, 1), (1.0, 1)]
    assert [(each.estimate.value, each.estimate.n) for each in (by_beta[0], by_beta[-1])] == [(1.0, 1), (0.0, 1)]


def test_contexts_of_a_dialogue_are_drawn_together_in_figure_1() -> None:
    groups = [group("a b", "+a b", "x", key=f"{number:02}") for number in range(40)]
    keys = [number for number in range(40) for _ in range(2)]
    metrics = group_metrics(keys, [1, 0] * 40, [True, False] * 20 + [False, True] * 20)
    alone, together = (
        figure_1(overlaps(groups), only(metrics, "r@1"), of)[0][-1].estimate for of in (None, np.arange(40) // 4)
    )
    assert alone.value == together.value == 0.5
    assert (alone.n, together.n) == (40, 10)
    assert together.high - together.low > 1.5 * (alone.high - alone.low)
