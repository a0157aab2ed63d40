"""What a ranker's rows amount to: estimates with intervals, figures under attack, and what an attack changed.

Source: Li et al. 2019, section 5.2. A rule that keeps labels (IIW, RSW) is measured by R_n@k, MAP, MRR and P@1 again; one that
makes a wrong reply of a right one by A_n@k, AAP, ARR and A@1: the same metrics, where the changed reply is the relevant one.

  * # Paper: silent on examples that a rule cannot change. Ours: they are counted; by default they are left out, because a
    ranker did not survive what nobody did to it. As an option they stay, as attacks that failed: with a rule that keeps labels
    the ranker's figure is then that of the clean group, else it is 0.
  * # Paper: no intervals. Ours: Wilson's for shares by dialogue (`clustered_rate`), and the paired bootstrap test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from parley.engine.core.stats.statistics import Estimate, PairedTest, clustered_rate, paired_bootstrap, rate_difference
from parley.engine.ranking.metrics.ranks import KS, MAP, MRR, PAIRWISE, PRECISION, GroupMetrics, Ties, Unranked, group_metrics

Untouched = Literal["left-out", "kept"]
"""What becomes of groups in which a rule changed nothing."""

_ADVERSARIAL = {PAIRWISE: "A2@1", MAP: "AAP", MRR: "ARR", PRECISION: "A@1"}
_STANDARD = {PAIRWISE: "R2@1", MAP: "MAP", MRR: "MRR", PRECISION: "P@1"}


@dataclass(frozen=True)
class AttackMetrics:
    """The metrics of what a rule made of groups.

    Args:
        groups: of those that count.
        num_untouched: groups with right and wrong replies in which the rule changed nothing.
        num_unranked: groups without a right reply, or without a wrong one.
    """

    groups: GroupMetrics
    num_untouched: int
    num_unranked: int


def title(name: str, size: int | None = None, *, adversarial: bool = False) -> str:
    """What papers call a metric.

    Args:
        name: of `GroupMetrics.values`.
        size: candidates of every group; None where groups differ.
        adversarial: whether changed replies are the relevant ones.
    """
    known = _ADVERSARIAL if adversarial else _STANDARD
    if name in known:
        return known[name]
    return f"{'A' if adversarial else 'R'}{'' if size is None else size}{name.removeprefix('r')}"


def attack_metrics(
    groups: ArrayLike,
    scores: ArrayLike,
    labels: ArrayLike,
    changed: ArrayLike,
    *,
    keeps_labels: bool,
    ks: Sequence[int] = KS,
    untouched: Untouched = "left-out",
    ties: Ties = "expected",
    unranked: Unranked = "left-out",
) -> AttackMetrics:
    """The metrics of groups that a rule attacked.

    Args:
        groups: the key of each candidate's group (V,).
        scores: of the candidates as the rule left them (V,).
        labels: whether each was a right reply before (V,) bool.
        changed: words that the rule changed of each (V,) int.
        keeps_labels: whether the rule keeps labels; else the changed right replies are the relevant candidates.
        ks: as in `group_metrics`.
        untouched: whether groups without a changed candidate are left out, or kept as attacks that failed.
        ties: as in `group_metrics`.
        unranked: of groups without a right reply or without a wrong one, as in `group_metrics`.
    """
    keys, right, touched = np.asarray(groups), np.asarray(labels, dtype=bool), np.asarray(changed) > 0
    relevant = right if keeps_labels else right & touched
    _, group = np.unique(keys, return_inverse=True)
    can_rank = _holds(group, right) & _holds(group, ~right)
    is_touched = _holds(group, touched if keeps_labels else relevant)
    left_out = ~can_rank & (unranked == "left-out") | can_rank & ~is_touched & (untouched == "left-out")
    stays = ~left_out[group]
    # A group that stays without a relevant candidate is an attack that failed, or one that asks for 0.
    found = group_metrics(keys[stays], np.asarray(scores)[stays], relevant[stays], ks=ks, ties=ties, unranked="zero")
    return AttackMetrics(found, int(np.count_nonzero(can_rank & ~is_touched)), int(np.count_nonzero(~can_rank)))


def _holds(group: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Which groups hold a marked candidate (G,) bool."""
    return np.bincount(group, marked) > 0


class TiedFigure(NamedTuple):
    """A metric as tables show it.

    Args:
        estimate: the mean over groups, of each the expectation over all orders of tied candidates.
        ties_wrong: the mean if every tie went against the relevant candidates; None where none is tied with another.
        ties_right: the mean if every tie went for them; likewise.
    """

    estimate: Estimate
    ties_wrong: float | None
    ties_right: float | None


def figures(measure: Callable[[Ties], GroupMetrics], clusters: Mapping[Any, Any] | None = None) -> dict[str, TiedFigure]:
    """Each metric with its interval, and beside it what ties may add or take wherever there are some.

    Args:
        measure: the metrics by what stands for the order of ties, such as `lambda ties: group_metrics(..., ties=ties)`.
        clusters: as in `estimates`.
    """
    expected = measure("expected")
    means = estimates(expected, clusters)
    if not expected.num_tied or not len(expected.keys):
        return {name: TiedFigure(estimate, None, None) for name, estimate in means.items()}
    wrong, right = measure("wrong").values, measure("right").values
    return {
        name: TiedFigure(estimate, float(wrong[name].mean()), float(right[name].mean())) for name, estimate in means.items()
    }


def estimates(metrics: GroupMetrics, clusters: Mapping[Any, Any] | None = None) -> dict[str, Estimate]:
    """The mean of each metric over groups, with its interval.

    Args:
        metrics: of groups.
        clusters: by a group's key what it is drawn with, such as its dialogue; each group is its own when not given.
    """
    drawn_with = None if clusters is None else [clusters[key] for key in metrics.keys.tolist()]
    return {name: clustered_rate(values, drawn_with) for name, values in metrics.values.items()}


def compared(
    after: GroupMetrics, before: GroupMetrics, clusters: Mapping[Any, Any] | None = None, seed: int = 0
) -> dict[str, PairedTest]:
    """How far two rankers, or one before and after an attack or a training, differ on the groups of both.

    Args:
        after: of one.
        before: of the other.
        clusters: as in `estimates`; clusters are drawn whole.
        seed: names the resampling stream.

    Returns:
        For each metric of both the mean of after minus before, its interval, and the p-value of the paired bootstrap.
    """
    _, places, others = np.intersect1d(after.keys, before.keys, return_indices=True)
    shared = [name for name in after.values if name in before.values]
    drawn_with = np.arange(len(places))
    if clusters is not None and len(places):
        named = [clusters[key] for key in after.keys[places].tolist()]
        _, drawn_with = np.unique(named, return_inverse=True)
    num = max(len(places), 1)
    weight = (drawn_with.max(initial=-1) + 1) / num
    sizes = np.bincount(drawn_with) * weight

    def of_clusters(differences: np.ndarray) -> np.ndarray:
        # A mean over groups is a ratio of sums whose bottom is drawn too. This is its linear part: the mean over clusters is
        # that over groups, and a cluster counts by how far its groups are from it, not by how many they are.
        found: np.ndarray = np.bincount(drawn_with, differences) * weight + differences.sum() / num * (1 - sizes)
        return found

    tests = {}
    for name in shared:
        here, there = after.values[name][places], before.values[name][others]
        differences = of_clusters(here - there)
        tested = paired_bootstrap(differences, np.zeros_like(differences), seed=seed)
        tests[name] = PairedTest(rate_difference(here, there, drawn_with), tested.p_value)
    return tests
