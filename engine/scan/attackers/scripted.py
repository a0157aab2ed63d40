"""The scripted attacker: a chat model by rule, for tests, the demonstration, and as the plainest attacker to compare with.

It reads the line `Goal: ...` of the first message and answers with one of `WAYS`, a template of the scan's own, around the
goal. Which one follows from the seed and from how often it has written before, so one stream goes through them in turn. It
answers yes to every question that is no request for a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.engine.scan.attacks import filled, templates
from parley.policies.chat.model import Answer, Chat, ChatDecoding

SCRIPTED = "scripted"
"""Its address in a policy."""
WAYS = ("hypothetical", "urgent", "role-play", "begin-with", "claim-staff", "ignore-rules")
_GOAL = re.compile(r"^Goal: (.*)$", re.MULTILINE)


class ScriptedWriter:
    """A chat model that writes attacks by rule."""

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat."""
        drawn = list(seeds) or [0] * len(chats)
        return [Answer(_message(chat, seed)) for chat, seed in zip(chats, drawn, strict=True)]


def _message(chat: Chat, seed: int) -> str:
    goal = _GOAL.search(chat[0].content)
    if chat[0].role != "system" or goal is None:
        return "yes"
    way = WAYS[(seed + sum(message.role == "assistant" for message in chat)) % len(WAYS)]
    return f"THOUGHT: {way}\nMESSAGE: {filled(templates()[way], goal[1])}"
