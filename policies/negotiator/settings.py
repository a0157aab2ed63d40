"""The negotiator's settings: widths of its layers and the recipe that fits it. Torch-free, so that help starts fast."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from envs.core.config import check

KIND = "negotiator"
"""Of checkpoints that play."""


@dataclass(frozen=True, kw_only=True)
class NegotiatorSizes:
    """Widths of the negotiation agent's layers; the defaults are the published ones."""

    embed_word: int = 256
    """Width of the word embedding."""
    embed_context: int = 64
    """Width of the embeddings of counts and values."""
    hidden_context: int = 64
    """Width of the encoded scenario."""
    hidden_language: int = 128
    """State of the language model."""
    hidden_attention: int = 256
    """Width of the selection module's attention."""
    hidden_selection: int = 256
    """State of each direction of the selection module."""
    dropout: float = 0.5
    """Share of inputs dropped in training, in [0, 1)."""
    init_range: float = 0.1
    """Weights start uniform in plus or minus this."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name not in ("dropout", "init_range"):
                check(self, name, value >= 1, "at least 1")
        check(self, "dropout", 0 <= self.dropout < 1, "0 <= dropout < 1")
        check(self, "init_range", self.init_range > 0, "above 0")


@dataclass(frozen=True, kw_only=True)
class NegotiatorFitConfig:
    """How a negotiator is fitted to a corpus."""

    sizes: NegotiatorSizes = field(default_factory=NegotiatorSizes)
    """Widths of the layers."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam (fast recipe) or SGD with Nesterov momentum (released recipe)."""
    learning_rate: float = 2e-3
    """Step size before annealing."""
    momentum: float = 0.1
    """Momentum of SGD; Adam ignores it."""
    batch_size: int = 32
    """Dialogues per step."""
    clip: float = 0.5
    """Largest norm of the whole gradient."""
    selection_weight: float = 0.5
    """Weight of the selection loss beside the word loss."""
    max_epochs: int = 18
    """Epochs at most, those of annealing included."""
    patience: int = 16
    """Stop the full-rate stage after this many epochs without a better validation selection loss."""
    anneal_divisor: float = 5.0
    """The rate is divided by this before each annealing epoch; there are fewer where `max_epochs` has no room for them."""
    anneal_floor: float = 0.01
    """Annealing ends when the rate falls below this share of the full rate."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Of matrix products in training; auto is bfloat16 where the device multiplies it in hardware. The rest is float32."""

    def __post_init__(self) -> None:
        check(self, "learning_rate", self.learning_rate > 0, "above 0")
        check(self, "momentum", 0 <= self.momentum < 1, "0 <= momentum < 1")
        check(self, "batch_size", self.batch_size >= 1, "at least 1")
        check(self, "clip", self.clip > 0, "above 0")
        check(self, "selection_weight", self.selection_weight >= 0, "at least 0")
        check(self, "max_epochs", self.max_epochs >= 1, "at least 1")
        check(self, "patience", self.patience >= 1, "at least 1")
        check(self, "anneal_divisor", self.anneal_divisor > 1, "above 1")
        check(self, "anneal_floor", 0 < self.anneal_floor <= 1, "0 < anneal_floor <= 1")

    @property
    def anneal_epochs(self) -> int:
        """How often the rate can be divided before it falls below its floor."""
        # A floor that is a power of the divisor is reached, whatever the rounding.
        return int(math.log(self.anneal_floor) / -math.log(self.anneal_divisor) + 1e-9)

    @property
    def full_epochs(self) -> int:
        """Epochs at the full rate, at most."""
        return max(1, self.max_epochs - self.anneal_epochs)
