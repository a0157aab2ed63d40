"""How likely a chat model finds what was said in a negotiation: each utterance as an answer of its own in the speaker's seat.

It is told what a chat model in that seat is told (`bargaining.before`). The end of an utterance is left out, because how likely
a text is does not hold it; an utterance without words takes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from envs.negotiation.game import SideView
from policies.chat import bargaining
from policies.chat.model import ScoringChatModel


class PlacedUtterance(NamedTuple):
    """Something that is said in a dialogue, or could have been."""

    row: int
    """The dialogue."""
    turn: int
    """Utterances before it."""
    words: str
    """What is said; empty for nothing."""


def nats_of(model: ScoringChatModel, view: SideView, said: Sequence[PlacedUtterance]) -> np.ndarray:
    """How unlikely a model finds utterances of a side.

    Args:
        model: who judges.
        view: of the side that speaks.
        said: the utterances, in any order.

    Returns:
        (n,) float64 nats, at least 0.
    """
    found = np.zeros(len(said))
    spoken = [place for place, one in enumerate(said) if one.words]
    if spoken:
        chats = [bargaining.before(view, said[place].row, said[place].turn) for place in spoken]
        scores = model.score(chats, [said[place].words for place in spoken])
        found[spoken] = [-score.nats for score in scores]
    return found
