"""Chat models of which only texts can be seen, as rankers and as writers of lines.

`RatingRanker` asks for a number from 0 to 100 for each reply. Any other answer is asked about once more; then the reply is
`UNRATED`, below every rating, counted and warned of. A reply without words is `UNRATED` and never asked about. If an answer is
no reply (cut in thinking, filtered, ...), the context has no scores, and the error names the kind of the answer. Contexts
longer than the model reads lose their oldest turns (`newest.py`).

`written_lines` asks a model for one line each, reads it strictly, and asks once more where there is none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance, detokenise
from parley.envs.ranking.groups import Context
from parley.policies.chat.model import Answer, AnswerKind, Chat, ChatDecoding, ChatModel, ChatTooLongError, Message
from parley.policies.chat.newest import Questions, first_that_fit, note_left_out
from parley.policies.chat.request_shape import StrictQuestion
from parley.policies.chat.settings import DEFAULT
from parley.policies.ranking.ranker import LimitedRanker, Pair, Unread, UnscoredError

logger = logging.getLogger(__name__)

QUESTION = """Below is a conversation and a reply to it.

Conversation:
{context}

Reply: {reply}

How well does the reply fit as the next turn? Answer with one whole number from 0, not at all, to 100, as well as can be."""
REPAIR = "Answer with one whole number from 0 to 100 and nothing else."
"""The second question, after an answer that is no such number."""
UNRATED = -1.0
"""Score of a reply without a rating."""
_NUMBER = re.compile(r"[\s\"'`*]*(\d{1,3})[\s\"'`*.]*")


class RatingRanker(LimitedRanker):
    """A ranker by the ratings of a chat model, one question for each reply.

    Args:
        chat_model: the model that is asked.
        max_tokens: tokens of an answer at most.
    """

    def __init__(self, chat_model: ChatModel, max_tokens: int = DEFAULT.judge_tokens) -> None:
        self.chat_model, self._asked = chat_model, StrictQuestion(chat_model, rating_of, REPAIR, max_tokens)
        self._left_out, self._is_told = dict[Context, int](), False

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
        """Return ratings from 0 to 100, or `UNRATED`; a reply that comes twice in a context is asked about once."""
        questions = list(dict.fromkeys((context, reply) for context, candidates in pairs for reply in candidates if reply))
        ratings = dict(zip(questions, self._rated(questions), strict=True))
        return [self._scores([ratings.get((context, reply), UNRATED) for reply in candidates]) for context, candidates in pairs]

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Return how many turns were left out for any reply so far; replies are read whole."""
        return Unread(self._left_out.get(context, 0))

    def _scores(self, ratings: Sequence[float | AnswerKind]) -> np.ndarray | RankerError:
        lost = [rating for rating in ratings if isinstance(rating, AnswerKind)]
        if not lost:
            return np.array(ratings, dtype=np.float64)
        got = f"{len(lost)} of {len(ratings)} replies are not rated"
        return UnscoredError(f"no answer ({lost[0].value})", where=self.chat_model.name, got=got, fix=lost[0].fix)

    def _rated(self, questions: Questions) -> list[float | AnswerKind]:
        answers = self._asked([_forms(*question) for question in questions])
        for (context, _), answer in zip(questions, answers, strict=True):
            note_left_out(self._left_out, context, answer.form)
        if not self._is_told and (note := self._asked.told()):
            logger.warning("%s: of its ratings %s; further ones are counted at the end", self.chat_model.name, note)
            self._is_told = True
        return [answer.value if answer.value is not None else answer.kind if answer.is_lost else UNRATED for answer in answers]


def rating_of(text: str) -> float | None:
    """Return the number from 0 to 100 that an answer consists of; None for any other answer."""
    match = _NUMBER.fullmatch(text)
    return float(match[1]) if match and int(match[1]) <= 100 else None


def _forms(context: Context, reply: Utterance) -> list[Chat]:
    return [_question(context[start:], reply) for start in range(max(1, len(context)))]


def _question(context: Context, reply: Utterance) -> Chat:
    turns = "\n".join(f"- {detokenise(turn)}" for turn in context)
    return (Message("user", QUESTION.format(context=turns, reply=detokenise(reply))),)


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
    """A line that a model wrote on request.

    Args:
        text: the line; if it cannot be used, the beginning of the text.
        problem: why it cannot be used; empty where it can.
        answers: that the model gave, the repair included.
    """

    text: str
    problem: str
    answers: tuple[Answer, ...]


def read_line(answer: Answer, name: str, max_words: int) -> tuple[str, str]:
    """Return the first line of an answer, without the name and the colon in front of it.

    Args:
        answer: of the model.
        name: of the wanted line, one word.
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
    line_text, num_words = lines[0], len(lines[0].split())
    if _REFUSAL.match(line_text):
        return line_text, REFUSAL
    cut = not answer.ended and len(lines) == 1
    if num_words > max_words or cut:
        return line_text, f"it has {'more than ' * cut}{num_words} words, and {max_words} are allowed"
    return line_text, ""


def repaired(asked: Chat, answer: str, again: str) -> Chat:
    """Return the messages that ask once more.

    Args:
        asked: the question.
        answer: without a line.
        again: the message after it.
    """
    return *asked, Message("assistant", answer.strip() or "..."), Message("user", again)


def written_lines(
    model: ChatModel,
    asked: Sequence[tuple[Sequence[Chat], int]],
    decoding: ChatDecoding,
    read: Callable[[Answer], tuple[str, str]],
    again: Callable[[str], str],
) -> list[WrittenLine]:
    """Return a line for each question.

    Args:
        model: the model that is asked.
        asked: the forms of each question, the longest first, and the seed of its answer.
        decoding: of answers.
        read: the line of an answer, and why it is none (`read_line`).
        again: function from the problem of an answer to the next message.

    Raises:
        ModelError: the model does not answer.
        ChatTooLongError: even the shortest form is longer than it reads.
    """
    results = []
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
        results.append(WrittenLine(text, problem, tuple(answers)))
    return results


def _answers(
    model: ChatModel, questions: Sequence[tuple[Sequence[Chat], int]], decoding: ChatDecoding
) -> list[tuple[Chat, Answer]]:
    """Return an answer to each question, in the longest of its forms that the model reads."""

    def call(indices: Sequence[int], number: int) -> list[Answer]:
        chats, seeds = [questions[index][0][number] for index in indices], [questions[index][1] for index in indices]
        return model.answer(chats, decoding=decoding, seeds=seeds)

    answers = first_that_fit(call, [len(forms) for forms, _ in questions])
    return [(forms[number], answer) for (forms, _), (number, answer) in zip(questions, answers, strict=True)]
