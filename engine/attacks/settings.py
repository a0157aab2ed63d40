"""Settings of the attacks that learn. Torch-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envs.core.config import check


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig:
    """How one side learns from dialogues against a frozen partner."""

    reward: Literal["points", "advantage"] = "points"
    """Own points (goal-based agent), or own minus the partner's points (RL attack)."""
    complementary: bool = False
    """The partner alone chooses and the learner is given the complement (the attack's rule)."""
    updates: int = 250
    """Gradient steps."""
    dialogues_per_update: int = 64
    """Dialogues played for each gradient step."""
    gamma: float = 0.95
    """Discount per own word, counted back from the last."""
    scaling: Literal["none", "deviation", "sign"] = "none"
    """What is kept of a reward less the baseline: all of it (papers), per running deviation, or its sign alone."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or SGD with Nesterov momentum 0.1 (released code)."""
    learning_rate: float = 5e-4
    """Step size."""
    clip: float = 1.0
    """Largest norm of the whole gradient."""
    temperature: float = 0.5
    """Of the learner's and the partner's word distributions."""
    supervised_weight: float = 1.0
    """Weight of the supervised loss on corpus dialogues in each step; guards against language drift. 0 turns it off."""
    supervised_batch: int = 16
    """Corpus dialogues in each step."""
    kl_weight: float = 0.0
    """Weight of KL(learner || starting model) on the learner's own words; the other guard. 0 turns it off."""
    scenarios: Literal["random", "selfplay"] = "random"
    """Random legal scenarios, or the corpus' self-play scenarios in turn."""
    max_turns: int = 20
    """Utterances after which the end of a dialogue is forced."""

    def __post_init__(self) -> None:
        for name in ("updates", "dialogues_per_update", "supervised_batch", "max_turns"):
            check(self, name, getattr(self, name) >= 1, "at least 1")
        check(self, "gamma", 0 < self.gamma <= 1, "0 < gamma <= 1")
        check(self, "learning_rate", self.learning_rate > 0, "above 0")
        check(self, "clip", self.clip > 0, "above 0")
        check(self, "temperature", self.temperature > 0, "above 0")
        check(self, "supervised_weight", self.supervised_weight >= 0, "at least 0")
        check(self, "kl_weight", self.kl_weight >= 0, "at least 0")
