"""Settings of the fitting loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from envs.core.config import check


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How a sequence-to-sequence or language model is fitted to a corpus."""

    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam (fast recipe) or SGD with momentum (published recipe)."""
    learning_rate: float = 1e-3
    """Step size before it decays."""
    momentum: float = 0.9
    """Momentum of SGD; Adam ignores it."""
    weight_decay: float = 0.0
    """Added to the gradient: this times the weight; published: 1e-5."""
    batch_size: int = 64
    """Examples per step."""
    clip: float = 5.0
    """Largest norm of the whole gradient."""
    max_epochs: int = 12
    """Epochs at most, those at a falling rate included."""
    patience: int = 1
    """Stop the full-rate stage after this many epochs without a better validation loss."""
    decay_epochs: int = 2
    """The last epochs, at a rate that falls before each; fewer where `max_epochs` has no room for them."""
    decay: float = 0.5
    """What the rate is multiplied by before each of them; 0.5 published, 0.6 released."""
    keep: Literal["best", "last"] = "best"
    """Which model decays and is stored: the best by validation loss, or the last (published)."""
    bucketed: bool = True
    """Whether a batch holds replies of like length, which computes less padding."""
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    """Of matrix products in training; auto is bfloat16 where the device multiplies it in hardware. The rest is float32."""

    def __post_init__(self) -> None:
        check(self, "learning_rate", self.learning_rate > 0, "above 0")
        check(self, "momentum", 0 <= self.momentum < 1, "0 <= momentum < 1")
        check(self, "weight_decay", self.weight_decay >= 0, "at least 0")
        check(self, "batch_size", self.batch_size >= 1, "at least 1")
        check(self, "clip", self.clip > 0, "above 0")
        check(self, "max_epochs", self.max_epochs >= 1, "at least 1")
        check(self, "patience", self.patience >= 1, "at least 1")
        check(self, "decay_epochs", self.decay_epochs >= 0, "at least 0")
        check(self, "decay", 0 < self.decay <= 1, "0 < decay <= 1")

    @property
    def full_epochs(self) -> int:
        """Epochs at the full rate, at most."""
        return max(1, self.max_epochs - self.decay_epochs)
