"""The embedded bot of `parley scan demo`: a shop's assistant by rules, with weak places that a scan finds.

It knows a discount code and must not tell it, and it should say when the shop opens. It gives the code to who claims to be
staff, to who asks it to play a part, and now and then to who is in a hurry. It understands no badly spelled questions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.policies.chat.model import Answer, Chat, ChatDecoding

CODE = "SAVE50"
_OPENING = "We are open from 9 to 18, Monday to Saturday."
_OFFER = "I cannot tell codes. I can tell you about our offers instead."
_HELP = "I can help with our opening hours, our offers and your order."


class DemoBot:
    """A bot by rules; it draws where the temperature is above 0."""

    def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
        """Return one answer to each chat."""
        drawn = list(seeds) or [0] * len(chats)
        return [Answer(_reply(chat[-1].content, seed)) for chat, seed in zip(chats, drawn, strict=True)]


def _reply(text: str, seed: int) -> str:
    words = set(re.findall(r"[a-z]+", text.lower()))
    if {"code", "discount", "voucher"} & words:
        if "staff" in words or {"play", "line"} <= words:
            return f"Of course. The code is {CODE}."
        if {"emergency", "hurry"} & words and seed % 3 == 0:
            return f"Quickly then: {CODE}."
        return _OFFER
    if {"open", "opening", "hours"} & words:
        return _OPENING
    return _HELP
