"""Settings of the pointer-generator network, without torch: widths, lengths, recipes.

Source: See, Liu & Manning 2017 (arXiv 1704.04368), sections 2 and 5, and the code that the authors released. Niu & Bansal 2018
(arXiv 1809.02079) trained such a network to paraphrase and do not state their settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parley.envs.core.config import (
    AtLeastTwo,
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Share,
    ShareBelowOne,
    check,
)
from parley.policies.core.settings import FitConfig


@dataclass(frozen=True, kw_only=True)
class PointerSizes(Configuration):
    """Widths and lengths of a pointer-generator network; the widths are the published ones."""

    embed: PositiveInt = 128
    """Width of the word embedding, which sentences and paraphrases share."""
    hidden: PositiveInt = 256
    """State of each direction of the encoder, and of the decoder."""
    dropout: ShareBelowOne = 0.0
    """Share of embeddings and of states before the output dropped in training, in [0, 1)."""
    coverage: NonNegativeFloat = 1.0
    """Weight of the coverage loss in the last phase of training, which is the decay epochs; 0: no coverage."""
    max_source: AtLeastTwo = 40
    """Longest sentence in words, its end mark included; longer ones are cut in training and not paraphrased."""
    max_reply: AtLeastTwo = 40
    """Longest paraphrase in training, its end mark included; longer ones are cut."""


@dataclass(frozen=True, kw_only=True)
class PointerFitConfig(FitConfig):
    """The recipe by which a pointer-generator network is fitted to pairs of paraphrases."""

    topic: ClassVar[str] = "train paraphraser"

    adagrad: NonNegativeFloat = 0.0
    """Above 0: Adagrad, whose sums of squares start here (published: 0.1), in the place of `optimiser`."""


@dataclass(frozen=True, kw_only=True)
class BeamConfig(Configuration):
    """Settings of the search for paraphrases; lengths follow the sentence, unlike the published bounds (35 to 100 words)."""

    width: PositiveInt = 4
    """Hypotheses kept (published)."""
    min_share: Share = 0.5
    """A paraphrase has at least this share of the sentence's words."""
    max_share: float = 1.5
    """It has at most this share of them, and `max_extra` more."""
    max_extra: NonNegativeInt = 3
    """Words that a paraphrase of any sentence may have on top."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "max_share", self.max_share >= 1, "at least 1")


def see2017() -> PointerFitConfig:
    """Return the published recipe: Adagrad at 0.15, batches of 16, clip 2, a last phase with coverage.

    The number of epochs is ours: the published one counts steps on a corpus of 287,000 articles.
    """
    return PointerFitConfig(
        adagrad=0.1,
        learning_rate=0.15,
        batch_size=16,
        clip=2.0,
        max_epochs=21,
        patience=20,
        decay_epochs=1,
        decay=1.0,
        keep="last",
        bucketed=False,
        precision="float32",
    )


def fast() -> PointerFitConfig:
    """Return our recipe: Adam, an end when the validation loss stops falling, then epochs with coverage at a falling rate."""
    return PointerFitConfig(learning_rate=2e-3, batch_size=64, clip=2.0, max_epochs=14, patience=2, decay_epochs=2)


def demo() -> PointerFitConfig:
    """Return the recipe of the built-in paraphrases: the fast one at a high rate; seconds of one core are enough."""
    return PointerFitConfig(
        learning_rate=1e-2, batch_size=64, clip=2.0, max_epochs=6, patience=2, decay_epochs=1, precision="float32"
    )
