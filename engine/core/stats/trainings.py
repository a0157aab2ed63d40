"""Means over several trainings, with intervals over trainings and dialogues.

A training is one draw, so an interval over its dialogues alone is too narrow.

Source: Satterthwaite 1946, "An approximate distribution of estimates of variance components". A bootstrap over trainings and
dialogues covers less: in 300 simulated sets of 2, 3 and 5 trainings that differ more than dialogues make them, its 95 %
interval held the true mean in 75, 83 and 92 % of them, the one here in 89, 91 and 95 %.

Shapes: A trainings, G dialogues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from parley.engine.core.stats.statistics import (
    INTERVAL_Z,
    NOTHING,
    Estimate,
    Metric,
    PairedTest,
    count,
    mean,
    not_below,
    paired_difference,
    proven,
    unlike,
)
from parley.engine.core.tables.table import EstimateTable, figure, with_interval

TRAININGS = "trainings"
"""Entry of a summary that holds the figures of each training, by metric."""
_MOST_COLUMNS = 8
_MOST_NATS, _ROUNDING = 700.0, 1e-9
_NOTE = (
    "Each training is a run of its own, from a seed of its own. Brackets: 95 % intervals over trainings and dialogues; few "
    "trainings make them wide. Perplexities are averaged in nats."
)


def crossed_mean(values_AG: ArrayLike, spread: float = 1.0) -> Estimate:
    """Return the mean over several trainings measured in the same dialogues, with an interval over both.

    A training and a dialogue each move the mean. Its variance is taken as s_A^2 / A + s_G^2 / G, from the means by training and
    the means by dialogue. It is never too small, because the part of one training in one dialogue is counted in both. The
    interval is Student's with Satterthwaite's degrees of freedom, so few trainings make it wide; a bootstrap over two or three
    trainings would cover far less than 95 %.

    Args:
        values_AG: (A, G) finite numbers, by training and dialogue.
        spread: factor by which the standard error over dialogues exceeds that of their spread (`refit_spread`).

    Returns:
        The estimate; n is the number of dialogues. A single training has the interval of `mean`, over dialogues alone.
    """
    values = np.asarray(values_AG, dtype=np.float64)
    return mean(values[0]) if len(values) == 1 else _crossed([values], values.mean(axis=0), spread)


def crossed_difference(a_AG: ArrayLike, b_AG: ArrayLike, spread: float = 1.0) -> Estimate:
    """Return the mean of `a - b`, where both are means over trainings measured in the same dialogues.

    Dialogues are paired. Trainings are independent groups, even if they share seeds: equal seeds of different models do not
    make similar trainings.

    Args:
        a_AG: (A, G) numbers of the first system, as in `crossed_mean`.
        b_AG: (B, G) numbers of the second system, with dialogues in the same order.
        spread: as in `crossed_mean`.
    """
    first, second = np.asarray(a_AG, dtype=np.float64), np.asarray(b_AG, dtype=np.float64)
    assert first.shape[1:] == second.shape[1:], f"the same dialogues are wanted, got {first.shape} and {second.shape}"
    if len(first) == len(second) == 1:
        return paired_difference(first[0], second[0])
    less = first.mean(axis=0) - second.mean(axis=0)
    difference = _crossed([first, second], less, spread)
    if math.isnan(difference.low):
        return proven(unlike(difference, first.ravel(), second.ravel(), spread=spread), ~np.isclose(less, 0))
    return difference


def crossed_test(after_AG: ArrayLike, before_AG: ArrayLike, spread: float = 1.0) -> PairedTest:
    """Return `crossed_difference` of after and before with the two-sided p-value of its t-test; of signs if all are alike."""
    from scipy.stats import t as student

    after, before = np.asarray(after_AG, dtype=np.float64), np.asarray(before_AG, dtype=np.float64)
    difference = crossed_difference(after, before, spread)
    less = after.mean(axis=0) - before.mean(axis=0)
    parts = _variances([after, before], less * spread)
    variance = sum(part for part, _ in parts)
    if not variance:
        num_differ = int(np.count_nonzero(~np.isclose(less, 0)))
        return PairedTest(difference, 2.0 ** (1 - max(1, num_differ)) if len(less) > 1 else math.nan)
    return PairedTest(difference, float(2 * student.sf(abs(difference.value) / math.sqrt(variance), _freedom(parts))))


def over_runs(values: Sequence[float], metric: Metric | None = None) -> Estimate:
    """Return the mean over runs that share neither seeds nor dialogues, with Student's interval for both sources of error.

    Args:
        values: value of each run; values that are not finite are left out.
        metric: the metric, if known; used as in `over_trainings`.

    Returns:
        The estimate; n is the number of runs. A single run has no interval.
    """
    estimates = [count(value, 1) for value in values if math.isfinite(value)]
    return replace(over_trainings(estimates, metric), n=len(estimates))


def over_trainings(estimates: Sequence[Estimate], metric: Metric | None = None) -> Estimate:
    """Return the mean of any figure over trainings measured in the same dialogues.

    The method is that of `crossed_mean`, from each training's own interval: the mean of the squared standard errors is at least
    the variance that dialogues add.

    Args:
        estimates: estimate of each training; those without a value are left out, and a single one is returned as it is.
        metric: the metric, if known. The interval of a rate or share stays in 0 to 1; perplexities are averaged in nats, which
            gives their geometric mean.

    Returns:
        The estimate; n is the smallest number of dialogues.
    """
    measured = [estimate for estimate in estimates if math.isfinite(estimate.value)]
    if len(measured) < 2:
        return measured[0] if measured else NOTHING
    if metric is not None and metric.form == "perplexity":
        # A cap keeps the limit of two distant trainings finite.
        nats = over_trainings([_mapped(estimate, math.log) for estimate in measured])
        # No word is likelier than 1.
        return not_below(1.0, _mapped(nats, lambda nats: math.exp(min(nats, _MOST_NATS))))
    values, least = [estimate.value for estimate in measured], min(estimate.n for estimate in measured)
    errors = [(estimate.high - estimate.low) / (2 * INTERVAL_Z) for estimate in measured if math.isfinite(estimate.low)]
    parts = [_variance(np.array(values), max(map(abs, values)))]
    parts += [(float(np.mean(np.square(errors))), least - 1)] if errors and least > 1 else []
    result = _with_parts(float(np.mean(values)), parts, least)
    ends = [end for estimate in measured for end in (estimate.value, estimate.low, estimate.high) if math.isfinite(end)]
    # A difference of shares is shown as they are, and may be below 0.
    is_share = metric is not None and metric.form in ("rate", "share") and min(ends) >= 0
    is_open = is_share and math.isfinite(result.low)
    return replace(result, low=max(0.0, result.low), high=min(1.0, result.high)) if is_open else result


def independent_difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the first less the second, as if their items were independent, so that the interval is rather too wide.

    Source: Zou & Donner 2008, "Construction of confidence limits about effect measures" (limits from those of both figures).
    """
    value = first.value - second.value
    low = value - math.hypot(first.value - first.low, second.high - second.value)
    high = value + math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value, low, high, min(first.n, second.n))


def spread_of(summary: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the figures of each training, by metric, from the summary of a run; empty if there was one training."""
    entries = summary.get(TRAININGS, {})
    return {name: [math.nan if value is None else float(value) for value in figures] for name, figures in entries.items()}


def spread_table(
    values: Mapping[str, Sequence[float]], metrics: Mapping[str, Estimate], legend: Mapping[str, Metric]
) -> EstimateTable:
    """Return a table of each training's figures beside the figure over all of them.

    Args:
        values: figures of each training by metric, at least one metric.
        metrics: figures over all trainings, by name.
        legend: titles of the metrics, by name.
    """
    num = max(map(len, values.values()))
    columns = [f"training {number}" for number in range(1, num + 1)] if num <= _MOST_COLUMNS else ["least", "middle", "most"]

    def spread(figures: Sequence[float]) -> list[str]:
        finite = [value for value in figures if math.isfinite(value)]
        if num <= _MOST_COLUMNS or not finite:
            return [*map(figure, figures), *[""] * (num - len(figures))][: len(columns)]
        return [figure(float(part)) for part in np.quantile(finite, (0, 0.5, 1))]

    rows = tuple(
        (legend[name].title if name in legend else name, with_interval(metrics.get(name, NOTHING)), *spread(figures))
        for name, figures in values.items()
    )
    return EstimateTable(("figure", f"over {num} trainings", *columns), rows, _NOTE)


def _mapped(estimate: Estimate, function: Callable[[float], float]) -> Estimate:
    return Estimate(function(estimate.value), function(estimate.low), function(estimate.high), estimate.n)


def _crossed(groups_AG: Sequence[np.ndarray], means_G: np.ndarray, spread: float) -> Estimate:
    """Return the mean of `means_G` with the interval of `crossed_mean`; each group has its own variance over trainings."""
    assert all(np.isfinite(group).all() for group in groups_AG), "every number must be finite"
    size = len(means_G)
    return _with_parts(float(means_G.mean()), _variances(groups_AG, means_G * spread), size) if size else NOTHING


def _variances(groups_AG: Sequence[np.ndarray], means_G: np.ndarray) -> list[tuple[float, int]]:
    """Return the parts of the variance with their degrees of freedom: of each group of trainings, and of dialogues."""
    samples = [group.mean(axis=1) for group in groups_AG] + [means_G]
    scale = max(float(np.abs(group).max(initial=0.0)) for group in groups_AG)
    return [_variance(sample, scale) for sample in samples if len(sample) > 1]


def _variance(sample: np.ndarray, scale: float) -> tuple[float, int]:
    """Return the variance of a mean, without what rounding leaves of equal numbers of a scale, and its degrees of freedom."""
    differs = np.ptp(sample) > _ROUNDING * scale
    return float(sample.var(ddof=1)) / len(sample) * differs, len(sample) - 1


def _freedom(parts: Sequence[tuple[Any, int]]) -> float:
    return float(sum(part for part, _ in parts)) ** 2 / sum(part**2 / degrees for part, degrees in parts)


def _with_parts(value: float, parts: Sequence[tuple[Any, int]], n: int) -> Estimate:
    """Return a value with Student's interval by Satterthwaite's degrees of freedom.

    Args:
        value: the estimate.
        parts: parts of its variance, each with its degrees of freedom.
        n: as in `Estimate`.
    """
    from scipy.stats import t as student

    variance = float(sum(part for part, _ in parts))
    if variance == 0:
        # Equal figures do not show how far figures vary.
        return Estimate(value, math.nan, math.nan, n)
    half = float(student.ppf(0.975, _freedom(parts))) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, n)
