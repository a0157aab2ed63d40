"""Settings of the reinforcement learning of chat models. Torch-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    NumItems,
    PositiveFloat,
    PositiveInt,
    Share,
    check,
)


@dataclass(frozen=True, kw_only=True)
class ChatReinforceConfig(Configuration):
    """The learning rule: REINFORCE over whole conversations, with a baseline from the same scenario."""

    topic: ClassVar[str] = "train chat-rl"

    updates: NonNegativeInt = 0
    """Gradient steps; 0 learns nothing by reinforcement."""
    scenarios: NumItems = 8
    """Scenarios of an update."""
    tries: PositiveInt = 4
    """Dialogues of each scenario with one opponent, which are compared with each other."""
    harmless: Share = 0.5
    """Share of a defender's scenarios in which a harmless user asks, or it negotiates with its partner."""
    baseline: Literal["leave-one-out", "group"] = "leave-one-out"
    """What a reward is compared with: the mean of the scenario's other tries (RLOO, Ahmadian et al. 2024), or the mean of
    all, in their deviations (GRPO, Shao et al. 2024)."""
    learning_rate: PositiveFloat = 1e-4
    """Step size of Adam."""
    temperature: PositiveFloat = 1.0
    """Of the learner's answers."""
    max_tokens: PositiveInt = 32
    """Tokens of an answer of the learner, and of opponents that are chat models, at most."""
    at_once: PositiveInt = 32
    """Conversations that are read side by side; one actor plays them."""
    kl_weight: NonNegativeFloat = 0.05
    """Weight of KL(learner || start) on the learner's own tokens, in nats per token; 0 turns it off."""
    supervised_weight: NonNegativeFloat = 0.1
    """Weight of the loss on scripted dialogues in each step. 0 turns it off."""
    supervised_batch: NumItems = 4
    """Scripted dialogues in each step."""

    kl_limit: ClassVar[float] = 0.5
    """KL in nats per token from which the language watch doubles its weight for the rest of the training. One that learned to
    refuse everything had 1.6 (docs/results/chat_minmax.md)."""
    clip: ClassVar[float] = 1.0
    """Largest norm of the whole gradient."""
    rows_at_once: ClassVar[int] = 2
    """Conversations of a pass of the learner, which sums their gradients; bounds its memory."""
    most_silent: ClassVar[float] = 0.5
    """Share of the learner's answers without a word from which it counts as silent."""
    patience: ClassVar[int] = 3
    """Updates in a row for which it may be silent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "tries", self.tries > 1, "2 at least: a try is compared with the others")

    @property
    def dialogues(self) -> int:
        """Return the dialogues of an update."""
        return self.scenarios * self.tries
