"""Settings of DynoNet, of its training and of its decoding, without torch.

Source: He et al. 2017, section 4.1, and the command in the read-me of the released code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt, PositiveInt
from parley.policies.core.settings import FitConfig

RELEASED_PENALTY = math.log(2)


@dataclass(frozen=True, kw_only=True)
class DynoNetSizes(Configuration):
    """Widths of a DynoNet; the defaults are the published ones."""

    topic: ClassVar[str] = "train dynonet"

    embed: PositiveInt = 100
    """Width of the word embeddings."""
    hidden: PositiveInt = 100
    """State of the LSTMs, and of what a node keeps of utterances: as much of heard ones as of its own."""
    message: PositiveInt = 50
    """Width of the messages between nodes."""
    edge: PositiveInt = 10
    """Width of the embeddings of relations."""
    rounds: NonNegativeInt = 2
    """Rounds of messages (K)."""
    max_items: PositiveInt = 12
    """Friends of a table at most."""
    dynamic: bool = True
    """Nodes remember utterances about them; without it the model is the published StanoNet."""


def dynonet_small() -> DynoNetSizes:
    """Return sizes for tests and demos."""
    return DynoNetSizes(embed=32, hidden=32, message=16, edge=8)


def dynonet_fit() -> FitConfig:
    """Return the published recipe: Adagrad at 0.5, batches of 32, an update after each turn.

    # Published: no clipping, one rate, up to 50 epochs. Ours: gradients are clipped, and the rate falls at the end.
    """
    optimiser = FitConfig(optimiser="adagrad", learning_rate=0.5, batch_size=32, clip=5.0, precision="float32")
    return replace(optimiser, max_epochs=10, patience=2, decay_epochs=2)


def dynonet_demo() -> FitConfig:
    """Return a recipe of two epochs."""
    return replace(dynonet_fit(), max_epochs=2, decay_epochs=0)


@dataclass(frozen=True, kw_only=True)
class FriendsDecoding(Configuration):
    """Settings of a DynoNet's decoding; the defaults are those of the released bot-bot chats."""

    topic: ClassVar[str] = "evaluate collaboration"

    temperature: NonNegativeFloat = 0.5
    """Temperature of the distribution of words; 0 takes the likeliest."""
    select_penalty: NonNegativeFloat = RELEASED_PENALTY
    """Taken off the logit of `<select>`, in nats; selecting is otherwise too cheap for two bots."""
    max_tokens: PositiveInt = 20
    """Most words and entities of an utterance."""
    forms: bool = False
    """Entities are said by any form of the lexicon; otherwise by their names."""
