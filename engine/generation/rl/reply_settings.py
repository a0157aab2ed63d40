"""In which order generator and discriminator learn from each other, and how fast. Torch-free, so that help starts fast.

Source: Li et al. 2017 (arXiv 1701.06547), figure 1. What rewards are is `engine/generation/rewards/settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import Configuration, NonNegativeInt, NumItems, PositiveFloat

Phase = Literal["discriminator", "generator", "teacher"]
Reward = Literal["discriminator", "constant", "shuffled", "length"]
"""What the generator is rewarded by; all but the first are controls."""
UNJUDGED = ("constant", "length")
"""Those for which no word is judged."""


@dataclass(frozen=True, kw_only=True)
class ReplyLearning(Configuration):
    """Rounds of discriminator steps, generator steps and teacher forcing."""

    rounds: NumItems = 1_000
    """Rounds of all phases."""
    discriminator_steps: NonNegativeInt = 5
    """Discriminator updates of a round; 0 freezes it."""
    generator_steps: NonNegativeInt = 1
    """Policy-gradient updates of a round."""
    teacher_steps: NonNegativeInt = 1
    """Teacher-forcing updates of a round."""
    examples_per_step: NumItems = 64
    """Contexts of an update."""
    generator_rate: PositiveFloat = 1e-4
    """Step size of the generator."""
    discriminator_rate: PositiveFloat = 1e-3
    """Step size of the discriminator."""
    critic_rate: PositiveFloat = 1e-3
    """Step size of the critic; released: 5e-4."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Of all of them; released: sgd."""
    clip: PositiveFloat = 5.0
    """Largest norm of a network's gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cycle:
            fix = "give discriminator_steps, generator_steps or teacher_steps"
            raise ConfigError("a round has no step", where="learning", got="0 steps of each kind", fix=fix)

    @property
    def cycle(self) -> tuple[Phase, ...]:
        """The phases of a round."""
        steps: tuple[tuple[Phase, int], ...] = (
            ("discriminator", self.discriminator_steps),
            ("generator", self.generator_steps),
            ("teacher", self.teacher_steps),
        )
        return tuple(phase for phase, times in steps for _ in range(times))

    @property
    def updates(self) -> int:
        """Updates of all rounds."""
        return self.rounds * len(self.cycle)

    def phase(self, update: int) -> Phase:
        """Who learns in an update, and from what; updates count from 0."""
        return self.cycle[update % len(self.cycle)]
