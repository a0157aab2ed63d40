"""Settings of VHRED, without torch: widths, lengths, and the rules that keep its latent variable in use.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 2.1; all amounts are of the authors' code. Word drop and the annealing
of the divergence are those of Serban et al. 2017 (arXiv 1605.06069).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parley.envs.core.config import AtLeastTwo, Configuration, NonNegativeInt, PositiveInt, ShareBelowOne
from parley.policies.core.settings import FitConfig

VhredAttention = Literal["words", "turns"]


@dataclass(frozen=True, kw_only=True)
class VhredSizes(Configuration):
    """Widths and lengths of a VHRED; the defaults are the released ones."""

    embed: PositiveInt = 300
    """Width of the word embedding, which turns and replies share."""
    encoder: PositiveInt = 256
    """State of each direction of the encoder, which reads one turn."""
    context: PositiveInt = 512
    """State of each direction of the context network, which reads encoded turns."""
    decoder: PositiveInt = 512
    """State of the decoder."""
    latent: PositiveInt = 512
    """Width of the latent variable, and of the layers that its distributions are read from."""
    score: PositiveInt = 512
    """Width of the layer that scores what is attended to."""
    readout: PositiveInt = 256
    """Width of the layer that joins state and attention; the words are predicted from it."""
    attention: VhredAttention = "words"
    """words: over the words of all turns; turns: over encoded turns, as the authors' code does."""
    dropout: ShareBelowOne = 0.2
    """Share of the outputs of recurrent layers dropped in training, the same at all steps, in [0, 1)."""
    word_drop: ShareBelowOne = 0.0
    """Share of a reply's words that the decoder reads as <unk> in training, in [0, 1); Serban et al.: 0.25."""
    anneal_steps: NonNegativeInt = 75_000
    """Training steps until the divergence counts in full; 0 for from the start."""
    turns: PositiveInt = 2
    """Turns of context that are read, the newest."""
    max_turn: AtLeastTwo = 50
    """Longest turn of context in words, `<eou>` at its end included; longer ones lose their beginning."""
    max_reply: AtLeastTwo = 42
    """Longest reply in words, `</s>` included; longer ones are cut."""


def small() -> VhredSizes:
    """Return sizes for a laptop: half the published widths, a quarter of the latent ones, 30 words a turn."""
    return VhredSizes(
        embed=150,
        encoder=128,
        context=256,
        decoder=256,
        latent=128,
        score=128,
        readout=256,
        word_drop=0.25,
        anneal_steps=2_000,
        max_turn=30,
        max_reply=30,
    )


def demo() -> VhredSizes:
    """Return sizes for the built-in help desk."""
    return VhredSizes(
        embed=64,
        encoder=48,
        context=64,
        decoder=96,
        latent=16,
        score=32,
        readout=96,
        anneal_steps=200,
        max_turn=16,
        max_reply=20,
    )


def niu2018_fit() -> FitConfig:
    """Return the released recipe: Adam at 2e-4, batches of 64, clip 2, the best of 80 epochs.

    The released code measures the validation split every five epochs from the tenth on; here every epoch is measured, and
    training ends after ten in a row without a better one.
    """
    return FitConfig(
        learning_rate=2e-4,
        batch_size=64,
        clip=2.0,
        max_epochs=80,
        patience=10,
        decay_epochs=0,
        bucketed=False,
        precision="float32",
    )


def small_fit() -> FitConfig:
    """Return our recipe: a higher rate that falls at the end, batches of like length; patient during annealing."""
    return FitConfig(batch_size=64, clip=2.0, max_epochs=22, patience=3)


def demo_fit() -> FitConfig:
    """Return the recipe of the built-in help desk: a high rate; two minutes of one core are enough."""
    return FitConfig(learning_rate=4e-3, max_epochs=19, patience=4, decay_epochs=3, precision="float32")
