"""Paired differences of runs: values by hand, agreement with the estimators of verbs, coverage, power, Holm."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pytest
from scipy.stats import binom

from parley.engine.core.stats import pairs
from parley.engine.core.stats.pairs import (
    Form,
    ItemFigures,
    RowFigures,
    RowMetric,
    Sample,
    contrast,
    group_estimate,
    holm,
    items_needed,
)
from parley.engine.core.stats.statistics import (
    NOTHING,
    Metric,
    PairedTest,
    clustered_rate,
    mean,
    mean_count,
    paired_bootstrap,
    paired_difference,
    perplexity,
    rate_difference,
    ratio_of_sums,
    refit_spread,
)
from parley.engine.core.stats.trainings import crossed_difference, crossed_mean, crossed_test, over_runs, over_trainings


def sample(
    tops: object, form: Form = "mean", bottoms: object = None, clusters: object = None, present: object = None
) -> Sample:
    values = np.asarray(tops, dtype=np.float64)
    sizes = np.ones_like(values) if bottoms is None else np.asarray(bottoms, dtype=np.float64)
    units = np.arange(len(values)) if clusters is None else np.asarray(clusters)
    there = np.ones(len(values), dtype=bool) if present is None else np.asarray(present, dtype=bool)
    return Sample(values, sizes, there, units, form)


def test_a_difference_of_means_is_that_of_the_paired_t_interval() -> None:
    before, after = [1.0, 2.0, 4.0, 7.0], [2.0, 2.0, 7.0, 9.0]
    result = contrast([sample(before)], [sample(after)])
    # Differences 1, 0, 3, 2: mean 1.5, standard deviation 1.29.
    assert result.test.difference == paired_difference(after, before)
    assert result.test.difference.value == 1.5
    assert result.test.difference.n == 4
    assert result.test.p_value == paired_bootstrap(after, before).p_value


@pytest.mark.parametrize("num", [5, 6])
@pytest.mark.parametrize("form", ["mean", "share", "count"])
def test_an_interval_holds_0_where_no_test_of_so_few_units_that_differ_can_tell(form: Form, num: int) -> None:
    zeros, gained = [0.0] * 30, [1.0] * num + [0.0] * (30 - num)
    drawn = contrast([sample(zeros, form)], [sample(gained, form)]).test
    halves = contrast(
        [sample(zeros * 2, form, clusters=[*range(30)] * 2)], [sample(gained * 2, form, clusters=[*range(30)] * 2)]
    )
    for test in (drawn, halves.test):
        assert (test.p_value < 0.05) == (test.difference.low > 0) == (num == 6)
        assert test.difference.value == pytest.approx(num / 30)
        assert test.difference.high > num / 30
    assert (paired_difference(gained, zeros).low > 0) == (paired_bootstrap(gained, zeros).difference.low > 0) == (num == 6)


def test_p_values_and_needed_items_count_that_judges_were_fitted() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.integers(0, 2, 200) / 2, rng.integers(0, 2, 200) / 2 + (rng.random(200) < 0.13) / 2
    plain, fitted = (
        contrast([replace(sample(before, "share"), spread=spread)], [replace(sample(after, "share"), spread=spread)])
        for spread in (1.0, refit_spread(5))
    )
    for result in (plain, fitted):
        low, high = result.test.difference.low, result.test.difference.high
        assert (result.test.p_value < 0.05) == (low > 0 or high < 0)
    assert plain.test.p_value < 0.05 < fitted.test.p_value
    assert plain.num_needed is not None
    assert fitted.num_needed == pytest.approx(2.25 * plain.num_needed, rel=0.02)


def test_a_difference_of_shares_is_that_of_paired_rates() -> None:
    before, after = [0, 0, 1, 1, 0, 1, 0, 0], [1, 0, 1, 1, 1, 1, 0, 0]
    result = contrast([sample(before, "share")], [sample(after, "share")]).test
    assert result.difference == rate_difference(after, before)
    assert result.difference.value == 0.25
    # Two pairs differ, both to one side: the sign test alone gives 2^(1 - 2).
    assert result.p_value >= 0.5


def test_clusters_are_drawn_whole() -> None:
    before, after, clusters = [0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 1], ["a", "a", "b", "b", "c", "c"]
    share = contrast([sample(before, "share", clusters=clusters)], [sample(after, "share", clusters=clusters)]).test
    assert share.difference == rate_difference(after, before, clusters)
    assert share.difference.n == 3
    means = contrast([sample(before, clusters=clusters)], [sample(after, clusters=clusters)]).test
    assert means.difference == paired_difference(after, before, clusters)


def test_a_metric_of_some_items_only_differs_by_the_linear_parts() -> None:
    """Means over agreed dialogues alone: first over items 0 to 2, second over 1 to 3."""
    first = sample([4, 6, 8, 0], bottoms=[1, 1, 1, 0], present=[1, 1, 1, 0])
    second = sample([0, 5, 9, 10], bottoms=[0, 1, 1, 1], present=[0, 1, 1, 1])
    assert group_estimate([first]) == mean([4, 6, 8])
    difference = contrast([first], [second]).test.difference
    # Parts of the first: 6 + (-2, 0, 2, 0) 4/3; of the second: 8 + (0, -3, 1, 2) 4/3.
    parts = 2 + np.array([0 + 2, -3 - 0, 1 - 2, 2 - 0]) * 4 / 3
    assert difference.value == pytest.approx(2.0)
    assert difference.low == pytest.approx(mean(parts).low)
    assert difference.high == pytest.approx(mean(parts).high)


def test_a_perplexity_is_compared_on_its_own_scale() -> None:
    nats_a, nats_b, words = [4.0, 9.0, 8.0], [5.0, 9.0, 10.0], [2, 3, 4]
    first, second = sample(nats_a, "perplexity", words), sample(nats_b, "perplexity", words)
    assert group_estimate([first]) == perplexity("it", nats_a, words)
    difference = contrast([first], [second]).test.difference
    assert difference.value == pytest.approx(math.exp(24 / 9) - math.exp(21 / 9))


def test_estimates_are_those_of_the_verbs() -> None:
    values, clusters, trials = [1.0, 0.0, 3.0, 2.0], ["a", "a", "b", "c"], [2, 1, 3, 2]
    assert group_estimate([sample(values, "share", trials, clusters)]) == clustered_rate(values, clusters, trials)
    assert group_estimate([sample(values, "mean", trials, clusters)]) == ratio_of_sums(values, trials, clusters)
    assert group_estimate([sample([0.0, 0.0, 9.0], "count")]) == mean_count([0.0, 0.0, 9.0])


def test_a_row_metric_gives_an_estimate_and_figures_of_the_same_numbers() -> None:
    rows = [{"hits": 1, "tries": 2}, {"hits": 0, "tries": 0}, {"hits": 2, "tries": 3}]
    metric = RowMetric(lambda row: row["hits"], "share", lambda row: row["tries"], lambda row: row["tries"] > 0)
    figures = RowFigures({"hit": metric}, rows)["hit"]
    assert (figures.rows.tolist(), figures.tops.tolist(), figures.bottoms.tolist()) == ([0, 2], [1, 2], [2, 3])
    assert RowFigures({"hit": metric}, rows).estimates() == {"hit": clustered_rate([1, 2], trials=[2, 3])}
    keyed = [row | {"key": key} for row, key in zip([*rows, rows[0]], "abba", strict=True)]
    assert RowFigures({"hit": metric}, keyed, itemgetter("key")).estimate("hit") == clustered_rate([2, 2], trials=[4, 3])


def test_entries_of_one_row_are_added_up() -> None:
    figures = ItemFigures.of([(3, 1, 1), (5, 2, 1), (3, 4, 1)], "mean")
    assert (figures.rows.tolist(), figures.tops.tolist(), figures.bottoms.tolist()) == ([3, 5], [5, 2], [2, 1])


def test_without_data_there_is_no_difference() -> None:
    nothing = sample([0.0, 0.0], bottoms=[0, 0], present=[0, 0])
    result = contrast([nothing], [sample([1.0, 2.0])])
    assert math.isnan(result.test.difference.value)
    assert math.isnan(result.test.p_value)
    assert result.num_needed is None
    assert math.isnan(group_estimate([sample([math.nan, 1.0], "perplexity")]).value)


def test_several_trainings_have_intervals_over_trainings_and_items() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(2, 12)), rng.normal(1, 1, size=(3, 12))
    result = contrast([sample(values) for values in first], [sample(values) for values in second])
    assert group_estimate([sample(values) for values in first]).high == pytest.approx(crossed_mean(first).high)
    assert result.test.difference.value == pytest.approx(crossed_difference(second, first).value)
    assert result.test.difference.low == pytest.approx(crossed_difference(second, first).low)
    assert result.test.p_value == pytest.approx(crossed_test(second, first).p_value)


@pytest.mark.parametrize(("form", "least"), [("count", 0.0), ("perplexity", 1.0), ("share", 0.0)])
def test_two_trainings_that_differ_reach_below_no_least_value(form: Form, least: float) -> None:
    group = [sample(np.full(40, value) + np.linspace(0, 0.01, 40), form) for value in (0.1, 0.7)]
    assert crossed_mean([one.tops for one in group]).low < 0
    assert group_estimate(group).low == least
    below = [sample(-one.tops) for one in group]
    assert group_estimate(below).low < -1, "a mean of any numbers has no least value"
    wide = [perplexity("texts", one.tops * 40, np.full(40, 40.0)) for one in group]
    assert over_trainings(wide, Metric("", "", "", "perplexity")).low == 1


def test_a_share_of_trainings_that_end_alike_has_the_interval_of_their_items() -> None:
    always, never = [sample(np.ones(40), "share") for _ in range(3)], [sample(np.zeros(40), "share") for _ in range(2)]
    assert group_estimate(always) == clustered_rate(np.ones(40))
    assert contrast(always[:1], always[1:]).test.difference == rate_difference(np.ones(40), np.ones(40))
    assert contrast(never, always).test.difference == rate_difference(np.ones(40), np.zeros(40))
    # Without intervals of their own, equal trainings do not show how far a share varies.
    assert math.isnan(over_runs([1.0, 1.0, 1.0], Metric("", "", "", "share")).low)


def test_the_p_value_of_trainings_fits_their_interval() -> None:
    first, second = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 3.0]]), np.array([[2.0, 3.0, 3.0], [4.0, 2.0, 5.0]])
    test = crossed_test(second, first)
    shift = test.difference.low
    # Shifted by the lower end of the interval, the difference is just not significant.
    assert crossed_test(second - shift, first).p_value == pytest.approx(0.05)


@pytest.mark.parametrize("form", ["mean", "share"])
def test_the_interval_covers_the_true_difference(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 dialogues of three items each, the same in both runs; metrics of the items that each run happens to have."""
    # The p-value is not looked at, and takes most of the time.
    monkeypatch.setattr(pairs, "paired_bootstrap", lambda after, before, **settings: PairedTest(NOTHING, math.nan))
    rng, num_trials, covered = np.random.default_rng(1), 400, 0
    clusters = np.repeat(np.arange(40), 3)
    for _ in range(num_trials):
        shared = np.repeat(rng.normal(size=40), 3)
        both = shared + rng.normal(size=(2, 120))
        present = rng.random((2, 120)) < 0.7
        values = both if form == "mean" else (both > 0).astype(float)
        first, second = (
            sample(some * there, form, there, clusters, there) for some, there in zip(values, present, strict=True)
        )
        difference = contrast([first], [second]).test.difference
        covered += difference.low <= 0 <= difference.high
    assert 0.92 <= covered / num_trials <= 0.98


def test_holm_by_hand() -> None:
    adjusted = holm([0.01, 0.04, math.nan, 0.03, 0.5])
    # Sorted: .01 x 4, .03 x 3, .04 x 2 (raised to .09), .5 x 1.
    assert adjusted[:2] + adjusted[3:] == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert math.isnan(adjusted[2])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_items_needed_tell_the_difference_four_times_in_five() -> None:
    """The textbook case: half a standard deviation takes 34 pairs (Cohen 1988, table 2.4.1)."""
    differences = np.array([1.5, -0.5] * 50) * math.sqrt(0.99)
    num = items_needed(differences)
    assert num is not None
    assert 32 <= num <= 36
    rng = np.random.default_rng(2)
    draws = rng.normal(0.5, 1.0, size=(4000, num))
    errors = draws.std(axis=1, ddof=1) / math.sqrt(num)
    from scipy.stats import t as student

    power = np.mean(np.abs(draws.mean(axis=1) / errors) > student.ppf(0.975, num - 1))
    assert 0.77 <= power <= 0.84


def test_no_number_of_items_tells_no_difference() -> None:
    assert items_needed(np.array([1.0, -1.0, 1.0, -1.0])) is None
    assert items_needed(np.array([1.0])) is None
    # Five that differ have a p-value of .06, however much they do.
    assert items_needed(np.array([1.0, 1.0, 1.0])) == 6
    some = np.array([1.0, 0.0] * 20)
    assert items_needed(some) == next(num for num in range(99) if binom.sf(5, num, 0.5) >= 0.8)
    # Trainings alone vary more than the difference.
    assert items_needed(np.array([1.0, 1.1, 0.9]), fixed=1.0) is None
