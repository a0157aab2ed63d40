"""What chat models of a user's own promise (`own.py`)."""

from __future__ import annotations

import inspect
from typing import Any

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.policies.chat.model import Answer, ChatDecoding, Message
from parley.policies.chat.own import OwnChatModel, made_chat_model

_CHATS = [
    (Message("user", "hello"),),
    (Message("system", "You sell books."), Message("user", "how much is it ?")),
    (Message("user", "hello"), Message("assistant", "hi , how can i help ?"), Message("user", "caf\u00e9 \U0001f600 <b>")),
]
_DECODING = ChatDecoding(max_tokens=16)


def _make(named: Any) -> OwnChatModel:
    # A function is taken for a chat model by what it calls its argument, for other kinds are functions too.
    if inspect.isfunction(named) and list(inspect.signature(named).parameters)[:1] not in ([], ["messages"]):
        raise TypeError("no function of messages")
    return OwnChatModel("the model", made_chat_model("the model", named))


def _asked(model: OwnChatModel) -> list[str]:
    return [answer.text for answer in model.answer(_CHATS, decoding=_DECODING)]


def _answers_every_chat(model: OwnChatModel) -> None:
    """Answers every chat with one text, or one `parley.policies.chat.model.Answer`."""
    answers = model.answer(_CHATS, decoding=_DECODING)
    expect(all(isinstance(answer, Answer) for answer in answers), "texts", repr(answers))


def _takes_temperature_and_seeds(model: OwnChatModel) -> None:
    """Takes a temperature and a seed for each chat, and draws the same from the same seeds."""
    decoding = ChatDecoding(temperature=0.7, max_tokens=16)
    first, second = (model.answer(_CHATS, decoding=decoding, seeds=[1, 2, 3]) for _ in range(2))
    expect(first == second, "the same answers from the same seeds", f"{first} and {second}")


def _repeats_itself(model: OwnChatModel) -> None:
    """Answers the same twice at temperature 0."""
    first, second = _asked(model), _asked(model)
    expect(first == second, "the same answers twice", f"{first} and {second}")


def _is_the_same_alone(model: OwnChatModel) -> None:
    """Answers a chat the same whatever else is asked."""
    alone = [model.answer([chat], decoding=_DECODING)[0].text for chat in _CHATS]
    same_alone(_asked(model), alone, "the answer to a chat")


_TESTS = (_answers_every_chat, _takes_temperature_and_seeds, _repeats_itself, _is_the_same_alone)
_PROTOCOL = "parley.policies.chat.model.ChatModel"
_OTHERS = ("join", "respond", "score_all", "perturb", "read")
"""Members by which parts of other kinds are told."""


def _is_helper(part: Any, name: str, parameter: str) -> bool:
    """Return whether a method of a part of another kind is a helper of its own that is called as a chat model's is."""
    if not any(hasattr(part, other) for other in _OTHERS):
        return False
    given = [argument for argument in inspect.signature(getattr(part, name)).parameters if argument != "self"]
    return given[:1] != [parameter]


CHAT_MODEL = Kind("chat model", _PROTOCOL, ("answer",), _make, _TESTS, unlike=lambda part: _is_helper(part, "answer", "chats"))
REPLYING = Kind(
    "chat model",
    _PROTOCOL,
    ("reply",),
    _make,
    _TESTS,
    unlike=lambda part: hasattr(part, "answer") or _is_helper(part, "reply", "messages"),
)
"""The same of one that answers a list of messages with a text."""
