"""The order of margins for attack methods; the goals are in `envs/ranking/edit_game.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.envs.ranking.edit_game import TOLERANCE, RankGoal, tolerance

__all__ = ["TOLERANCE", "RankGoal", "falling", "tolerance"]


def falling(values: Sequence[float] | np.ndarray, tolerance: float) -> list[int]:
    """Return the indices of values from highest to lowest; equal neighbours keep their order."""
    order = sorted(range(len(values)), key=lambda i: -values[i])
    ordered: list[int] = []
    equal: list[int] = []
    for i in order:
        if equal and values[equal[-1]] - values[i] > tolerance:
            ordered += sorted(equal)
            equal = []
        equal.append(i)
    return ordered + sorted(equal)
