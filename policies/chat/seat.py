"""Chat models by address at the table of a negotiation: how each is loaded, once in a process, and what it may say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from parley.envs.core.errors import CheckpointError, ConfigError
from parley.envs.core.ranges import PositiveInt
from parley.envs.core.storage.uris import HUGGING_FACE, is_uri
from parley.envs.negotiation.vocabulary import Vocabulary
from parley.policies.chat.addresses import GGUF, OPENAI
from parley.policies.chat.answers import kept_answers
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import ChatModel
from parley.policies.chat.negotiator import MAX_TOKENS, ChatNegotiator
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
