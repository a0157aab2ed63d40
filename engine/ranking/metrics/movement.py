"""Where attacked replies stand before and after, by rank.

A reply that is tied has the mean of the ranks that it shares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.engine.ranking.metrics.ranking import CLEAN, RankedRows


def expected_ranks(scores: Sequence[float]) -> np.ndarray:
    """The rank of each score, 1 for the highest, ties sharing theirs (n,) float64."""
    told = np.asarray(scores, dtype=np.float64)
    above, beside = (told[None, :] > told[:, None]).sum(axis=1), (told[None, :] == told[:, None]).sum(axis=1)
    found: np.ndarray = above + (beside + 1) / 2
    return found


def rank_movement(found: RankedRows, model: str, rule: str) -> np.ndarray:
    """How many of the replies that a rule changed went from which rank to which.

    Returns:
        (n, n) int64, by rank before and rank after, from 1 to the most candidates of a group; a tie's half rank is rounded up.
    """
    size = max((len(row["labels"]) for row in found.rows), default=0)
    moved = np.zeros((size, size), dtype=np.int64)
    before = dict(found.scores.get((model, CLEAN), ()))
    for number, scores in found.scores.get((model, rule), ()):
        if places := list(found.changed[number, rule]) if number in before else []:
            ranks = [np.ceil(expected_ranks(each)[places]).astype(np.int64) - 1 for each in (before[number], scores)]
            np.add.at(moved, (ranks[0], ranks[1]), 1)
    return moved
