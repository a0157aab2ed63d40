"""Adversarial success, and how far the judges that measured it can be trusted (Li et al. 2017, section 4).

AdverSuc is 1 less a judge's accuracy on equally many pairs of both sides: .5 where it cannot tell them apart, 0 where it always
can. A score of exactly 0 is undecided and half an error, so that a judge that gives every pair the same has an AdverSuc of .5
and an evaluator reliability error (ERE) of .25, whatever the data.

    adversuc.J.S        judge J, system S; sources drawn together
    matched.J.S, cut.J.S   the same where length tells nothing
    random.J.S          accuracy of telling system S from human replies to other sources: machine-vs-random
    chance.SCENARIO     the range that AdverSuc has in 95 % of cases or more where a judge has nothing to learn; n: pairs
    SCENARIO.J          AdverSuc in a scenario whose gold AdverSuc is known
    ere.J               mean distance from gold over the scenarios that there are, each with equal weight
    length.J.S          AdverSuc of J less that of the judge that knows length alone, on the same sources
    ahead.J.S.T         AdverSuc of system S less that of system T, on the sources that both answer; ahead_random: of accuracy
    tau.J.K             rank agreement of two judges about the systems, Kendall's tau-b
    calibration.J.S     mean distance of 1 / (1 + exp(-score)) from the share of people's replies, in ten bins
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from parley.engine.core.stats.rows import Row, finished
from parley.engine.core.stats.statistics import (
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    clustered_rate,
    count,
    rate_difference,
    refit_spread,
)
from parley.engine.generation.metrics.scenarios import ADVERSUC, CUT, GOLD, MATCHED, RANDOM

CHANCE, ERE, LENGTH, AHEAD, AHEAD_RANDOM, TAU, CALIBRATION = (
    "chance",
    "ere",
    "length",
    "ahead",
    "ahead_random",
    "tau",
    "calibration",
)
CONSTANT, LENGTH_ONLY = "constant", "length"
"""Names of two judges that are beside all others."""
NUM_BINS = 10
FEWEST_RANKED = 3
"""Systems from which on the order of two judges is compared."""


@dataclass(frozen=True)
class JudgedScores:
    """What a judge said of the pairs of a scenario, all folds together.

    Args:
        sources: (N,) names of the sources.
        labels: (N,) whether each pair is of the first side.
        scores: (N,) above 0 for the first side.
        num_folds: folds of the cross-fit; a judge of one fold was fitted on the pairs of all others.
    """

    sources: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    num_folds: int

    @cached_property
    def errors(self) -> np.ndarray:
        """(N,) 1 for an error, 0.5 for an undecided pair."""
        return np.where(self.scores == 0, 0.5, (self.scores > 0) != self.labels)

    @cached_property
    def by_source(self) -> dict[str, float]:
        """Mean error of each source."""
        names, index = np.unique(self.sources, return_inverse=True)
        return dict(zip(names.tolist(), (np.bincount(index, self.errors) / np.bincount(index)).tolist(), strict=True))

    def with_told(self, sources: Sequence[str]) -> JudgedScores:
        """With two more pairs, one of each side and both told right, for each of some sources: what nobody has to be asked."""
        if not sources:
            return self
        sides = np.tile([True, False], len(sources))
        return JudgedScores(
            np.concatenate([self.sources.astype(object), np.repeat(np.array(sources, dtype=object), 2)]),
            np.concatenate([self.labels, sides]),
            np.concatenate([self.scores, np.where(sides, 1.0, -1.0)]),
            self.num_folds,
        )

    def adversuc(self) -> Estimate:
        """Return 1 less the accuracy, with an interval over sources and fits of the judge.

        The judges of the folds share what they were fitted on. With those held fixed, 95 % intervals of judges that had nothing
        to learn held .5 in 75 to 89 % of 100 to 300 simulated sets, those here in 93 to 99 % (five judges, 60 and 500 sources).
        """
        if len(self.scores) and not self.scores.any():
            # A judge that decides nothing has a half whatever the data are.
            return Estimate(0.5, 0.5, 0.5, len(self.by_source))
        return clustered_rate(self.errors, self.sources, spread=refit_spread(self.num_folds))

    def accuracy(self) -> Estimate:
        """Share of pairs that are told right, sources drawn together."""
        error = self.adversuc()
        return Estimate(1 - error.value, 1 - error.high, 1 - error.low, error.n)

    def calibration(self) -> list[tuple[float, float, int]]:
        """Of each bin that has pairs: mean probability of the first side, the share of it, and the number of pairs."""
        told = 0.5 * (1 + np.tanh(0.5 * self.scores))
        bins = np.minimum((told * NUM_BINS).astype(int), NUM_BINS - 1)
        return [
            (float(told[bins == each].mean()), float(self.labels[bins == each].mean()), int((bins == each).sum()))
            for each in np.unique(bins)
        ]


class JudgedRows:
    """Rows by scenario and judge, both in the order of their names.

    Args:
        rows: of a run, in any order.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = finished(rows)
        found: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: (row["scenario"], row["judge"], row["fold"])):
            found.setdefault((row["scenario"], row["judge"]), []).append(row)
        self.scored = {
            key: JudgedScores(
                np.array([source for row in folds for source in row["sources"]]),
                np.array([label for row in folds for label in row["labels"]], dtype=bool),
                np.array([score for row in folds for score in row["scores"]], dtype=np.float64),
                len(folds),
            )
            for key, folds in found.items()
        }
        self.folds = {key: len(folds) for key, folds in found.items()}


def chance_range(num_pairs: int, num_folds: int) -> Estimate:
    """Return the range that holds AdverSuc in 95 % of cases or more where a cross-fitted judge has nothing to learn.

    It is the exact range of fair coins, as many times as wide as refits make it (`refit_spread`); the value is .5.
    """
    from scipy.stats import binom

    half = 0.5 - float(binom.ppf(0.025, num_pairs, 0.5)) / num_pairs
    half = min(0.5, half * refit_spread(num_folds))
    return Estimate(0.5, 0.5 - half, 0.5 + half, num_pairs)


def adversarial_metrics(read: JudgedRows, judges: Sequence[str], systems: Sequence[str], num_folds: int) -> dict[str, Estimate]:
    """All figures of an evaluation, see the top of this module.

    Args:
        read: its rows; a judge that failed in a fold of a scenario has no figure of it.
        judges: all of them, controls included.
        systems: names of the machine files.
        num_folds: folds of every scenario.
    """
    scored = {key: scores for key, scores in read.scored.items() if read.folds[key] == num_folds}
    metrics = {f"{CHANCE}.{scenario}": chance_range(len(scores.labels), num_folds) for (scenario, _), scores in scored.items()}
    for judge in judges:
        metrics[f"{ERE}.{judge}"] = reliability_error({name: scores for (name, by), scores in scored.items() if by == judge})
        for (scenario, by), scores in scored.items():
            kind, _, system = scenario.partition(".")
            if by == judge:
                name = f"{kind}.{judge}.{system}" if system else f"{kind}.{judge}"
                metrics[name] = scores.accuracy() if kind == RANDOM else scores.adversuc()
        for system in systems:
            own, plain = (scored.get((f"{ADVERSUC}.{system}", by)) for by in (judge, LENGTH_ONLY))
            if own is not None and plain is not None:
                metrics[f"{LENGTH}.{judge}.{system}"] = rate_difference(
                    own.errors, plain.errors, own.sources, spread=refit_spread(num_folds)
                )
            if own is not None:
                distance = sum(size * abs(told - share) for told, share, size in own.calibration()) / len(own.labels)
                metrics[f"{CALIBRATION}.{judge}.{system}"] = count(distance, len(own.labels))
        for one, other in combinations(systems, 2):
            for ahead, kind, sign in ((AHEAD, ADVERSUC, 1), (AHEAD_RANDOM, RANDOM, -1)):
                first, second = (scored.get((f"{kind}.{system}", judge)) for system in (one, other))
                metrics[f"{ahead}.{judge}.{one}.{other}"] = _ahead(first, second, sign, num_folds)
    for one, other in combinations(judges, 2):
        if (tau := _tau(metrics, one, other, systems)) is not None:
            metrics[f"{TAU}.{one}.{other}"] = tau
    return metrics


def reliability_error(scenarios: Mapping[str, JudgedScores]) -> Estimate:
    """The evaluator reliability error (ERE) of one judge, with its interval.

    A distance is never below 0, so that one drawn again is too large in the mean: in six settings of 60 simulated judges,
    95 % intervals of the mean distance by the bootstrap held the true ERE in 0 to 72 % of them, those here in 92 to 98 %. Each
    scenario has the bootstrap interval of AdverSuc less gold, and the ends are put together by their distances from the
    value (Zou & Donner 2008). A scenario whose interval holds gold adds to the upper end alone.

    Args:
        scenarios: what it said, by scenario; those without a gold AdverSuc are not looked at. A kind of scenario that there is
            of several systems counts once.

    Returns:
        The estimate; n is the number of sources of the smallest scenario.
    """
    known = {name: scores for name, scores in scenarios.items() if name.partition(".")[0] in GOLD}
    if not known:
        return NOTHING
    kinds = sorted({name.partition(".")[0] for name in known})
    value = certain = below = above = 0.0
    for kind in kinds:
        same = [scores for name, scores in sorted(known.items()) if name.partition(".")[0] == kind]
        weight = 1 / (len(kinds) * len(same))
        for scores in same:
            distance = weight * abs(float(scores.errors.mean()) - GOLD[kind])
            adversuc = scores.adversuc()
            low, high = (weight * (end - GOLD[kind]) for end in (adversuc.low, adversuc.high))
            value += distance
            above += (max(abs(low), abs(high)) - distance) ** 2
            if low > 0 or high < 0:
                certain += distance
                below += (distance - min(abs(low), abs(high))) ** 2
    low, high = max(0.0, certain - math.sqrt(below)), value + math.sqrt(above)
    return Estimate(value, low, high, min(len(scores.by_source) for scores in known.values()))


def describe(name: str) -> Metric:
    """What a metric means."""
    kind, _, rest = name.partition(".")
    title, definition = {
        ADVERSUC: ("AdverSuc", "share of pairs, people's and the system's, that the judge takes for the other side's"),
        MATCHED: ("AdverSuc, lengths matched", "the same with equally many pairs of each length on both sides"),
        CUT: ("AdverSuc, replies cut", "the same with all replies cut to one length"),
        RANDOM: ("machine-vs-random", "share of pairs, the system's and human replies to other sources, that are told right"),
        CHANCE: ("AdverSuc of chance", "range that judges with nothing to learn keep to in 95 % of cases or more"),
        ERE: ("ERE", "mean distance of AdverSuc from gold over the scenarios whose answer is known"),
        LENGTH: ("AdverSuc beyond length", "AdverSuc less that of the judge that knows length alone, same pairs"),
        AHEAD: ("AdverSuc ahead", "of the first system less that of the second, sources that both answer"),
        AHEAD_RANDOM: ("machine-vs-random ahead", "of the first system less that of the second, sources that both answer"),
        TAU: ("rank agreement", "Kendall's tau-b of two judges over the systems"),
        CALIBRATION: ("calibration error", "mean distance of told probability from the share of people's replies, ten bins"),
    }.get(kind, (f"AdverSuc, {kind}", f"gold {GOLD.get(kind, math.nan):g}"))
    told = rest.replace(".", ", ")
    main = kind in (ADVERSUC, RANDOM, ERE)
    direction = "lower: better" if kind in (ERE, CALIBRATION) else NEITHER
    # Differences and rank agreement may lie below 0.
    signed = kind in (LENGTH, AHEAD, AHEAD_RANDOM, TAU)
    return Metric(f"{title}, {told}", direction, definition, "number" if signed else "rate", main=main)


def _ahead(one: JudgedScores | None, other: JudgedScores | None, sign: int, num_folds: int) -> Estimate:
    if one is None or other is None:
        return NOTHING
    both = sorted(one.by_source.keys() & other.by_source.keys())
    first, second = (np.array([each.by_source[source] for source in both]) for each in (one, other))
    if not both:
        return NOTHING
    one_first, other_first = (first, second) if sign > 0 else (second, first)
    return rate_difference(one_first, other_first, spread=refit_spread(num_folds))


def _tau(metrics: Mapping[str, Estimate], one: str, other: str, systems: Sequence[str]) -> Estimate | None:
    from scipy.stats import kendalltau

    told = [[metrics.get(f"{ADVERSUC}.{judge}.{system}", NOTHING).value for system in systems] for judge in (one, other)]
    if len(systems) < FEWEST_RANKED or not np.isfinite(told).all() or any(len(set(each)) == 1 for each in told):
        return None
    return count(float(kendalltau(*told).statistic), len(systems))
