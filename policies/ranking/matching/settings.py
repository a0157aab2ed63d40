"""Settings of the matching models and of their training. Torch-free, so that help starts fast.

Sources: Li et al. 2019 (lengths, vectors of 200), Wu et al. 2017 (arXiv 1612.01627, SMN), Zhou et al. 2018 (DAM), Tao et al.
2019 (MRFN), and the code that the authors of the three models released. Defaults are the published ones; where a paper and its
code differ, the field says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from parley.envs.core.config import (
    AtLeastTwo,
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    ShareBelowOne,
    check,
)

Padding = Literal["masked", "released"]


@dataclass(frozen=True, kw_only=True)
class MatcherSizes(Configuration):
    """Sizes that all matching models have."""

    embed: PositiveInt = 200
    """Width of the word vectors."""
    turns: PositiveInt = 10
    """Turns of context that are read, the newest; the released DAM reads nine."""
    words: AtLeastTwo = 50
    """Words of a turn or reply that are read, the last ones."""
    unknowns: NonNegativeInt = 0
    """0: unknown words are one <unk>; otherwise as many unknown words of an example have fixed vectors of their own, so that
    the same one in context and reply is seen."""
    tuned: bool = True
    """Training changes the word vectors; the TensorFlow release of SMN keeps them."""
    padding: Padding = "masked"
    """masked: padding cannot reach a score; released: all is padded to `turns` x `words`, and biases, convolutions and the
    GRU over turns read padding as they read words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "words", self.words >= 5, "at least 5, so that a window of three by three words can be pooled")


@dataclass(frozen=True, kw_only=True)
class SmnSizes(MatcherSizes):
    """Widths of a sequential matching network."""

    topic: ClassVar[str] = "smn"

    gru: PositiveInt = 200
    """State of the GRU over words; the Theano release has 100, with word vectors of 100."""
    maps: PositiveInt = 8
    """Feature maps of the convolution."""
    match: PositiveInt = 50
    """Width of the vector of one turn's match."""
    session: PositiveInt = 50
    """State of the GRU over turns; the TensorFlow release has 200."""


@dataclass(frozen=True, kw_only=True)
class DamSizes(MatcherSizes):
    """Widths of a deep attention matching network."""

    topic: ClassVar[str] = "dam"

    stack: PositiveInt = 5
    """Self-attention blocks on each side."""
    first_maps: PositiveInt = 32
    """Feature maps of the first convolution; 16 for Douban."""
    second_maps: PositiveInt = 16
    """Feature maps of the second convolution."""


@dataclass(frozen=True, kw_only=True)
class MrfnSizes(MatcherSizes):
    """Widths of a multi-representation fusion network with late fusion."""

    topic: ClassVar[str] = "mrfn"

    letters: PositiveInt = 16
    """Characters of a word that are read, the first ones."""
    alphabet: PositiveInt = 100
    """Most different characters that are told apart."""
    letter_embed: PositiveInt = 64
    """Width of a character's vector."""
    letter_maps: PositiveInt = 100
    """Feature maps of the convolution over characters."""
    maps: PositiveInt = 50
    """Feature maps of each of the convolutions over one to four words."""
    heads: PositiveInt = 8
    """Heads of both attentions; they share the width of the word vectors."""
    dropout: ShareBelowOne = 0.2
    """Share of word vectors and matches dropped in training; the release never switches it on: 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "heads", self.embed % self.heads == 0, f"a divisor of embed, which is {self.embed}")


def smn_small() -> SmnSizes:
    """Return sizes for a laptop: half the published widths, six turns of 30 words."""
    return SmnSizes(embed=100, turns=6, words=30, gru=100)


def dam_small() -> DamSizes:
    """Return sizes for a laptop: half the published widths, two blocks, six turns of 30 words."""
    return DamSizes(embed=100, turns=6, words=30, stack=2, first_maps=16)


def mrfn_small() -> MrfnSizes:
    """Return sizes for a laptop: half the published widths, six turns of 30 words."""
    return MrfnSizes(embed=100, turns=6, words=30, letter_embed=32, letter_maps=50, maps=25, heads=4)


@dataclass(frozen=True, kw_only=True)
class MatcherFitConfig(Configuration):
    """The recipe by which a matching model is fitted to labelled replies; the defaults are those of SMN."""

    topic: ClassVar[str] = "train matcher"

    learning_rate: PositiveFloat = 1e-3
    """Step size of Adam before it decays."""
    decay: PositiveShare = 0.9
    """Factor on the rate every `decay_steps` steps."""
    decay_steps: NonNegativeInt = 0
    """Steps after which the rate falls; 0: never."""
    batch_size: AtLeastTwo = 200
    """Pairs of context and reply per step."""
    clip: PositiveFloat = 5.0
    """Largest norm of the whole gradient, or largest value of any part of it."""
    clip_by: Literal["norm", "value"] = "norm"
    """Quantity that `clip` bounds; DAM clips values at 1."""
    loss_cap: NonNegativeFloat = 0.0
    """Nats of a pair's loss above which it teaches nothing; DAM: 10; 0: no such bound."""
    fresh_negatives: bool = False
    """A wrong reply is drawn anew for each right one in each epoch, as in the TensorFlow release of SMN; otherwise the wrong
    replies are the listed ones."""
    max_epochs: PositiveInt = 5
    """Epochs at most."""
    patience: PositiveInt = 1
    """Stop after this many epochs without a better one."""
    criterion: Literal["recall", "loss"] = "recall"
    """Criterion of the best epoch on the validation groups: recall at 1, ties as chance decides them, or the loss."""
    keep: Literal["best", "last"] = "best"
    """Model that is stored: that of the best epoch, or of the last one."""

    precision: Literal["float32", "bfloat16", "auto"] = "auto"
    """Precision of matrix products in training; auto is bfloat16 where its steps are measured to be faster on this machine,
    and a resumed run keeps the first choice. Scores are always formed in float32."""

    @property
    def full_epochs(self) -> int:
        """All epochs: the rate falls by steps."""
        return self.max_epochs


def smn_fit() -> MatcherFitConfig:
    """Return the published recipe: Adam at 1e-3, batches of 200, five epochs, the one of least validation loss."""
    return MatcherFitConfig(patience=5, criterion="loss")


def dam_fit() -> MatcherFitConfig:
    """Return the published recipe: Adam at 1e-3, times 0.9 every 400 steps, batches of 256, clipped values, two epochs."""
    return MatcherFitConfig(decay_steps=400, batch_size=256, clip=1.0, clip_by="value", loss_cap=10.0, max_epochs=2, patience=2)


def mrfn_fit() -> MatcherFitConfig:
    """Return the published recipe: Adam at 1e-3, batches of 100, measured every epoch (released: every 1,000 steps)."""
    return MatcherFitConfig(batch_size=100, max_epochs=5, patience=2)


def small_fit() -> MatcherFitConfig:
    """Return a recipe for the small sizes: small batches, one fresh wrong reply per right one, until recall stops rising."""
    return MatcherFitConfig(batch_size=64, max_epochs=6, patience=2, fresh_negatives=True)


@dataclass(frozen=True, kw_only=True)
class EncoderFitConfig(Configuration):
    """The recipe by which a Hugging Face encoder goes on from its weights (`policies/ranking/encoder_fit.py`)."""

    loss: Literal["", "contrastive", "cross-entropy"] = ""
    """contrastive: a right reply among wrong ones, of a bi-encoder all other replies of the batch; cross-entropy of each pair
    (cross-encoders alone); when empty the first for bi-encoders, the second for cross-encoders."""
    scale: PositiveFloat = 20.0
    """Factor on a cosine in the loss."""
    learning_rate: PositiveFloat = 2e-4
    """Step size of AdamW."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of a weight that a step takes off, times the rate."""
    batch_size: AtLeastTwo = 32
    """Contexts per step."""
    clip: PositiveFloat = 1.0
    """Largest norm of the whole gradient."""
    max_epochs: PositiveInt = 2
    """Epochs, all of which are made."""
    keep: Literal["best", "last"] = "best"
    """Model that is stored: that of the best epoch by validation, or of the last one."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Precision of matrix products in training; auto is bfloat16 where its steps are measured to be faster on this machine."""

    @property
    def full_epochs(self) -> int:
        """All epochs."""
        return self.max_epochs

    @property
    def patience(self) -> int:
        """All epochs."""
        return self.max_epochs
