"""Lines that a chat model writes for somebody else to use: asked for, read strictly, and asked for once more.

Nothing is guessed for the model: an answer without such a line is repaired once, and then is none. A question has shorter forms
for models that read no more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from parley.policies.chat.model import Answer, Chat, ChatDecoding, ChatModel, ChatTooLongError, Message
from parley.policies.chat.newest import first_that_fit

logger = logging.getLogger(__name__)
EMPTY, REFUSAL, NO_REPLY = "it holds no words", "it refuses", "it is no reply"
_AROUND = " \t\r\n\"'`*_#-"
_CANNOT = r"i(?: (?:can ?not|can['\u2019]t|won['\u2019]t|will not|am unable to)|['\u2019]m unable to)"
_ACTS = r"(?:assist|help|write|provide|comply|create|fulfil|generate|do that|do this|engage|take part|participate|support)"
_REFUSAL = re.compile(
    r"(?:i['\u2019]?m|i am) (?:\w+ )?(?:sorry|unable|not able)|sorry,? (?:but )?(?:i|we)\b|i apologi[sz]e|as an ai\b|"
    rf"{_CANNOT} {_ACTS}|unfortunately,? {_CANNOT}|i must decline",
    re.IGNORECASE,
)


class WrittenLine(NamedTuple):
    """What a model wrote when it was asked for a line.

    Args:
        text: the line; where it cannot be used, the beginning of what was written.
        problem: why it cannot be used; empty where it can.
        answers: that the model gave, the repair included.
    """

    text: str
    problem: str
    answers: tuple[Answer, ...]


def read_line(answer: Answer, name: str, max_words: int) -> tuple[str, str]:
    """The line of an answer: its first, behind the name and a colon where they stand in it.

    Args:
        answer: of the model.
        name: of what was asked for, one word.
        max_words: words of a line at most.

    Returns:
        The line, and why it is none; that is empty for one that can be used.
    """
    if not answer.is_reply:
        return "", f"{NO_REPLY}: {answer.kind}"
    *_, rest = re.split(rf"\**\b{name}\b\**\s*:\**", answer.text, flags=re.IGNORECASE)
    lines = [line for line in (" ".join(line.split()).strip(_AROUND) for line in rest.splitlines()) if line]
    if not lines:
        return "", EMPTY
    found, num_words = lines[0], len(lines[0].split())
    if _REFUSAL.match(found):
        return found, REFUSAL
    cut = not answer.ended and len(lines) == 1
    if num_words > max_words or cut:
        return found, f"it has {'more than ' * cut}{num_words} words, and {max_words} are allowed"
    return found, ""


def repaired(asked: Chat, answer: str, again: str) -> Chat:
    """The messages that ask once more.

    Args:
        asked: the question.
        answer: without a line.
        again: what is said to it.
    """
    return *asked, Message("assistant", answer.strip() or "..."), Message("user", again)


def written_lines(
    model: ChatModel,
    asked: Sequence[tuple[Sequence[Chat], int]],
    decoding: ChatDecoding,
    read: Callable[[Answer], tuple[str, str]],
    again: Callable[[str], str],
) -> list[WrittenLine]:
    """A line for each question.

    Args:
        model: who is asked.
        asked: the forms of each question, the longest first, and the seed of its answer.
        decoding: of answers.
        read: the line of an answer, and why it is none (`read_line`).
        again: what is said to an answer, by why it is none.

    Raises:
        ModelError: the model does not answer.
        ChatTooLongError: even the shortest form is longer than it reads.
    """
    found = []
    for (_, seed), (chat, answer) in zip(asked, _answers(model, asked, decoding), strict=True):
        answers = [answer]
        text, problem = read(answer)
        if problem:
            try:
                ((_, mended),) = _answers(model, [([repaired(chat, answer.text, again(problem))], seed)], decoding)
            except ChatTooLongError:
                logger.warning("the attacker's context holds no repair of an answer that cannot be used")
            else:
                answers.append(mended)
                text, problem = read(mended)
        found.append(WrittenLine(text, problem, tuple(answers)))
    return found


def _answers(
    model: ChatModel, asked: Sequence[tuple[Sequence[Chat], int]], decoding: ChatDecoding
) -> list[tuple[Chat, Answer]]:
    """Return an answer to each question, in the longest of its forms that the model reads."""

    def call(indices: Sequence[int], number: int) -> list[Answer]:
        chats, seeds = [asked[index][0][number] for index in indices], [asked[index][1] for index in indices]
        return model.answer(chats, decoding=decoding, seeds=seeds)

    answers = first_that_fit(call, [len(forms) for forms, _ in asked])
    return [(forms[number], answer) for (forms, _), (number, answer) in zip(asked, answers, strict=True)]
