"""Settings of the fitting loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parley.envs.core.ranges import (
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    ShareBelowOne,
)


@dataclass(frozen=True, kw_only=True)
class FitConfig(Configuration):
    """How a sequence-to-sequence or language model is fitted to a corpus."""

    optimiser: Literal["adam", "sgd", "adagrad"] = "adam"
    """Adam (fast recipe), SGD with momentum (published recipe), or Adagrad (published for DynoNet)."""
    learning_rate: PositiveFloat = 1e-3
    """Step size before it decays."""
    momentum: ShareBelowOne = 0.9
    """Momentum of SGD; the others ignore it."""
    weight_decay: NonNegativeFloat = 0.0
    """Added to the gradient: this times the weight; published: 1e-5."""
    batch_size: PositiveInt = 64
    """Examples per step."""
    clip: PositiveFloat = 5.0
    """Largest norm of the whole gradient."""
    max_epochs: PositiveInt = 12
    """Epochs at most, those at a falling rate included."""
    patience: PositiveInt = 1
    """Stop the full-rate stage after this many epochs without a better validation loss."""
    decay_epochs: NonNegativeInt = 2
    """The last epochs, at a rate that falls before each; fewer where `max_epochs` has no room for them."""
    decay: PositiveShare = 0.5
    """What the rate is multiplied by before each of them; 0.5 published, 0.6 released."""
    keep: Literal["best", "last"] = "best"
    """Which model decays and is stored: the best by validation loss, or the last (published)."""
    bucketed: bool = True
    """Whether a batch holds replies of like length, which computes less padding."""
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    """Of matrix products in training; auto is bfloat16 where its steps are measured to be faster on this machine, and a resumed
    run keeps what was chosen. Another machine may choose otherwise, which changes digits; float32 is the same everywhere."""

    @property
    def full_epochs(self) -> int:
        """Epochs at the full rate, at most."""
        return max(1, self.max_epochs - self.decay_epochs)
