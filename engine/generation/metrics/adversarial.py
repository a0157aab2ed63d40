"""Adversarial success, the reliability of its judges, and the pairs that judges score (Li et al. 2017, section 4).

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

Judges score pairs of two sides, in folds that no source and no last turn crosses:

    adversuc.S           human : system S, both answering the same sources           gold AdverSuc: none, this is measured
    matched.S            the same, with as many replies of each length on both sides
    cut.S                the same, all replies cut to one length
    random.S             system S : human replies to other sources                    machine-vs-random
    human-human          two disjoint halves of the human pairs, labels arbitrary     gold AdverSuc .5
    machine-machine.S    the same of system S                                         .5
    human-random         human : human replies to other sources                       0
    human-next           human : the utterance that followed the human reply          0
  # Paper: the dialogues of its third scenario consist of random utterances. Ours: their replies alone are random.

Everything here depends on the seed and on the set of pairs, and not on the order of lines: draws are keyed by hashes
of texts. A random reply comes from a source of the same fold, so that no judge was fitted on its text. Each side has equally
many pairs, of each source equally many.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapreplace
from itertools import chain, combinations, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics
from parley.engine.core.stats.rows import linked_units, selected
from parley.engine.core.stats.statistics import (
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    Row,
    clustered_rate,
    count,
    finished,
    rate_difference,
    refit_spread,
)
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.turns import Utterance

ADVERSUC, MATCHED, CUT, RANDOM = "adversuc", "matched", "cut", "random"
HUMAN_HUMAN, MACHINE_MACHINE, HUMAN_RANDOM, HUMAN_NEXT = "human-human", "machine-machine", "human-random", "human-next"
GOLD = {HUMAN_HUMAN: 0.5, MACHINE_MACHINE: 0.5, HUMAN_RANDOM: 0.0, HUMAN_NEXT: 0.0}
"""AdverSuc of a perfect judge, by scenario of the evaluator reliability error."""
PER_FOLD = 4
"""Sources that a fold needs, so that it holds two of each half."""
NUM_FOLDS = 5
KEPT_BY_CUT = 0.8
"""Share of the pairs whose two replies must be as long as the length to which all are cut."""

BySource = Mapping[str, Sequence[RepliedPair]]
"""The pairs of a file by their source, each in the order of its hash."""


class SidedPair(NamedTuple):
    """A pair to judge.

    Args:
        source: names its source.
        pair: its words.
        label: whether it is of the first side, such as a person's.
    """

    source: str
    pair: RepliedPair
    label: bool


@dataclass(frozen=True)
class JudgedScenario:
    """A question to judges.

    Args:
        name: as above, with the system behind a full stop where it has one.
        pairs: of both sides.
        folds: (N,) the fold of each.
    """

    name: str
    pairs: tuple[SidedPair, ...]
    folds: np.ndarray

    def least(self, num_folds: int) -> int:
        """Return the number of pairs of the smaller side in the fold where it is smallest."""
        labels = np.array([sided.label for sided in self.pairs], dtype=np.int64)
        counts = np.bincount(2 * self.folds.astype(np.int64) + labels, minlength=2 * num_folds)
        return int(counts.min())


def source_name(pair: RepliedPair) -> str:
    """Return the name of a pair's source: a hash of all turns before the reply."""
    return f"{stable_hash(*map(' '.join, pair.context)):016x}"


def by_source(
    pairs: Iterable[RepliedPair], seed: int, most: int, names: Mapping[str, str] = MappingProxyType({})
) -> dict[str, list[RepliedPair]]:
    """Group pairs by source, at most so many of each, chosen by their hashes.

    Args:
        pairs: of a file.
        seed: of the choice.
        most: pairs of a source.
        names: what sources are called, where that is not the name of their words as they stand here.
    """
    pairs_of: dict[str, list[RepliedPair]] = defaultdict(list)
    for pair in pairs:
        name = source_name(pair)
        pairs_of[names.get(name, name)].append(pair)
    return {source: sorted(pairs_of[source], key=lambda pair: _rank(seed, pair))[:most] for source in sorted(pairs_of)}


def assign_folds(files: Iterable[BySource], sources: Collection[str], num_folds: int, seed: int) -> dict[str, int]:
    """Assign a fold to each source; sources with one last turn share a fold.

    Groups are dealt out to the smallest fold, large ones first, in the order of hashes: where each is one source, folds differ
    by one source at most.

    Args:
        files: pairs by source, as judges read them; one that reads other words may give other sources a last turn in common.
        sources: which of theirs are judged.
        num_folds: how many.
        seed: of the hashes.
    """
    groups = [sorted(group, key=lambda source: stable_hash("fold", seed, source)) for group in _of_one_turn(files, sources)]
    smallest, fold_of = [(0, fold) for fold in range(num_folds)], dict[str, int]()
    for group in sorted(groups, key=lambda group: (-len(group), stable_hash("fold", seed, group[0]))):
        size, fold = smallest[0]
        heapreplace(smallest, (size + len(group), fold))
        fold_of |= dict.fromkeys(group, fold)
    return fold_of


def against(name: str, first: BySource, second: BySource, folds: Mapping[str, int], most: int | None = None) -> JudgedScenario:
    """Pair two files on the sources of both: as many pairs of a source as the smaller side has.

    Args:
        name: of the scenario.
        first: the side whose label is True.
        second: the other.
        folds: by source.
        most: pairs of a source and side; None for all.
    """
    pairs = []
    for source in sorted(first.keys() & second.keys() & folds.keys()):
        size = min(len(first[source]), len(second[source]), most or len(first[source]))
        pairs += [SidedPair(source, pair, True) for pair in first[source][:size]]
        pairs += [SidedPair(source, pair, False) for pair in second[source][:size]]
    return _scenario(name, pairs, folds)


def random_replies(wanted: BySource, human: BySource, folds: Mapping[str, int], seed: int) -> dict[str, list[RepliedPair]]:
    """Return for each source human replies to other sources of its fold, as many as `wanted` has.

    The replies of a fold stand in a circle; a source takes those behind its own. Where every source has one, each reply is
    taken once: the random replies are the human ones.
    """
    random_pairs = {}
    circles: dict[int, list[str]] = defaultdict(list)
    for source in sorted(human.keys() & wanted.keys() & folds.keys(), key=lambda source: stable_hash("random", seed, source)):
        circles[folds[source]].append(source)
    for circle in circles.values():
        replies = [(source, pair.reply) for source in circle for pair in human[source]]
        end = 0
        for source in circle:
            end += len(human[source])
            num_others = len(replies) - len(human[source])
            places = [(end + i % num_others) % len(replies) for i in range(len(wanted[source]))] if num_others else []
            random_pairs[source] = [RepliedPair(wanted[source][0].context, replies[index][1]) for index in places]
    return random_pairs


def halves(name: str, pairs: BySource, folds: Mapping[str, int], seed: int) -> JudgedScenario:
    """Take one pair of each source, and label half of each fold True; an odd pair is left out."""
    circles: dict[int, list[str]] = defaultdict(list)
    for source in sorted(pairs.keys() & folds.keys(), key=lambda source: stable_hash("half", seed, source)):
        circles[folds[source]].append(source)
    chosen = chain.from_iterable(enumerate(circle[: len(circle) - len(circle) % 2]) for _, circle in sorted(circles.items()))
    return _scenario(name, [SidedPair(source, pairs[source][0], number % 2 == 0) for number, source in chosen], folds)


def matched(name: str, scenario: JudgedScenario, seed: int) -> JudgedScenario:
    """Balance the sides: in every fold as many pairs of each length on both, so that length tells nothing."""
    cells: dict[Hashable, tuple[list[SidedPair], list[SidedPair]]] = defaultdict(lambda: ([], []))
    folds = {sided.source: int(fold) for sided, fold in zip(scenario.pairs, scenario.folds, strict=True)}
    for sided in sorted(scenario.pairs, key=lambda sided: _rank(seed, sided.pair, "match")):
        cells[folds[sided.source], len(sided.pair.reply)][sided.label].append(sided)
    kept = [sided for sides in cells.values() for side in sides for sided in side[: min(map(len, sides))]]
    return _scenario(name, sorted(kept, key=lambda sided: (sided.source, not sided.label)), folds)


def cut(name: str, scenario: JudgedScenario) -> tuple[JudgedScenario, int]:
    """Cut all replies to one length; shorter ones are left out with their counterparts.

    Args:
        name: of the new scenario.
        scenario: one of `against`, in which each pair of the one side has a counterpart of the same source on the other.

    Returns:
        The scenario; the length in words, the largest that `KEPT_BY_CUT` of the couples reach.
    """
    couples = _couples(scenario)
    shortest = np.array([min(len(left.pair.reply), len(right.pair.reply)) for left, right in couples])
    length = int(np.quantile(shortest, 1 - KEPT_BY_CUT, method="lower"))
    kept = [
        sided._replace(pair=sided.pair._replace(reply=sided.pair.reply[:length]))
        for couple, size in zip(couples, shortest, strict=True)
        if size >= length
        for sided in couple
    ]
    folds = {sided.source: int(fold) for sided, fold in zip(scenario.pairs, scenario.folds, strict=True)}
    return _scenario(name, kept, folds), length


def shares_of_people(human: BySource, machine: BySource) -> tuple[float, float]:
    """Return the shares of a system's replies that people gave to the same source, and to others alone, with multiplicity."""
    replies_of = {source: {pair.reply for pair in pairs} for source, pairs in human.items()}
    elsewhere = Counter(
        pair.reply for source, pairs in machine.items() for pair in pairs if pair.reply not in replies_of.get(source, ())
    )
    people = Counter(pair.reply for pairs in human.values() for pair in pairs)
    num = max(1, sum(map(len, machine.values())))
    return (num - elsewhere.total()) / num, (elsewhere & people).total() / num


def next_utterances(pairs: Sequence[RepliedPair]) -> list[RepliedPair]:
    """Replace the reply of each pair that the next line answers by that line's reply."""
    return [
        RepliedPair(pair.context, after.reply)
        for pair, after in pairwise(pairs)
        if after.context[-1] == pair.reply and (len(after.context) < 2 or after.context[-2] == pair.context[-1])
    ]


def _of_one_turn(files: Iterable[BySource], sources: Collection[str]) -> Iterable[list[str]]:
    """Group sources that share a last turn, directly or through other sources."""
    turns: set[tuple[str, Utterance]] = {(source, (source,)) for source in sources}
    turns |= {(source, pair.context[-1]) for file in files for source in file.keys() & {*sources} for pair in file[source]}
    units = linked_units([stable_hash(source) for source, _ in turns], [stable_hash(*turn) for _, turn in turns])
    groups: dict[int, dict[str, None]] = defaultdict(dict)
    for (source, _), unit in zip(turns, units.tolist(), strict=True):
        groups[unit][source] = None
    return map(list, groups.values())


def _couples(scenario: JudgedScenario) -> list[tuple[SidedPair, SidedPair]]:
    sides: dict[str, tuple[list[SidedPair], list[SidedPair]]] = defaultdict(lambda: ([], []))
    for sided in scenario.pairs:
        sides[sided.source][sided.label].append(sided)
    return [couple for machine, human in sides.values() for couple in zip(human, machine, strict=True)]


def _rank(seed: int, pair: RepliedPair, purpose: str = "reply") -> tuple[int, tuple[str, ...]]:
    return stable_hash(purpose, seed, *map(" ".join, pair.context), " ".join(pair.reply)), pair.reply


def _scenario(name: str, pairs: Sequence[SidedPair], folds: Mapping[str, int]) -> JudgedScenario:
    return JudgedScenario(name, tuple(pairs), np.array([folds[sided.source] for sided in pairs], dtype=np.int64))


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
    """The scores of a judge for the pairs of a scenario, over all folds.

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
        """Return 1 for each error, 0.5 for an undecided pair (N,)."""
        return np.where(self.scores == 0, 0.5, (self.scores > 0) != self.labels)

    @cached_property
    def by_source(self) -> dict[str, float]:
        """Return the mean error of each source."""
        names, index = np.unique(self.sources, return_inverse=True)
        return dict(zip(names.tolist(), (np.bincount(index, self.errors) / np.bincount(index)).tolist(), strict=True))

    def with_judged_right(self, sources: Sequence[str]) -> JudgedScores:
        """Add two pairs, one of each side and both judged right, for each of these sources."""
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
        """Return the share of pairs that are judged right, sources drawn together."""
        error = self.adversuc()
        return Estimate(1 - error.value, 1 - error.high, 1 - error.low, error.n)

    def calibration(self) -> list[tuple[float, float, int]]:
        """Return the mean probability, the true share and the number of pairs of each bin that has pairs."""
        probabilities = 0.5 * (1 + np.tanh(0.5 * self.scores))
        bins = np.minimum((probabilities * NUM_BINS).astype(int), NUM_BINS - 1)
        return [
            (float(probabilities[bins == index].mean()), float(self.labels[bins == index].mean()), int((bins == index).sum()))
            for index in np.unique(bins)
        ]


class JudgedRows:
    """Rows by scenario and judge, both in the order of their names.

    Args:
        rows: of a run, in any order.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = finished(rows)
        folds: dict[tuple[str, str], dict[int, tuple[np.ndarray, ...]]] = {}
        for row in selected(self.rows, "scenario", "judge", "fold", "sources", "labels", "scores"):
            arrays = np.array(row["sources"]), np.array(row["labels"], dtype=bool), np.array(row["scores"], dtype=np.float64)
            folds.setdefault((row["scenario"], row["judge"]), {})[row["fold"]] = arrays
        self.scored: dict[tuple[str, str], JudgedScores] = {}
        for key, of in sorted(folds.items()):
            sources, labels, scores = (np.concatenate([of[fold][part] for fold in sorted(of)]) for part in range(3))
            self.scored[key] = JudgedScores(sources, labels, scores, len(of))
        self.folds = {key: len(of) for key, of in folds.items()}


def num_different(judged: Sequence[JudgedScores]) -> int:
    """Return the number of pairs of a scenario of which no two have one source, side and score of every judge.

    Pairs that repeat another are judged alike. If some are repeated more often than others, that many of equal weight vary as
    much (Kish 1965).
    """
    sources = np.unique(judged[0].sources, return_inverse=True)[1]
    columns = [sources, judged[0].labels, *(scores.scores for scores in judged)]
    times = np.unique(np.column_stack(columns), axis=0, return_counts=True)[1]
    return round(int(times.sum()) ** 2 / int(times @ times))


def chance_range(num_pairs: int, num_folds: int) -> Estimate:
    """Return the range of AdverSuc, in at least 95 % of cases, of a cross-fitted judge with nothing to learn.

    It is the exact range of fair coins, as many times as wide as refits make it (`refit_spread`); the value is .5.
    """
    from scipy.stats import binom

    half = 0.5 - float(binom.ppf(0.025, num_pairs, 0.5)) / num_pairs
    half = min(0.5, half * refit_spread(num_folds))
    return Estimate(0.5, 0.5 - half, 0.5 + half, num_pairs)


def adversarial_metrics(read: JudgedRows, judges: Sequence[str], systems: Sequence[str], num_folds: int) -> dict[str, Estimate]:
    """Return all figures of an evaluation, see the top of this module.

    Args:
        read: its rows; a judge that failed in a fold of a scenario has no figure of it.
        judges: all of them, controls included.
        systems: names of the machine files.
        num_folds: folds of every scenario.
    """
    scored = {key: scores for key, scores in read.scored.items() if read.folds[key] == num_folds}
    by_scenario: dict[str, list[JudgedScores]] = {}
    for (scenario, _), scores in scored.items():
        by_scenario.setdefault(scenario, []).append(scores)
    metrics = {f"{CHANCE}.{name}": chance_range(num_different(judged), num_folds) for name, judged in by_scenario.items()}
    for judge in judges:
        metrics[f"{ERE}.{judge}"] = reliability_error({name: scores for (name, by), scores in scored.items() if by == judge})
        for (scenario, by), scores in scored.items():
            kind, _, system = scenario.partition(".")
            if by == judge:
                name = f"{kind}.{judge}.{system}" if system else f"{kind}.{judge}"
                metrics[name] = scores.accuracy() if kind == RANDOM else scores.adversuc()
        for system in systems:
            judged, plain = (scored.get((f"{ADVERSUC}.{system}", by)) for by in (judge, LENGTH_ONLY))
            if judged is not None and plain is not None:
                metrics[f"{LENGTH}.{judge}.{system}"] = rate_difference(
                    judged.errors, plain.errors, judged.sources, spread=refit_spread(num_folds)
                )
            if judged is not None:
                distances = (size * abs(probability - share) for probability, share, size in judged.calibration())
                distance = sum(distances) / len(judged.labels)
                metrics[f"{CALIBRATION}.{judge}.{system}"] = count(distance, len(judged.labels))
        for left, right in combinations(systems, 2):
            for ahead, kind, sign in ((AHEAD, ADVERSUC, 1), (AHEAD_RANDOM, RANDOM, -1)):
                first, second = (scored.get((f"{kind}.{system}", judge)) for system in (left, right))
                metrics[f"{ahead}.{judge}.{left}.{right}"] = _ahead(first, second, sign, num_folds)
    for left, right in combinations(judges, 2):
        if (tau := _tau(metrics, left, right, systems)) is not None:
            metrics[f"{TAU}.{left}.{right}"] = tau
    return metrics


def reliability_error(scenarios: Mapping[str, JudgedScores]) -> Estimate:
    """Return the evaluator reliability error (ERE) of one judge, with its interval.

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
    with_gold = {name: scores for name, scores in scenarios.items() if name.partition(".")[0] in GOLD}
    if not with_gold:
        return NOTHING
    kinds = sorted({name.partition(".")[0] for name in with_gold})
    value = certain = below = above = 0.0
    for kind in kinds:
        same = [scores for name, scores in sorted(with_gold.items()) if name.partition(".")[0] == kind]
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
    return Estimate(value, low, high, min(len(scores.by_source) for scores in with_gold.values()))


def describe(name: str) -> Metric:
    """Return the title and definition of a metric."""
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
    names = rest.replace(".", ", ")
    main = kind in (ADVERSUC, RANDOM, ERE)
    direction = "lower: better" if kind in (ERE, CALIBRATION) else NEITHER
    # Differences and rank agreement may lie below 0.
    signed = kind in (LENGTH, AHEAD, AHEAD_RANDOM, TAU)
    return Metric(f"{title}, {names}", direction, definition, "number" if signed else "rate", main=main)


def source_rows(rows: Sequence[Row], num_folds: int) -> list[dict[str, Any]]:
    """Return a row for each source: its errors and pairs before each judge in each scenario.

    Args:
        rows: of a run, in any order.
        num_folds: folds of every scenario; a judge that failed in one of them has no figures of it.
    """
    judged = JudgedRows(rows)
    sources: dict[str, dict[str, tuple[float, int]]] = {}
    for (scenario, judge), scores in judged.scored.items():
        kind, _, system = scenario.partition(".")
        if judged.folds[scenario, judge] == num_folds and scores.scores.any():
            name = f"{kind}.{judge}.{system}" if system else f"{kind}.{judge}"
            names, counts = np.unique(scores.sources, return_counts=True)
            for source, num in zip(names.tolist(), counts.tolist(), strict=True):
                error = scores.by_source[source] * num
                sources.setdefault(str(source), {})[name] = (num - error if kind == RANDOM else error, num)
    return [{"item_key": source, "status": "ok", "pairs": pairs} for source, pairs in sources.items()]


def _figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    return ItemFigures.by_name([row["pairs"] for row in rows], "share", refit_spread(config["folds"]))


def judged_systems(rows: Sequence[Row], config: Mapping[str, Any]) -> list[str]:
    """Return the systems that the rows of sources name, in their order."""
    names = (name.split(".") for row in rows for name in row["pairs"] if name.startswith(f"{ADVERSUC}."))
    return list(dict.fromkeys(parts[-1] for parts in names if len(parts) == 3))


SOURCE_ITEMS = ItemMetrics("sources", _figures, describe, subjects=judged_systems)
"""Figures of single sources, from rows of `source_rows`."""


def _ahead(left: JudgedScores | None, right: JudgedScores | None, sign: int, num_folds: int) -> Estimate:
    if left is None or right is None:
        return NOTHING
    both = sorted(left.by_source.keys() & right.by_source.keys())
    first, second = (np.array([scores.by_source[source] for source in both]) for scores in (left, right))
    if not both:
        return NOTHING
    minuend, subtrahend = (first, second) if sign > 0 else (second, first)
    return rate_difference(minuend, subtrahend, spread=refit_spread(num_folds))


def _tau(metrics: Mapping[str, Estimate], left: str, right: str, systems: Sequence[str]) -> Estimate | None:
    from scipy.stats import kendalltau

    by_judge = [[metrics.get(f"{ADVERSUC}.{judge}.{system}", NOTHING).value for system in systems] for judge in (left, right)]
    if len(systems) < FEWEST_RANKED or not np.isfinite(by_judge).all() or any(len(set(values)) == 1 for values in by_judge):
        return None
    return count(float(kendalltau(*by_judge).statistic), len(systems))
