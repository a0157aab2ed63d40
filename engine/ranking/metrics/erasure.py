"""Word importance by erasure (figure 2), and word overlap of contexts and replies (figure 1).

Source: Li et al. 2019, section 2, equation (3); Li, Monroe & Jurafsky 2016 (arXiv 1612.08220).

    s(w) = mean over the places of w in reply r of (g(c, r) - g(c, r without that place)) / g(c, r)

  * # Paper: g is a probability. Ours: divided by |g|, so that a word whose loss lowers a negative score is important too; where
    g is 0 the drop itself.
  * # Paper: silent on which replies keep k words. Ours: the right ones, whose words equation (3) is about.
  * # Paper: silent on equal importances. Ours: the word that stands first.
  * # Paper: silent on k. Ours: k distinct words, at all their places, in the reply's order.

Word overlap (figure 1): section 2, equations (1) and (2).

    alpha = |C & R+| / min(|C|, |R+|)        beta = max over wrong replies |C & R-| / |C & R+|

C, R+ and R- are the sets of words of the context, a right and a wrong reply.

  * # Paper: one right reply. Ours: of several the one that shares most words with the context.
  * # Paper: "arg max" in equation (2). Ours: the maximum, of which its ratio is made.
  * # Paper: silent on right replies that share no word. Ours: beta is infinite where a wrong reply shares one, else 1: none is
    ahead of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np

from parley.engine.core.stats.statistics import Estimate, clustered_rate, ratio_of_sums
from parley.engine.ranking.metrics.ranks import GroupMetrics, group_metrics
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import CandidateGroup
from parley.policies.ranking.ranker import Pair

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


Scorer = Callable[[Sequence[Pair]], Sequence[Sequence[float] | np.ndarray | None]]
"""Scores of each pair's replies, such as a ranker's `scores_of`; None for a pair without any."""
KS = (1, 2, 3, 4, 5, 6)
"""How many words stay in figure 2."""


class WordReading(NamedTuple):
    """What the words of a reply are to a ranker.

    Args:
        importance: of each distinct word, in the reply's order, by equation (3).
        kept: scores of the reply of which only the most important words stay, for rising numbers of words.
    """

    importance: Mapping[str, float]
    kept: tuple[float, ...]


class KeptPoint(NamedTuple):
    """A point of figure 2.

    Args:
        k: how many words stay.
        accuracy: R_n@1 of the shortened replies.
        relative: the same, divided by that of the whole replies.
    """

    k: int
    accuracy: Estimate
    relative: Estimate


def importances(scorer: Scorer, groups: Sequence[CandidateGroup]) -> list[dict[int, dict[str, float]]]:
    """The importance of every word of the right replies, by equation (3).

    Args:
        scorer: asked once for all groups; each reply costs as many scores as it has words, and one.
        groups: contexts and replies.

    Returns:
        For each group, by the place of the reply among the candidates, the importance of each of its words; empty for a group
        that the scorer gave no scores for.
    """
    asked = [[place for place, label in enumerate(group.labels) if label] for group in groups]
    pairs = [
        (group.context, [reply for place in places for reply in erased(group.candidates[place])])
        for group, places in zip(groups, asked, strict=True)
    ]
    found = []
    for group, places, scores in zip(groups, asked, _asked(scorer, pairs), strict=True):
        told = iter([] if scores is None else np.asarray(scores, dtype=np.float64).tolist())
        found.append({} if scores is None else {place: _importance(group.candidates[place], told) for place in places})
    return found


def kept(words: Utterance, importance: Mapping[str, float], k: int) -> Utterance:
    """A reply of which only the most important words stay.

    Args:
        words: the reply.
        importance: of each of its words.
        k: how many distinct words stay.
    """
    first = dict.fromkeys(words)
    stays = frozenset(sorted(first, key=lambda word: -importance[word])[:k])
    return tuple(word for word in words if word in stays)


def read_words(scorer: Scorer, groups: Sequence[CandidateGroup], ks: Sequence[int] = KS) -> list[dict[int, WordReading]]:
    """The importance of words of the right replies, and what a ranker makes of the most important ones alone.

    Args:
        scorer: asked twice for all groups.
        groups: contexts and replies.
        ks: how many words stay.

    Returns:
        For each group by the place of the reply; empty for a group that the scorer gave no scores for.
    """
    found = importances(scorer, groups)
    pairs = [
        (group.context, [kept(group.candidates[place], words, k) for place, words in of.items() for k in ks])
        for group, of in zip(groups, found, strict=True)
    ]
    readings: list[dict[int, WordReading]] = []
    for of, scores in zip(found, _asked(scorer, pairs), strict=True):
        told = iter([] if scores is None else np.asarray(scores, dtype=np.float64).tolist())
        read = {place: WordReading(words, tuple(islice(told, len(ks)))) for place, words in of.items()}
        readings.append({} if scores is None else read)
    return readings


def kept_points(
    labels: Sequence[Sequence[bool]],
    scores: Sequence[Sequence[float] | np.ndarray],
    readings: Sequence[Mapping[int, WordReading]],
    ks: Sequence[int] = KS,
    clusters: Sequence[int] | None = None,
) -> list[KeptPoint]:
    """Figure 2: how often a ranker is right when only the k most important words of replies stay.

    Args:
        labels: of the replies of each group; groups without a right or a wrong one do not count.
        scores: of the whole replies.
        readings: of the replies that are shortened, by their places.
        ks: how many words stay, as the readings have it.
        clusters: what each group is drawn with, such as its dialogue; each group is its own when not given.
    """
    whole, counted = _accuracies(labels, scores)
    drawn_with = None if clusters is None else np.asarray(clusters)[counted]
    points = []
    for number, k in enumerate(ks):
        shortened = [
            [of[place].kept[number] if place in of else score for place, score in enumerate(given)]
            for given, of in zip(scores, readings, strict=True)
        ]
        accuracy, _ = _accuracies(labels, shortened)
        relative = ratio_of_sums(accuracy, whole, drawn_with)
        points.append(KeptPoint(k, clustered_rate(accuracy, drawn_with), relative))
    return points


def erased(words: Utterance) -> list[Utterance]:
    """The reply, and for each of its places the reply without it; so many texts as it has words, and one."""
    return [words, *(words[:place] + words[place + 1 :] for place in range(len(words)))]


def _asked(scorer: Scorer, pairs: Sequence[Pair]) -> list[Sequence[float] | np.ndarray | None]:
    """What the scorer says of each pair; it is not asked about pairs without a reply."""
    told = iter(scorer([pair for pair in pairs if pair[1]]))
    return [next(told) if replies else () for _, replies in pairs]


def _importance(words: Utterance, told: Iterator[float]) -> dict[str, float]:
    whole, *others = islice(told, len(words) + 1)
    drops: dict[str, list[float]] = {}
    for word, other in zip(words, others, strict=True):
        drops.setdefault(word, []).append((whole - other) / (abs(whole) or 1.0))
    return {word: sum(each) / len(each) for word, each in drops.items()}


def _accuracies(
    labels: Sequence[Sequence[bool]], scores: Sequence[Sequence[float] | np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """R_n@1 of each group that counts, and places of those groups."""
    keys = np.repeat(np.arange(len(labels)), [len(each) for each in labels])
    told = np.concatenate([np.zeros(0), *(np.asarray(each, dtype=np.float64) for each in scores)])
    found = group_metrics(keys, told, [label for each in labels for label in each], ks=(1,))
    return found.values["r@1"], found.keys.astype(np.int64)
