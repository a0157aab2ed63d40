"""Messages for templates and servers without a system role, or with strict turns."""

from __future__ import annotations

import pytest

from parley.policies.chat.model import Message, fold_system, merged, refuses_order, refuses_system

S, U, A = "system", "user", "assistant"


def chat(*messages: tuple[str, str]) -> tuple[Message, ...]:
    return tuple(Message(role, content) for role, content in messages)


def test_neighbours_of_one_role_are_merged() -> None:
    assert merged(chat((U, "a"), (U, "b"), (A, "c"), (U, "d"))) == chat((U, "a\n\nb"), (A, "c"), (U, "d"))
    assert merged([]) == ()


def test_the_system_goes_in_front_of_the_next_message_of_the_user() -> None:
    assert fold_system(chat((S, "rules"), (U, "hi"), (A, "yes"))) == chat((U, "rules\n\nhi"), (A, "yes"))
    assert fold_system(chat((U, "hi"), (A, "yes"), (S, "now end"))) == chat((U, "hi"), (A, "yes"), (U, "now end"))
    assert fold_system(chat((S, "a"), (S, "b"))) == chat((U, "a\n\nb"))
    assert fold_system(chat((U, "hi"))) == chat((U, "hi"))


NO_SYSTEM = [
    "System role not supported",
    "Jinja Exception: System role not supported",
    "Only user and assistant roles are supported!",
    "Only user and assistant roles are supported, with the exception of an initial optional system message!",
    "Developer instruction is not enabled for models/gemma-3-4b-it",
    "this model does not support system messages",
    "system messages are not supported by this model",
    "Unexpected role 'system' after role 'user'",
    "Invalid role: system",
]
STRICT = [
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
    'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
    "Unexpected role 'user' after role 'user'",
]
OTHER = ["the system is overloaded", "system error", "no such role", "maximum context length", "not supported: 'temperature'"]


@pytest.mark.parametrize("text", NO_SYSTEM)
def test_a_refusal_of_the_system_role_is_read(text: str) -> None:
    assert refuses_system(text)


@pytest.mark.parametrize("text", STRICT)
def test_a_wish_for_strict_turns_is_read(text: str) -> None:
    assert refuses_order(text)


@pytest.mark.parametrize("text", OTHER)
def test_other_errors_say_nothing_of_roles(text: str) -> None:
    assert not refuses_system(text)
    assert not refuses_order(text)
