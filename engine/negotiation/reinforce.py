"""REINFORCE over whole dialogues: goal-based agents (Lewis et al. 2017, eq. 4) and the RL attack (Cheng et al. 2019).

One dialogue, seen from the learner's side, is one example. Its reward is the learner's points, or its points minus the
target's; its return at the learner's k-th last word is gamma^k times the reward less a running baseline; the loss is
minus the sum over its own words of return times log-probability, averaged over dialogues.

Departures:
  * # Released: one dialogue an update; the centered reward is divided by its running deviation, and each update is clipped
    to norm 1, which leaves little but its sign. Ours: many dialogues an update, and `scaling` chooses; the papers only
    subtract the mean.
  * # Released attack: reward 5 - loss of the target's choice, which pays for a win and not for its margin.
    Ours: S_adv - S_ori, as the paper states.

Shapes: N dialogues, T tokens, V words, M words that the learner wrote in all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

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


def discounted_returns(own_NT: np.ndarray, rewards_N: np.ndarray, gamma: float) -> np.ndarray:
    """Return of each of the learner's words: gamma^k times the reward, k own words before its last; 0 elsewhere.

    Args:
        own_NT: which tokens the learner wrote, bool.
        rewards_N: centered rewards.
        gamma: discount per own word.

    Returns:
        (N, T) float32.
    """
    following = own_NT[:, ::-1].cumsum(1)[:, ::-1] - own_NT
    return (own_NT * gamma**following * rewards_N[:, None]).astype(np.float32)


def policy_log_probs(logits_MV: Tensor, forbidden: list[int], temperature: float) -> Tensor:
    """Log-probabilities (M, V) of the distribution that speaks: tempered, without the words nobody may say."""
    masked = (logits_MV / temperature).index_fill_(-1, torch.tensor(forbidden, device=logits_MV.device), -torch.inf)
    return masked.log_softmax(-1)


def policy_gradient_loss(log_probs_M: Tensor, returns_M: Tensor, num_dialogues: int) -> Tensor:
    """Minus the sum over words of return times log-probability, per dialogue (Lewis et al. 2017, eq. 4).

    Args:
        log_probs_M: of the learner's words as spoken, all dialogues after one another.
        returns_M: their returns, from `discounted_returns`.
        num_dialogues: how many dialogues the words come from.
    """
    return -(log_probs_M * returns_M).sum() / num_dialogues


def kl_to_reference(log_probs_MV: Tensor, reference_MV: Tensor) -> Tensor:
    """Exact KL(learner || reference), averaged over words; both are log-probabilities with the same words forbidden."""
    return _expected(log_probs_MV, log_probs_MV - reference_MV)


def entropy(log_probs_MV: Tensor) -> Tensor:
    """Entropy of the word distributions in nats, averaged over words."""
    return _expected(log_probs_MV, -log_probs_MV)


def _expected(log_probs_MV: Tensor, values_MV: Tensor) -> Tensor:
    """Mean over words of the expected value; 0 when the learner wrote no word in any dialogue."""
    allowed = values_MV.masked_fill(torch.isinf(log_probs_MV), 0.0)
    return (log_probs_MV.exp() * allowed).sum() / max(1, len(log_probs_MV))
