"""How many words contexts and replies share, and what a ranker makes of it (figure 1).

Source: Li et al. 2019, section 2, equations (1) and (2).

    alpha = |C & R+| / min(|C|, |R+|)        beta = max over wrong replies |C & R-| / |C & R+|

C, R+ and R- are the sets of words of the context, a right and a wrong reply.

  * # Paper: one right reply. Ours: of several the one that shares most words with the context.
  * # Paper: "arg max" in equation (2). Ours: the maximum, of which its ratio is made.
  * # Paper: silent on right replies that share no word. Ours: beta is infinite where a wrong reply shares one, else 1: none is
    ahead of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from parley.engine.core.stats.statistics import Estimate, clustered_rate
from parley.engine.ranking.metrics.ranks import GroupMetrics
from parley.envs.ranking.groups import CandidateGroup

ALPHA_EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)
"""Of the bins of figure 1 (a); the paper does not print its own."""
BETA_EDGES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf)
"""Of the bins of figure 1 (b)."""


class Overlap(NamedTuple):
    """Shared words of one group.

    Args:
        alpha: 0 to 1.
        beta: 0 to infinity.
    """

    alpha: float
    beta: float


class Bin(NamedTuple):
    """Groups of like overlap.

    Args:
        low: least overlap, included.
        high: most, excluded except in the last bin.
        estimate: of the metric, over the groups of the bin.
    """

    low: float
    high: float
    estimate: Estimate


def overlap_of(group: CandidateGroup) -> Overlap | None:
    """The shared words of a group; None where it has no right or no wrong reply, or its context or right replies no words."""
    context = frozenset(chain.from_iterable(group.context))
    right = [frozenset(words) for words, label in zip(group.candidates, group.labels, strict=True) if label and words]
    wrong = [frozenset(words) for words, label in zip(group.candidates, group.labels, strict=True) if not label]
    if not (context and right and wrong):
        return None
    reply = max(right, key=lambda words: len(context & words))
    shared, most = len(context & reply), max(len(context & words) for words in wrong)
    beta = most / shared if shared else np.inf if most else 1.0
    return Overlap(shared / min(len(context), len(reply)), beta)


def histogram(
    values: Sequence[float], metric: Sequence[float], edges: Sequence[float], clusters: Sequence[int] | None = None
) -> list[Bin]:
    """A metric over bins of overlap, as figure 1 draws it.

    Args:
        values: alpha or beta of each group (G,).
        metric: of the same groups (G,); groups of values outside of the edges are in no bin.
        edges: ascending.
        clusters: what each group is drawn with, such as its dialogue (G,); each group is its own when not given.
    """
    overlap, figures = np.asarray(values, dtype=np.float64), np.asarray(metric, dtype=np.float64)
    assert overlap.shape == figures.shape, f"one of each is wanted, got {overlap.shape} and {figures.shape}"
    drawn_with = np.arange(len(overlap)) if clusters is None else np.asarray(clusters)
    last = len(edges) - 2
    found = []
    for number, (low, high) in enumerate(pairwise(edges)):
        below = overlap <= high if number == last else overlap < high
        held = (overlap >= low) & below
        found.append(Bin(low, high, clustered_rate(figures[held], drawn_with[held])))
    return found


def figure_1(
    groups: Iterable[CandidateGroup], metrics: GroupMetrics, name: str = "r@1", clusters: Mapping[str, int] | None = None
) -> tuple[list[Bin], list[Bin]]:
    """Figure 1: a metric by alpha, and by beta.

    Args:
        groups: that were ranked; those without overlap are left out.
        metrics: of them, by their keys.
        name: of the metric.
        clusters: by a group's key what it is drawn with, such as its dialogue; each group is its own when not given.
    """
    value_of = dict(zip(metrics.keys.tolist(), metrics.values[name].tolist(), strict=True))
    found = {group.key: overlap for group in groups if group.key in value_of and (overlap := overlap_of(group))}
    values, drawn_with = [value_of[key] for key in found], None if clusters is None else [clusters[key] for key in found]
    return (
        histogram([overlap.alpha for overlap in found.values()], values, ALPHA_EDGES, drawn_with),
        histogram([overlap.beta for overlap in found.values()], values, BETA_EDGES, drawn_with),
    )
