"""Numbers that a model gives to pairs whoever judges: worked out once, however many folds ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from parley.envs.corpora.pairs.replied import RepliedPair
from parley.policies.ranking.ranker import Ranker, scores_of

Numbers = Callable[[Sequence[RepliedPair]], np.ndarray]
"""Of N pairs a number each, (N,)."""


class Remembered:
    """Numbers that are kept.

    Args:
        numbers: what works them out; what it gives to a pair does not depend on the others.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._known: dict[RepliedPair, float] = {}

    def __call__(self, pairs: Sequence[RepliedPair]) -> np.ndarray:
        """(N,)."""
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if unknown:
            self._known.update(zip(unknown, self._numbers(unknown).tolist(), strict=True))
        return np.array([self._known[pair] for pair in pairs])


def ranked(ranker: Ranker, pairs: Sequence[RepliedPair]) -> np.ndarray:
    """What a ranker says of each reply in its context, (N,).

    Raises:
        RankerError: it raised, or gave no finite number.
    """
    return np.concatenate(scores_of(ranker, [(pair.context, [pair.reply]) for pair in pairs]))
