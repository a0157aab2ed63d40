"""What judges are asked: pairs of two sides, in folds that no source and no last turn crosses (Li et al. 2017, section 4).

    adversuc.S           human : system S, both answering the same sources           gold AdverSuc: none, this is measured
    matched.S            the same, with as many replies of each length on both sides
    cut.S                the same, all replies cut to one length
    random.S             system S : human replies to other sources                    machine-vs-random
    human-human          two disjoint halves of the human pairs, labels arbitrary     gold AdverSuc .5
    machine-machine.S    the same of system S                                         .5
    human-random         human : human replies to other sources                       0
    human-next           human : the utterance that followed the human reply          0

Everything here depends on the seed and on the set of pairs, and not on the order of lines: whatever is drawn is drawn by hashes
of texts. A random reply comes from a source of the same fold, so that no judge was fitted on its text. Each side has equally
many pairs, of each source equally many.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import chain, pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.pairs.replied import RepliedPair
from parley.envs.corpora.pairs.turns import Utterance

ADVERSUC, MATCHED, CUT, RANDOM = "adversuc", "matched", "cut", "random"
HUMAN_HUMAN, MACHINE_MACHINE, HUMAN_RANDOM, HUMAN_NEXT = "human-human", "machine-machine", "human-random", "human-next"
GOLD = {HUMAN_HUMAN: 0.5, MACHINE_MACHINE: 0.5, HUMAN_RANDOM: 0.0, HUMAN_NEXT: 0.0}
"""AdverSuc of a perfect judge, by scenario of the evaluator reliability error."""
PER_FOLD = 4
"""Sources that a fold needs, so that it holds two of each half."""
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
        """Pairs of the side that has fewest, in the fold that has fewest."""
        labels = np.array([each.label for each in self.pairs], dtype=np.int64)
        counts = np.bincount(2 * self.folds.astype(np.int64) + labels, minlength=2 * num_folds)
        return int(counts.min())


def source_name(pair: RepliedPair) -> str:
    """Names the source of a pair: a hash of all turns before the reply."""
    return f"{stable_hash(*map(' '.join, pair.context)):016x}"


def by_source(
    pairs: Iterable[RepliedPair], seed: int, most: int, names: Mapping[str, str] = MappingProxyType({})
) -> dict[str, list[RepliedPair]]:
    """Pairs by source, at most so many of each, chosen by their hashes.

    Args:
        pairs: of a file.
        seed: of the choice.
        most: pairs of a source.
        names: what sources are called, where that is not the name of their words as they stand here.
    """
    found: dict[str, list[RepliedPair]] = defaultdict(list)
    for pair in pairs:
        name = source_name(pair)
        found[names.get(name, name)].append(pair)
    return {source: sorted(found[source], key=lambda pair: _rank(seed, pair))[:most] for source in sorted(found)}


def assign_folds(files: Iterable[BySource], sources: Collection[str], num_folds: int, seed: int) -> dict[str, int]:
    """A fold for each source; those of one last turn are in one, because a judge that met the turn with a reply knows it.

    Groups are dealt out to the smallest fold, large ones first, in the order of hashes: where each is one source, folds differ
    by one source at most.

    Args:
        files: pairs by source, as judges read them; one that reads other words may give other sources a last turn in common.
        sources: which of theirs are judged.
        num_folds: how many.
        seed: of the hashes.
    """
    groups = [sorted(group, key=lambda source: stable_hash("fold", seed, source)) for group in _of_one_turn(files, sources)]
    smallest, found = [(0, fold) for fold in range(num_folds)], dict[str, int]()
    for group in sorted(groups, key=lambda group: (-len(group), stable_hash("fold", seed, group[0]))):
        size, fold = smallest[0]
        heapreplace(smallest, (size + len(group), fold))
        found |= dict.fromkeys(group, fold)
    return found


def against(name: str, first: BySource, second: BySource, folds: Mapping[str, int], most: int | None = None) -> JudgedScenario:
    """Two files on the sources that both hold: of each source as many pairs as the side with fewer has.

    Args:
        name: of the scenario.
        first: the side whose label is True.
        second: the other.
        folds: by source.
        most: pairs of a source and side; None for all.
    """
    found = []
    for source in sorted(first.keys() & second.keys() & folds.keys()):
        size = min(len(first[source]), len(second[source]), most or len(first[source]))
        found += [SidedPair(source, pair, True) for pair in first[source][:size]]
        found += [SidedPair(source, pair, False) for pair in second[source][:size]]
    return _scenario(name, found, folds)


def random_replies(wanted: BySource, human: BySource, folds: Mapping[str, int], seed: int) -> dict[str, list[RepliedPair]]:
    """Each source with human replies to other sources of its fold, as many as `wanted` has.

    The replies of a fold stand in a circle; a source takes those behind its own. Where every source has one, each reply is
    taken once: the random replies are the human ones.
    """
    found = {}
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
            found[source] = [RepliedPair(wanted[source][0].context, replies[place][1]) for place in places]
    return found


def halves(name: str, pairs: BySource, folds: Mapping[str, int], seed: int) -> JudgedScenario:
    """One pair of each source; within every fold one half of them has the label True. Of an odd number one is left out."""
    circles: dict[int, list[str]] = defaultdict(list)
    for source in sorted(pairs.keys() & folds.keys(), key=lambda source: stable_hash("half", seed, source)):
        circles[folds[source]].append(source)
    chosen = chain.from_iterable(enumerate(circle[: len(circle) - len(circle) % 2]) for _, circle in sorted(circles.items()))
    return _scenario(name, [SidedPair(source, pairs[source][0], number % 2 == 0) for number, source in chosen], folds)


def matched(name: str, scenario: JudgedScenario, seed: int) -> JudgedScenario:
    """In every fold, of each length in words, as many pairs of the one side as of the other: length tells nothing."""
    cells: dict[Hashable, tuple[list[SidedPair], list[SidedPair]]] = defaultdict(lambda: ([], []))
    folds = {each.source: int(fold) for each, fold in zip(scenario.pairs, scenario.folds, strict=True)}
    for each in sorted(scenario.pairs, key=lambda each: _rank(seed, each.pair, "match")):
        cells[folds[each.source], len(each.pair.reply)][each.label].append(each)
    kept = [each for sides in cells.values() for side in sides for each in side[: min(map(len, sides))]]
    return _scenario(name, sorted(kept, key=lambda each: (each.source, not each.label)), folds)


def cut(name: str, scenario: JudgedScenario) -> tuple[JudgedScenario, int]:
    """All replies cut to one length, shorter ones left out with their counterpart.

    Args:
        name: of the new scenario.
        scenario: one of `against`, in which each pair of the one side has a counterpart of the same source on the other.

    Returns:
        The scenario; the length in words, the largest that `KEPT_BY_CUT` of the couples reach.
    """
    couples = _couples(scenario)
    shortest = np.array([min(len(one.pair.reply), len(other.pair.reply)) for one, other in couples])
    length = int(np.quantile(shortest, 1 - KEPT_BY_CUT, method="lower"))
    kept = [
        each._replace(pair=each.pair._replace(reply=each.pair.reply[:length]))
        for couple, size in zip(couples, shortest, strict=True)
        if size >= length
        for each in couple
    ]
    folds = {each.source: int(fold) for each, fold in zip(scenario.pairs, scenario.folds, strict=True)}
    return _scenario(name, kept, folds), length


def said_elsewhere(human: BySource, machine: BySource) -> float:
    """Share of a system's replies that stand in the human file under other sources alone, each as often as there at most."""
    own = {source: {pair.reply for pair in pairs} for source, pairs in human.items()}
    said = Counter(pair.reply for source, pairs in machine.items() for pair in pairs if pair.reply not in own.get(source, ()))
    people = Counter(pair.reply for pairs in human.values() for pair in pairs)
    return (said & people).total() / max(1, sum(map(len, machine.values())))


def next_utterances(pairs: Sequence[RepliedPair]) -> list[RepliedPair]:
    """Of pairs in the order of their dialogues those whose reply the next line answers, with that line's reply in its place."""
    return [
        RepliedPair(pair.context, after.reply)
        for pair, after in pairwise(pairs)
        if after.context[-1] == pair.reply and (len(after.context) < 2 or after.context[-2] == pair.context[-1])
    ]


def _of_one_turn(files: Iterable[BySource], sources: Collection[str]) -> Iterable[list[str]]:
    """Sources in groups: those of one last turn are in one group, and so are those that a third one joins."""
    parents = {source: source for source in sources}

    def root(source: str) -> str:
        while parents[source] != source:
            parents[source] = source = parents[parents[source]]
        return source

    first: dict[Utterance, str] = {}
    for file in files:
        for source in file.keys() & parents.keys():
            for turn in {pair.context[-1] for pair in file[source]}:
                parents[root(source)] = root(first.setdefault(turn, source))
    groups: dict[str, list[str]] = defaultdict(list)
    for source in parents:
        groups[root(source)].append(source)
    return groups.values()


def _couples(scenario: JudgedScenario) -> list[tuple[SidedPair, SidedPair]]:
    sides: dict[str, tuple[list[SidedPair], list[SidedPair]]] = defaultdict(lambda: ([], []))
    for each in scenario.pairs:
        sides[each.source][each.label].append(each)
    return [couple for machine, human in sides.values() for couple in zip(human, machine, strict=True)]


def _rank(seed: int, pair: RepliedPair, purpose: str = "reply") -> tuple[int, tuple[str, ...]]:
    return stable_hash(purpose, seed, *map(" ".join, pair.context), " ".join(pair.reply)), pair.reply


def _scenario(name: str, pairs: Sequence[SidedPair], folds: Mapping[str, int]) -> JudgedScenario:
    return JudgedScenario(name, tuple(pairs), np.array([folds[each.source] for each in pairs], dtype=np.int64))
