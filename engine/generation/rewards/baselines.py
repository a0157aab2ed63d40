"""What is subtracted from rewards, so that gradients vary less (Li et al. 2017, section 3.1 and footnote 3).

A baseline leaves the mean of the gradient as it is if it does not depend on the word that it judges: b(x), the mean of earlier
rewards, and the value of the reply before the word do not.

Departures:
  * # Paper: b(x, Y_t) in equation 3, where Y_t holds the word that is judged. Ours: the value of Y_{t-1}, because the paper's
    biases the gradient: a critic that learns it well takes the whole reward away. `literal` is the paper's.

Shapes: B replies, T words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from parley.engine.generation.rewards.replies import ReplyActions
from parley.engine.generation.rewards.settings import Baseline, RewardSettings

_KEPT = 0.99
"""Share of the running mean that stays with each batch."""


@dataclass(frozen=True)
class RunningMean:
    """The mean reward of earlier batches, the latest of which weigh most.

    Args:
        total: sum of their means, weighted.
        weight: sum of the weights.
    """

    total: float = 0.0
    weight: float = 0.0

    @property
    def value(self) -> float:
        """The mean; 0 before the first batch."""
        return self.total / self.weight if self.weight else 0.0

    def after(self, rewards_BT: Tensor, replies: ReplyActions) -> RunningMean:
        """With a further batch, whose own gradient must not use it."""
        mean = float(rewards_BT[replies.real_BT].double().mean())
        return RunningMean(_KEPT * self.total + (1 - _KEPT) * mean, _KEPT * self.weight + (1 - _KEPT))


def baseline_values(baseline: Baseline, replies: ReplyActions, mean: RunningMean, values_BT1: Tensor | None) -> Tensor:
    """What is subtracted from each word's reward.

    Args:
        baseline: which one.
        replies: whose rewards they are.
        mean: of earlier batches.
        values_BT1: what a critic expects after no word of each reply, after one, and so on; a critic of contexts alone gives
            one column. None where there is no critic.

    Returns:
        (B, T), through which gradients of a critic flow.
    """
    shape = replies.words_BT.shape
    if baseline in ("none", "mean"):
        return torch.full(shape, mean.value if baseline == "mean" else 0.0, device=replies.words_BT.device)
    assert values_BT1 is not None, "a critic must be asked"
    if baseline == "critic":
        return values_BT1[:, :1].expand(shape)
    return values_BT1[:, :-1] if baseline == "prefix" else values_BT1[:, 1:]


def critic_loss(settings: RewardSettings, values_BT: Tensor, rewards_BT: Tensor, replies: ReplyActions) -> Tensor:
    """Mean squared error between what a critic expects and what words earn.

    Args:
        settings: whether the critic learns rewards of words, or the reply's own.
        values_BT: as `baseline_values` gives them.
        rewards_BT: of the same words.
        replies: whose words they are.
    """
    if settings.critic_target == "final":
        rewards_BT = replies.at_end(rewards_BT).unsqueeze(1).expand_as(rewards_BT)
    return (values_BT - rewards_BT)[replies.real_BT].square().mean()
