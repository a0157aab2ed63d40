"""Questions to a chat model with a strict answer; any other answer is asked about once more, and then counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from policies.chat.model import Chat, ChatDecoding, ChatModel, Message

_DECODING = ChatDecoding(max_tokens=16)
ReadT = TypeVar("ReadT")


class StrictQuestion(Generic[ReadT]):
    """Asks greedily for answers of one form.

    Args:
        chat_model: who is asked.
        read: what an answer says; None for one of another form.
        repair: what is asked where the first answer is of another form.

    Attributes:
        asked: answers that were asked for, second ones included.
        unparsable: questions of which neither answer was of the form.
    """

    def __init__(self, chat_model: ChatModel, read: Callable[[str], ReadT | None], repair: str) -> None:
        self._model, self._read, self._repair = chat_model, read, repair
        self.asked = self.unparsable = 0

    def __call__(self, chats: Sequence[Chat]) -> list[ReadT | None]:
        """What the answer to each chat says; None where it is of another form."""
        said = self._answers(chats)
        found = [self._read(text) for text in said]
        open_places = [place for place, each in enumerate(found) if each is None]
        again = [(*chats[place], Message("assistant", said[place]), Message("user", self._repair)) for place in open_places]
        for place, text in zip(open_places, self._answers(again), strict=True):
            found[place] = self._read(text)
        self.asked += len(chats) + len(again)
        self.unparsable += found.count(None)
        return found

    def _answers(self, chats: Sequence[Chat]) -> list[str]:
        return [answer.text for answer in self._model.answer(chats, decoding=_DECODING)] if chats else []


def word_of(text: str, words: Collection[str]) -> str | None:
    """The word that an answer is, in lower case; None for any other answer, such as a sentence that holds one of the words."""
    found = re.fullmatch(rf"\W*({'|'.join(map(re.escape, words))})\W*", text, re.IGNORECASE)
    return None if found is None else found[1].lower()
