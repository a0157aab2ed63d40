"""REINFORCE over whole dialogues: goal-based agents (Lewis et al. 2017, eq. 4) and the RL attack (Cheng et al. 2019).

One dialogue, seen from the learner's side, is one example. Its reward is the learner's points, or its points minus the
target's; its return at the learner's k-th last word is gamma^k times the reward less a running baseline; the loss is
minus the sum over its own words of return times log-probability, averaged over dialogues.

Departures:
  * # Papers: gamma^(T - t), where t counts the words of both sides. Ours: the learner's own, as the released code counts.
  * # Released: one dialogue an update; the centered reward is divided by its running deviation, and each update is clipped
    to norm 1, which leaves little but its sign. Ours: many dialogues an update, and `scaling` chooses; the papers only
    subtract the mean.
  * # Released attack: reward 5 - loss of the target's choice, which pays for a win and not for its margin.
    Ours: S_adv - S_ori, as the paper states.

Shapes: N dialogues, T tokens, V words, M words that the learner wrote in all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def discounted_returns(own_NT: np.ndarray, rewards_N: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted return of each learner word: gamma^k times the reward, k own words before the last; else 0.

    Args:
        own_NT: mask of the tokens that the learner wrote.
        rewards_N: centered rewards.
        gamma: discount per own word.

    Returns:
        (N, T) float32.
    """
    following = own_NT[:, ::-1].cumsum(1)[:, ::-1] - own_NT
    return (own_NT * gamma**following * rewards_N[:, None]).astype(np.float32)


def policy_log_probs(logits_MV: Tensor, forbidden: list[int], temperature: float) -> Tensor:
    """Return the log-probabilities (M, V) of the speaking distribution: tempered, without forbidden words."""
    masked = (logits_MV / temperature).index_fill_(-1, torch.tensor(forbidden, device=logits_MV.device), -torch.inf)
    return masked.log_softmax(-1)


def policy_gradient_loss(log_probs_M: Tensor, returns_M: Tensor, num_dialogues: int) -> Tensor:
    """Return minus the sum over words of return times log-probability, per dialogue (Lewis et al. 2017, eq. 4).

    Args:
        log_probs_M: log-probabilities of the learner's words, dialogue after dialogue.
        returns_M: their returns, from `discounted_returns`.
        num_dialogues: number of dialogues of the words.
    """
    return -(log_probs_M * returns_M).sum() / num_dialogues


def kl_to_reference(log_probs_MV: Tensor, reference_MV: Tensor) -> Tensor:
    """Return the exact KL(learner || reference), averaged over words; both forbid the same words."""
    return _expected(log_probs_MV, log_probs_MV - reference_MV)


def entropy(log_probs_MV: Tensor) -> Tensor:
    """Return the entropy of the word distributions in nats, averaged over words."""
    return _expected(log_probs_MV, -log_probs_MV)


def _expected(log_probs_MV: Tensor, values_MV: Tensor) -> Tensor:
    """Return the mean over words of the expected value; 0 if the learner wrote no word."""
    allowed = values_MV.masked_fill(torch.isinf(log_probs_MV), 0.0)
    return (log_probs_MV.exp() * allowed).sum() / max(1, len(log_probs_MV))
