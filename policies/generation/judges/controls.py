"""Judges that know no language: what a judge must beat before its AdverSuc says anything.

Each looks at one property of a pair and goes by how often either side had it in the fit: log-odds with one pair added to each
side. Length is here because it alone tells the machine replies of the published sample in four of five pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from parley.envs.corpora.pairs.replied import RepliedPair
from parley.policies.generation.judges.judge import Judge, JudgeSettings

_TENTHS = 10


class PropertyJudge(Judge):
    """Goes by one property of a pair."""

    def __init__(self, key: Callable[[RepliedPair], Hashable]) -> None:
        self._key = key
        self._log_odds: dict[Hashable, float] = {}

    def fit(self, pairs: Sequence[RepliedPair], labels: np.ndarray, seed: int) -> None:
        keys, sides = list(map(self._key, pairs)), labels.tolist()
        first = Counter(key for key, label in zip(keys, sides, strict=True) if label)
        second = Counter(key for key, label in zip(keys, sides, strict=True) if not label)
        # Exactly 0 where the counts are equal.
        self._log_odds = {key: float(np.log((first[key] + 1) / (second[key] + 1))) for key in dict.fromkeys(keys)}

    def score(self, pairs: Sequence[RepliedPair]) -> list[float]:
        return [self._log_odds.get(self._key(pair), 0.0) for pair in pairs]


def constant(settings: JudgeSettings) -> Callable[[], Judge]:
    """All pairs alike."""
    return partial(PropertyJudge, lambda pair: None)


def length(settings: JudgeSettings) -> Callable[[], Judge]:
    """The number of words of the reply."""
    return partial(PropertyJudge, lambda pair: len(pair.reply))


def first_word(settings: JudgeSettings) -> Callable[[], Judge]:
    """The first word of the reply."""
    return partial(PropertyJudge, lambda pair: pair.reply[0])


def copy(settings: JudgeSettings) -> Callable[[], Judge]:
    """The share of the reply's words that stand in the source, in tenths."""
    return partial(PropertyJudge, _copied)


def _copied(pair: RepliedPair) -> int:
    said = set(pair.context[-1])
    return _TENTHS * sum(word in said for word in pair.reply) // len(pair.reply)
