"""Questions to a chat model with a strict answer; any other answer is asked about once more, and then counted.

A reply of another form is answered by a repair. A model that was cut in thinking is asked the same with more room, which models
that reason need. Any other answer without a reply is not asked for again: at temperature 0 it would be the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from parley.policies.chat.model import NO_REPLIES, Answer, AnswerKind, Chat, ChatDecoding, ChatModel, Message
from parley.policies.chat.newest import Forms, answer_newest
from parley.policies.chat.settings import DEFAULT
from parley.policies.chat.usage import by_kind

MORE_ROOM = 64
"""How many times as many tokens a model has that was cut in thinking."""
ReadT = TypeVar("ReadT")


class StrictAnswer(NamedTuple, Generic[ReadT]):
    """What a question came to.

    Args:
        value: what the answer says; None for one of another form, and for no reply.
        kind: of the last answer.
        num_answers: 1, or 2 where it was asked once more.
        form: of the question that was read, from 0, the longest.
    """

    value: ReadT | None
    kind: AnswerKind
    num_answers: int = 1
    form: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether there is no reply to read."""
        return self.kind in NO_REPLIES


class StrictQuestion(Generic[ReadT]):
    """Asks greedily for answers of one form.

    Args:
        chat_model: who is asked.
        read: what an answer says; None for one of another form.
        repair: what is asked where the first answer is of another form.
        max_tokens: tokens of an answer at most.

    Attributes:
        unparsable: questions of which neither answer was of the form.
        no_replies: questions whose last answer is no reply, by its kind.
    """

    def __init__(
        self, chat_model: ChatModel, read: Callable[[str], ReadT | None], repair: str, max_tokens: int = DEFAULT.judge_tokens
    ) -> None:
        self._model, self._read, self._repair = chat_model, read, repair
        self._decoding = ChatDecoding(max_tokens=max_tokens)
        self._more_room = ChatDecoding(max_tokens=MORE_ROOM * max_tokens)
        self.unparsable, self.no_replies = 0, Counter[AnswerKind]()

    def __call__(self, questions: Sequence[Forms]) -> list[StrictAnswer[ReadT]]:
        """Return what the answer to each question says, which is asked in the longest of its forms that the model reads."""
        first = answer_newest(self._model, questions, decoding=self._decoding)
        results = [StrictAnswer(self._value(answer), answer.kind, 1, number) for number, answer in first]
        chats = [forms[number] for forms, (number, _) in zip(questions, first, strict=True)]
        cut = [place for place, result in enumerate(results) if result.kind is AnswerKind.CUT_IN_THINKING]
        odd = [place for place, result in enumerate(results) if result.value is None and not result.is_lost]
        repairs = [(*chats[place], Message("assistant", first[place][1].text), Message("user", self._repair)) for place in odd]
        second = self._again([chats[place] for place in cut], self._more_room) + self._again(repairs, self._decoding)
        for place, answer in zip(cut + odd, second, strict=True):
            if answer.kind is not AnswerKind.TOO_LONG:
                results[place] = StrictAnswer(self._value(answer), answer.kind, 2, results[place].form)
        self.no_replies.update(result.kind for result in results if result.is_lost)
        self.unparsable += sum(result.value is None and not result.is_lost for result in results)
        return results

    def told(self) -> str:
        """Return what could not be read so far, such as "3 of another form, asked twice; 2 no reply (2 filtered)"."""
        odd = [f"{self.unparsable:,} of another form, asked twice"] if self.unparsable else []
        lost = self.no_replies.total()
        return "; ".join(odd + ([f"{lost:,} no reply ({by_kind(self.no_replies)})"] if lost else []))

    def _value(self, answer: Answer) -> ReadT | None:
        return self._read(answer.text) if answer.is_reply else None

    def _again(self, chats: Sequence[Chat], decoding: ChatDecoding) -> list[Answer]:
        """Return answers to questions that are asked once more; one for which there is no room leaves the first as it is."""
        return [
            answer for _, answer in answer_newest(self._model, [[chat] for chat in chats], decoding=decoding, counts_lost=False)
        ]


def word_of(text: str, words: Collection[str]) -> str | None:
    """The word that an answer is, in lower case; None for any other answer, such as a sentence that holds one of the words."""
    found = re.fullmatch(rf"\W*({'|'.join(map(re.escape, words))})\W*", text, re.IGNORECASE)
    return None if found is None else found[1].lower()
