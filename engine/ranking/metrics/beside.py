"""Rankers beside one another: how far one is ahead of another on the same contexts, and whether that is chance.

Source: Li et al. 2019, tables 5 and 6, which set a matcher that was trained against a rule beside the one that it began with.

  * # Paper: figures alone. Ours: the paired bootstrap test of their differences, contexts of a dialogue drawn together, also
    against the control that was trained as long on clean pairs, and of every two rankers that are no such trainings.

Metrics are called KIND_less.MODEL.OTHER.RULE: "r@1_less.hard.smn.iiw" is R_n@1 of hard less that of smn, under IIW.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations

from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.ranking.metrics.attacked import compared
from parley.engine.ranking.metrics.ranking import CLEAN, LESS, LESS_P, RankedRows, first_place, metric_of, only
from parley.engine.ranking.metrics.ranks import GroupMetrics

Trainings = Mapping[str, tuple[Sequence[str], str]]
"""By label of a ranker the rules that it was trained against, none for the control that was trained as long on clean pairs, and
the label of its base or ""."""
_NO_TRAINING: tuple[Sequence[str], str] = ((), "")


def control_of(ranker: str, trainings: Trainings) -> str:
    """The control that was trained as long from the same base, the first of several; "" where none is there, or it is one."""
    against, base = trainings.get(ranker, _NO_TRAINING)
    if not (against and base):
        return ""
    return next((label for label, (rules, begun) in trainings.items() if begun == base and not rules), "")


def rankers_beside(rankers: Sequence[str], trainings: Trainings) -> list[tuple[str, str]]:
    """Who is compared with whom: a training with its base and its control, of all others the one named later with the earlier.

    Args:
        rankers: labels of those that are compared, in the order in which they were asked for.
        trainings: of all rankers.
    """
    bases = {ranker: trainings.get(ranker, _NO_TRAINING)[1] for ranker in rankers}
    alone = [ranker for ranker, base in bases.items() if not base]
    trained = [(ranker, other) for ranker, base in bases.items() for other in (base, control_of(ranker, trainings)) if base]
    return [*((later, earlier) for earlier, later in combinations(alone, 2)), *(pair for pair in trained if pair[1])]


def differences(found: RankedRows, pairs: Iterable[tuple[str, str]]) -> dict[str, Estimate]:
    """How much oftener one ranker puts a right reply first, or what a rule left of it, and the p-value of that difference."""
    at_first = first_place(found.several)

    @cache
    def measured(ranker: str, rule: str) -> GroupMetrics:
        return only(found.measured(ranker, rule), at_first)

    metrics: dict[str, Estimate] = {}
    for ranker, other in pairs:
        for rule in (CLEAN, *found.rules):
            test = compared(measured(ranker, rule), measured(other, rule), found.clusters)[at_first]
            kind = metric_of(at_first, found.rules.get(rule, True))
            metrics[f"{kind}{LESS}.{ranker}.{other}.{rule}"] = test.difference
            metrics[f"{kind}{LESS_P}.{ranker}.{other}.{rule}"] = count(test.p_value, test.difference.n)
    return metrics
