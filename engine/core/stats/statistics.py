"""Estimates with 95 % intervals, and the figures that all systems share: repetition, perplexity, replies, missing replies.

Intervals: Wilson for shares and their differences, a t-interval over clusters for means and ratios. Numbers come in, `Estimate`
goes out; the module of a task chooses the numbers.

Sources:
  * Wilson score interval: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
  * Difference of paired rates: Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions
    based on paired data", method 10; for clusters as by Zou & Donner 2008, "Construction of confidence limits about effect
    measures: a general approach".
  * Means and ratios: Student's t over clusters (dialogues), because the words of one dialogue are not independent. Skewness is
    corrected by Hall 1992, "On the removal of skewness by transformation". For clusters of unequal size, their pull is
    corrected by MacKinnon & White 1985, "Some heteroskedasticity-consistent covariance matrix estimators".
  * Cross-fitted judges: Nadeau & Bengio 2003, "Inference for the generalization error".
  * Paired bootstrap test: Hall & Wilson 1991, "Two guidelines for bootstrap hypothesis testing": resamples about the measured
    mean, each by its own standard error. Of pairs that differ by one amount: Fagerland et al. 2013, "The McNemar test for
    binary matched-pairs data". `tests/engine/core/stats/test_coverage.py` measures intervals and tests.
  * seq-rep-4, the share of repeated 4-grams: Welleck et al. 2020, "Neural text generation with unlikelihood training". A
    perplexity does not show that an agent repeats itself, because a language model finds repeated words likely.

An answer without a reply (`parley.policies.chat.model.AnswerKind`) is no success and no utterance. It stays in the denominator
of every rate, because the model was asked and did not do the task; its share stands beside the rate.

Shapes: V values, G clusters, R resamples.
"""

from __future__ import annotations

import logging
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from parley.engine.core.stats.rows import Columns, StoredRows, linked_units
from parley.envs.core.seeds import stable_hash, stream
from parley.envs.corpora.pairs.vocabulary import EOT, EOU, UNK
from parley.policies.chat.model import NO_REPLIES, AnswerKind

FOR_ADVERSARY = "higher: adversary"
FOR_TARGET = "higher: target"
FOR_BOTH = "higher: both"
LOWER_FOR_BOTH = "lower: both"
LOWER_FOR_ADVERSARY = "lower: adversary"
LOWER_FOR_TARGET = "lower: target"
NEITHER = "neither"

NUM_TEST_RESAMPLES = 100_000
FEW = 30
"""An estimate from fewer independent units than this is flagged."""
INTERVAL_Z = 1.959963984540054
"""Standard errors on either side of a 95 % interval."""
_DRAWS_PER_CHUNK = 1 << 18
_DRAWS_PER_TEST_CHUNK = 1 << 16
_ROUNDING, _ROUNDING_OF_NATS = 1e-9, 1e-3


@dataclass(frozen=True)
class Estimate:
    """A number and its uncertainty.

    Args:
        value: the estimate; NaN if there was no data.
        low: lower end of the 95 % interval; NaN if there is none.
        high: upper end of the interval.
        n: number of independent units, clusters if values come in clusters.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def flagged(self) -> bool:
        """Return whether the number rests on too few units."""
        return self.n < FEW

    def to_json(self) -> dict[str, float | int | None]:
        """Return the four parts as JSON types; NaN becomes null."""
        return {"value": _finite(self.value), "low": _finite(self.low), "high": _finite(self.high), "n": self.n}

    @classmethod
    def from_json(cls, parts: Mapping[str, Any]) -> Estimate:
        """Return the estimate that `to_json` wrote."""
        value, low, high = (math.nan if parts[key] is None else float(parts[key]) for key in ("value", "low", "high"))
        return cls(value, low, high, int(parts["n"]))

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"none (n={self.n})"
        interval = "" if math.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.value:.4g}{interval} (n={self.n}{', few' if self.flagged else ''})"


NOTHING = Estimate(math.nan, math.nan, math.nan, 0)
"""The estimate from no data."""


@dataclass(frozen=True)
class PairedTest:
    """A test of the difference between two systems on the same items.

    Args:
        difference: mean of after minus before, with its interval.
        p_value: two-sided; NaN for fewer than two items.
    """

    difference: Estimate
    p_value: float


class Metric(NamedTuple):
    """The name and the reading of a metric."""

    title: str
    direction: str
    """The better direction, and for whom."""
    definition: str
    """One line; it names the denominator."""
    form: Literal["number", "rate", "share", "count", "perplexity"] = "number"
    """The form of its value: decimals, percent (share) or a whole number. Pages draw a rate and a share on a scale from 0 to 1,
    and each other metric on its own scale. A mean of perplexities over trainings is taken in nats."""
    main: bool = False
    """True for metrics that a reader looks for first; pages fold the others."""


def count(value: float, n: int) -> Estimate:
    """Return a counted number without an interval."""
    return Estimate(float(value), math.nan, math.nan, n) if n else NOTHING


def rate(successes: int, n: int) -> Estimate:
    """Return a share with its Wilson score interval.

    Args:
        successes: 0..n.
        n: independent trials; with none, the value is NaN.
    """
    assert 0 <= successes <= n, f"{successes} successes in {n} trials"
    return _wilson(successes / n, n, n) if n else NOTHING


def clustered_rate(
    hits: ArrayLike, clusters: ArrayLike | None = None, trials: ArrayLike | None = None, *, spread: float = 1.0
) -> Estimate:
    """Estimate a share with its Wilson score interval, where trials come in clusters or are themselves from 0 to 1.

    The interval is that of as many independent trials as would make the share vary as much (Korn & Graubard 1998, "Confidence
    intervals for proportions with small expected number of positive counts", with their correction for few clusters). Of
    trials that are 0 or 1 those are no more than there are; where all trials end alike, or their parts make less than one whole
    success or failure, no more than there are clusters.
    # Theirs: the correction alone. Ours: it leaves as many trials as there are clusters, because these are independent.

    Args:
        hits: (V,) whether each trial was a success, a number from 0 to 1, or the successes among several trials.
        clusters: (V,) the cluster of each value, such as a dialogue; every value is its own cluster if not given.
        trials: (V,) number of trials behind each value; one if not given.
        spread: factor by which the standard error exceeds that of the clusters (`refit_spread`).

    Returns:
        The estimate; n is the number of clusters that have a trial.
    """
    values = np.asarray(hits, dtype=np.float64)
    most = np.broadcast_to(1.0, values.shape) if trials is None else np.asarray(trials, dtype=np.float64)
    assert not ((values < 0) | (values > most * (1 + _ROUNDING))).any(), "successes are from 0 to the number of trials"
    tops, sizes = _sum_by_cluster(values, most, clusters)
    num, total = len(tops), float(sizes.sum())
    if not total:
        return NOTHING
    share = float(tops.sum()) / total
    off = tops - share * sizes
    # What rounding leaves of equal shares is no variance.
    variance = float(off @ off) / total**2 if np.abs(off).max() > _ROUNDING * sizes.max() else 0.0
    if not 0 < share < 1 or num == 1:
        return _wilson(share, num / spread**2, num)
    if not np.array_equal(values, np.round(values)):
        if not variance:
            # All are alike: one unlike them is as rare as a success that never came, and lies anywhere from 0 to 1.
            unlike = _wilson(0.0, num / spread**2, num).high
            return Estimate(share, share * (1 - unlike), share + (1 - share) * unlike, num)
        # Trials that are shares themselves vary less than coins, by an amount that is itself estimated.
        size = share * (1 - share) / variance * (num - 1) / num
        size *= (INTERVAL_Z / _student(num - 1)) ** 2
        # Of small parts alone nothing tells how many whole trials there are: not even one has been seen.
        size = min(size, num) if min(share, 1 - share) * total < 1 else size
        return _wilson(share, size / spread**2, num)
    size = min(share * (1 - share) / variance, total) if variance > 0 else total
    few = (_student(total - 1) / _student(num - 1)) ** 2 if total > num else 1.0
    return _wilson(share, max(size * few, min(size, num)) / spread**2, num)


def refit_spread(num_folds: int) -> float:
    """Return the factor by which a cross-fitted figure's standard error exceeds that of its test items.

    Models of two folds share most of what they were fitted on, and are fitted on each other's test items. Nadeau & Bengio's
    corrected variance is s^2 (1 / K + n_test / n_train), for K folds s^2 / K (1 + K / (K - 1)).

    Args:
        num_folds: K; 1 for a model that was fitted on other items.
    """
    return math.sqrt(1 + num_folds / (num_folds - 1)) if num_folds > 1 else 1.0


def _student(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def rate_difference(
    a: ArrayLike,
    b: ArrayLike,
    clusters: ArrayLike | None = None,
    *,
    trials: tuple[ArrayLike, ArrayLike] | None = None,
    spread: float = 1.0,
) -> Estimate:
    """Estimate the share of `a` minus that of `b` over pairs, from the intervals of both shares and their correlation.

    The interval has a width even if all differences are equal; a bootstrap of them has none.

    Args:
        a: (V,) whether each trial of the first system was a success, the share of several that were, or their number.
        b: (V,) the same for the second system on the same items, in the same order.
        clusters: (V,) as in `clustered_rate`.
        trials: (V,) numbers of trials of each system behind each value; one if not given, 0 for an item without any.
        spread: as in `clustered_rate`.

    Returns:
        The estimate, from -1 to 1; n is the number of clusters.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    assert first.shape == second.shape, f"pairs need equal lengths, got {first.shape} and {second.shape}"
    of_a, of_b = (np.asarray(num, dtype=np.float64) for num in trials or (np.ones_like(first), np.ones_like(second)))
    share_a, share_b = (
        clustered_rate(hits[num > 0], None if clusters is None else np.asarray(clusters)[num > 0], num[num > 0], spread=spread)
        for hits, num in ((first, of_a), (second, of_b))
    )
    if not share_a.n or not share_b.n:
        return NOTHING
    residuals_a, residuals_b = first - share_a.value * of_a, second - share_b.value * of_b
    off_a, off_b = (_sum_by_cluster(off, np.ones_like(off), clusters)[0] for off in (residuals_a, residuals_b))
    scale = math.sqrt(float(off_a @ off_a) * float(off_b @ off_b))
    # Half an independent trial less, as in method 10: few trials that agree by chance prove nothing.
    worth = _trials_as_one(residuals_a, off_a) * _trials_as_one(residuals_b, off_b)
    product = float(off_a @ off_b)
    product = min(product, max(0.0, product - worth / 2))
    correlation = product / scale if scale > 0 else 0.0

    def half(out: float, back: float) -> float:
        return math.sqrt(max(0.0, out * out + back * back - 2 * correlation * out * back))

    difference = share_a.value - share_b.value
    low = difference - half(share_a.value - share_a.low, share_b.high - share_b.value)
    high = difference + half(share_a.high - share_a.value, share_b.value - share_b.low)
    estimate = Estimate(difference, max(-1.0, low), min(1.0, high), len(off_a))
    return proven(estimate, (first != second) | (of_a != of_b), clusters)


def _trials_as_one(residuals: np.ndarray, off: np.ndarray) -> float:
    """Return the number of trials that vary together as one independent trial: 1 if clusters do not matter.

    Args:
        residuals: (V,) distances of the trials from the mean.
        off: (G,) their sums by cluster.
    """
    alone = float(np.square(residuals).sum())
    return max(1.0, float(off @ off) / alone) if alone > 0 else 1.0


def _wilson(share: float, size: float, n: int) -> Estimate:
    z2 = INTERVAL_Z * INTERVAL_Z
    centre = (share + z2 / (2 * size)) / (1 + z2 / size)
    half = INTERVAL_Z / (1 + z2 / size) * math.sqrt(share * (1 - share) / size + z2 / (4 * size * size))
    # If all trials end alike the exact ends are 0 and 1; rounding must not push them past the share itself.
    return Estimate(share, min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)), n)


def mean(values: ArrayLike, clusters: ArrayLike | None = None) -> Estimate:
    """Estimate a mean with its interval over clusters; a mean of numbers from 0 to 1 is a `clustered_rate`.

    Args:
        values: (V,) finite numbers.
        clusters: (V,) the dialogue of each value; every value is its own cluster if not given.
    """
    numbers = np.asarray(values, dtype=np.float64)
    return ratio_of_sums(numbers, np.broadcast_to(1.0, numbers.shape), clusters)


def mean_count(values: ArrayLike, clusters: ArrayLike | None = None, trials: ArrayLike | None = None) -> Estimate:
    """Estimate a mean of numbers that cannot be negative, such as words, queries or nats; its interval stays in that range.

    Args:
        values: (V,) finite numbers, at least 0 but for rounding; sums over trials if there are several.
        clusters: (V,) as in `mean`.
        trials: (V,) number of trials behind each value; one if not given.
    """
    numbers = np.asarray(values, dtype=np.float64)
    assert (numbers > -_ROUNDING_OF_NATS).all(), "counts are not below 0"
    return not_below(0.0, ratio_of_sums(numbers, np.broadcast_to(1.0, numbers.shape) if trials is None else trials, clusters))


def not_below(least: float, estimate: Estimate) -> Estimate:
    """Return an estimate whose interval does not reach below the least value that the figure can have."""
    return replace(estimate, low=least) if estimate.low < least <= estimate.value else estimate


def paired_difference(a: ArrayLike, b: ArrayLike, clusters: ArrayLike | None = None) -> Estimate:
    """Estimate the mean of `a - b` over pairs, with an interval by `unlike` where all are alike; shares have `rate_difference`.

    Args:
        a: (V,) numbers of the first system.
        b: (V,) numbers of the second system on the same items, in the same order.
        clusters: (V,) as in `mean`.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    assert first.shape == second.shape, f"pairs need equal lengths, got {first.shape} and {second.shape}"
    return proven(unlike(mean(first - second, clusters), first, second), ~np.isclose(first, second), clusters)


def unlike(difference: Estimate, *values: np.ndarray, spread: float = 1.0) -> Estimate:
    """Return a difference with an interval by the range of all values if pairs are all alike, as those of equal agents.

    A pair unlike them is as rare as a success that never came. If all values are equal too, nothing tells how far it may lie.
    """
    reach = float(np.ptp(np.concatenate(values))) if difference.n > 1 and math.isnan(difference.low) else 0.0
    rare, value = _wilson(0.0, max(1.0, difference.n / spread**2), 0).high, difference.value
    return replace(difference, low=value - rare * (reach + value), high=value + rare * (reach - value)) if reach else difference


def proven(difference: Estimate, differ: np.ndarray, clusters: ArrayLike | None = None) -> Estimate:
    """Return a difference whose interval holds 0 if so few units differ that no test has a p-value below .05.

    Args:
        difference: the estimate.
        differ: whether the values of each pair differ (V,).
        clusters: (V,) as in `mean`.
    """
    num = np.count_nonzero(differ) if clusters is None else len(np.unique(np.asarray(clusters)[differ]))
    if math.isnan(difference.low) or 2.0 ** (1 - int(num)) <= 0.05:
        return difference
    return replace(difference, low=min(difference.low, 0.0), high=max(difference.high, 0.0))


def paired_bootstrap(
    after: ArrayLike,
    before: ArrayLike,
    num_resamples: int = NUM_TEST_RESAMPLES,
    seed: int = 0,
    clusters: ArrayLike | None = None,
    spread: float = 1.0,
) -> PairedTest:
    """Return the studentised paired bootstrap test of a mean difference, two-sided.

    A resample is far if its mean is at least as many of its own standard errors from the measured mean as that is from 0. Its
    variance is at least the V-th part of the measured one: where nearly all pairs are alike, many resamples have none. The
    p-value is (1 + number of far resamples) / (1 + number of resamples). Pairs that all differ by one amount, or not at all, as
    hits do, need no resamples: unless `spread` is wider, it is the mid-p of McNemar's test, for their signs are coins. It is at
    least 2^(1 - k) for k pairs that differ: the chance that all their signs are alike.

    Args:
        after: (V,) finite numbers; the caller leaves out items with a missing number.
        before: (V,) numbers of the other system on the same items, in the same order.
        num_resamples: draws of V items with replacement.
        seed: names the resampling stream; equal seeds give equal tests.
        clusters: (V,) as in `clustered_rate`; they are drawn whole.
        spread: as in `clustered_rate`.
    """
    first, second = np.asarray(after, dtype=np.float64), np.asarray(before, dtype=np.float64)
    assert first.shape == second.shape == (len(first),), f"pairs are wanted, got {first.shape} and {second.shape}"
    differences = first - second
    assert np.isfinite(differences).all(), "every number must be finite"
    if clusters is not None and len(differences):
        # A mean over items is a ratio of sums whose bottom is drawn too. This is its linear part: the mean over clusters is
        # that over items, and a cluster counts by how far its items are from it, not by how many they are.
        codes, num = cluster_codes(np.asarray(clusters))
        weight = num / len(codes)
        differences = np.bincount(codes, differences) * weight + differences.mean() * (1 - np.bincount(codes) * weight)
    size = len(differences)
    if size < 2:
        return PairedTest(mean(differences), math.nan)
    scale = float(np.abs(differences).max()) or 1.0
    changed = np.abs(differences) > _ROUNDING * scale
    sizes = np.abs(differences[changed])
    least = 2.0 ** (1 - max(1, len(sizes)))
    if spread == 1 and len(sizes) and np.ptp(sizes) <= _ROUNDING * scale:
        from scipy.special import bdtr

        fewer = min(np.count_nonzero(differences[changed] > 0), np.count_nonzero(differences[changed] < 0))
        mid_p = float(bdtr(fewer, len(sizes), 0.5) + (fewer and bdtr(fewer - 1, len(sizes), 0.5)))
        return PairedTest(proven(mean(differences), changed), max(least, mid_p))
    shift = float(differences.sum()) / (size * scale)
    off = differences / scale - shift
    off[np.abs(off) < _ROUNDING] = 0.0
    num_far = num_resamples if abs(shift) < _ROUNDING else 0
    if off.any() and not num_far:
        # One draw gives both sums: of the numbers in the real part, of their squares in the imaginary part.
        totals = _resampled_totals(off + 1j * off * off, num_resamples, stream(seed, "paired bootstrap")) / size
        variance = float(off @ off) / size
        variances = np.maximum(totals.imag - np.square(totals.real), variance / size)
        # Both distances are squared. Equal distances count as far, whichever way a sum was rounded.
        far = np.square(totals.real) * variance >= (shift / spread) ** 2 * (variances - _ROUNDING * variance)
        num_far = int(np.count_nonzero(far))
    return PairedTest(proven(mean(differences), changed), max(least, (1 + num_far) / (1 + num_resamples)))


def ratio_of_sums(
    numerators: ArrayLike,
    denominators: ArrayLike,
    clusters: ArrayLike | None = None,
    transform: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Estimate:
    """Estimate `transform(sum of numerators / sum of denominators)` with its interval over clusters.

    Perplexity is `ratio_of_sums(nll, words, dialogues, np.exp)`; a share of trials is a `clustered_rate`.

    Args:
        numerators: (V,) finite numbers.
        denominators: (V,) finite numbers, at least 0.
        clusters: (V,) as in `mean`.
        transform: an increasing function of an array, element by element; none leaves the ratio as it is.

    Returns:
        The estimate; NaN with n = 0 if the denominators sum to 0. It has no interval if there is a single cluster or all
        clusters are alike: then nothing shows how far they vary.
    """
    top, bottom = _sum_by_cluster(numerators, denominators, clusters)
    size = len(top)
    if bottom.sum() == 0:
        return NOTHING
    ratio = float(top.sum() / bottom.sum())
    convert = transform or np.asarray
    ends = _ends_of_ratio(ratio, top, bottom) if size > 1 else None
    if ends is None:
        return Estimate(float(convert(np.array([ratio]))[0]), math.nan, math.nan, size)
    value, low, high = convert(np.array([ratio, *ends])).tolist()
    return Estimate(value, low, high, size)


def _ends_of_ratio(ratio: float, top: np.ndarray, bottom: np.ndarray) -> tuple[float, float] | None:
    """Return the interval of a ratio of sums over clusters (G,) by Student's t; None if all clusters are alike.

    Clusters of one size give a mean, on a scale on which its error has no skewness (Hall 1992). Among clusters of unequal size
    a large one pulls the ratio towards itself, and the effective number is smaller: (sum of sizes)^2 / (sum of squared sizes).
    """
    size, share = len(top), bottom / bottom.sum()
    off = (top - ratio * bottom) / bottom.mean()
    uniform = bool((bottom == bottom[0]).all())
    if not uniform:
        off = off * (1 - 1 / size) / np.maximum(1 - share, _ROUNDING)
    spread = math.sqrt(float(off @ off) / (size - 1))
    if spread <= _ROUNDING * max(abs(ratio), 1e-300):
        return None
    unit = spread / math.sqrt(size)
    if not uniform:
        half = unit * _student(max(1.0, 1 / float(share @ share) - 1))
        return ratio - half, ratio + half
    skewness = float(np.power(off / spread, 3).sum()) * size / ((size - 1) * (size - 2)) if size > 2 else 0.0
    bend, shift, end = skewness / (3 * math.sqrt(size)), skewness / (6 * math.sqrt(size)), _student(size - 1)

    def back(error: float) -> float:
        return error - shift if abs(bend) < _ROUNDING else (math.cbrt(1 + 3 * bend * (error - shift)) - 1) / bend

    return ratio - back(end) * unit, ratio - back(-end) * unit


def _sum_by_cluster(
    numerators: ArrayLike, denominators: ArrayLike, clusters: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return both sums within each cluster, (G,) and (G,), in sorted order; clusters without a trial or a sum are left out."""
    top, bottom = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    assert top.shape == bottom.shape == (len(top),), f"one list of pairs is wanted, got {top.shape} and {bottom.shape}"
    assert all(np.isfinite(numbers).all() for numbers in (top, bottom)), "every number must be finite"
    assert (bottom >= 0).all(), "denominators are counts, not below 0"
    if clusters is not None:
        labels = np.asarray(clusters)
        assert labels.shape == top.shape, f"one cluster per value, got {labels.shape} for {top.shape}"
        codes, num = cluster_codes(labels)
        top, bottom = (np.asarray(np.bincount(codes, sums, num), dtype=np.float64) for sums in (top, bottom))
    has_trials = (bottom > 0) | (top != 0)
    return top[has_trials], bottom[has_trials]


def cluster_codes(labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the place of each label among the sorted labels (V,), and their number; numbers in order take less memory."""
    if labels.dtype.kind not in "iu" or (labels[1:] < labels[:-1]).any():
        names, codes = np.unique(labels, return_inverse=True)
        return codes, len(names)
    codes = np.zeros(len(labels), dtype=np.intp)
    np.cumsum(labels[1:] != labels[:-1], out=codes[1:])
    return codes, int(codes[-1]) + 1 if len(codes) else 0


def _resampled_totals(values: np.ndarray, num_resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return sums of V values drawn with replacement from the V values, (R,) of their type.

    Most items are often alike (the reply is the same, both F1 are 0). The number of draws of the commonest value is binomial.
    Only the others are drawn: one by one or, if they take few values, as multiplicities. The distribution is the same.
    """
    size = len(values)
    distinct, index, multiplicity = np.unique(values, return_inverse=True, return_counts=True)
    if 32 * len(distinct) <= size:
        rows = _DRAWS_PER_CHUNK // len(distinct) + 1
        chunks = [min(rows, num_resamples - start) for start in range(0, num_resamples, rows)]
        return np.concatenate([rng.multinomial(size, multiplicity / size, size=rows) @ distinct for rows in chunks])
    common = int(multiplicity.argmax())
    if multiplicity[common] == 1:
        return _totals_one_by_one(values, np.full(num_resamples, size), rng)
    rarer = values[index != common]
    times = rng.binomial(size, len(rarer) / size, size=num_resamples)
    return _totals_one_by_one(rarer, times, rng) + (size - times) * distinct[common]


def _totals_one_by_one(values: np.ndarray, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return sums of `times[r]` draws from the values, (R,)."""
    totals = np.empty(len(times), values.dtype)
    rows = _DRAWS_PER_TEST_CHUNK // (int(times.max()) + 1) + 1
    for start in range(0, len(times), rows):
        ends = np.cumsum(times[start : start + rows])
        drawn = np.take(values, rng.integers(len(values), size=ends[-1], dtype=np.int32))
        # A 0 after the last draw is the start of a resample without draws; reduceat returns the element at that start.
        sums = np.add.reduceat(np.append(drawn, 0.0), ends - times[start : start + rows])
        totals[start : start + rows] = np.where(times[start : start + rows] > 0, sums, 0.0)
    return totals


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


Row = Mapping[str, Any]
"""One item, keyed by the columns of its job's rows."""


def finished(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of items that worked."""
    return rows.of(worked=True) if isinstance(rows, StoredRows) else [row for row in rows if row["status"] == "ok"]


def lost(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of items that ended in an error."""
    return rows.of(worked=False) if isinstance(rows, StoredRows) else [row for row in rows if row["status"] != "ok"]


_WORDS = 4
LOST = 0.1
"""Share of repeated 4-grams above which an agent counts as having lost its language. Fitted negotiators have .00 to .02."""


def repeated(words: Sequence[str]) -> tuple[int, int]:
    """Return the number of repeated 4-grams of an utterance, and the number of all its 4-grams."""
    grams = [tuple(words[start : start + _WORDS]) for start in range(len(words) - _WORDS + 1)]
    return len(grams) - len(set(grams)), len(grams)


def has_lost(share: float) -> bool:
    """Return whether this share of repeated 4-grams is too large for a language; an unknown share is not."""
    return share > LOST


Points = list[tuple[int, Estimate]]
"""Pairs of a budget and the gain within it."""


logger = logging.getLogger(__name__)


def perplexity(whose: str, nats: np.ndarray, words: np.ndarray, clusters: ArrayLike | None = None) -> Estimate:
    """Return exp of the negative log likelihood per token over some texts.

    Args:
        whose: name of the texts in a warning.
        nats: negative log likelihood of each text (V,).
        words: tokens of each text (V,).
        clusters: the dialogue of each text (V,); every text is its own cluster if not given.

    Returns:
        The estimate; NaN, with a warning, if a likelihood is not finite.
    """
    if broken := int(np.count_nonzero(~np.isfinite(nats))):
        logger.warning("%d of %d likelihoods of %s are not finite: no perplexity", broken, len(nats), whose)
        return count(math.nan, len(nats))
    # No word is likelier than 1.
    return not_below(1.0, ratio_of_sums(nats, words, clusters, transform=np.exp))


NEAR = "nearer to the recorded"
REPLIES = {
    "reply_words": Metric("words of a reply", NEAR, "mean over contexts", main=True),
    "recorded_words": Metric("words of a recorded reply", "-", "mean over the same contexts"),
    "distinct_1": Metric("distinct-1", NEAR, "different words over words of all replies (Li et al. 2016a)", main=True),
    "recorded_distinct_1": Metric("distinct-1, recorded", "-", "of the recorded replies"),
    "distinct_2": Metric("distinct-2", NEAR, "different pairs of neighbouring words over such pairs", main=True),
    "recorded_distinct_2": Metric("distinct-2, recorded", "-", "of the recorded replies"),
    "commonest_share": Metric("commonest reply", "lower: better", "contexts that get the most frequent reply", "share"),
    "unknown_share": Metric("replies with <unk>", "lower: better", "share of contexts", "share"),
    "empty_share": Metric("replies without a word", "lower: better", "share of contexts; no line of the file", "share"),
    "limit_share": Metric(
        "replies as long as may be", "lower: better", "share of contexts; the model's limit cut most of them", "share"
    ),
}
"""Figures of `reply_metrics`."""


def reply_metrics(rows: Iterable[tuple[str, Sequence[str], Sequence[str]]], limit: int | None = None) -> dict[str, Estimate]:
    """Return figures of replies and of the recorded replies to the same contexts: length, variety, `<unk>`, limits.

    Args:
        rows: contexts, words of the reply and of the recorded one; gone through once. Equal contexts are one unit.
        limit: largest number of words that the model can say; None if it has no limit in words.
    """
    columns = Columns()
    for context, reply, recorded in rows:
        columns.add("context", "Q", (stable_hash(context),))
        for words, prefix, side in ((reply, "", "reply"), (recorded, "recorded_", "recorded")):
            columns.add(f"{side}_words", "i", (len(words),))
            for length in (1, 2):
                columns.add(f"{prefix}distinct_{length}", "Q", _grams(words, length))
        columns.add("reply", "Q", (stable_hash(*reply),))
        columns.add("unknown_share", "b", (UNK in reply,))
        columns.add("empty_share", "b", (not has_word(reply),))
    _, codes, times = np.unique(columns.get("reply", "Q"), return_inverse=True, return_counts=True)
    lengths, units = columns.get("reply_words", "i"), linked_units(columns.get("context", "Q"))
    shares = {"commonest_share": codes == times.argmax() if len(codes) else codes}
    shares |= {name: columns.get(name, "b") for name in ("unknown_share", "empty_share")}
    if limit is not None:
        shares["limit_share"] = lengths >= limit
    figures = {name: mean_count(columns.get(name, "i"), units) for name in ("reply_words", "recorded_words")}
    for name in (f"{prefix}distinct_{length}" for length in (1, 2) for prefix in ("", "recorded_")):
        figures[name] = _different(columns.get(name, "Q"))
    return figures | {name: clustered_rate(hits, units) for name, hits in shares.items()}


def has_word(reply: Sequence[str]) -> bool:
    """Return whether a reply holds more than marks between utterances and turns."""
    return any(word not in (EOU, EOT) for word in reply)


def distinct(replies: Iterable[Sequence[str]], length: int) -> Estimate:
    """Return the share of different n-grams of `length` words; it falls with the number of replies, so it has no interval."""
    return _different(array("Q", (gram for words in replies for gram in _grams(words, length))))


def _grams(words: Sequence[str], length: int) -> Iterator[int]:
    return (stable_hash(*words[start : start + length]) for start in range(len(words) - length + 1))


def _different(digests: ArrayLike) -> Estimate:
    num = len(np.asarray(digests))
    return count(len(np.unique(digests)) / max(num, 1), num)


NO_REPLY = "no_reply"
NO_REPLY_KINDS = tuple(kind.value for kind in NO_REPLIES)
"""Kinds of answers that are no replies."""
_OF_KIND = f"{NO_REPLY}."
"""Prefix of the names of the counts by kind."""


def _count_name(kind: str) -> str:
    return f"{_OF_KIND}{AnswerKind(kind).column}"


NO_REPLY_METRICS: dict[str, Metric] = {
    NO_REPLY: Metric("answers without a reply", NEITHER, "share of the model's answers; none is a success", "share", main=True),
    **{_count_name(kind): Metric(f"answers, {kind}", NEITHER, "that are no reply", "count") for kind in NO_REPLY_KINDS},
}
"""Metrics of `no_reply_metrics`; counts of kinds that do not occur are left out."""


def is_no_reply(row: Row) -> bool:
    """Return whether a row, or an entry of one, holds an answer that is no reply; rows of older runs do not tell."""
    return row.get("kind") in NO_REPLY_KINDS


def no_reply_metrics(
    kinds: Iterable[Mapping[str, int]], answers: ArrayLike, clusters: ArrayLike | None = None
) -> dict[str, Estimate]:
    """Return the share of answers that are no replies, and counts by kind.

    Args:
        kinds: for each unit, such as a target, the number of its answers of each kind without a reply.
        answers: for each unit, the number of answers.
        clusters: the cluster of each unit; every unit is its own cluster if not given.
    """
    totals, lost, num = Counter[str](), array("i"), int(np.sum(answers))
    for of_unit in kinds:
        totals.update(of_unit)
        lost.append(sum(of_unit.values()))
    metrics = {NO_REPLY: clustered_rate(lost, clusters, answers)}
    return metrics | {_count_name(kind): count(totals[kind], num) for kind in NO_REPLY_KINDS if totals[kind]}


def kinds_of_rows(rows: Iterable[Row]) -> Iterator[Counter[str]]:
    """Yield the kinds that `no_reply_metrics` counts, for each row or entry that holds one answer."""
    return (Counter([row["kind"]] if is_no_reply(row) else []) for row in rows)


def kinds_told(metrics: Mapping[str, Estimate]) -> str:
    """Return a text such as "12 filtered, 3 cut in thinking", from `no_reply_metrics`; empty if there are none."""
    counts = {kind: metrics[name].value for kind in NO_REPLY_KINDS if (name := _count_name(kind)) in metrics}
    return ", ".join(f"{number:,.0f} {kind}" for kind, number in counts.items())


def no_reply_note(
    metrics: Mapping[str, Estimate], setting: str = "", rates: str = "none is a success, and all count in the rates"
) -> str:
    """Return a sentence for a table's note on the answers that are no replies; empty if there are none.

    Args:
        metrics: metrics, those of `no_reply_metrics` among them.
        setting: the setting that limits the tokens of an answer; named if answers were cut in thinking.
        rates: the treatment of these answers in the rates of the table.
    """
    if not (counts := kinds_told(metrics)):
        return ""
    mend = f" More tokens may end the thinking: --set {setting}=N." if setting and AnswerKind.CUT_IN_THINKING in counts else ""
    return f" No reply: answers that are none ({counts}); {rates}.{mend}"
