"""Settings of the fitting loop, of policies that choose among actions, and of Reranking-RL (`margin.py`). No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    Share,
    ShareBelowOne,
)


@dataclass(frozen=True, kw_only=True)
class ChoiceSizes(Configuration):
    """Widths of a policy."""

    hidden: PositiveInt = 32
    """Units between what is seen of an action and its score."""


@dataclass(frozen=True, kw_only=True)
class ChoiceLearning(Configuration):
    """Settings of REINFORCE: a choice's return is the sum of all later rewards, less a baseline of its step."""

    topic: ClassVar[str] = "train editor"

    updates: PositiveInt = 120
    """Updates of the policy."""
    examples_per_update: PositiveInt = 64
    """Examples of each update: replies that are edited, chats with lies."""
    learning_rate: PositiveFloat = 0.01
    """Step size of Adam."""
    clip: PositiveFloat = 1.0
    """Largest norm of a gradient."""

    entropy_weight: ClassVar[float] = 0.01
    """Weight of the policy's entropy, which keeps it exploring. No paper says one, and no training here needed another."""


@dataclass(frozen=True, kw_only=True)
class RerankingSettings(Configuration):
    """Settings of the reward of a reply and its weight; the defaults are those of the preset no-baseline."""

    weight: Share = 0.05
    """w: share of the reward in the objective, the rest is likelihood; 0 is maximum likelihood bit by bit. Paulus et al.
    2018, whose objective the paper adopts: .9984."""
    warm_up: NonNegativeInt = 0
    """Steps in which w rises to its value."""
    others: Literal["corpus", "rotated"] = "corpus"
    """Source of other contexts S_R: drawn from the split (paper), or the batch's own, rotated by a random offset
    (released), which costs no encoding. None of them equals S in words."""
    num_others: PositiveInt = 1
    """Other contexts of each reply, whose rewards are averaged; paper 1, released 2, by different offsets."""
    per: Literal["reply", "word"] = "reply"
    """Reward -log P(G | S_R) of the reply (paper), or divided by its words (released)."""
    baseline: Literal["none", "greedy", "mean"] = "none"
    """Number taken off a reward: nothing, a running mean, or the reward of the greedy reply to the same context (Paulus et al.
    2018, released)."""
    unknown: bool = True
    """Whether a reply that holds `<unk>` earns anything (paper, released). No context calls for words that a model cannot
    write, so such replies are an easy way to a reward."""
    shuffled: bool = False
    """The control: rewards are exchanged among the replies of a batch."""


@dataclass(frozen=True, kw_only=True)
class FitConfig(Configuration):
    """The recipe by which a sequence-to-sequence or language model is fitted to a corpus."""

    topic: ClassVar[str] = "train seq2seq"

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
    """Factor on the rate before each of them; 0.5 published, 0.6 released."""
    keep: Literal["best", "last"] = "best"
    """Model that decays and is stored: the best by validation loss, or the last (published)."""
    bucketed: bool = True
    """Batches of replies of like length, which need less padding."""
    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    """Precision of matrix products in training; auto is bfloat16 where its steps are measured to be faster on this machine,
    and a resumed run keeps the first choice. Another machine may choose otherwise, which changes digits; float32 is the
    same everywhere."""

    @property
    def full_epochs(self) -> int:
        """Largest number of epochs at the full rate."""
        return max(1, self.max_epochs - self.decay_epochs)
