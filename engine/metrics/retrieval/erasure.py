"""How much single words of a reply matter to a ranker, and what it does with the most important ones alone (figure 2).

Source: Li et al. 2019, section 2, equation (3); Li, Monroe & Jurafsky 2016 (arXiv 1612.08220).

    s(w) = mean over the places of w in reply r of (g(c, r) - g(c, r without that place)) / g(c, r)

  * # Paper: g is a probability. Ours: divided by |g|, so that a word whose loss lowers a negative score is important too; where
    g is 0 the drop itself.
  * # Paper: silent on which replies keep k words. Ours: the right ones, whose words equation (3) is about; as an option all.
  * # Paper: silent on equal importances. Ours: the word that stands first.
  * # Paper: silent on k. Ours: k distinct words, at all their places, in the reply's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from engine.metrics.retrieval.ranks import group_metrics
from engine.metrics.statistics import Estimate, ratio_of_sums
from envs.candidates.groups import CandidateGroup
from envs.pairs.turns import Utterance
from policies.ranker import Pair

Scorer = Callable[[Sequence[Pair]], Sequence[Sequence[float] | np.ndarray]]
"""Scores of each pair's replies: a ranker's `scores_of`."""
Which = Literal["right", "all"]
"""The replies of which few words stay."""
KS = (1, 2, 3, 4, 5, 6)
"""How many words stay in figure 2."""


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


def importances(scorer: Scorer, groups: Sequence[CandidateGroup], which: Which = "right") -> list[dict[int, dict[str, float]]]:
    """The importance of every word of some replies, by equation (3).

    Args:
        scorer: asked once for all groups; each reply costs as many scores as it has words, and one.
        groups: contexts and replies.
        which: the right replies, or all.

    Returns:
        For each group, by the place of the reply among the candidates, the importance of each of its words.
    """
    asked = [[place for place, label in enumerate(group.labels) if label or which == "all"] for group in groups]
    pairs = [
        (group.context, [reply for place in places for reply in erased(group.candidates[place])])
        for group, places in zip(groups, asked, strict=True)
    ]
    found = []
    for group, places, scores in zip(groups, asked, scorer(pairs), strict=True):
        told = iter(np.asarray(scores, dtype=np.float64).tolist())
        found.append({place: _importance(group.candidates[place], told) for place in places})
    return found


def kept(words: Utterance, importance: dict[str, float], k: int) -> Utterance:
    """A reply of which only the most important words stay.

    Args:
        words: the reply.
        importance: of each of its words.
        k: how many distinct words stay.
    """
    first = dict.fromkeys(words)
    stays = frozenset(sorted(first, key=lambda word: -importance[word])[:k])
    return tuple(word for word in words if word in stays)


def figure_2(
    scorer: Scorer, groups: Sequence[CandidateGroup], ks: Sequence[int] = KS, which: Which = "right", seed: int = 0
) -> list[KeptPoint]:
    """Figure 2: how often a ranker is right when only the k most important words of replies stay.

    Args:
        scorer: as in `importances`.
        groups: contexts and replies; those without a right or a wrong one do not count.
        ks: how many words stay.
        which: the replies that are shortened.
        seed: names the resampling stream of the intervals.
    """
    found = importances(scorer, groups, which)
    whole = _accuracies(scorer, groups)
    points = []
    for k in ks:
        shortened = [_shortened(group, words, k) for group, words in zip(groups, found, strict=True)]
        accuracy = _accuracies(scorer, shortened)
        ones = np.ones_like(accuracy)
        points.append(
            KeptPoint(k, ratio_of_sums(accuracy, ones, seed=seed), ratio_of_sums(accuracy, whole, seed=seed))
        )
    return points


def erased(words: Utterance) -> list[Utterance]:
    """The reply, and for each of its places the reply without it; so many texts as it has words, and one."""
    return [words, *(words[:place] + words[place + 1 :] for place in range(len(words)))]


def _importance(words: Utterance, told: Iterator[float]) -> dict[str, float]:
    whole, *others = islice(told, len(words) + 1)
    drops: dict[str, list[float]] = {}
    for word, other in zip(words, others, strict=True):
        drops.setdefault(word, []).append((whole - other) / (abs(whole) or 1.0))
    return {word: sum(each) / len(each) for word, each in drops.items()}


def _shortened(group: CandidateGroup, found: dict[int, dict[str, float]], k: int) -> CandidateGroup:
    replies = enumerate(group.candidates)
    return replace(
        group,
        candidates=tuple(kept(words, found[place], k) if place in found else words for place, words in replies),
    )


def _accuracies(scorer: Scorer, groups: Sequence[CandidateGroup]) -> np.ndarray:
    """R_n@1 of each group that counts."""
    scores = scorer([(group.context, group.candidates) for group in groups])
    keys = np.repeat(np.arange(len(groups)), [len(group.candidates) for group in groups])
    told = np.concatenate([np.zeros(0), *(np.asarray(each, dtype=np.float64) for each in scores)])
    labels = [label for group in groups for label in group.labels]
    return group_metrics(keys, told, labels, ks=(1,)).values["r@1"]
