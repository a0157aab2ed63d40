"""Settings of policies that choose among actions, and of their learning. Torch-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass

from parley.envs.core.ranges import Configuration, NonNegativeFloat, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True)
class ChoiceSizes(Configuration):
    """Widths of a policy."""

    hidden: PositiveInt = 32
    """Units between what is seen of an action and its score."""


@dataclass(frozen=True, kw_only=True)
class ChoiceLearning(Configuration):
    """REINFORCE: the return of a choice is the sum of all rewards from it on, less what is usual at that step."""

    updates: PositiveInt = 120
    """Updates of the policy."""
    examples_per_update: PositiveInt = 64
    """Examples of each of them: replies that are edited, chats in which it lies."""
    learning_rate: PositiveFloat = 0.01
    """Of Adam."""
    entropy_weight: NonNegativeFloat = 0.01
    """Weight of the policy's entropy, which keeps it trying."""
    clip: PositiveFloat = 1.0
    """Largest norm of a gradient."""
