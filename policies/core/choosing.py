"""A policy that chooses among actions by what it sees of each: the network that editors and liars share.

`engine/core/rllib/action_reinforce.py` trains it by reinforcement. Shapes: B examples, A actions, F features.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from parley.policies.core.choosing_settings import ChoiceSizes


class ActionScorer(nn.Module):
    """Scores actions, each by itself.

    Args:
        num_features: F.
        sizes: widths.
    """

    def __init__(self, num_features: int, sizes: ChoiceSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.layers = nn.Sequential(nn.Linear(num_features, sizes.hidden), nn.Tanh(), nn.Linear(sizes.hidden, 1))

    def forward(self, seen: Tensor, mask: Tensor) -> Tensor:
        """Scores of actions; their softmax is the policy.

        Args:
            seen: (B, A, F) float32.
            mask: (B, A), 1 for what is allowed.

        Returns:
            (B, A) float32, what is not allowed at the lowest finite number.
        """
        scores: Tensor = self.layers(seen).squeeze(-1)
        return scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)

    def draw_weights(self, seed: int) -> None:
        """Draws all weights afresh."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            bound = 1 / math.sqrt(parameter.shape[-1])
            nn.init.uniform_(parameter, -bound, bound, generator=generator)


def drawn_actions(scores: Tensor, shares: np.ndarray) -> np.ndarray:
    """An action for each row (B,) by the softmax of scores (B, A) and a uniform number (B,)."""
    reached = scores.double().softmax(-1).cumsum(-1).numpy()
    drawn = (reached < shares[:, None] * reached[:, -1:]).sum(1)
    # Rounding may leave a share behind the last action.
    return np.asarray(drawn.clip(max=reached.shape[1] - 1))
