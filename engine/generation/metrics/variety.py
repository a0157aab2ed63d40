"""How various the replies of a step are, and what they earn: what shows that a generator says the same to everybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from parley.engine.core.stats.replies import distinct

WORDS, DISTINCT, DISTINCT_2, COMMONEST = "reply_words", "distinct_1", "distinct_2", "commonest_share"
"""As `parley.engine.core.stats.replies` calls them, whose figures have intervals."""
ADVANTAGE = "advantage"
"""Size of reward less baseline, mean over words: nothing is learned where it is 0, as where all replies earn the same."""


def variety(replies: Sequence[Sequence[int] | np.ndarray]) -> dict[str, float]:
    """Words of a reply in the mean, distinct-1 and -2, and the share of the commonest reply.

    Args:
        replies: word ids of each, one reply at least.
    """
    said = [tuple(map(str, reply)) for reply in replies]
    return {
        WORDS: float(np.mean([len(words) for words in said])),
        DISTINCT: distinct(said, 1).value,
        DISTINCT_2: distinct(said, 2).value,
        COMMONEST: max(Counter(said).values()) / len(said),
    }
