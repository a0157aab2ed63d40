"""Intervals over trainings: known variance components, and what each training came to as a table."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, PairedTest, count, mean, paired_difference, rate
from parley.engine.core.stats.trainings import (
    crossed_difference,
    crossed_mean,
    crossed_test,
    over_runs,
    over_trainings,
    spread_table,
)


def trainings(rng: np.random.Generator, spread: float, dialogues: np.ndarray) -> np.ndarray:
    """Three trainings (3, G) around 0: each has an effect of its own, each dialogue has one, and the rest is noise."""
    return spread * rng.normal(size=(3, 1)) + dialogues + 2 * rng.normal(size=(3, len(dialogues)))


@pytest.mark.parametrize("spread", [0.0, 0.2, 1.0], ids=["dialogues alone", "both", "trainings above all"])
def test_the_interval_over_trainings_and_dialogues_covers(spread: float) -> None:
    rng, hits, narrow = np.random.default_rng(3), np.zeros(3), 0
    for _ in range(300):
        dialogues = 3 * rng.normal(size=150)
        before, after = trainings(rng, spread, dialogues), trainings(rng, spread, dialogues)
        alone = mean(before.mean(axis=0))
        narrow += alone.low <= 0 <= alone.high
        found = (crossed_mean(before), crossed_difference(before, after), over_trainings([mean(one) for one in before]))
        hits += [one.low <= 0 <= one.high for one in found]
    assert hits.min() / 300 >= 0.91
    if spread == 1.0:
        assert narrow / 300 < 0.7, "over dialogues alone it is too narrow"


@pytest.mark.parametrize("num", [2, 3, 6])
def test_the_interval_over_independent_runs_is_students(num: int) -> None:
    values = list(np.random.default_rng(num).normal(2.0, 1.0, size=num))
    found = over_runs([*values, math.nan])
    expected = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.value, found.n) == (pytest.approx(np.mean(values)), num)


def test_runs_too_few_for_an_interval() -> None:
    assert over_runs([2.0, math.nan]).to_json() == count(2.0, 1).to_json()
    assert over_runs([]).to_json() == over_runs([math.nan]).to_json() == NOTHING.to_json()


def test_figures_of_trainings_are_no_surer_than_their_dialogues() -> None:
    one = Estimate(0.5, 0.4, 0.6, 90)
    alike = over_trainings([one, one, one])
    assert (alike.value, alike.n) == (0.5, 90)
    assert (alike.low, alike.high) == pytest.approx((0.4, 0.6), abs=0.003), "no training differs, so that dialogues are all"
    apart = over_trainings([one, Estimate(0.9, 0.8, 1.0, 80), Estimate(math.nan, math.nan, math.nan, 0)])
    assert (apart.value, apart.n) == (pytest.approx(0.7), 80)
    assert apart.low < 0.4
    assert over_trainings([one]) == one
    assert over_trainings([]).n == 0


def test_a_share_stays_between_0_and_1() -> None:
    share, points = (Metric("one", "neither", "", form) for form in ("share", "number"))
    values = [0.85, 0.9, 0.99]
    assert over_runs(values, points) == over_runs(values)
    assert over_runs(values).high > 1
    assert over_runs(values, share) == replace(over_runs(values), high=1.0)
    # Those of differences are no shares, however they are shown.
    assert over_runs([-0.1, 0.1, 0.05], share) == over_runs([-0.1, 0.1, 0.05])


def test_perplexities_are_averaged_in_nats() -> None:
    metric = Metric("how odd", "neither", "", "perplexity")
    found, nats = over_runs([20.0, 80.0, 160.0], metric), over_runs([math.log(20), math.log(80), math.log(160)])
    assert (found.value, found.low, found.high) == pytest.approx([math.exp(each) for each in (nats.value, nats.low, nats.high)])
    assert over_runs([20.0, 80.0, 160.0]).low < 0, "what no perplexity can be"
    assert math.isfinite(over_runs([1.0, 1e300], metric).high), "an interval without end has one that can be written"
    each = [Estimate(30.0, 25.0, 36.0, 200), Estimate(90.0, 80.0, 101.0, 200)]
    assert 0 < over_trainings(each, metric).low < 30 < over_trainings(each, metric).value < 60


def test_each_training_stands_beside_the_mean() -> None:
    legend = {"won": Metric("points won", "higher: adversary", "mean")}
    table = spread_table({"won": [1.0, 3.0], "lost": [2.0, math.nan]}, {"won": Estimate(2.0, -1.0, 5.0, 2)}, legend)
    assert table.columns == ("figure", "over 2 trainings", "training 1", "training 2")
    minus = "\N{MINUS SIGN}"
    assert table.rows == (
        ("points won", f"2.00 [{minus}1.00, 5.00]", "1.00", "3.00"),
        ("lost", "\N{EN DASH}", "2.00", "\N{EN DASH}"),
    )
    many = spread_table({"won": [float(number) for number in range(11)]}, {}, legend)
    assert many.columns[2:] == ("least", "middle", "most")
    assert many.rows[0][2:] == ("0.00", "5.00", "10.00")


def test_one_training_has_the_interval_over_its_dialogues() -> None:
    first, second = np.random.default_rng(4).normal(size=(2, 1, 60))
    assert crossed_mean(first) == mean(first[0])
    assert crossed_difference(first, second) == paired_difference(first[0], second[0])


def test_trainings_in_no_dialogue_or_without_spread() -> None:
    assert math.isnan(crossed_mean(np.empty((3, 0))).value)
    assert crossed_mean(np.full((3, 5), 2.0)) == Estimate(2.0, math.nan, math.nan, 5)
    two = crossed_mean([[1.0, 1.0], [3.0, 3.0]])
    half = scipy.stats.t.ppf(0.975, 1)
    assert (two.value, two.low, two.high) == pytest.approx((2.0, 2 - half, 2 + half)), "as the mean of two numbers"


def test_differences_of_trainings_that_are_all_alike_have_an_interval() -> None:
    """20 dialogues, values of 0 and 2: a pair unlike all others differs by 2 at most, and is one in 6.2 at most."""
    first, second = np.tile([0.0, 2.0], (3, 10)), np.tile([0.0, 2.0], (2, 10))
    equal, rare = crossed_difference(first, second), rate(0, 20).high
    assert (equal.value, equal.n) == (0, 20)
    assert -equal.low == equal.high == pytest.approx(2 * rare) == pytest.approx(0.322, abs=1e-3)
    assert crossed_test(first, second) == PairedTest(equal, 1.0)
    # Not a tenth in binary: rounding is no variance.
    above = crossed_difference(first + 0.1, second)
    assert (above.low, above.high) == pytest.approx((0.1 - rare * 2.2, 0.1 + rare * 2.0))
    assert crossed_test(first + 0.1, second).p_value == pytest.approx(2.0**-19), "all 20 signs are alike"
    assert math.isnan(over_runs([0.1, 0.1, 0.1]).low), "nothing tells how far figures without an interval vary"
    assert crossed_difference(first, second, spread=2.0).high == pytest.approx(2 * rate(0, 5).high)
    assert crossed_difference(first[:, :2] + 0.1, second[:, :2]).low <= 0, (
        "of two pairs that are alike no test tells them apart"
    )
    assert math.isnan(crossed_difference(np.ones((3, 9)), np.ones((2, 9))).low)
