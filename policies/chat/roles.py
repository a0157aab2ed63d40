"""Chats for templates and servers that take fewer roles than ours: no system, or turns that alternate strictly.

Both are changes of the messages alone, and pure. What a template or a server says of roles is read here, too.

Sources: the chat templates of Gemma 1 and 2 ("System role not supported"), Mistral 7B v0.1 and v0.2 ("Conversation roles must
alternate user/assistant/user/assistant/..."), Mistral 7B v0.3 ("Only user and assistant roles are supported") and Mistral's own
API ("Expected last role User or Tool ... but got assistant", "Unexpected role 'system' after role 'user'").
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from parley.policies.chat.model import Chat, Message

FOLDED = "asked with the system's text in front of the user's"
MERGED = "asked with neighbours of one role as one message"
"""Notes of answers (`Answer.notes`) to messages that were changed so."""
_SYSTEM = r"['\"`]?(?:system|developer)['\"`]?(?: role| messages?| prompts?| instructions?)+"
_NOT_TAKEN = r"(?:(?:is|are) )?(?:not (?:supported|allowed|enabled|permitted|accepted)|unsupported|disallowed)"
_NO_SYSTEM = re.compile(
    "|".join(
        (
            rf"{_SYSTEM} {_NOT_TAKEN}",
            rf"(?:does not|doesn't|cannot|can't) (?:support|accept|take|handle|allow)s? (?:\w+ )?{_SYSTEM}",
            r"(?:unsupported|unknown|invalid|unexpected) (?:message )?role:? ?['\"`]?(?:system|developer)\b",
            rf"role:? ['\"`]?(?:system|developer)['\"`]? {_NOT_TAKEN}",
            r"role\b.{0,20}(?:system|developer)['\"`]? is not (?:one of|in|among)",
            r"role\b.{0,20}does not support ['\"`]?(?:system|developer)",
            r"input should be ['\"`]?user['\"`]?(?:,? or |, )['\"`]?assistant",
            r"developer instruction is not enabled",
            r"only ['\"`]?user['\"`]?,? (?:and|or) ['\"`]?(?:assistant|model)['\"`]?(?: and tool)? (?:roles?|messages?)",
        )
    ),
    re.IGNORECASE,
)
_MUST_ALTERNATE = re.compile(
    r"roles? must (?:strictly )?alternate|must alternate between|alternating (?:user|roles)|"
    r"(?:consecutive|successive|neighbou?ring) (?:messages|roles|user|assistant)|multiple (?:user|assistant) messages in a row|"
    r"(?:first|initial|last|final) (?:non-system )?message(?:s role)? (?:must|should|has to) (?:be|have|use)[^.]{0,20}user|"
    r"unexpected role ['\"`]?(?:user|assistant)|after (?:the optional system message,? )?.{0,20}roles? must",
    re.IGNORECASE,
)


def merged(messages: Iterable[Message]) -> Chat:
    """Return the messages with neighbours of one role joined by an empty line."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return tuple(joined)


def fold_system(chat: Iterable[Message]) -> Chat:
    """Return the messages without a system: its text stands in front of the next message of the user; neighbours are merged."""
    return merged(Message("user", message.content) if message.role == "system" else message for message in chat)


def refuses_system(text: str) -> bool:
    """Return whether a template or a server says that it takes no message of the system."""
    return _NO_SYSTEM.search(text) is not None


def refuses_order(text: str) -> bool:
    """Return whether a template or a server says that roles have to alternate."""
    return _MUST_ALTERNATE.search(text) is not None
