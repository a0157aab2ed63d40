"""Rankers that know no language: what a model must beat before its figures say anything.

Longest and shortest are here because length alone tells many corpora's positives; overlap because accuracy follows it (Li et
al. 2019, equation 1); a ranker without its context because wrong candidates may betray themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.ranking.ranker import LimitedRanker, Pair, Ranker, Unread, outcomes_of, unread_of

NO_CONTEXT: Context = ((),)
"""One turn without a word."""


def overlap(context: Context, reply: Utterance) -> float:
    """Distinct words that both hold, as a share of the fewer distinct words of the two; 0 where one has none."""
    said, replied = set().union(*context), set(reply)
    return len(said & replied) / max(min(len(said), len(replied)), 1)


class Constant:
    """Finds all candidates alike."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Zeros."""
        return [0.0] * len(candidates)


class Longest:
    """Prefers candidates of many words."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Numbers of words."""
        return [float(len(reply)) for reply in candidates]


class Shortest:
    """Prefers candidates of few words."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Numbers of words, negative."""
        return [-float(len(reply)) for reply in candidates]


class WordOverlap:
    """Prefers candidates whose words the context holds."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Overlaps, from 0 to 1."""
        return [overlap(context, reply) for reply in candidates]


class ResponseOnly(LimitedRanker):
    """A ranker that is shown candidates and no context.

    Args:
        ranker: the one that is asked.
    """

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self.gives_probabilities = bool(getattr(ranker, "gives_probabilities", False))

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
        """What the ranker says of candidates behind one turn without a word."""
        return outcomes_of(self.ranker, [(NO_CONTEXT, candidates) for _, candidates in pairs])

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Of the candidates alone."""
        return Unread(replies=unread_of(self.ranker, NO_CONTEXT, candidates).replies)
