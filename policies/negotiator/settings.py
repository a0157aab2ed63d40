"""Settings of the negotiator, without torch: widths of its layers and the recipe that fits it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    ShareBelowOne,
    check,
)

KIND = "negotiator"
"""Kind of the checkpoints of agents that play."""


@dataclass(frozen=True, kw_only=True)
class NegotiatorSizes(Configuration):
    """Widths of the negotiation agent's layers; the defaults are the published ones."""

    embed_word: PositiveInt = 256
    """Width of the word embedding."""
    embed_context: PositiveInt = 64
    """Width of the embeddings of counts and values."""
    hidden_context: PositiveInt = 64
    """Width of the encoded scenario."""
    hidden_language: PositiveInt = 128
    """State of the language model."""
    hidden_attention: PositiveInt = 256
    """Width of the selection module's attention."""
    hidden_selection: PositiveInt = 256
    """State of each direction of the selection module."""
    dropout: ShareBelowOne = 0.5
    """Share of inputs dropped in training, in [0, 1)."""
    init_range: PositiveFloat = 0.1
    """Weights start uniform in plus or minus this."""


@dataclass(frozen=True, kw_only=True)
class NegotiatorFitConfig(Configuration):
    """The recipe by which a negotiator is fitted to a corpus."""

    topic: ClassVar[str] = "train negotiator"

    sizes: NegotiatorSizes = field(default_factory=NegotiatorSizes)
    """Widths of the layers."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam (fast recipe) or SGD with Nesterov momentum (released recipe)."""
    learning_rate: PositiveFloat = 2e-3
    """Step size before annealing."""
    momentum: ShareBelowOne = 0.1
    """Momentum of SGD; Adam ignores it."""
    batch_size: PositiveInt = 32
    """Dialogues per step."""
    clip: PositiveFloat = 0.5
    """Largest norm of the whole gradient."""
    selection_weight: NonNegativeFloat = 0.5
    """Weight of the selection loss beside the word loss."""
    max_epochs: PositiveInt = 18
    """Epochs at most, those of annealing included."""
    patience: PositiveInt = 16
    """Stop the full-rate stage after this many epochs without a better validation selection loss."""
    anneal_divisor: float = 5.0
    """The rate is divided by this before each annealing epoch; there are fewer if `max_epochs` leaves no room for them."""
    anneal_floor: PositiveShare = 0.01
    """Annealing ends when the rate falls below this share of the full rate."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Precision of matrix products in training; auto is bfloat16 if its steps are measured to be faster on this machine,
    and a resumed run retains the first choice. Another machine may choose differently, which changes digits; float32 is
    the same everywhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "anneal_divisor", self.anneal_divisor > 1, "above 1")

    @property
    def anneal_epochs(self) -> int:
        """Number of times the rate can be divided before it falls below its floor."""
        # The sum makes a floor that is a power of the divisor count, in spite of rounding.
        return int(math.log(self.anneal_floor) / -math.log(self.anneal_divisor) + 1e-9)

    @property
    def full_epochs(self) -> int:
        """Largest number of epochs at the full rate."""
        return max(1, self.max_epochs - self.anneal_epochs)
