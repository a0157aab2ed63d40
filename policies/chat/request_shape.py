"""Bodies of requests to servers, fitted to the fields and roles they take, and questions with a strict answer.

`RequestShape` writes OpenAI's body of a chat completion. A field or a role that a server refuses is left out from then on. The
notes of an answer name each such change that affects how the answer is drawn.

`StrictQuestion` asks for answers of one form. A reply of another form is asked about once more; a model that was cut in
thinking is asked again with more room. Other answers without a reply are final: at temperature 0 they would come again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

from parley.policies.chat.model import (
    FOLDED,
    MERGED,
    NO_REPLIES,
    Answer,
    AnswerKind,
    Chat,
    ChatDecoding,
    ChatModel,
    Message,
    by_kind,
    fold_system,
    merged,
)
from parley.policies.chat.newest import Forms, answer_newest
from parley.policies.chat.refusals import RefusalKind, RefusalReading
from parley.policies.chat.settings import DEFAULT, LIMITS, ChatModelSettings

MORE_ROOM = 64
"""Factor on the limit of tokens for a model that was cut in thinking."""
ReadT = TypeVar("ReadT")


class StrictAnswer(NamedTuple, Generic[ReadT]):
    """The result of a strict question.

    Args:
        value: the reading of the answer; None for one of another form, and for no reply.
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
        """True if there is no reply to read."""
        return self.kind in NO_REPLIES


class StrictQuestion(Generic[ReadT]):
    """A question that is asked greedily for answers of one form.

    Args:
        chat_model: the model that is asked.
        read: function from a text to its reading; None for one of another form.
        repair: the second question, after an answer of another form.
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
        """Return the reading of the answer to each question, asked in the longest form that the model reads."""
        first = answer_newest(self._model, questions, decoding=self._decoding)
        results = [StrictAnswer(self._value(answer), answer.kind, 1, number) for number, answer in first]
        chats = [forms[number] for forms, (number, _) in zip(questions, first, strict=True)]
        cut = [index for index, result in enumerate(results) if result.kind is AnswerKind.CUT_IN_THINKING]
        odd = [index for index, result in enumerate(results) if result.value is None and not result.is_lost]
        repairs = [(*chats[index], Message("assistant", first[index][1].text), Message("user", self._repair)) for index in odd]
        second = self._again([chats[index] for index in cut], self._more_room) + self._again(repairs, self._decoding)
        for index, answer in zip(cut + odd, second, strict=True):
            if answer.kind is not AnswerKind.TOO_LONG:
                results[index] = StrictAnswer(self._value(answer), answer.kind, 2, results[index].form)
        self.no_replies.update(result.kind for result in results if result.is_lost)
        self.unparsable += sum(result.value is None and not result.is_lost for result in results)
        return results

    def told(self) -> str:
        """Return a count of unread answers so far, such as "3 of another form, asked twice; 2 no reply (2 filtered)"."""
        odd = [f"{self.unparsable:,} of another form, asked twice"] if self.unparsable else []
        lost = self.no_replies.total()
        return "; ".join(odd + ([f"{lost:,} no reply ({by_kind(self.no_replies)})"] if lost else []))

    def _value(self, answer: Answer) -> ReadT | None:
        return self._read(answer.text) if answer.is_reply else None

    def _again(self, chats: Sequence[Chat], decoding: ChatDecoding) -> list[Answer]:
        """Return answers to questions asked once more; one without room leaves the first answer as it is."""
        return [
            answer for _, answer in answer_newest(self._model, [[chat] for chat in chats], decoding=decoding, counts_lost=False)
        ]


def word_of(text: str, words: Collection[str]) -> str | None:
    """Return the word that an answer consists of, in lower case; None for any other answer."""
    match = re.fullmatch(rf"\W*({'|'.join(map(re.escape, words))})\W*", text, re.IGNORECASE)
    return None if match is None else match[1].lower()


OWN_TEMPERATURE = "drawn at the server's own temperature"
NO_SEED = "drawn without a seed"
NO_LIMIT = "without a limit of tokens"
SHORTENED = "allowed fewer tokens than were asked for, for the messages leave no more room"
_DRAWN_BY = ("temperature", "seed")


@dataclass(frozen=True)
class RequestShape:
    """The form of requests to one server.

    Args:
        limit_field: that limits the tokens of an answer; empty for none.
        left_out: fields of `temperature` and `seed` that are not sent.
        folds_system: whether the system's text stands in front of the user's.
        merges_turns: whether neighbours of one role are one message.
        extra: more fields.
        refused: fields for the limit that were refused.
    """

    limit_field: str = LIMITS[0]
    left_out: frozenset[str] = frozenset()
    folds_system: bool = False
    merges_turns: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: ChatModelSettings) -> RequestShape:
        """Return the shape that settings ask for."""
        document = settings.extra.document
        nulls = {name for name, value in document.items() if value is None}
        extra = {name: value for name, value in document.items() if value is not None}
        limit = "" if settings.limit_field in nulls else settings.limit_field
        return cls(limit, frozenset(nulls & set(_DRAWN_BY)), extra=extra, refused=frozenset(nulls & set(LIMITS)))

    def body(self, model: str, chat: Chat, decoding: ChatDecoding, seed: int | None) -> dict[str, Any]:
        """Return the body of a request.

        Args:
            model: as the server calls it.
            chat: that is answered.
            decoding: of the answer.
            seed: of the draws; None for none.
        """
        messages = [{"role": message.role, "content": message.content} for message in self._fitted(chat)]
        body: dict[str, Any] = {"model": model, "messages": messages, **self.extra}
        if "temperature" not in self.left_out:
            body["temperature"] = decoding.temperature
        if self.limit_field:
            body[self.limit_field] = decoding.max_tokens
        if seed is not None and "seed" not in self.left_out:
            body["seed"] = seed % 2**63
        return body

    def notes(self, chat: Chat, seed: int | None) -> tuple[str, ...]:
        """Return the notes on deviations from the request, for a chat and a seed."""
        fitted = self._fitted(chat)
        notes = {
            OWN_TEMPERATURE: "temperature" in self.left_out,
            NO_SEED: seed is not None and "seed" in self.left_out,
            NO_LIMIT: not self.limit_field,
            FOLDED: fitted != chat and any(message.role == "system" for message in chat) and self.folds_system,
            MERGED: fitted != chat and not self.folds_system,
        }
        return tuple(note for note, holds in notes.items() if holds)

    def suited(self, reading: RefusalReading, body: Mapping[str, Any]) -> RequestShape | None:
        """Return the shape that suits a refusal of a body of this shape; None if there is none."""
        name = reading.field
        roles = [message["role"] for message in body["messages"]]
        if reading.kind is RefusalKind.SYSTEM or (reading.kind is RefusalKind.TURNS and self.merges_turns):
            return replace(self, folds_system=True, merges_turns=True) if "system" in roles else None
        if reading.kind is RefusalKind.TURNS:
            return replace(self, merges_turns=True)
        if reading.kind is not RefusalKind.FIELD or name in self.extra:
            return None
        if name in _DRAWN_BY:
            return replace(self, left_out=self.left_out | {name})
        if name in LIMITS:
            refused = self.refused | {name}
            return replace(self, refused=refused, limit_field=next((other for other in LIMITS if other not in refused), ""))
        return None

    def told(self, reading: RefusalReading) -> str:
        """Return a sentence on what this shape does after a refusal of another one."""
        if reading.kind is RefusalKind.FIELD and reading.field in LIMITS and self.limit_field:
            return f"{self.limit_field} is sent instead"
        if reading.kind is RefusalKind.FIELD:
            return f"{reading.field} is left out of all requests"
        return "the system's text is sent in front of the user's" if self.folds_system else "such messages are sent as one"

    def _fitted(self, chat: Chat) -> Chat:
        if self.folds_system:
            return fold_system(chat)
        return merged(chat) if self.merges_turns else chat
