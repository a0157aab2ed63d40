"""How likely a chat model finds what is said in a game: each utterance as an answer of its own in the speaker's seat.

It is told what a chat model in that seat is told: in a negotiation `bargaining.before`, in MutualFriends `friend.talk`. The end
of an utterance is left out, because how likely a text is does not hold it; an utterance without words takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.policies.chat.addresses import OPENAI
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import Access, Chat, ScoringChatModel, require_access
from parley.policies.chat.newest import newest_forms, score_newest
from parley.policies.chat.seat import require_address


class PlacedUtterance(NamedTuple):
    """Something that is said in a dialogue, or could have been."""

    row: int
    """The dialogue."""
    turn: int
    """Utterances before it."""
    words: str
    """What is said; empty for nothing."""


def nats_of(model: ScoringChatModel, before: Callable[[int, int], Chat], said: Sequence[PlacedUtterance]) -> np.ndarray:
    """How unlikely a model finds utterances of a side.

    Args:
        model: who judges.
        before: the messages that an utterance answers in that side's seat, by dialogue and turn.
        said: the utterances, in any order.

    Returns:
        (n,) float64 nats, at least 0.
    """
    found = np.zeros(len(said))
    spoken = [place for place, one in enumerate(said) if one.words]
    if spoken:
        chats = [before(said[place].row, said[place].turn) for place in spoken]
        scores = score_newest(model, [newest_forms(chat) for chat in chats], [[said[place].words] for place in spoken])
        found[spoken] = [-score.nats for (score,) in scores]
    return found


def require_chat_judge(spec: str, instead: str = "") -> None:
    """Makes sure that a chat model can say how likely texts are; one whose weights are here is not loaded for it.

    Args:
        spec: its address, or path/file.py:Name.
        instead: who else may judge, for the message.

    Raises:
        CheckpointError: no such folder or file is there.
        ConfigError: it is a server, or a model of a user's own without likelihoods.
    """
    if spec.startswith(OPENAI):
        fix = f"name weights that are here, hf:FOLDER or gguf:FILE{instead}"
        what = "a judge of fluency says how likely words are, and a server does not"
        raise ConfigError(what, where="--judge", got=spec, fix=fix)
    require_address(spec)
    if ".py:" in spec:
        require_access(load_chat_model(spec), Access.SCORES, "a judge of fluency")
