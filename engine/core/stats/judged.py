"""Judges that are measured by people's labels: sensitivity, specificity, agreement, and rates that are corrected for both.

A judge says of each item whether it finds something, such as a breach. People label a sample of the items, drawn within each
verdict. Let q be the share of found items, a the share of them that people confirm, and b the share of breaches among the rest:

    true share    = q a + (1 - q) b
    sensitivity   = q a / (q a + (1 - q) b)
    specificity   = (1 - q)(1 - b) / (q (1 - a) + (1 - q)(1 - b))
    corrected     = (p + specificity - 1) / (sensitivity + specificity - 1)        of a part with the share p of found items

Sources:
  * The correction: Rogan & Gladen 1978, "Estimating prevalence from the results of a screening test". Clipped to 0 and 1.
    Of all items it is the true share above.
  * Intervals: q, p, a and b are drawn from their Jeffreys distributions, and quantiles of the result are its ends. So the
    uncertainty of the labels counts as that of the answers does. Where no label is a breach the lower end is 0, where all are,
    the upper end is 1. A draw in which the judge is no better than chance says nothing of a part: its share may be 0 or 1.
  * Several judges: Krippendorff 2011, "Computing Krippendorff's alpha-reliability", nominal, with missing verdicts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parley.engine.core.stats.statistics import INTERVAL_Z, NOTHING, Estimate
from parley.envs.core.seeds import stable_hash, stream

_DRAWS = 4000
_ENDS = (0.025, 0.975)


@dataclass(frozen=True)
class LabelledVerdicts:
    """Counts of a judge's verdicts and of people's labels, each for found items first and the others second.

    Args:
        verdicts: items with the verdict.
        labelled: those of them with a label.
        confirmed: those of the labelled ones that people call a breach.
        share: share of found items among all, with its interval.
    """

    verdicts: tuple[int, int]
    labelled: tuple[int, int]
    confirmed: tuple[int, int]
    share: Estimate

    @property
    def is_measured(self) -> bool:
        """Return whether every verdict that occurs has a label."""
        return all(labels or not items for items, labels in zip(self.verdicts, self.labelled, strict=True))

    def quality(self) -> dict[str, Estimate]:
        """Return sensitivity, specificity and Cohen's kappa of judge and people, over all items; no value without labels."""
        if not self.is_measured or not any(self.labelled):
            return dict.fromkeys(("sensitivity", "specificity", "kappa"), NOTHING)
        q, a, b = self._points
        drawn = _quality(_draw_share(self.share, stream(0, "share", str(self.share))), *self._confirmed)
        points = _quality(np.array([q]), np.array([a]), np.array([b]))
        num = sum(self.labelled)
        return {
            name: Estimate(float(points[name][0]), *_ends(values[np.isfinite(values)]), num) for name, values in drawn.items()
        }

    def corrected(self, part: Estimate, rest: Estimate, weight: float) -> Estimate:
        """Return the share of breaches in a part of the items, corrected for the judge.

        Args:
            part: share of found items in the part, with its interval.
            rest: the same of all other items; without any, the part is everything.
            weight: share of the items that lie in the part.

        Returns:
            The estimate; n is the number of labels. No value without labels, or where the judge is no better than chance.
        """
        if not self.is_measured or not any(self.labelled) or not part.n:
            return NOTHING
        q, a, b = self._points
        rng = stream(0, "corrected", str(part.n), str(self.labelled))
        share, (confirmed, missed) = _draw_share(part, rng), self._confirmed
        if weight >= 1 or not rest.n:
            value, draws = part.value * a + (1 - part.value) * b, share * confirmed + (1 - share) * missed
        else:
            everything = weight * share + (1 - weight) * _draw_share(rest, rng)
            value = float(_corrected(*map(np.array, ([part.value], [q], [a], [b])))[0])
            draws = _corrected(share, everything, confirmed, missed)
            useless = ~np.isfinite(draws)
            draws[useless] = np.arange(useless.sum()) % 2
        low, high = _ends(draws)
        low = 0.0 if not any(self.confirmed) else low
        high = 1.0 if self.confirmed == self.labelled else high
        if not math.isfinite(value):
            return Estimate(math.nan, math.nan, math.nan, sum(self.labelled))
        return Estimate(value, min(low, value), max(high, value), sum(self.labelled))

    @property
    def _points(self) -> tuple[float, float, float]:
        a, b = (hits / num if num else 0.0 for hits, num in zip(self.confirmed, self.labelled, strict=True))
        return self.share.value, a, b

    @cached_property
    def _confirmed(self) -> tuple[np.ndarray, np.ndarray]:
        rng = stream(0, "confirmed", str(self.labelled), str(self.confirmed))
        confirmed, missed = (
            rng.beta(hits + 0.5, num - hits + 0.5, _DRAWS) for hits, num in zip(self.confirmed, self.labelled, strict=True)
        )
        return confirmed, missed


def _quality(q: np.ndarray, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore", divide="ignore"):
        breaches, others = q * a + (1 - q) * b, q * (1 - a) + (1 - q) * (1 - b)
        agreed, chance = q * a + (1 - q) * (1 - b), q * breaches + (1 - q) * others
        return {
            "sensitivity": q * a / breaches,
            "specificity": (1 - q) * (1 - b) / others,
            "kappa": (agreed - chance) / (1 - chance),
        }


def _corrected(p: np.ndarray, q: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return corrected shares, NaN where the judge is no better than chance."""
    breaches = q * a + (1 - q) * b
    with np.errstate(invalid="ignore", divide="ignore"):
        # Without a breach, or without anything else, sensitivity or specificity is unknown and the share is that of all.
        quality = _quality(q, a, b)
        gain = quality["sensitivity"] + quality["specificity"] - 1
        shares = np.clip((p + quality["specificity"] - 1) / gain, 0, 1)
    shares = np.where(gain > 0, shares, np.nan)
    return np.where((breaches <= 0) | (breaches >= 1), breaches, shares)


def _draw_share(estimate: Estimate, rng: np.random.Generator) -> np.ndarray:
    """Return draws of a share (R,) from the Jeffreys distribution of as many independent trials as its interval stands for."""
    trials = _trials(estimate)
    hits = estimate.value * trials
    misses = trials - hits
    # With no hit, or no miss, the interval is as wide as that of the share itself (Wilson's), which Jeffreys' is not.
    return rng.beta(hits + (0.5 if hits else 1.0), misses + (0.5 if misses else 1.0), _DRAWS)


def _trials(estimate: Estimate) -> float:
    """Return the number of independent trials whose Wilson interval is as wide."""
    width, spread = (estimate.high - estimate.low) ** 2, 4 * estimate.value * (1 - estimate.value)
    if not 0 < width < 1:
        return float(estimate.n) if not width > 0 else 0.1
    # Of n trials, with x = z^2 / n: width^2 (1 + x)^2 = 4 p (1 - p) x + x^2.
    half = width - spread / 2
    return INTERVAL_Z**2 * (1 - width) / (half + math.sqrt(half * half + width * (1 - width)))


def _ends(draws: np.ndarray) -> tuple[float, float]:
    if not len(draws):
        return math.nan, math.nan
    low, high = np.quantile(draws, _ENDS)
    return float(low), float(high)


def agreement(ballots: Iterable[tuple[str, Sequence[bool | None]]]) -> Estimate:
    """Return Krippendorff's alpha of several judges; 1 if they always agree, 0 if as often as chance would have it.

    Args:
        ballots: of each item its independent unit, which the bootstrap draws, and the verdicts of all judges; None is a missing
            one.

    Returns:
        The estimate; NaN if all verdicts are alike, which tells nothing. n counts units with two verdicts on an item.
    """
    units, entries = array("Q"), array("d")
    for unit, votes in ballots:
        given = [vote for vote in votes if vote is not None]
        if len(given) > 1:
            yes, num = sum(given), len(given)
            units.append(stable_hash(unit))
            entries.extend((2 * yes * (num - yes) / (num - 1), yes, num))
    if not units:
        return NOTHING
    _, codes = np.unique(units, return_inverse=True)
    by_unit = np.stack([np.bincount(codes, numbers) for numbers in np.reshape(entries, (-1, 3)).T], axis=1)
    value, size = float(_alpha(by_unit.sum(axis=0)[None])[0]), len(by_unit)
    if math.isnan(value) or size < 2:
        return Estimate(value, math.nan, math.nan, size)
    # Many units are alike, so that their kinds are drawn.
    kinds, times = np.unique(by_unit, axis=0, return_counts=True)
    drawn = _alpha(stream(0, "agreement").multinomial(size, times / size, size=_DRAWS) @ kinds)
    low, high = _ends(drawn[np.isfinite(drawn)])
    return Estimate(value, min(low, value), max(high, value), size)


def _alpha(totals: np.ndarray) -> np.ndarray:
    """Return alpha of sums (R, 3): disagreement, verdicts yes, verdicts."""
    disagreed, yes, num = totals.T
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = 2 * yes * (num - yes) / (num - 1)
        return np.asarray(np.where(by_chance > 0, 1 - disagreed / by_chance, np.nan))


def majority(votes: Sequence[bool | None]) -> bool | None:
    """Return the verdict of more than half of those that have one; None for a tie, or none at all."""
    given = [vote for vote in votes if vote is not None]
    return None if 2 * sum(given) == len(given) else 2 * sum(given) > len(given)
