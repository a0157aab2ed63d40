"""Metrics of rankings against brute force over every order of the tied, and values that are known exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.ranking.metrics.ranks import KS, MAP, MRR, PAIRWISE, PRECISION, Ties, group_metrics, recall_at

Group = list[tuple[int, bool]]
"""Score and relevance of candidates."""
candidates = st.tuples(st.integers(0, 3), st.booleans())
groups = st.lists(candidates, min_size=2, max_size=6)
rankable = groups.filter(lambda group: 0 < sum(relevant for _, relevant in group) < len(group))
NAMES = [*map(recall_at, KS), PAIRWISE, MAP, MRR, PRECISION]


def of_order(order: Sequence[bool]) -> dict[str, float]:
    """Metrics of one ranking, as papers define them."""
    ranks = [rank for rank, relevant in enumerate(order, 1) if relevant]
    pairs = [(rank, other) for rank in ranks for other, relevant in enumerate(order, 1) if not relevant]
    return {
        **{recall_at(k): sum(rank <= k for rank in ranks) / len(ranks) for k in KS},
        PAIRWISE: sum(rank < other for rank, other in pairs) / len(pairs),
        MAP: sum(number / rank for number, rank in enumerate(ranks, 1)) / len(ranks),
        MRR: 1 / ranks[0],
        PRECISION: float(order[0]),
    }


def by_brute_force(group: Group) -> list[dict[str, float]]:
    """Metrics of every order that the scores allow."""
    orders = [order for order in permutations(group) if all(a[0] >= b[0] for a, b in pairwise(order))]
    return [of_order([relevant for _, relevant in order]) for order in orders]


def measured(found: Sequence[Group], ties: Ties = "expected") -> list[dict[str, float]]:
    rows = [(key, *candidate) for key, group in enumerate(found) for candidate in group]
    keys, scores, relevant = map(list, zip(*rows, strict=True))
    metrics = group_metrics(keys, scores, relevant, ties=ties)
    return [{name: float(values[i]) for name, values in metrics.values.items()} for i in range(len(metrics.keys))]


@given(st.lists(rankable, min_size=1, max_size=4))
def test_ties_are_the_mean_over_all_orders_of_the_tied(found: list[Group]) -> None:
    for group, metrics in zip(found, measured(found), strict=True):
        orders = by_brute_force(group)
        for name in NAMES:
            assert metrics[name] == pytest.approx(sum(order[name] for order in orders) / len(orders), abs=1e-12), name


@given(rankable)
def test_ties_right_and_wrong_are_the_best_and_the_worst_order(group: Group) -> None:
    orders = by_brute_force(group)
    (best,), (worst,) = measured([group], "right"), measured([group], "wrong")
    for name in NAMES:
        assert best[name] == pytest.approx(max(order[name] for order in orders), abs=1e-12), name
        assert worst[name] == pytest.approx(min(order[name] for order in orders), abs=1e-12), name


@given(st.permutations(range(10)), st.floats(-1e300, 1e300))
def test_a_constant_ranker_has_its_exact_figures_at_any_order(order: list[int], score: float) -> None:
    found = group_metrics(["a"] * 10, [score] * 10, [place == 0 for place in order])
    values = {name: float(each[0]) for name, each in found.values.items()}
    assert (values["r@1"], values["r@2"], values["r@5"], values["r2@1"], values["p@1"]) == (0.1, 0.2, 0.5, 0.5, 0.1)
    harmonic = sum(1 / rank for rank in range(1, 11)) / 10
    assert values["mrr"] == pytest.approx(harmonic, abs=1e-15)
    assert round(harmonic, 4) == 0.2929
    assert found.num_tied == 1


@given(st.lists(st.booleans(), min_size=2, max_size=30).filter(lambda labels: 0 < sum(labels) < len(labels)))
def test_an_oracle_is_right_and_an_anti_oracle_wrong(labels: list[bool]) -> None:
    size, num = len(labels), sum(labels)
    oracle = group_metrics([7] * size, labels, labels)
    for name in (PAIRWISE, MAP, MRR, PRECISION):
        assert oracle.values[name].tolist() == [1.0]
    assert all(oracle.values[recall_at(k)][0] == pytest.approx(min(k, num) / num) for k in KS)
    anti = group_metrics([7] * size, [-label for label in labels], labels)
    assert anti.values[PAIRWISE][0] == anti.values[PRECISION][0] == 0.0
    assert anti.values[MRR][0] == pytest.approx(1 / (size - num + 1), abs=1e-15)
    assert anti.values["r@1"][0] == 0.0
    assert oracle.num_tied == anti.num_tied == 0


@given(st.lists(groups, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_the_other_groups_matter(found: list[Group], random: object) -> None:
    rows = [(f"group {key}", *candidate) for key, group in enumerate(found) for candidate in group]
    mixed = list(rows)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    tables = []
    for table in (rows, mixed):
        keys, scores, relevant = map(list, zip(*table, strict=True))
        metrics = group_metrics(keys, scores, relevant)
        tables.append({key: [values[i] for values in metrics.values.values()] for i, key in enumerate(metrics.keys.tolist())})
    assert tables[0].keys() == tables[1].keys()
    for key, values in tables[0].items():
        assert values == pytest.approx(tables[1][key], abs=1e-12)


def test_groups_in_which_nothing_can_be_ranked_are_left_out_or_score_0() -> None:
    keys = ["none", "none", "all", "all", "both", "both"]
    labels = [False, False, True, True, True, False]
    found = group_metrics(keys, [1, 0] * 3, labels)
    assert found.keys.tolist() == ["both"]
    zero = group_metrics(keys, [1, 0] * 3, labels, unranked="zero")
    assert zero.keys.tolist() == ["none", "all", "both"]
    assert zero.values[MRR].tolist() == [0.0, 0.0, 1.0]


def test_no_rows_are_no_groups() -> None:
    found = group_metrics([], [], [])
    assert len(found.keys) == 0
    assert all(len(values) == 0 for values in found.values.values())


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(AssertionError, match="finite"):
        group_metrics([1, 1], [math.nan, 0], [True, False])


@pytest.mark.parametrize("distinct", [2, 1 << 30])
def test_half_a_million_rows_agree_with_their_groups_one_by_one(distinct: int) -> None:
    rng = np.random.default_rng(3)
    keys = np.repeat(np.arange(50_000), 10)
    scores = rng.integers(distinct, size=len(keys)).astype(float)
    labels = rng.random(len(keys)) < 0.15
    found = group_metrics(keys, scores, labels)
    for place in range(0, len(found.keys), 5000):
        rows = keys == found.keys[place]
        alone = group_metrics(keys[rows], scores[rows], labels[rows])
        assert {name: values[place] for name, values in found.values.items()} == pytest.approx(
            {name: values[0] for name, values in alone.values.items()}, abs=1e-12
        )
