"""Rounds of adversarial training: the cells of their table."""

from __future__ import annotations

import math

from parley.engine.core.stats.known import EXPLOITABILITY, MEAN_FRESH, Round
from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.negotiation.metrics.campaign import (
    AFTER,
    BEFORE,
    PERPLEXITY,
    PLAIN_AGREEMENT,
    PLAIN_SCORE,
    REPEATS,
    REPETITION,
    ROUND_METRICS,
    WATCH,
    rounds_table,
)

MEASURED = {
    BEFORE: Estimate(2.5, 2.25, 2.75, 200),
    AFTER: Estimate(-1.804, -2, -1.5, 200),
    EXPLOITABILITY: Estimate(1.0, 0.5, 1.5, 200),
    MEAN_FRESH: Estimate(0.25, -0.5, 1.0, 200),
    PLAIN_SCORE: Estimate(6.644, 6.5, 6.75, 200),
    PLAIN_AGREEMENT: Estimate(0.92, 0.9, 0.94, 200),
    REPETITION: Estimate(0.084, 0.06, 0.1, 200),
    REPEATS: Estimate(0.36, 0.3, 0.4, 200),
    PERPLEXITY: count(5.0712, 50),
}


def test_a_round_shows_intervals_of_points_and_plain_figures_otherwise() -> None:
    assert rounds_table([Round(3, MEASURED)]).rows[0] == (
        "3",
        "2.50 [2.25, 2.75]",
        "−1.80 [−2.00, −1.50]",
        "1.00 [0.50, 1.50]",
        "0.25 [−0.50, 1.00]",
        "6.64 [6.50, 6.75]",
        "0.92",
        "0.08",
        "0.36",
        "5.07",
    )


def test_the_start_has_no_adversary_of_its_own() -> None:
    start = {name: estimate for name, estimate in MEASURED.items() if name not in (BEFORE, AFTER)}
    assert rounds_table([Round(0, start)]).rows[0][:4] == ("0", "–", "–", "1.00 [0.50, 1.50]")


def test_every_cell_stands_under_its_heading() -> None:
    table = rounds_table([Round(0, MEASURED), Round(1, {EXPLOITABILITY: MEASURED[EXPLOITABILITY]})])
    assert [dict(zip(table.columns, row, strict=True))["exploitability"] for row in table.rows] == ["1.00 [0.50, 1.50]"] * 2
    by_heading = dict(zip(table.columns, table.rows[0], strict=True))
    assert by_heading["round"] == "0"
    assert by_heading["adversary before"] == "2.50 [2.25, 2.75]"
    assert by_heading["plain agreement"] == "0.92"
    assert table.columns == ("round", *(metric.title for metric in ROUND_METRICS.values()))
    assert "Round 0" in table.note


def test_a_round_whose_target_plays_worse_or_repeats_itself_is_no_result_but_the_start_may_be() -> None:
    def played(number: int, points: float, share: float) -> Round:
        return Round(number, MEASURED | {PLAIN_SCORE: count(points, 9), REPETITION: count(share, 9)})

    rounds = [played(0, 6.0, 0.9), played(1, 5.5, 0.1), played(2, 5.4, 0.0), played(3, 7.0, 0.11), played(4, 7.0, math.nan)]
    assert [one.number for one in WATCH.still_playing(rounds, 0.5)] == [0, 1, 4]
