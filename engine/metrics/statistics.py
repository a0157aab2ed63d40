"""Estimates with 95 % intervals: Wilson for rates, the clustered bootstrap for means, ratios and paired differences.

Sources:
  * Wilson score interval: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
  * Percentile bootstrap: Efron & Tibshirani 1993, chapter 13; whole clusters (dialogues) are drawn, never their parts,
    because the words of one dialogue are not independent.

What belongs here: numbers in, `Estimate` out. Which numbers a task looks at is in the module of that task.

Shapes: V values, G clusters, R = `NUM_RESAMPLES`, D distinct clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from envs.core.seeds import stream

NUM_RESAMPLES = 2000
FEW = 30
"""An estimate from fewer independent units than this is flagged."""
_Z = 1.959963984540054
_DRAWS_PER_CHUNK = 1 << 18


@dataclass(frozen=True)
class Estimate:
    """A number and how far to trust it.

    Args:
        value: the estimate; NaN when there was nothing to estimate it from.
        low: lower end of the 95 % interval; NaN when there is none.
        high: upper end of it.
        n: independent units behind it, clusters where values come in clusters.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def flagged(self) -> bool:
        """Whether too few units stand behind the number to lean on it."""
        return self.n < FEW

    def to_json(self) -> dict[str, float | int | None]:
        """The four parts as JSON types; NaN becomes null."""
        return {"value": _finite(self.value), "low": _finite(self.low), "high": _finite(self.high), "n": self.n}

    @classmethod
    def from_json(cls, parts: Mapping[str, Any]) -> Estimate:
        """The estimate that `to_json` wrote."""
        value, low, high = (math.nan if parts[key] is None else float(parts[key]) for key in ("value", "low", "high"))
        return cls(value, low, high, int(parts["n"]))

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"none (n={self.n})"
        interval = "" if math.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.value:.4g}{interval} (n={self.n}{', few' if self.flagged else ''})"


NOTHING = Estimate(math.nan, math.nan, math.nan, 0)
"""The estimate from no data."""


class Metric(NamedTuple):
    """What a metric is called and how to read it."""

    title: str
    direction: str
    """Which way is better, and for whom."""
    definition: str
    """One line; the denominator is named in it."""
    form: Literal["number", "share", "count"] = "number"
    """How its value is written: with decimals, as percent, or as a whole number."""
    main: bool = False
    """Whether a reader looks for it first; pages fold the others away."""


def count(value: float, n: int) -> Estimate:
    """A number that is counted, not estimated: no interval."""
    return Estimate(float(value), math.nan, math.nan, n) if n else NOTHING


def rate(successes: int, n: int) -> Estimate:
    """A share with its Wilson score interval.

    Args:
        successes: 0..n.
        n: independent trials; with none, the value is NaN.
    """
    assert 0 <= successes <= n, f"{successes} successes in {n} trials"
    if n == 0:
        return NOTHING
    share, z2 = successes / n, _Z * _Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    # At 0 and n successes the exact ends are 0 and 1; rounding must not push them past the share itself.
    return Estimate(share, min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half)), n)


def mean(values: ArrayLike, clusters: ArrayLike | None = None, seed: int = 0) -> Estimate:
    """A mean with its clustered bootstrap interval.

    Args:
        values: (V,) finite numbers.
        clusters: (V,) the dialogue that each value belongs to; every value is its own cluster when not given.
        seed: names the resampling stream; equal seeds give equal intervals.
    """
    numbers = np.asarray(values, dtype=np.float64)
    return ratio_of_sums(numbers, np.ones_like(numbers), clusters, seed=seed)


def paired_difference(a: ArrayLike, b: ArrayLike, clusters: ArrayLike | None = None, seed: int = 0) -> Estimate:
    """The mean of `a - b` over pairs, with the paired bootstrap: a pair is drawn whole.

    Args:
        a: (V,) numbers of the first system.
        b: (V,) numbers of the second system on the same items, in the same order.
        clusters: (V,) as in `mean`.
        seed: as in `mean`.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    assert first.shape == second.shape, f"pairs need equal lengths, got {first.shape} and {second.shape}"
    return mean(first - second, clusters, seed)


def ratio_of_sums(
    numerators: ArrayLike,
    denominators: ArrayLike,
    clusters: ArrayLike | None = None,
    transform: Callable[[np.ndarray], np.ndarray] | None = None,
    seed: int = 0,
) -> Estimate:
    """`transform(sum of numerators / sum of denominators)` with its clustered bootstrap interval.

    Perplexity is `ratio_of_sums(nll, words, dialogues, np.exp)`.

    Args:
        numerators: (V,) finite numbers.
        denominators: (V,) finite numbers, at least 0.
        clusters: (V,) as in `mean`.
        transform: a function of an array, element by element; none leaves the ratio as it is.
        seed: as in `mean`.

    Returns:
        The estimate; NaN with n = 0 when the denominators sum to 0. A single cluster has a value and no interval.
        Resamples whose denominators sum to 0 are left out of the interval.
    """
    top, bottom = _sum_by_cluster(numerators, denominators, clusters)
    if bottom.sum() == 0:
        return NOTHING
    convert = transform or _unchanged
    value = float(convert(np.array([top.sum() / bottom.sum()]))[0])
    if len(top) == 1:
        return Estimate(value, math.nan, math.nan, 1)
    tops, bottoms = _resampled_sums(top, bottom, seed)
    drawn = bottoms > 0
    low, high = np.quantile(convert(tops[drawn] / bottoms[drawn]), (0.025, 0.975))
    return Estimate(value, float(low), float(high), len(top))


def _sum_by_cluster(
    numerators: ArrayLike, denominators: ArrayLike, clusters: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Both sums within each cluster, (G,) and (G,); clusters in sorted order."""
    top, bottom = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    assert top.shape == bottom.shape == (len(top),), f"one list of pairs is wanted, got {top.shape} and {bottom.shape}"
    assert np.isfinite([top, bottom]).all(), "every number must be finite"
    assert (bottom >= 0).all(), "denominators are counts, not below 0"
    if clusters is None:
        return top, bottom
    labels = np.asarray(clusters)
    assert labels.shape == top.shape, f"one cluster per value, got {labels.shape} for {top.shape}"
    names, index = np.unique(labels, return_inverse=True)
    return np.bincount(index, top, len(names)), np.bincount(index, bottom, len(names))


def _resampled_sums(top: np.ndarray, bottom: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums of G clusters drawn with replacement from the G clusters, R times: (R,) and (R,)."""
    rng, size = stream(seed, "bootstrap"), len(top)
    pairs, multiplicity = np.unique(top + 1j * bottom, return_counts=True)
    if 32 * len(pairs) <= size:
        # How often each distinct cluster is drawn is multinomial: the same distribution as drawing one by one, at a cost
        # of R * D instead of R * G. Points and turns take few values, so a million dialogues cost what a hundred do.
        times = rng.multinomial(size, multiplicity / size, size=NUM_RESAMPLES)
        return times @ pairs.real, times @ pairs.imag
    tops, bottoms = np.empty(NUM_RESAMPLES), np.empty(NUM_RESAMPLES)
    uniform = bool((bottom == bottom[0]).all())
    chunk = max(1, _DRAWS_PER_CHUNK // size)
    for start in range(0, NUM_RESAMPLES, chunk):
        rows = min(chunk, NUM_RESAMPLES - start)
        drawn = rng.integers(size, size=(rows, size), dtype=np.int32)
        tops[start : start + rows] = np.take(top, drawn).sum(axis=1)
        bottoms[start : start + rows] = size * bottom[0] if uniform else np.take(bottom, drawn).sum(axis=1)
    return tops, bottoms


def _unchanged(numbers: np.ndarray) -> np.ndarray:
    return numbers


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
