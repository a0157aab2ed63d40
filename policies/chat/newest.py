"""Questions without their oldest turns, for models that read no more, and the seat of a chat model in a game.

A question has forms, the longest first, and is asked in the first form that the model reads. The form depends on that question
alone. If even the shortest form is too long, the question is lost: its answer has a kind of its own (`AnswerKind.TOO_LONG`),
or an error is raised where likelihoods are needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import TypeVar

from parley.envs.core.play import agent_errors
from parley.envs.core.registry import own_code
from parley.policies.chat.answers import answers_arriving, count_lost
from parley.policies.chat.model import (
    SEEDS,
    Answer,
    AnswerKind,
    Chat,
    ChatDecoding,
    ChatModel,
    ChatTooLongError,
    NoReplyError,
    ReplyScore,
    ScoringChatModel,
)

logger = logging.getLogger(__name__)
LEFT_OUT = "asked without the oldest turns, for the model reads no more"
"""Note of answers (`Answer.notes`) to a shorter form."""
ResultT = TypeVar("ResultT")
Forms = Sequence[Chat]
"""Forms of one question, the longest first; each later form lacks more of the oldest turns."""


def first_that_fit(
    call: Callable[[Sequence[int], int], Sequence[ResultT]],
    num_forms: Sequence[int],
    lost: Callable[[int], ResultT] | None = None,
) -> list[tuple[int, ResultT]]:
    """Return for each item the number of its first form that fits, from 0, and the result of it.

    Args:
        call: returns results of items, by indices, in the form with a number; raises ChatTooLongError where one is too long.
        num_forms: of each item.
        lost: gives the result of an item of which no form fits; None raises.

    Raises:
        ChatTooLongError: no form of an item fits, and `lost` is None.
    """

    def results_of(indices: Sequence[int]) -> list[tuple[int, ResultT]]:
        for number in range(max(1, num_forms[indices[0]]) if len(indices) == 1 else 1):
            try:
                return [(number, result) for result in call(indices, number)]
            except ChatTooLongError:
                # The error does not tell which item is too long.
                if half := len(indices) // 2:
                    return results_of(indices[:half]) + results_of(indices[half:])
                if number + 1 >= num_forms[indices[0]] and lost is None:
                    raise
        assert lost is not None
        return [(num_forms[indices[0]] - 1, lost(indices[0]))]

    return results_of(range(len(num_forms))) if num_forms else []


def answer_newest(
    model: ChatModel, questions: Sequence[Forms], *, decoding: ChatDecoding, seeds: Sequence[int] = (), counts_lost: bool = True
) -> list[tuple[int, Answer]]:
    """Return the number of the form of each question that was read, and the answer to it.

    Args:
        model: the model that is asked.
        questions: forms of each.
        decoding: of answers.
        seeds: as of `ChatModel.answer`.
        counts_lost: whether a question of which no form fits counts as one without a reply.

    Raises:
        ModelError: the model does not answer.
    """
    answers: dict[int, Answer] = {}

    def call(indices: Sequence[int], number: int) -> list[Answer]:
        # Answers that arrived before the error are not asked for again.
        rest = [index for index in indices if index not in answers]
        chats, chat_seeds = [questions[index][number] for index in rest], [seeds[index] for index in rest] if seeds else ()
        note = LEFT_OUT if number else ""
        for position, answer in answers_arriving(model, chats, decoding=decoding, seeds=chat_seeds, note=note) if rest else ():
            answers[rest[position]] = answer
        return [answers[index] for index in indices]

    def lost(index: int) -> Answer:
        answer = Answer("", "too_long", 0, 0)
        if counts_lost:
            seed = seeds[index] if seeds else None
            answer = count_lost(model, questions[index][0], answer, decoding=decoding, seed=seed)
        return answer

    return first_that_fit(call, [len(forms) for forms in questions], lost)


def score_newest(
    model: ScoringChatModel, questions: Sequence[Forms], replies: Sequence[Sequence[str]]
) -> list[list[ReplyScore]]:
    """Return the log probabilities of the replies to each question, all behind the same form of it.

    Args:
        model: the model that scores.
        questions: forms of each.
        replies: to each question.

    Raises:
        ChatTooLongError: the shortest form of a question and a reply are longer than it reads.
    """

    def call(indices: Sequence[int], number: int) -> list[list[ReplyScore]]:
        chats = [questions[index][number] for index in indices for _ in replies[index]]
        scores = iter(model.score(chats, [reply for index in indices for reply in replies[index]]))
        return [[next(scores) for _ in replies[index]] for index in indices]

    scored = first_that_fit(call, [len(forms) for forms in questions])
    usage = getattr(model, "usage", None)
    if usage is not None and (num_left_out := sum(number > 0 for number, _ in scored)):
        if not usage.notes[LEFT_OUT]:
            logger.warning("%s: likelihoods are %s; further ones are counted", model.name, LEFT_OUT)
        usage.notes[LEFT_OUT] += num_left_out
    return [scores for _, scores in scored]


def newest_forms(chat: Chat) -> list[Chat]:
    """Return a chat and its shorter forms: the system and the last message stay.

    Each shorter form begins with a message of the user, as templates want it.
    """
    num_system = next((index for index, message in enumerate(chat) if message.role != "system"), len(chat))
    starts = [index for index in range(num_system + 1, len(chat)) if chat[index].role == "user"]
    return [chat, *((*chat[:num_system], *chat[start:]) for start in starts)]


_ALWAYS_SO = (AnswerKind.FILTERED, AnswerKind.TOO_LONG)
"""Kinds of answers that no other seed mends."""
Note = Callable[[int, Answer], None]
"""Takes a dialogue and an answer that was given in it."""


class SeatedChatModel:
    """A chat model that takes part in a game.

    Args:
        address: the model's.
        load: gives the model; called when it is first needed.
        temperature: of its answers; 0 takes the likeliest.
        max_tokens: tokens of an answer at most.
    """

    def __init__(self, address: str, load: Callable[[], ChatModel], temperature: float, max_tokens: int) -> None:
        self.address, self._load = address, load
        self.decoding = ChatDecoding(temperature=temperature, max_tokens=max_tokens)

    @contextmanager
    def as_agent_errors(self) -> Iterator[None]:
        """Turn errors of the model into the loss of one dialogue, within a block that asks it.

        Raises:
            AgentError: it fails.
        """
        with agent_errors(), own_code(self.address) if ".py:" in self.address else nullcontext():
            yield

    def answers(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int], note: Note) -> list[Answer]:
        """Return an answer to each chat; a drawn answer that is no reply is asked for once more.

        At temperature 0 the same question has the same answer; what moderation stopped stays stopped, and what is too long
        stays so.

        Args:
            rows: dialogues of the game.
            chats: one of each.
            seeds: one of each.
            note: is given every answer and its row, whatever the answer's kind.

        Raises:
            AgentError: the model fails.
        """
        answers = self._noted(rows, chats, seeds, note)
        again = [index for index, answer in enumerate(answers) if not answer.is_reply and answer.kind not in _ALWAYS_SO]
        if again and self.decoding.temperature > 0:
            more = [(seeds[index] + 1) % SEEDS for index in again]
            mended = self._noted([rows[index] for index in again], [chats[index] for index in again], more, note)
            for index, answer in zip(again, mended, strict=True):
                answers[index] = answer
        return answers

    def replies(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int], note: Note) -> list[Answer]:
        """Return a reply to each chat, see `answers`.

        Raises:
            NoReplyError: answers are still no reply; it names the rows of the kind that comes first.
            AgentError: the model fails.
        """
        answers = self.answers(rows, chats, seeds, note)
        lost = [(row, answer.kind) for row, answer in zip(rows, answers, strict=True) if not answer.is_reply]
        if lost:
            kind = lost[0][1]
            raise NoReplyError.of(self.address, kind, [row for row, other_kind in lost if other_kind is kind])
        return answers

    def _noted(self, rows: Sequence[int], chats: Sequence[Chat], seeds: Sequence[int], note: Note) -> list[Answer]:
        with self.as_agent_errors():
            newest = answer_newest(self.model, [newest_forms(chat) for chat in chats], decoding=self.decoding, seeds=seeds)
        answers = [answer for _, answer in newest]
        for row, answer in zip(rows, answers, strict=True):
            note(row, answer)
        return answers

    @cached_property
    def model(self) -> ChatModel:
        """The model that answers, loaded at the first use.

        Raises:
            ConfigError: it cannot be loaded.
        """
        return self._load()
