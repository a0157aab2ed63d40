"""Intervals: against scipy, against closed forms, and that clusters count."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from parley.engine.core.stats import statistics
from parley.engine.core.stats.statistics import (
    Estimate,
    clustered_rate,
    count,
    mean,
    mean_count,
    paired_bootstrap,
    paired_difference,
    perplexity,
    rate,
    rate_difference,
    ratio_of_sums,
    refit_spread,
)


@given(n=st.integers(1, 5000), data=st.data())
def test_rate_is_the_wilson_interval_of_scipy(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    expected = scipy.stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    estimate = rate(successes, n)
    assert estimate.value == successes / n
    assert estimate.low == pytest.approx(expected.low, abs=1e-12)
    assert estimate.high == pytest.approx(expected.high, abs=1e-12)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def test_rate_of_a_published_example() -> None:
    # Newcombe 1998, table I: 81 of 263 gives 0.2553 to 0.3662 by Wilson's score method.
    estimate = rate(81, 263)
    assert (round(estimate.low, 4), round(estimate.high, 4)) == (0.2553, 0.3662)


@given(st.lists(st.booleans(), min_size=1, max_size=50))
def test_a_rate_of_trials_that_are_clusters_of_their_own_is_a_plain_one(hits: list[bool]) -> None:
    alone, plain = clustered_rate(hits), rate(sum(hits), len(hits))
    assert (alone.value, alone.low, alone.high) == pytest.approx((plain.value, plain.low, plain.high))
    assert alone.n == plain.n


def test_draws_of_few_clusters_have_an_interval_and_count_no_more_than_they_tell() -> None:
    for clusters in (1, 2):
        nothing = clustered_rate([0] * clusters, trials=[10] * clusters)
        assert nothing == rate(0, clusters), "ten draws behind one prompt are one prompt"
    assert clustered_rate([5, 5], trials=[10, 10]) == rate(1, 2), "two that happen to agree do not prove that all do"
    apart, alike = clustered_rate([10] * 20 + [0] * 20, trials=[10] * 40), clustered_rate([5] * 40, trials=[10] * 40)
    assert (apart.low, apart.high, apart.n) == pytest.approx((rate(20, 40).low, rate(20, 40).high, 40))
    assert rate(200, 400).low > alike.low > rate(190, 400).low, "what goes alike behind many prompts is many trials"
    counted, flat = clustered_rate([1, 2], trials=[2, 4]), clustered_rate([1, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1])
    assert counted == flat
    assert math.isnan(clustered_rate([], trials=[]).value)


def test_equal_shares_have_no_variance_whatever_rounding_leaves_of_them() -> None:
    for share in (0.1, 0.3, 0.5):
        estimate, unlike = clustered_rate([share] * 250), rate(0, 250).high
        assert (estimate.low, estimate.high) == pytest.approx((share * (1 - unlike), share + (1 - share) * unlike))


def test_clusters_without_a_trial_are_no_units() -> None:
    some, all_of_them = clustered_rate([2, 0, 1], trials=[3, 2, 3]), clustered_rate([2, 0, 0, 1, 0], trials=[3, 0, 2, 3, 0])
    assert some == all_of_them
    assert all_of_them.n == 3
    assert clustered_rate([1, 0, 0], ["a", "b", "c"], [1, 0, 0]) == rate(1, 1)
    assert ratio_of_sums([4.0, 0.0, 9.0], [2, 0, 3]) == ratio_of_sums([4.0, 9.0], [2, 3])


def test_draws_of_clusters_cover_their_rate() -> None:
    rng = np.random.default_rng(3)
    for num in (3, 10):
        found = [clustered_rate(rng.binomial(20, rng.beta(1.2, 1.2, num)), trials=[20] * num) for _ in range(300)]
        assert sum(each.low <= 0.5 <= each.high for each in found) / 300 > 0.91, num


def newcombe(both: int, first: int, second: int, neither: int) -> tuple[float, float]:
    """Newcombe 1998, method 10, as written there for a table of two by two."""
    total = both + first + second + neither
    one, other = rate(both + first, total), rate(both + second, total)
    product = both * neither - first * second
    corrected = max(product - total / 2, 0) if product > 0 else product
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    phi = corrected / math.sqrt(margins) if margins else 0.0

    def half(out: float, back: float) -> float:
        return math.sqrt(out**2 - 2 * phi * out * back + back**2)

    difference = (first - second) / total
    low = difference - half(one.value - one.low, other.high - other.value)
    return low, difference + half(one.high - one.value, other.value - other.low)


@pytest.mark.parametrize("table", [(36, 12, 2, 0), (1, 0, 0, 1), (0, 0, 0, 2), (0, 1, 0, 0), (10, 3, 4, 20)])
def test_paired_rates_differ_as_by_newcombe_and_never_at_a_point(table: tuple[int, int, int, int]) -> None:
    both, first, second, neither = table
    a = [1] * (both + first) + [0] * (second + neither)
    b = [1] * both + [0] * first + [1] * second + [0] * neither
    found = rate_difference(a, b)
    assert (found.low, found.high) == pytest.approx(newcombe(*table))
    assert found.low < found.value < found.high or abs(found.value) == 1
    assert found.high - found.low > 0.1
    repeated = rate_difference(np.repeat(a, 4), np.repeat(b, 4), np.repeat(range(len(a)), 4))
    assert (repeated.low, repeated.high, repeated.n) == pytest.approx((found.low, found.high, found.n))


def test_paired_rates_of_clusters_whose_trials_differ_are_told_no_less_surely_than_they_are() -> None:
    rng, clusters, found = np.random.default_rng(7), np.repeat(range(12), 10), []
    for _ in range(300):
        likely = np.repeat(rng.beta(2.0, 2.0, size=12), 10)
        found.append(rate_difference(rng.random(120) < likely, rng.random(120) < likely, clusters))
    assert 0.93 <= np.mean([each.low <= 0 <= each.high for each in found]) <= 0.985
    ideal = 2 * statistics.INTERVAL_Z * np.std([each.value for each in found])
    assert np.mean([each.high - each.low for each in found]) < 1.3 * ideal


def test_mean_of_many_is_the_interval_of_the_bootstrap_t_and_of_student() -> None:
    rng = np.random.default_rng(5)
    values = rng.gamma(2.0, 2.0, size=400)
    estimate = mean(values)
    student = scipy.stats.t.interval(0.95, 399, values.mean(), scipy.stats.sem(values))
    assert (estimate.value, estimate.n) == (pytest.approx(values.mean(), rel=1e-12), 400)
    assert (estimate.low, estimate.high) == pytest.approx(student, abs=0.06 * (student[1] - student[0]))
    drawn = rng.choice(values, size=(20_000, 400))
    errors = (drawn.mean(axis=1) - values.mean()) / scipy.stats.sem(drawn, axis=1)
    ends = values.mean() - np.quantile(errors, (0.975, 0.025)) * scipy.stats.sem(values)
    assert (estimate.low, estimate.high) == pytest.approx(ends, abs=0.03 * (ends[1] - ends[0]))
    assert estimate.high - estimate.value > estimate.value - estimate.low, "skewed to the right"


def test_mean_of_few_is_student_where_nothing_is_skewed() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    expected = scipy.stats.t.interval(0.95, 4, 3.0, scipy.stats.sem(values))
    assert (mean(values).low, mean(values).high) == pytest.approx(expected)
    assert (mean([1.0, 3.0]).low, mean([1.0, 3.0]).high) == pytest.approx(scipy.stats.t.interval(0.95, 1, 2.0, 1.0))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_an_interval_holds_its_value_or_there_is_none(values: list[float]) -> None:
    estimate = mean(values)
    assert math.isnan(estimate.low) or estimate.low < estimate.value < estimate.high


def test_values_that_are_all_alike_tell_nothing_of_how_they_vary() -> None:
    assert mean([3.0] * 20) == Estimate(3.0, math.nan, math.nan, 20)
    assert mean([0.1] * 7).to_json()["low"] is None, "whatever the sum is rounded to"


def test_a_mean_of_counts_is_never_below_nothing() -> None:
    assert mean([1, 45, 45]).low < 0
    counted = mean_count([1, 45, 45])
    assert (counted.low, counted.value, counted.high) == (0.0, mean([1, 45, 45]).value, mean([1, 45, 45]).high)
    assert mean_count([4, 5, 6, 5]) == mean([4, 5, 6, 5])
    with pytest.raises(AssertionError, match="not below 0"):
        mean_count([-1, 2])


def test_shares_of_shares_have_wilson_ends_and_narrow_with_their_spread() -> None:
    assert clustered_rate([1.0] * 11) == rate(11, 11)
    assert clustered_rate([0.5, *[1.0] * 10]).high < 1
    nothing, little = rate(0, 11), clustered_rate([0.005, *[0.0] * 10])
    assert nothing.high < little.high < nothing.high + 0.01, "half a hundredth more than nothing tells no more"
    narrow = clustered_rate([0.4, 0.6] * 50)
    assert narrow.high - narrow.low < 0.3 * (rate(50, 100).high - rate(50, 100).low)
    alike = clustered_rate([0.5] * 10)
    assert (alike.low, alike.high) == pytest.approx((0.5 - rate(0, 10).high / 2, 0.5 + rate(0, 10).high / 2))
    assert clustered_rate([1e-9] * 10).high == pytest.approx(rate(0, 10).high), "as where none of ten is a success"


def test_a_spread_widens_as_so_many_fewer_trials() -> None:
    assert clustered_rate([1] * 30 + [0] * 60, spread=math.sqrt(3)).low == pytest.approx(rate(10, 30).low)
    assert refit_spread(5) == 1.5
    assert refit_spread(1) == 1.0


def test_differences_of_shares_stay_within_their_range() -> None:
    found = rate_difference([1, 1, 1, 0, 1], [0, 0, 0, 0, 0])
    assert -1 <= found.low < found.value == 0.8 < found.high <= 1
    for num in (2, 3, 8):
        assert rate_difference([1] * num, [0] * num).high == 1


def test_repeated_values_do_not_narrow_a_clustered_interval() -> None:
    values = np.random.default_rng(2).normal(size=50)
    alone = mean(values)
    repeated, clusters = np.repeat(values, 20), np.repeat([f"dialogue {i:02d}" for i in range(50)], 20)
    clustered = mean(repeated, clusters)
    assert (clustered.low, clustered.high) == pytest.approx((alone.low, alone.high))
    assert clustered.n == 50
    careless = mean(repeated)
    assert careless.high - careless.low < 0.4 * (clustered.high - clustered.low)


def test_order_of_clusters_does_not_matter() -> None:
    values, clusters = np.arange(60.0) ** 1.5, [f"d{i % 12:02d}" for i in range(60)]
    shuffled = np.random.default_rng(0).permutation(60)
    first, second = mean(values, clusters), mean(values[shuffled], [clusters[i] for i in shuffled])
    assert (first.value, first.low, first.high) == pytest.approx((second.value, second.low, second.high))


def test_pairing_removes_what_pairs_share() -> None:
    rng = np.random.default_rng(3)
    shared = rng.normal(0, 10, size=200)
    difference = paired_difference(shared + 0.5 + rng.normal(0, 0.1, 200), shared)
    assert difference.low > 0.45
    assert difference.high < 0.55


def test_no_interval_of_a_perplexity_is_below_1() -> None:
    estimate = perplexity("words", np.array([1.0, 40.0]), np.array([10, 11]))
    assert estimate.low == 1 < estimate.value < estimate.high


def test_perplexity_is_exp_of_total_nll_over_total_words() -> None:
    nll, words = np.array([3.0, 40.0, 0.5]), np.array([2, 10, 1])
    estimate = ratio_of_sums(nll, words, transform=np.exp)
    assert estimate.value == pytest.approx(math.exp(43.5 / 13))
    nats = ratio_of_sums(nll, words)
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(nats.low), math.exp(nats.high)))


def test_dialogues_without_words_take_no_part_in_a_ratio() -> None:
    assert ratio_of_sums([0.0] * 3 + [6.0], [0, 0, 0, 3]).value == 2.0
    assert math.isnan(ratio_of_sums([0.0] * 3 + [6.0], [0, 0, 0, 3]).low), "one dialogue has words"


@pytest.mark.parametrize("nothing", [rate(0, 0), mean([]), paired_difference([], []), ratio_of_sums([], []), count(0, 0)])
def test_nothing_is_null(nothing: Estimate) -> None:
    assert nothing.to_json() == {"value": None, "low": None, "high": None, "n": 0}
    assert "none" in str(nothing)
    assert nothing.flagged


def test_one_value_has_no_interval() -> None:
    assert mean([4.0]).to_json() == {"value": 4.0, "low": None, "high": None, "n": 1}


@given(value=st.floats(allow_nan=True, allow_infinity=False), n=st.integers(0, 10**6))
@settings(max_examples=30)
def test_json_round_trip(value: float, n: int) -> None:
    estimate = Estimate(value, value, math.nan, n)
    text = json.dumps(estimate.to_json(), allow_nan=False)
    back = Estimate.from_json(json.loads(text))
    assert back.to_json() == estimate.to_json()


@pytest.mark.parametrize(("n", "flagged"), [(29, True), (30, False)])
def test_few_are_flagged(n: int, flagged: bool) -> None:
    assert rate(3, n).flagged is flagged
    assert ("few" in str(rate(3, n))) is flagged


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(AssertionError):
        mean([1.0, math.nan])


@pytest.mark.parametrize(("hits", "trials"), [([1, 0, 2], None), ([-1, 0, 1], None), ([3, 1], [2, 2])])
def test_more_successes_than_trials_are_no_share(hits: list[int], trials: list[int] | None) -> None:
    with pytest.raises(AssertionError, match="from 0 to the number of trials"):
        clustered_rate(hits, None, trials)


def test_thousands_of_values_take_no_time() -> None:
    values = np.random.default_rng(0).normal(size=4000)
    start = time.thread_time()
    mean(values)
    # The aim is 0.2 s of a core; the bound only catches a loop in Python.
    assert time.thread_time() - start < 2.0


DIFFERENCES = {
    "drawn one by one": np.random.default_rng(3).normal(0.2, 1.0, size=40),
    "drawn beside the commonest": np.r_[np.full(25, 0.1), np.random.default_rng(3).normal(0.3, 1.0, size=15)],
    "drawn as multiplicities": np.repeat([0.0, 0.5, -1.0], [80, 20, 6]),
}


def far_share(drawn: np.ndarray, differences: np.ndarray) -> float:
    """Share of resamples (R, V) as many of their own standard errors away as the measured mean is from 0; none has less spread
    than the V-th part of the measured variance."""
    off = drawn.mean(axis=1) - differences.mean()
    spread = np.sqrt(np.maximum(drawn.var(axis=1), differences.var() / len(differences)))
    return float(np.mean(np.abs(off) * differences.std() >= abs(differences.mean()) * spread - 1e-12))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_paired_bootstrap_is_the_plain_loop_however_it_draws(name: str) -> None:
    differences = DIFFERENCES[name]
    rng, num = np.random.default_rng(4), 20_000
    expected = far_share(differences[rng.integers(len(differences), size=(num, len(differences)))], differences)
    test = paired_bootstrap(differences + 2.0, np.full(len(differences), 2.0), num)
    assert 0.01 < expected < 0.6
    assert test.p_value == pytest.approx(expected, abs=4 * np.sqrt(2 * expected / num))
    assert test.difference.value == pytest.approx(differences.mean())
    assert test.difference == mean(differences + 2.0 - np.full(len(differences), 2.0))


def test_paired_bootstrap_counts_every_resample_of_few_items() -> None:
    # All 5 ** 5 resamples, a tie being as far away as the measured difference itself.
    differences = np.array([-0.25, 0.25, 0.25, 0.5, 0.75])
    expected = far_share(differences[np.indices((5,) * 5).reshape(5, -1).T], differences)
    assert paired_bootstrap(differences, np.zeros(5)).p_value == pytest.approx(expected, abs=0.006)


def test_paired_bootstrap_proves_no_more_than_the_signs_of_so_many_pairs_may() -> None:
    # 3 of 20 changed, all one way: so many coins fall alike once in four times (McNemar 1947, exact).
    assert paired_bootstrap([1.0] * 3 + [0.0] * 17, np.zeros(20)).p_value == 0.25
    assert paired_bootstrap([1.0] * 5, np.zeros(5)).p_value == 0.0625
    assert paired_bootstrap([0.3, 0.31, 0.32, 0.33], np.zeros(4)).p_value == 0.125


def test_pairs_that_are_nearly_all_alike_prove_as_much_as_those_that_are() -> None:
    # Of 40 pairs 39 changed, all one way. By their signs: 2 ** -38 (McNemar 1947, exact); 10,000 draws tell no less than 1e-4.
    assert paired_bootstrap([1.0] * 39 + [0.0], np.zeros(40)).p_value < 2e-4
    assert paired_bootstrap([1.0] * 10 + [0.0], np.zeros(11)).p_value == 2.0**-9
    assert paired_bootstrap([1.0] + [0.0] * 39, np.zeros(40)).p_value == 1.0


@pytest.mark.parametrize(("up", "down", "num"), [(9, 0, 12), (25, 0, 30), (6, 0, 100), (9, 1, 12), (60, 40, 300), (7, 7, 14)])
def test_pairs_that_differ_by_one_amount_have_the_mid_p_of_their_signs(up: int, down: int, num: int) -> None:
    """Resamples without the few that disagree made p .032 of 9 of 12 pairs, and .008 of 8 of 12."""
    pairs = np.array([0.25] * up + [-0.25] * down + [0.0] * (num - up - down))
    exact = binomtest(up, up + down).pvalue
    mid_p = min(1.0, exact - binom.pmf(up, up + down, 0.5)) if down and up != down else exact
    assert paired_bootstrap(pairs, np.zeros(num)).p_value == pytest.approx(mid_p, rel=1e-9)
    # Dialogues of four turns that are alike are one pair each.
    turns = np.repeat(pairs, 4), np.zeros(4 * num)
    assert paired_bootstrap(*turns, clusters=np.repeat(np.arange(num), 4)).p_value == pytest.approx(mid_p, rel=1e-9)
    wider = paired_bootstrap(pairs, np.zeros(num), spread=1.5).p_value
    assert wider >= paired_bootstrap(pairs, np.zeros(num)).p_value, "a judge that was fitted, too, proves less"


def test_paired_bootstrap_finds_a_difference_where_there_is_none_as_often_as_it_may() -> None:
    rng = np.random.default_rng(8)
    p_values = [paired_bootstrap(rng.normal(size=80), rng.normal(size=80), 400).p_value for _ in range(300)]
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.09


def test_paired_bootstrap_is_blind_to_sign_and_never_certain() -> None:
    after, before = np.arange(50.0), np.arange(50.0) - 3 - np.arange(50) % 2
    one, other = paired_bootstrap(after, before, 1000), paired_bootstrap(before, after, 1000)
    assert one.p_value == other.p_value == pytest.approx(1 / 1001)
    assert one.difference.value == -other.difference.value == 3.5


def test_paired_bootstrap_of_nothing_and_of_little() -> None:
    assert math.isnan(paired_bootstrap([], []).p_value)
    alone = paired_bootstrap([0.75], [0.25])
    assert math.isnan(alone.p_value)
    assert math.isnan(alone.difference.low)
    assert alone.difference.value == 0.5
    assert paired_bootstrap([0.5, 0.25], [0.5, 0.25], 100).p_value == 1.0
    assert paired_bootstrap([0.5, 0.0], [0.0, 0.5], 100).p_value == 1.0
    assert paired_bootstrap([0.1, 0.2, 0.0], [0.0, 0.0, 0.3], 100).p_value == 1.0, "a sum of 5e-17 is none"


def test_paired_bootstrap_draws_alike_from_equal_seeds() -> None:
    after, before = np.random.default_rng(1).normal(size=(2, 50))
    assert paired_bootstrap(after, before, 500, seed=3) == paired_bootstrap(after, before, 500, seed=3)
    assert paired_bootstrap(after, before, 500, seed=3) != paired_bootstrap(after, before, 500, seed=4)


def test_equal_agents_differ_by_no_more_than_an_unseen_pair_may() -> None:
    equal = paired_difference([1.0, 2.0, 3.0] * 20, [1.0, 2.0, 3.0] * 20)
    assert (equal.value, equal.n) == (0, 60)
    assert -0.15 < equal.low == -equal.high < -0.05, "a pair unlike all others differs by 2 at most, and is one in 17 at most"
    always = paired_difference([3.0] * 40, [1.0] * 40)
    assert 1.5 < always.low < always.value == always.high == 2
    assert paired_difference([3.0] * 5, [1.0] * 5).low == 0, "five pairs prove nothing"
    for few in (paired_difference([3.0], [1.0]), paired_difference([1.0] * 40, [1.0] * 40)):
        assert math.isnan(few.low), "nothing tells how far a pair may lie"
