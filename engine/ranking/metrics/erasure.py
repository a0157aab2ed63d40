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
from numpy.typing import ArrayLike

from parley.engine.core.stats.statistics import Estimate, clustered_rate, mean_count
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


def overlap_of(context: Iterable[Sequence[str]], replies: Sequence[Sequence[str]], labels: Sequence[bool]) -> Overlap | None:
    """Compute the word overlap of a group; None without a right or wrong reply, or without words.

    Args:
        context: words of its turns.
        replies: words of its replies.
        labels: whether each reply is right.
    """
    words = frozenset(chain.from_iterable(context))
    right = [frozenset(reply) for reply, label in zip(replies, labels, strict=True) if label and reply]
    wrong = [frozenset(reply) for reply, label in zip(replies, labels, strict=True) if not label]
    if not (words and right and wrong):
        return None
    nearest = max(right, key=lambda reply: len(words & reply))
    shared, most = len(words & nearest), max(len(words & reply) for reply in wrong)
    beta = most / shared if shared else np.inf if most else 1.0
    return Overlap(shared / min(len(words), len(nearest)), beta)


def histogram(values: ArrayLike, metric: ArrayLike, edges: Sequence[float], clusters: ArrayLike | None = None) -> list[Bin]:
    """Compute a metric over bins of overlap, as in figure 1.

    Args:
        values: alpha or beta of each group (G,).
        metric: of the same groups (G,); groups of values outside of the edges are in no bin.
        edges: ascending.
        clusters: the cluster of each group, such as its dialogue (G,); by default each group is its own.
    """
    overlap, figures = np.asarray(values, dtype=np.float64), np.asarray(metric, dtype=np.float64)
    assert overlap.shape == figures.shape, f"one of each is wanted, got {overlap.shape} and {figures.shape}"
    drawn_with = np.arange(len(overlap)) if clusters is None else np.asarray(clusters)
    last = len(edges) - 2
    bins = []
    for number, (low, high) in enumerate(pairwise(edges)):
        below = overlap <= high if number == last else overlap < high
        held = (overlap >= low) & below
        bins.append(Bin(low, high, clustered_rate(figures[held], drawn_with[held])))
    return bins


def figure_1(overlaps: np.ndarray, metric: GroupMetrics, clusters: np.ndarray | None = None) -> tuple[list[Bin], list[Bin]]:
    """Compute figure 1: a metric by alpha, and by beta.

    Args:
        overlaps: alpha and beta of each group (G, 2); groups with NaN are left out.
        metric: one metric of groups, whose keys are rows of `overlaps`.
        clusters: the cluster of each group, such as its dialogue (G,); by default each group is its own.
    """
    ((_, values),) = metric.values.items()
    keys = metric.keys.astype(np.int64)
    known = ~np.isnan(overlaps[keys]).any(axis=1)
    keys, values = keys[known], values[known]
    drawn_with = None if clusters is None else clusters[keys]
    alpha, beta = overlaps[keys].T
    return histogram(alpha, values, ALPHA_EDGES, drawn_with), histogram(beta, values, BETA_EDGES, drawn_with)


Scorer = Callable[[Sequence[Pair]], Sequence[Sequence[float] | np.ndarray | None]]
"""Scores of each pair's replies, such as a ranker's `scores_of`; None for a pair without any."""
KS = (1, 2, 3, 4, 5, 6)
"""The numbers of words that stay in figure 2."""


class WordReading(NamedTuple):
    """The words of a reply as a ranker weighs them.

    Args:
        importance: of each distinct word, in the reply's order, by equation (3).
        kept: scores of the reply with only its most important words, for rising numbers of words.
    """

    importance: Mapping[str, float]
    kept: tuple[float, ...]


class KeptPoint(NamedTuple):
    """A point of figure 2.

    Args:
        k: number of words that stay.
        accuracy: R_n@1 of the shortened replies.
        relative: the same, divided by that of the whole replies.
    """

    k: int
    accuracy: Estimate
    relative: Estimate


def importances(scorer: Scorer, groups: Sequence[CandidateGroup]) -> list[dict[int, dict[str, float]]]:
    """Compute the importance of every word of the right replies, by equation (3).

    Args:
        scorer: called once for all groups; a reply costs one score more than it has words.
        groups: contexts and replies.

    Returns:
        For each group, by the index of the reply, the importance of each of its words; empty for a group
        that the scorer gave no scores for.
    """
    right_indices = [[index for index, label in enumerate(group.labels) if label] for group in groups]
    pairs = [
        (group.context, [reply for index in indices for reply in erased(group.candidates[index])])
        for group, indices in zip(groups, right_indices, strict=True)
    ]
    importance_by_group = []
    for group, indices, scores in zip(groups, right_indices, _scored(scorer, pairs), strict=True):
        remaining = iter([] if scores is None else np.asarray(scores, dtype=np.float64).tolist())
        importance_by_group.append(
            {} if scores is None else {index: _importance(group.candidates[index], remaining) for index in indices}
        )
    return importance_by_group


def kept(words: Utterance, importance: Mapping[str, float], k: int) -> Utterance:
    """Shorten a reply to its most important words.

    Args:
        words: the reply.
        importance: of each of its words.
        k: number of distinct words that stay.
    """
    first = dict.fromkeys(words)
    stays = frozenset(sorted(first, key=lambda word: -importance[word])[:k])
    return tuple(word for word in words if word in stays)


def read_words(scorer: Scorer, groups: Sequence[CandidateGroup], ks: Sequence[int] = KS) -> list[dict[int, WordReading]]:
    """Compute the importance of the words of right replies, and the scores of the most important ones alone.

    Args:
        scorer: called twice for all groups.
        groups: contexts and replies.
        ks: numbers of words that stay.

    Returns:
        For each group by the index of the reply; empty for a group without scores.
    """
    importance_by_group = importances(scorer, groups)
    pairs = [
        (group.context, [kept(group.candidates[index], words, k) for index, words in of.items() for k in ks])
        for group, of in zip(groups, importance_by_group, strict=True)
    ]
    readings: list[dict[int, WordReading]] = []
    for of, scores in zip(importance_by_group, _scored(scorer, pairs), strict=True):
        remaining = iter([] if scores is None else np.asarray(scores, dtype=np.float64).tolist())
        read = {index: WordReading(words, tuple(islice(remaining, len(ks)))) for index, words in of.items()}
        readings.append({} if scores is None else read)
    return readings


def kept_points(
    labels: Sequence[Sequence[bool]],
    scores: Sequence[Sequence[float] | np.ndarray],
    readings: Sequence[Mapping[int, WordReading]],
    ks: Sequence[int] = KS,
    clusters: Sequence[int] | None = None,
) -> list[KeptPoint]:
    """Compute figure 2: the share of right first places with only the k most important words of replies.

    Args:
        labels: of the replies of each group; groups without a right or a wrong one do not count.
        scores: of the whole replies.
        readings: of the shortened replies, by their indices.
        ks: numbers of words that stay, as in the readings.
        clusters: the cluster of each group, such as its dialogue; by default each group is its own.
    """
    whole, counted = _accuracies(labels, scores)
    drawn_with = None if clusters is None else np.asarray(clusters)[counted]
    points = []
    for number, k in enumerate(ks):
        shortened = [
            [of[index].kept[number] if index in of else score for index, score in enumerate(given)]
            for given, of in zip(scores, readings, strict=True)
        ]
        accuracy, _ = _accuracies(labels, shortened)
        relative = mean_count(accuracy, drawn_with, whole)
        points.append(KeptPoint(k, clustered_rate(accuracy, drawn_with), relative))
    return points


def erased(words: Utterance) -> list[Utterance]:
    """Return the reply, then the reply without each of its words."""
    return [words, *(words[:position] + words[position + 1 :] for position in range(len(words)))]


def _scored(scorer: Scorer, pairs: Sequence[Pair]) -> list[Sequence[float] | np.ndarray | None]:
    scores = iter(scorer([pair for pair in pairs if pair[1]]))
    return [next(scores) if replies else () for _, replies in pairs]


def _importance(words: Utterance, scores: Iterator[float]) -> dict[str, float]:
    whole, *shortened = islice(scores, len(words) + 1)
    drops: dict[str, list[float]] = {}
    for word, other in zip(words, shortened, strict=True):
        drops.setdefault(word, []).append((whole - other) / (abs(whole) or 1.0))
    return {word: sum(word_drops) / len(word_drops) for word, word_drops in drops.items()}


def _accuracies(
    labels: Sequence[Sequence[bool]], scores: Sequence[Sequence[float] | np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    keys = np.repeat(np.arange(len(labels)), [len(group_labels) for group_labels in labels])
    values = np.concatenate([np.zeros(0), *(np.asarray(group_scores, dtype=np.float64) for group_scores in scores)])
    metrics = group_metrics(keys, values, [label for group_labels in labels for label in group_labels], ks=(1,))
    return metrics.values["r@1"], metrics.keys.astype(np.int64)
