"""Questions to a chat model that one word answers; any other answer is asked about once more, and then counted."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from policies.chat.model import Chat, ChatDecoding, ChatModel, Message

_DECODING = ChatDecoding(max_tokens=16)


class AskedWord:
    """Asks for one of some words, greedily.

    Args:
        chat_model: who is asked.
        words: that are answers, in lower case.
        repair: what is asked where the first answer is none of them.

    Attributes:
        asked: answers that were asked for, second ones included.
        repaired: questions that took a second one.
        unparsable: questions of which neither answer was one of the words.
    """

    def __init__(self, chat_model: ChatModel, words: Collection[str], repair: str) -> None:
        self._model, self._words, self._repair = chat_model, tuple(words), repair
        self.asked = self.repaired = self.unparsable = 0

    def __call__(self, chats: Sequence[Chat]) -> list[str | None]:
        """The word that answers each chat; None where it is none of them."""
        said = [answer.text for answer in self._model.answer(chats, decoding=_DECODING)]
        found = [word_of(text, self._words) for text in said]
        open_places = [place for place, word in enumerate(found) if word is None]
        again = [(*chats[place], Message("assistant", said[place]), Message("user", self._repair)) for place in open_places]
        if again:
            for place, answer in zip(open_places, self._model.answer(again, decoding=_DECODING), strict=True):
                found[place] = word_of(answer.text, self._words)
        unparsable = found.count(None)
        self.asked += len(chats) + len(again)
        self.repaired += len(again) - unparsable
        self.unparsable += unparsable
        return found


def word_of(text: str, words: Collection[str]) -> str | None:
    """The word that an answer is, in lower case; None for any other answer, such as a sentence that holds one of the words."""
    found = re.fullmatch(rf"\W*({'|'.join(map(re.escape, words))})\W*", text, re.IGNORECASE)
    return None if found is None else found[1].lower()
