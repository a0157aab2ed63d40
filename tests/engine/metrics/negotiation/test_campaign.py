"""Rounds of adversarial training: which is the best, when they no longer help, and the cells of their table."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.metrics.negotiation.campaign import (
    AFTER,
    BEFORE,
    EXPLOITABILITY,
    PERPLEXITY,
    PLAIN_AGREEMENT,
    PLAIN_SCORE,
    ROUND_METRICS,
    Round,
    best_round,
    has_stalled,
    round_cells,
    rounds_table,
)
from engine.metrics.statistics import NOTHING, Estimate, count

courses = st.lists(st.integers(-40, 40).map(lambda tenths: tenths / 8), min_size=1, max_size=12)


def rounds(*exploitabilities: float) -> list[Round]:
    found = [Estimate(value, value - 0.5, value + 0.5, 100) for value in exploitabilities]
    return [Round(number, {EXPLOITABILITY: estimate}) for number, estimate in enumerate(found)]


@given(courses)
def test_the_best_round_is_the_least_exploitable_the_earliest_of_equals(course: list[float]) -> None:
    found = best_round(rounds(*course))
    assert found.exploitability == min(course)
    assert found.number == course.index(min(course))


@given(courses, st.integers(1, 4), st.sampled_from([0.0, 0.125, 0.5, 2.0]))
def test_rounds_have_stalled_when_none_of_the_last_gained_enough(course: list[float], patience: int, least_gain: float) -> None:
    split = len(course) - patience
    gained = [min(course[:split]) - later >= least_gain for later in course[split:]] if split > 0 else [True]
    assert has_stalled(rounds(*course), patience, least_gain) == (not any(gained))


@pytest.mark.parametrize(
    ("course", "stalled"),
    [
        ((3.0,), False),
        ((3.0, 3.5), False),
        ((3.0, 3.5, 3.25), True),
        ((3.0, 3.5, 2.5), False),
        ((3.0, 2.5, 3.5), False),
        ((3.0, 2.75, 2.625), True),
        ((3.0, 1.0, 2.0, 1.75), True),
    ],
)
def test_two_rounds_may_pass_without_half_a_point_of_gain(course: tuple[float, ...], stalled: bool) -> None:
    assert has_stalled(rounds(*course), patience=2, least_gain=0.5) == stalled


MEASURED = {
    BEFORE: Estimate(2.5, 2.25, 2.75, 200),
    AFTER: Estimate(-1.804, -2, -1.5, 200),
    EXPLOITABILITY: Estimate(1.0, 0.5, 1.5, 200),
    PLAIN_SCORE: Estimate(6.644, 6.5, 6.75, 200),
    PLAIN_AGREEMENT: Estimate(0.92, 0.9, 0.94, 200),
    PERPLEXITY: count(5.0712, 50),
}


def test_a_round_shows_intervals_of_points_and_plain_figures_otherwise() -> None:
    assert round_cells(Round(3, MEASURED)) == (
        "3",
        "2.50 [2.25, 2.75]",
        "−1.80 [−2.00, −1.50]",
        "1.00 [0.50, 1.50]",
        "6.64 [6.50, 6.75]",
        "0.92",
        "5.07",
    )


def test_the_start_has_no_adversary_of_its_own() -> None:
    start = {name: estimate for name, estimate in MEASURED.items() if name not in (BEFORE, AFTER)}
    assert round_cells(Round(0, start))[:4] == ("0", "–", "–", "1.00 [0.50, 1.50]")


@pytest.mark.parametrize("name", ROUND_METRICS)
def test_what_could_not_be_estimated_is_a_dash(name: str) -> None:
    whole = round_cells(Round(1, MEASURED))
    for missing in (NOTHING, Estimate(math.nan, math.nan, math.nan, 0)):
        broken = round_cells(Round(1, MEASURED | {name: missing}))
        assert [now for now, before in zip(broken, whole, strict=True) if now != before] == ["–"]


def test_every_cell_stands_under_its_heading() -> None:
    table = rounds_table([Round(0, MEASURED), Round(1, {EXPLOITABILITY: MEASURED[EXPLOITABILITY]})])
    assert [dict(zip(table.columns, row, strict=True))["exploitability"] for row in table.rows] == ["1.00 [0.50, 1.50]"] * 2
    by_heading = dict(zip(table.columns, table.rows[0], strict=True))
    assert by_heading["round"] == "0"
    assert by_heading["adversary before"] == "2.50 [2.25, 2.75]"
    assert by_heading["plain agreement"] == "0.92"
    assert table.columns == ("round", *(metric.title for metric in ROUND_METRICS.values()))
    assert "Round 0" in table.note
