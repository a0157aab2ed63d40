"""Figures of a payoff matrix: which dialogues count, what mixtures gain, and Elo ratings of made-up strengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parley.engine.core.stats.statistics import Estimate
from parley.engine.negotiation.metrics.campaign import LEGEND, SINGLE, VALUE, PayoffGains, elo, ratings_table


def row(target: str, adversary: str, number: int, gain: int, status: str = "ok") -> dict[str, Any]:
    names = {"item_key": f"{target}{adversary}{number}", "status": status, "target": target, "adversary": adversary}
    return names | {"number": number, "points_adversary": max(gain, 0), "points_target": max(-gain, 0)}


def played(payoffs: list[list[int]], num: int = 40) -> PayoffGains:
    """A matrix in which every dialogue of a pair ends alike."""
    gains = np.broadcast_to(np.array(payoffs, dtype=float), (num, len(payoffs), len(payoffs[0])))
    return PayoffGains([f"t{t}" for t in range(len(payoffs))], [f"a{a}" for a in range(len(payoffs[0]))], gains)


def test_ratings_have_the_signs_of_other_tables() -> None:
    table = ratings_table("target", ["a", "b"], [Estimate(-120.4, -200.0, 30.0, 40), Estimate(120.4, -30.0, 200.0, 40)], {})
    assert [row[1] for row in table.rows] == ["\N{MINUS SIGN}120 [\N{MINUS SIGN}200, 30]", "+120 [\N{MINUS SIGN}30, 200]"]


def test_dialogues_that_failed_in_one_pair_count_in_none() -> None:
    rows = [row("t", "a", 0, 3), row("t", "b", 0, -2), row("t", "a", 1, 9), row("t", "b", 1, 0, "error"), row("x", "a", 0, 5)]
    found = PayoffGains.of(rows, ["t"], ["a", "b"])
    assert found.gains_GTA.tolist() == [[[3.0, -2.0]]]
    assert found.wins_TA.tolist() == [[1.0, 0.0]]


def test_mixing_targets_gives_less_than_the_best_of_them_alone() -> None:
    found = played([[4, 0], [0, 4]]).metrics()
    assert found[SINGLE].value == 4
    assert found[VALUE].value == pytest.approx(2)
    assert found["known.nash"].value == pytest.approx(2)
    assert found["known.uniform"].value == pytest.approx(2)
    assert found.keys() <= LEGEND.keys()


def test_ratings_are_the_strengths_that_dialogues_were_drawn_from() -> None:
    targets, adversaries = np.array([-150.0, 50.0]), np.array([200.0, 0.0, -100.0])
    chances = 1 / (1 + 10 ** ((targets[:, None] - adversaries) / 400))
    gains = np.where(np.random.default_rng(0).random((4000, 2, 3)) < chances, 1.0, -1.0)
    found = [rating for side in elo(gains) for rating in side]
    for rating, strength in zip(found, [*targets, *adversaries], strict=True):
        assert rating.value == pytest.approx(strength, abs=15)
        assert rating.low < rating.value < rating.high
        assert rating.n == 4000
    assert sum(rating.value for rating in found) == pytest.approx(0, abs=1e-6)


def test_four_hundred_more_are_odds_of_ten_to_one() -> None:
    # Of 1,099 dialogues and the draw that is added, 1,000 to 100.
    gains = np.where(np.arange(1099) < 999, 1.0, -1.0)
    gains[999] = 0.0
    (target,), (adversary,) = elo(gains.reshape(-1, 1, 1))
    assert adversary.value - target.value == pytest.approx(400, abs=1)


def test_ratings_of_who_always_wins_are_finite_and_a_draw_is_no_lead() -> None:
    (target,), (adversary,) = elo(np.full((50, 1, 1), 3.0))
    assert 100 < adversary.value - target.value < 2000
    assert target.low < target.value < target.high < adversary.low < adversary.value < adversary.high
    (target,), (adversary,) = elo(np.full((1, 1, 1), 3.0))
    assert adversary.low < 0 < adversary.high, "one dialogue proves nothing"
    (target,), (adversary,) = elo(np.zeros((50, 1, 1)))
    assert adversary.value == pytest.approx(target.value, abs=1e-6)
