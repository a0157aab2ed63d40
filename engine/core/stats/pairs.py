"""Figures of single items, and the difference between two systems that were measured on the same items.

A verb describes its figures of single items once, by an `ItemMetrics`. Each metric is a sum of numerators over a sum of
denominators, such as hits over trials or nats over words. So the metric of any part of the items follows from the same numbers.

Where both systems have the same denominators, the difference is a mean of differences. Elsewhere, as with agreed dialogues
alone, each cluster counts by the linear part of its effect on the metric: the mean of these parts is the metric itself.

Sources:
  * Difference of shares: `rate_difference`. Of means: `paired_difference`. Test: `paired_bootstrap`. Trainings: `crossed_test`.
  * Several tests: Holm 1979, "A simple sequentially rejective multiple test procedure".
  * Items needed: the size of a paired t-test with a two-sided level of 5 % and a power of 80 % (Cohen 1988, chapter 2).

Shapes: V items, G clusters, A trainings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from parley.engine.core.stats.rows import Columns, linked_units
from parley.engine.core.stats.statistics import (
    NOTHING,
    Estimate,
    Metric,
    PairedTest,
    Row,
    clustered_rate,
    count,
    mean_count,
    not_below,
    paired_bootstrap,
    paired_difference,
    perplexity,
    proven,
    rate,
    rate_difference,
    ratio_of_sums,
    unlike,
)
from parley.envs.core.seeds import stable_hash

Form = Literal["share", "mean", "count", "perplexity"]
"""Shares have Wilson's interval, counts an interval that is not below 0; a perplexity is exp of nats per word."""
POWER = 0.8
"""The chance to tell a difference with the items that `items_needed` names."""
_MOST_ITEMS = 10**9
"""The largest number of items worth naming."""


@dataclass(frozen=True)
class ItemFigures:
    """A metric of single items.

    Args:
        rows: positions of the items among the rows (V,) int; an item has one entry at most.
        tops: numerators (V,) float64.
        bottoms: denominators (V,) float64, at least 0.
        form: the form of the metric.
        spread: as in `clustered_rate`.
    """

    rows: np.ndarray
    tops: np.ndarray
    bottoms: np.ndarray
    form: Form
    spread: float = 1.0

    @classmethod
    def of(cls, entries: Iterable[tuple[int, float, float]], form: Form, spread: float = 1.0) -> ItemFigures:
        """Return the figures of entries: position, numerator, denominator; entries of one position are added up."""
        sums: dict[int, tuple[float, float]] = {}
        for position, top, bottom in entries:
            before = sums.get(position, (0.0, 0.0))
            sums[position] = before[0] + float(top), before[1] + float(bottom)
        values = np.array(list(sums.values()), dtype=np.float64).reshape(-1, 2)
        return cls(np.array(list(sums), dtype=np.int64), values[:, 0], values[:, 1], form, spread)

    @classmethod
    def by_name(
        cls, sums_of: Sequence[Mapping[str, tuple[float, float]]], form: Form, spread: float = 1.0
    ) -> dict[str, ItemFigures]:
        """Return the figures of rows, each of which has numerators and denominators by metric."""
        columns: dict[str, list[tuple[int, float, float]]] = {}
        for number, sums in enumerate(sums_of):
            for name, pair in sums.items():
                columns.setdefault(name, []).append((number, *pair))
        return {name: cls.of(entries, form, spread) for name, entries in columns.items()}


@dataclass(frozen=True)
class RowMetric:
    """A metric to which each row adds a number over another one; verbs estimate it and compare runs by it alike.

    Args:
        top: returns the numerator of a row.
        form: the form of the metric.
        bottom: returns the denominator of a row; 1 if not given.
        among: returns whether a row counts; all do if not given.
    """

    top: Callable[[Row], float]
    form: Form
    bottom: Callable[[Row], float] | None = None
    among: Callable[[Row], bool] | None = None

    def estimate(self, name: str, figures: ItemFigures, units: np.ndarray | None) -> Estimate:
        """Return the metric of figures.

        Args:
            name: in a warning.
            figures: of rows.
            units: the independent unit of each (V,); every row is its own if not given.
        """
        if self.form == "share" and self.bottom is None and units is None:
            return rate(int(figures.tops.sum()), len(figures.tops))
        return _estimate(self.form, figures.tops, figures.bottoms, units, name=name)


def _estimate(
    form: Form, tops: np.ndarray, bottoms: np.ndarray, units: np.ndarray | None, spread: float = 1.0, name: str = ""
) -> Estimate:
    """Return a metric of items; its name stands in a warning."""
    if form == "share":
        return clustered_rate(tops, units, bottoms, spread=spread)
    if form == "perplexity":
        return perplexity(name, tops, bottoms, units)
    return mean_count(tops, units, bottoms) if form == "count" else ratio_of_sums(tops, bottoms, units)


def key_of(row: Row) -> str:
    """Return the key of the row's item."""
    return str(row["item_key"])


class RowFigures:
    """Figures of rows by metric. The rows are gone through once, and none is kept.

    Args:
        metrics: metrics of single rows, by name.
        rows: rows that worked.
        cluster: returns the independent unit of a row; every row is its own if not given.
    """

    def __init__(
        self, metrics: Mapping[str, RowMetric], rows: Iterable[Row], cluster: Callable[[Row], str] | None = None
    ) -> None:
        self._metrics, self._columns, number = metrics, Columns(), -1
        for number, row in enumerate(rows):
            for name, metric in metrics.items():
                if metric.among is None or metric.among(row):
                    bottom = 1.0 if metric.bottom is None else metric.bottom(row)
                    self._columns.add(name, "d", (number, metric.top(row), bottom))
            if cluster is not None:
                self._columns.add(None, "Q", (stable_hash(cluster(row)),))
        self.num_rows = number + 1
        self._is_clustered = cluster is not None
        self.units = linked_units(self._columns.get(None, "Q")) if self._is_clustered else np.arange(self.num_rows)
        """The number of the unit of each row (V,)."""

    def __getitem__(self, name: str) -> ItemFigures:
        numbers, tops, bottoms = self._columns.get(name).reshape(-1, 3).T
        return ItemFigures(numbers.astype(np.int64), tops, bottoms, self._metrics[name].form)

    def estimate(self, name: str) -> Estimate:
        """Return a metric of all rows."""
        figures = self[name]
        return self._metrics[name].estimate(name, figures, self.units[figures.rows] if self._is_clustered else None)

    def estimates(self) -> dict[str, Estimate]:
        """Return all metrics by name."""
        return {name: self.estimate(name) for name in self._metrics}


def figures_of_rows(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the figures of rows that hold sums of shares by metric."""
    return ItemFigures.by_name([row["figures"] for row in rows], "share")


@dataclass(frozen=True)
class ItemMetrics:
    """The rule by which rows become figures of single items; runs are compared by them.

    Args:
        unit: name of the independent units, such as "dialogues".
        figures: returns the figures by metric, from rows that worked and the settings of their run.
        describe: returns the meaning of a metric by its name.
        links: returns what makes rows one unit, such as the prompt; of a tuple, such as dialogue and context, rows that share
            an entry, directly or through others, are one (`linked_units`).
        content: returns the task of a row; rows of one key are the same item if their tasks are equal.
        subjects: returns the labels of the measured models in metrics' names, without controls, from rows and settings.
        unit_alone: name of the units if all items share one cluster: each item is its own unit then. Empty: they stay one unit.
    """

    unit: str
    figures: Callable[[Sequence[Row], Mapping[str, Any]], Mapping[str, ItemFigures]]
    describe: Callable[[str], Metric]
    links: Callable[[Row], Any] = key_of
    content: Callable[[Row], Any] = key_of
    subjects: Callable[[Sequence[Row], Mapping[str, Any]], Collection[str]] = lambda rows, config: ()
    unit_alone: str = ""

    def digests(self, row: Row) -> tuple[int, ...]:
        """Return the links of a row as numbers."""
        links = self.links(row)
        return tuple(stable_hash(repr(link)) for link in (links if isinstance(links, tuple) else (links,)))

    def units(self, digests: Sequence[tuple[int, ...]]) -> tuple[str, np.ndarray]:
        """Return the name of the independent units, and the unit of each item (V,), from the digests of the items."""
        units = linked_units(*np.array(digests, dtype=np.uint64).T)
        return (self.unit_alone, np.arange(len(units))) if self.unit_alone and not units.any() else (self.unit, units)


@dataclass(frozen=True)
class Sample:
    """A metric of one run on some items, in an order that all runs share.

    Args:
        tops: numerators (V,); 0 for an item without an entry.
        bottoms: denominators (V,); 0 for an item without an entry.
        present: whether the run has an entry of the item (V,) bool.
        clusters: the independent unit of each item (V,).
        form: the form of the metric.
        spread: as in `clustered_rate`.
    """

    tops: np.ndarray
    bottoms: np.ndarray
    present: np.ndarray
    clusters: np.ndarray
    form: Form
    spread: float = 1.0

    @property
    def is_measured(self) -> bool:
        """Return whether the metric has a finite value."""
        return bool(self.bottoms.sum() > 0 and np.isfinite(self.tops).all())

    def estimate(self) -> Estimate:
        """Return the metric with its interval, as the verb gives it of these items alone."""
        if not self.is_measured:
            num = int(self.present.sum())
            return count(math.nan, num) if num else NOTHING
        tops, bottoms, clusters = (column[self.present] for column in (self.tops, self.bottoms, self.clusters))
        return _estimate(self.form, tops, bottoms, clusters, self.spread)

    def parts(self, num_clusters: int, index: np.ndarray) -> np.ndarray:
        """Return the linear parts of the metric (G,): their mean is the metric, their spread is its error.

        Args:
            num_clusters: G.
            index: the number of each item's cluster (V,) int.
        """
        ratio = float(self.tops.sum() / self.bottoms.sum())
        off = np.bincount(index, self.tops - ratio * self.bottoms, num_clusters) * num_clusters / self.bottoms.sum()
        value = math.exp(ratio) if self.form == "perplexity" else ratio
        return np.asarray(value + off * (value if self.form == "perplexity" else 1.0))


@dataclass(frozen=True)
class Contrast:
    """The difference of a metric between two groups of runs.

    Args:
        test: the second group's figure less the first one's, and its p-value.
        num_needed: independent units that tell this difference with a power of 80 %; None if no number of them does.
    """

    test: PairedTest
    num_needed: int | None


def group_estimate(samples: Sequence[Sample]) -> Estimate:
    """Return the figure of one run, or the mean over several trainings with an interval over trainings and clusters."""
    from parley.engine.core.stats.trainings import crossed_mean

    if len(samples) == 1:
        return samples[0].estimate()
    measured = [sample for sample in samples if sample.is_measured]
    if not measured:
        return NOTHING
    estimate, form = crossed_mean(_parts(measured), measured[0].spread), measured[0].form
    if form == "share":
        if math.isnan(estimate.low):
            # Neither trainings nor clusters differ, as where every dialogue agrees.
            return _pooled(measured).estimate()
        return replace(estimate, low=max(0.0, estimate.low), high=min(1.0, estimate.high))
    return estimate if form == "mean" else not_below(1.0 if form == "perplexity" else 0.0, estimate)


def _pooled(samples: Sequence[Sample]) -> Sample:
    tops, bottoms, present = (
        np.sum([getattr(sample, name) for sample in samples], 0) for name in ("tops", "bottoms", "present")
    )
    return replace(samples[0], tops=tops, bottoms=bottoms, present=present > 0)


def contrast(first: Sequence[Sample], second: Sequence[Sample]) -> Contrast:
    """Return the difference between two groups of trainings that were measured on the same items.

    Args:
        first: a sample of each training of the first group.
        second: the same of the second group.
    """
    from parley.engine.core.stats.trainings import crossed_test

    before, after = ([sample for sample in group if sample.is_measured] for group in (first, second))
    if not before or not after:
        return Contrast(PairedTest(NOTHING, math.nan), None)
    parts = _parts([*before, *after])
    earlier, later = parts[: len(before)], parts[len(before) :]
    spread, less = max(sample.spread for sample in (*before, *after)), later.mean(axis=0) - earlier.mean(axis=0)
    if len(parts) > 2:
        test = crossed_test(later, earlier, spread)
        fixed = sum(float(group.mean(axis=1).var(ddof=1)) / len(group) for group in (earlier, later) if len(group) > 1)
        if before[0].form == "share" and max(fixed, np.ptp(less)) < 1e-15:
            test = replace(test, difference=_paired(_pooled(before), _pooled(after), later[0], earlier[0]))
    else:
        difference = _paired(before[0], after[0], later[0], earlier[0])
        test, fixed = PairedTest(difference, paired_bootstrap(later[0], earlier[0], spread=spread).p_value), 0.0
    return Contrast(test, items_needed(less, fixed, spread))


def _parts(samples: Sequence[Sample]) -> np.ndarray:
    """Return the linear parts of each sample (A, G) by the clusters in which at least one sample has a denominator."""
    some = np.any([sample.bottoms > 0 for sample in samples], axis=0)
    names, index = np.unique(samples[0].clusters[some], return_inverse=True)
    kept = [replace(sample, tops=sample.tops[some], bottoms=sample.bottoms[some]) for sample in samples]
    return np.array([sample.parts(len(names), index) for sample in kept])


def paired_estimate(after: Sample, before: Sample) -> Estimate | None:
    """Return the first figure less the second, of the same items, with an interval over clusters; None if one is missing."""
    if not (before.is_measured and after.is_measured):
        return None
    earlier_G, later_G = _parts([before, after])
    return _paired(before, after, later_G, earlier_G)


def _paired(before: Sample, after: Sample, later_G: np.ndarray, earlier_G: np.ndarray) -> Estimate:
    if after.form == "share":
        some = before.present | after.present
        trials = after.bottoms[some], before.bottoms[some]
        spread = max(before.spread, after.spread)
        return rate_difference(after.tops[some], before.tops[some], after.clusters[some], trials=trials, spread=spread)
    same = np.array_equal(before.bottoms, after.bottoms) and np.array_equal(before.present, after.present)
    if same and after.form != "perplexity":
        kept = after.present
        less = ratio_of_sums((after.tops - before.tops)[kept], after.bottoms[kept], after.clusters[kept])
        return proven(unlike(less, later_G, earlier_G), ~np.isclose(later_G, earlier_G))
    return paired_difference(later_G, earlier_G)


def items_needed(differences: np.ndarray, fixed: float = 0.0, spread: float = 1.0) -> int | None:
    """Return the number of items at which a paired t-test tells the mean difference with a power of 80 %.

    Args:
        differences: the difference of each item (G,).
        fixed: variance of the mean that more items do not lower, such as that of trainings.
        spread: as in `clustered_rate`.

    Returns:
        The number, at which as often six differ, for fewer prove nothing (`proven`); None for one item, or if none suffices.
    """
    from scipy.special import bdtrc, stdtrit

    if len(differences) < 2:
        return None
    distance, variance = abs(float(differences.mean())), float(differences.var(ddof=1)) * spread**2
    rounding = 1e-12 * max(1.0, float(np.abs(differences).max()))
    share = np.count_nonzero(np.abs(differences) > rounding) / len(differences)

    def suffices(num: int) -> bool:
        wanted = float(stdtrit(num - 1, 0.975) + stdtrit(num - 1, POWER))
        return distance >= wanted * math.sqrt(fixed + variance / num) and bdtrc(5, num, share) >= POWER

    if not distance > rounding or not suffices(_MOST_ITEMS):
        return None
    low, high = 1, _MOST_ITEMS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Holm's method, in their order; those that are NaN stay so and do not count."""
    known = sorted((value, position) for position, value in enumerate(p_values) if not math.isnan(value))
    adjusted, most = [math.nan] * len(p_values), 0.0
    for rank, (value, position) in enumerate(known):
        most = max(most, min(1.0, (len(known) - rank) * value))
        adjusted[position] = most
    return adjusted
