"""What every learner by REINFORCE shares: the running baseline of rewards, and the error of one that has diverged."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from parley.envs.core.errors import ParleyError


class DivergenceError(ParleyError):
    """A reward, a loss or a gradient is no longer a finite number."""


@dataclass
class RunningBaseline:
    """Mean and deviation of all rewards so far, the newest included, as in the released code."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def center(self, rewards_N: np.ndarray, scaling: str) -> np.ndarray:
        """Adds the rewards to the record and returns them less the mean, scaled as `ReinforceConfig.scaling` says.

        Returns:
            (N,) float64.
        """
        self.count += len(rewards_N)
        self.total += float(rewards_N.sum())
        self.squares += float((rewards_N**2).sum())
        mean = self.total / self.count
        centered = rewards_N - mean
        if scaling == "sign":
            return np.sign(centered)
        if scaling == "deviation":
            deviation = math.sqrt(max(self.squares / self.count - mean**2, 0.0))
            return centered / max(1e-4, deviation)
        return centered
