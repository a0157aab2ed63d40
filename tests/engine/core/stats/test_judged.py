"""Judges measured by labels: what is known by hand, and the coverage of corrected intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parley.engine.core.stats.judged import LabelledVerdicts, agreement, majority
from parley.engine.core.stats.statistics import NOTHING, rate


def test_sensitivity_specificity_and_the_corrected_rate_by_hand() -> None:
    # 40 of 100 are found; 9 of 10 of them are breaches, and 1 of 10 of the others: 36 + 6 breaches of 100.
    judged = LabelledVerdicts((40, 60), (10, 10), (9, 1), rate(40, 100))
    quality = judged.quality()
    assert quality["sensitivity"].value == pytest.approx(36 / 42)
    assert quality["specificity"].value == pytest.approx(54 / 58)
    agreed, chance = 0.36 + 0.54, 0.4 * 0.42 + 0.6 * 0.58
    assert quality["kappa"].value == pytest.approx((agreed - chance) / (1 - chance))
    assert judged.corrected(rate(40, 100), NOTHING, 1.0).value == pytest.approx(0.42)
    half = judged.corrected(rate(10, 50), rate(30, 50), 0.5)
    assert half.value == pytest.approx((0.2 + 54 / 58 - 1) / (36 / 42 + 54 / 58 - 1))
    assert half.low < half.value < half.high


def test_a_judge_that_is_always_right_changes_nothing_but_the_width() -> None:
    judged = LabelledVerdicts((10, 90), (10, 90), (10, 0), rate(10, 100))
    corrected = judged.corrected(rate(10, 100), NOTHING, 1.0)
    assert corrected.value == pytest.approx(0.1)
    assert corrected.high - corrected.low > rate(10, 100).high - rate(10, 100).low


def test_without_labels_of_a_verdict_nothing_is_known_and_a_useless_judge_leaves_all_open() -> None:
    assert math.isnan(LabelledVerdicts((5, 5), (5, 0), (5, 0), rate(5, 10)).corrected(rate(5, 10), NOTHING, 1.0).value)
    useless = LabelledVerdicts((50, 50), (10, 10), (5, 5), rate(50, 100)).corrected(rate(30, 60), rate(20, 40), 0.6)
    assert (math.isnan(useless.value), useless.n) == (True, 20)
    weak = LabelledVerdicts((50, 50), (10, 10), (6, 4), rate(50, 100)).corrected(rate(30, 60), rate(20, 40), 0.6)
    assert (weak.low, weak.high) == (0.0, 1.0)


CASES = [
    # The true rate, sensitivity, specificity, answers, labels.
    (0.3, 0.9, 0.95, 400, 100),
    (0.05, 0.85, 0.97, 300, 60),
    (0.01, 0.8, 0.98, 200, 40),
    (0.98, 0.95, 0.9, 200, 40),
    (0.5, 0.8, 0.8, 200, 20),
    (0.3, 0.7, 0.7, 100, 20),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_corrected_intervals_hold_the_truth_as_often_as_they_promise(case: tuple[float, float, float, int, int]) -> None:
    truth, sensitivity, specificity, num, num_labels = case
    rng, held, times = np.random.default_rng(7), 0, 1000
    for _ in range(times):
        breach = rng.random(num) < truth
        found = np.where(breach, rng.random(num) < sensitivity, rng.random(num) >= specificity)
        strata = [np.flatnonzero(found), np.flatnonzero(~found)]
        first = rng.permutation(strata[0])[: num_labels // 2]
        drawn = [first, rng.permutation(strata[1])[: num_labels - len(first)]]
        judged = LabelledVerdicts(
            (len(strata[0]), len(strata[1])),
            (len(drawn[0]), len(drawn[1])),
            (int(breach[drawn[0]].sum()), int(breach[drawn[1]].sum())),
            rate(int(found.sum()), num),
        )
        corrected = judged.corrected(judged.share, NOTHING, 1.0)
        held += corrected.low <= truth <= corrected.high
    assert 0.93 <= held / times <= 0.97


def test_a_rate_of_none_is_held() -> None:
    judged = LabelledVerdicts((10, 190), (10, 30), (0, 0), rate(10, 200))
    corrected = judged.corrected(rate(10, 200), NOTHING, 1.0)
    assert (corrected.value, corrected.low) == (0.0, 0.0)
    assert 0.02 < corrected.high < 0.2


def test_agreement_of_judges_is_krippendorffs() -> None:
    # Two judges, four items, one disagreement: D_o = 2 / 8, D_e = 2 * 3 * 5 / (8 * 7).
    votes = [(True, True), (False, False), (True, False), (False, False)]
    assert agreement(zip("abcd", votes, strict=True)).value == pytest.approx(1 - (2 / 8) / (2 * 3 * 5 / 56))
    assert agreement(zip("ab", [(True, True, True), (False, False, False)], strict=True)).value == 1.0
    missing = [(True, None, True), (None, None, True), (False, False, None)]
    assert agreement(zip("abc", missing, strict=True)).value == 1.0
    assert math.isnan(agreement(zip("abc", [(True, True)] * 3, strict=True)).value)
    assert agreement([("a", (True, None))]) is NOTHING
    assert [majority(votes) for votes in ([True, True, False], [True, False], [None], [True, None])] == [True, None, None, True]
