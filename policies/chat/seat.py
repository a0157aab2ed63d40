"""Chat models by address at the table of a negotiation: how each is loaded, once in a process, and what it may say.

How likely a chat model finds what is said in a game: each utterance as an answer of its own in the speaker's seat.

It is told what a chat model in that seat is told: in a negotiation `bargaining.before`, in MutualFriends `friend.talk`. The end
of an utterance is left out, because how likely a text is does not hold it; an utterance without words takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parley.envs.core.config import PositiveInt
from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.storage.uris import HUGGING_FACE, is_uri
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.chat.addresses import GGUF, OPENAI
from parley.policies.chat.answers import kept_answers
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import Access, Chat, ChatModel, ScoringChatModel, require_access
from parley.policies.chat.negotiator import MAX_TOKENS, ChatNegotiator
from parley.policies.chat.newest import newest_forms, score_newest
from parley.policies.chat.settings import ChatModelSettings


@dataclass(frozen=True, kw_only=True)
class ChatSeat(ChatModelSettings):
    """How chat models take part in a game."""

    max_tokens: PositiveInt = MAX_TOKENS
    """Tokens of an answer at most; what is longer is cut, and counted."""

    def on(self, device: str) -> ChatSeat:
        """The same on a device, unless that is the CPU: then as the settings say."""
        return self if device == "cpu" else replace(self, device=device)


def load_negotiator(
    name: str,
    vocabulary: Vocabulary,
    temperature: float = 0.5,
    device: str = "cpu",
    seat: ChatSeat = ChatSeat(),
    tactic: str = "",
    answers: Path | None = None,
) -> ChatNegotiator:
    """A chat model as an agent; it is loaded when it first joins a game.

    Args:
        name: its address.
        vocabulary: of the game.
        temperature: of its answers.
        device: that a model computes on whose weights are here.
        seat: how it is loaded or asked.
        tactic: what it is told beside the rules.
        answers: folder of a run in which answers are kept; None keeps none.

    Raises:
        CheckpointError: no such folder or file is there.
        ConfigError: the address is malformed.
    """
    require_address(name)
    settings = seat.on(device)
    return ChatNegotiator(
        name, lambda: chat_model(name, settings, answers=answers), vocabulary, temperature, tactic, seat.max_tokens
    )


def chat_model(name: str, settings: ChatModelSettings, *, answers: Path | None) -> ChatModel:
    """A chat model, as `load_chat_model`, of which every seat of a process shares one copy of the weights."""
    # A file of a user's own may change between two runs of a process.
    found = load_chat_model(name, settings) if ".py:" in name else _loaded(name, settings)
    return kept_answers(found, answers)


def require_address(name: str) -> None:
    """Checks that there is something at an address, without loading it.

    Raises:
        CheckpointError: no such folder or file is there.
        ConfigError: the address is malformed.
    """
    if name.startswith(OPENAI):
        _, mark, model = name.partition("#")
        if not mark or not model or not is_uri(name):
            raise ConfigError("the address of a served model names a URL and a model", got=name, fix=f"{OPENAI}URL#MODEL")
    for kind, what, is_there in ((HUGGING_FACE, "folder", Path.is_dir), (GGUF, "file", Path.is_file)):
        if not name.startswith(kind) or is_uri(name):
            continue
        path = Path(name.removeprefix(kind)).expanduser()
        if not is_there(path):
            raise CheckpointError(f"a chat model needs a {what} and there is none", where=path, fix=f"name one: {kind}PATH")


@lru_cache(maxsize=4)
def _loaded(name: str, settings: ChatModelSettings) -> ChatModel:
    return load_chat_model(name, settings)


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
