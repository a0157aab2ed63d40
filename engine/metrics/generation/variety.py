"""How various the replies of a step are: what shows that a generator says the same to everybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from engine.metrics.replies import distinct

WORDS, DISTINCT, COMMONEST = "reply_words", "distinct_1", "commonest_share"
"""As `engine.metrics.replies` calls them, whose figures have intervals."""


def variety(replies: Sequence[Sequence[int] | np.ndarray]) -> dict[str, float]:
    """Words of a reply in the mean, distinct-1, and the share of the commonest reply.

    Args:
        replies: word ids of each, one reply at least.
    """
    said = [tuple(map(str, reply)) for reply in replies]
    return {
        WORDS: float(np.mean([len(words) for words in said])),
        DISTINCT: distinct(said, 1).value,
        COMMONEST: max(Counter(said).values()) / len(said),
    }
