"""Settings of discriminators and of their training, without torch.

Source: Li et al. 2017 (arXiv 1701.06547), section 3, and the code that the authors released.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from parley.envs.core.config import AtLeastTwo, Configuration, PositiveInt, ShareBelowOne
from parley.policies.core.settings import FitConfig

KINDS = {"hierarchical": "an LSTM over the utterances' vectors", "concatenated": "the utterances' vectors side by side"}
"""Ways of reading a dialogue, by the kind of a discriminator."""


@dataclass(frozen=True, kw_only=True)
class DiscriminatorSizes(Configuration):
    """Widths and lengths of a discriminator; the defaults are the released ones."""

    topic: ClassVar[str] = "train discriminator"

    kind: Literal["hierarchical", "concatenated"] = "hierarchical"
    """hierarchical: an LSTM over the utterances' vectors; concatenated: these vectors side by side."""
    embed: PositiveInt = 512
    """Width of the word embeddings."""
    hidden: PositiveInt = 512
    """State of the LSTM over words and of the LSTM over utterances."""
    turns: PositiveInt = 2
    """Turns of context that are read, the newest."""
    words: AtLeastTwo = 50
    """Words of a turn or reply that are read, `</s>` included: the last ones of a turn, the first ones of a reply."""
    dropout: ShareBelowOne = 0.2
    """Share of word embeddings and of the last vector dropped in training."""


def discriminator_small() -> DiscriminatorSizes:
    """Return sizes for a laptop: a quarter of the released widths."""
    return DiscriminatorSizes(embed=100, hidden=128)


def discriminator_fit() -> FitConfig:
    """Return our recipe: Adam on 128 replies a step, half of them by people, until the validation loss stops falling."""
    return FitConfig(batch_size=64, max_epochs=6, decay_epochs=1)


def discriminator_released() -> FitConfig:
    """Return the released recipe: SGD at 0.01 on 128 replies a step, halved before each epoch after six."""
    sgd = FitConfig(optimiser="sgd", learning_rate=0.01, momentum=0.0, max_epochs=8, patience=6)
    return replace(sgd, keep="last", bucketed=False, precision="float32")
