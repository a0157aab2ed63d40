"""Chat models by address in the seats of games: agents that share weights, and judges of how likely utterances are.

Each utterance is scored as an answer in the speaker's seat, behind the messages of that seat: `negotiator.before` in a
negotiation, `friend.talk` in MutualFriends. The end of an utterance is not scored; an utterance without words costs 0 nats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.storage.uris import HUGGING_FACE, is_uri
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.chat.addresses import ENDPOINT, GGUF, OPENAI, SOCKET, is_served
from parley.policies.chat.answers import kept_answers
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import Access, Chat, ChatModel, ScoringChatModel, require_access
from parley.policies.chat.negotiator import ChatNegotiator
from parley.policies.chat.newest import newest_forms, score_newest
from parley.policies.chat.settings import DEFAULT_SEAT, ChatModelSettings, ChatSeat


def load_negotiator(
    name: str,
    vocabulary: Vocabulary,
    temperature: float = 0.5,
    device: str = "cpu",
    seat: ChatSeat = DEFAULT_SEAT,
    tactic: str = "",
    answers: Path | None = None,
) -> ChatNegotiator:
    """Return a chat model as an agent; it is loaded when it first joins a game.

    Args:
        name: its address.
        vocabulary: of the game.
        temperature: of its answers.
        device: that a model computes on whose weights are here.
        seat: settings of loading or asking it.
        tactic: instructions beside the rules.
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
    """Return a chat model as `load_chat_model` does; the seats of a process share one copy of its weights."""
    if ".py:" in name:
        # A user's own file may change between two runs of a process.
        model = load_chat_model(name, settings)
    else:
        from parley.policies.chat.adapters import is_adapter, load_adapted

        is_shared = name.startswith(HUGGING_FACE) and is_adapter(name)
        model = load_adapted(name, settings) if is_shared else _loaded(name, settings)
    return kept_answers(model, answers)


def require_address(name: str) -> None:
    """Check that an address names a server, or an existing folder or file, without loading it.

    Raises:
        CheckpointError: no such folder or file is there.
        ConfigError: the address is malformed.
    """
    if name.startswith(OPENAI):
        _, mark, model = name.partition("#")
        if not mark or not model or not is_uri(name):
            raise ConfigError("the address of a served model names a URL and a model", got=name, fix=f"{OPENAI}URL#MODEL")
    for kind, what, is_there in (
        (HUGGING_FACE, "folder", Path.is_dir),
        (GGUF, "file", Path.is_file),
        (ENDPOINT, "file", Path.is_file),
        (SOCKET, "file", Path.is_file),
    ):
        if not name.startswith(kind) or is_uri(name):
            continue
        path = Path(name.removeprefix(kind)).expanduser()
        if not is_there(path):
            raise CheckpointError(f"a chat model needs a {what} and there is none", where=path, fix=f"name one: {kind}PATH")


@lru_cache(maxsize=4)
def _loaded(name: str, settings: ChatModelSettings) -> ChatModel:
    return load_chat_model(name, settings)


class PlacedUtterance(NamedTuple):
    """An utterance at a turn of a dialogue, said or possible."""

    row: int
    """The dialogue."""
    turn: int
    """Utterances before it."""
    words: str
    """Its words; empty for none."""


def nats_of(model: ScoringChatModel, before: Callable[[int, int], Chat], utterances: Sequence[PlacedUtterance]) -> np.ndarray:
    """Return the negative log probability of each utterance under a model.

    Args:
        model: the judging model.
        before: the messages that an utterance answers in that side's seat, by dialogue and turn.
        utterances: the utterances, in any order.

    Returns:
        (n,) float64 nats, at least 0.
    """
    nats = np.zeros(len(utterances))
    spoken = [index for index, utterance in enumerate(utterances) if utterance.words]
    if spoken:
        chats = [before(utterances[index].row, utterances[index].turn) for index in spoken]
        scores = score_newest(model, [newest_forms(chat) for chat in chats], [[utterances[index].words] for index in spoken])
        nats[spoken] = [-score.nats for (score,) in scores]
    return nats


def require_chat_judge(spec: str, instead: str = "") -> None:
    """Check that a chat model gives likelihoods; local weights are not loaded for it.

    Args:
        spec: its address, or path/file.py:Name.
        instead: other possible judges, for the message.

    Raises:
        CheckpointError: no such folder or file is there.
        ConfigError: it is a server, or a model of a user's own without likelihoods.
    """
    if is_served(spec):
        fix = f"name weights that are here, hf:FOLDER or gguf:FILE{instead}"
        what = "a judge of fluency says how likely words are, and a server does not"
        raise ConfigError(what, where="--judge", got=spec, fix=fix)
    require_address(spec)
    if ".py:" in spec:
        require_access(load_chat_model(spec), Access.SCORES, "a judge of fluency")
