"""Figures under attack: what counts, what is left out, and what two rankers differ by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from parley.engine.core.stats.statistics import paired_bootstrap, rate, rate_difference
from parley.engine.ranking.metrics.ranks import (
    MRR,
    PAIRWISE,
    PRECISION,
    GroupMetrics,
    Ties,
    Untouched,
    attack_metrics,
    compared,
    estimates,
    figures,
    group_metrics,
    title,
)

KEYS = ["a"] * 3 + ["b"] * 3 + ["c"] * 3
LABELS = [True, False, False, True, False, False, False, False, False]
SCORES = [3, 2, 1, 1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(("untouched", "keys", "first"), [("left-out", ["a"], [1.0]), ("kept", ["a", "b"], [1.0, 0.0])])
def test_what_a_rule_cannot_change_is_left_out_or_never_a_success(
    untouched: Untouched, keys: list[str], first: list[float]
) -> None:
    changed = [2, 0, 0, 0, 5, 0, 0, 0, 0]
    found = attack_metrics(KEYS, [3, 2, 1, 9, 2, 3, 1, 2, 3], LABELS, changed, keeps_labels=False, untouched=untouched)
    assert found.keys.tolist() == keys
    assert found.values["r@1"].tolist() == first


def test_the_changed_right_replies_alone_are_what_an_attack_wants_first() -> None:
    found = attack_metrics(["a"] * 3, [3, 2, 1], [True, True, False], [0, 1, 0], keeps_labels=False)
    assert found.values["r@1"].tolist() == [0.0]
    assert found.values[MRR].tolist() == [0.5]
    kept = attack_metrics(["a"] * 3, [3, 2, 1], [True, True, False], [0, 1, 0], keeps_labels=True)
    assert kept.values["r@1"].tolist() == [0.5]
    assert kept.values[MRR].tolist() == [1.0]


def test_a_rule_that_keeps_labels_is_measured_by_the_right_replies() -> None:
    changed = [0, 1, 1, 0, 0, 0, 1, 1, 1]
    found = attack_metrics(KEYS, SCORES, LABELS, changed, keeps_labels=True)
    assert found.keys.tolist() == ["a"]
    everything = attack_metrics(KEYS, SCORES, LABELS, changed, keeps_labels=True, untouched="kept", unranked="zero")
    assert everything.keys.tolist() == ["a", "b", "c"]
    assert everything.values[PRECISION].tolist() == [1.0, 0.0, 0.0]


def test_no_rows_are_no_attack() -> None:
    found = attack_metrics([], [], [], [], keeps_labels=True)
    assert len(found.keys) == 0
    assert estimates(found)[MRR].n == 0


def test_what_ties_may_add_stands_beside_a_figure_where_there_are_some() -> None:
    def constant(ties: Ties) -> GroupMetrics:
        return group_metrics(["a"] * 10 + ["b"] * 2, [0.5] * 10 + [2, 1], [True] + [False] * 9 + [True, False], ties=ties)

    found = figures(constant)
    assert (found["r@1"].ties_wrong, found["r@1"].estimate.value, found["r@1"].ties_right) == (0.5, 0.55, 1.0)
    certain = figures(lambda ties: group_metrics([1, 1], [2, 1], [True, False], ties=ties))
    assert certain[MRR][1:] == (None, None)


def test_intervals_are_drawn_by_cluster() -> None:
    keys = np.repeat(np.arange(40), 2)
    metrics = group_metrics(keys, np.tile([1.0, 0.0], 40), np.tile([True, False], 40) ^ (keys >= 20))
    alone, together = estimates(metrics), estimates(metrics, np.arange(40) // 20)
    assert alone["r@1"].value == together["r@1"].value == 0.5
    assert (alone["r@1"].n, together["r@1"].n) == (40, 2)
    assert together["r@1"].high - together["r@1"].low > alone["r@1"].high - alone["r@1"].low


def made_up(seed: int, num: int) -> Any:
    rng = np.random.default_rng(seed)
    return group_metrics(np.repeat(np.arange(num), 10), rng.random(10 * num), np.tile(np.arange(10) == 0, num))


def test_two_rankers_are_compared_on_the_groups_of_both() -> None:
    after, before = made_up(1, 60), made_up(2, 50)
    found = compared(after, before)[MRR]
    assert found.p_value == paired_bootstrap(after.values[MRR][:50], before.values[MRR]).p_value
    assert found.difference == rate_difference(after.values[MRR][:50], before.values[MRR], range(50))
    same = compared(before, before)[MRR]
    assert (same.difference.value, same.p_value) == (0.0, 1.0)
    by_context = compared(after, before, np.arange(60) // 3)[MRR]
    assert by_context.difference.n == 17
    assert by_context.difference.value == pytest.approx(found.difference.value)
    assert compared(made_up(1, 0), before)[MRR].difference.n == 0


def test_how_many_groups_a_cluster_has_makes_no_difference_uncertain() -> None:
    rng = np.random.default_rng(3)
    dialogues = np.repeat(np.arange(40), rng.geometric(0.2, size=40))
    keys = np.arange(len(dialogues))

    def first(values: np.ndarray) -> GroupMetrics:
        return GroupMetrics(keys, {"r@1": values}, 0)

    certain = compared(first(np.ones(len(keys))), first(np.zeros(len(keys))), dialogues)["r@1"]
    assert (certain.difference.value, certain.difference.high) == (1, 1)
    assert certain.difference.low == pytest.approx(1 - math.sqrt(2) * (1 - rate(40, 40).low)), "forty dialogues prove no more"
    after, before = (rng.random((2, len(keys))) < [[0.8], [0.3]]).astype(float)
    found = compared(first(after), first(before), dialogues)["r@1"].difference
    expected = rate_difference(after, before, dialogues)
    assert found.n == expected.n == 40
    assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))


def test_metrics_are_called_as_in_papers() -> None:
    assert [title(name, 10) for name in ("r@1", PAIRWISE, PRECISION)] == ["R10@1", "R2@1", "P@1"]
    assert [title(name, 10, adversarial=True) for name in ("r@5", PAIRWISE, MRR)] == ["A10@5", "A2@1", "ARR"]
    assert title("r@2") == "R@2"
