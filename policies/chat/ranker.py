"""Chat models as rankers of replies.

`ChatRanker` scores a reply by the mean log probability of its tokens as the answer to its context. A reply without tokens gets
`EMPTY`.

`RatingRanker` asks for a number from 0 to 100 for each reply. Any other answer is asked about once more; then the reply is
`UNRATED`, below every rating, counted and warned of. A reply without words is `UNRATED` and never asked about. If an answer is
no reply (cut in thinking, filtered, ...), the context has no scores, and the error names the kind of the answer.

Contexts longer than the model reads lose their oldest turns (`NewestTurns`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance, detokenise
from parley.envs.ranking.groups import Context
from parley.policies.chat.local import LocalChatModel, chat_of_turns
from parley.policies.chat.model import Access, AnswerKind, Chat, ChatModel, Message, ScoringChatModel, require_access
from parley.policies.chat.newest import first_that_fit
from parley.policies.chat.questions import REPAIR, UNRATED, StrictQuestion, rating_of
from parley.policies.chat.settings import DEFAULT
from parley.policies.ranking.ranker import LimitedRanker, Pair, Unread, UnscoredError, first_read

logger = logging.getLogger(__name__)

QUESTION = """Below is a conversation and a reply to it.

Conversation:
{context}

Reply: {reply}

How well does the reply fit as the next turn? Answer with one whole number from 0, not at all, to 100, as well as can be."""
ResultT = TypeVar("ResultT")
Questions = Sequence[tuple[Context, Utterance]]
"""Contexts, each with a reply."""


class NewestTurns(Generic[ResultT]):
    """Questions about replies behind as many turns of their contexts as fit.

    For a local model the context is cut so that a reply of usual length fits behind it: the candidates of a context are then
    read behind the same turns. A longer reply cuts more turns.

    Args:
        ask: function from replies in their contexts to results; raises `ChatTooLongError` if one is too long.
        fits: whether a reply of usual length fits behind a context; where None, `ask` tells.

    Attributes:
        left_out: turns of contexts that were left out for some reply; contexts that were read whole are not there.
    """

    def __init__(self, ask: Callable[[Questions], Sequence[ResultT]], fits: Callable[[Context], bool] | None = None) -> None:
        self._ask, self._fits = ask, fits
        self.left_out: dict[Context, int] = {}

    def __call__(self, questions: Questions) -> list[ResultT]:
        """Return the model's result for each question.

        Raises:
            ChatTooLongError: the newest turn and a reply are longer than it reads.
        """
        contexts = dict.fromkeys(context for context, _ in questions)
        starts = {context: first_read(context, self._fits) if self._fits else 0 for context in contexts}

        def call(indices: Sequence[int], number: int) -> Sequence[ResultT]:
            batch = [questions[index] for index in indices]
            return self._ask([(context[starts[context] + number :], reply) for context, reply in batch])

        results = first_that_fit(call, [len(context) - starts[context] for context, _ in questions])
        for (context, _), (number, _) in zip(questions, results, strict=True):
            note_left_out(self.left_out, context, starts[context] + number)
        return [result for _, result in results]


def note_left_out(left_out: dict[Context, int], context: Context, num_turns: int) -> None:
    """Note how many turns of a context were left out for a reply; the most count."""
    if num_turns:
        left_out[context] = max(num_turns, left_out.get(context, 0))


EMPTY = -100.0
"""Nats of a reply without tokens: below any model's score of a token, so that an empty reply never wins."""


class ChatRanker(LimitedRanker):
    """A chat model that scores replies by their likelihood.

    Args:
        chat_model: one that gives scores.

    Raises:
        ConfigError: texts are all that can be seen of it.
    """

    def __init__(self, chat_model: ScoringChatModel) -> None:
        require_access(chat_model, Access.SCORES, "ranking by how likely replies are")
        self.chat_model = chat_model
        fits = chat_model.has_room if isinstance(chat_model, LocalChatModel) else None
        self._newest = NewestTurns(self._nats, fits and (lambda context: fits(_chat(context))))

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Return nats per token, negative; a reply that comes twice in a context is read once."""
        questions = list(dict.fromkeys((context, reply) for context, candidates in pairs for reply in candidates if reply))
        nats = dict(zip(questions, self._newest(questions), strict=True))
        return [np.array([nats.get((context, reply), EMPTY) for reply in candidates]) for context, candidates in pairs]

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        return Unread(self._newest.left_out.get(context, 0))

    def _nats(self, questions: Questions) -> list[float]:
        scores = self.chat_model.score(
            [_chat(context) for context, _ in questions], [detokenise(reply) for _, reply in questions]
        )
        return [score.nats / score.num_tokens for score in scores]


def _chat(context: Context) -> Chat:
    return chat_of_turns([detokenise(turn) for turn in context])


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
        if not self._is_told and (note := self._asked.note()):
            logger.warning("%s: of its ratings %s; further ones are counted at the end", self.chat_model.name, note)
            self._is_told = True
        return [answer.value if answer.value is not None else answer.kind if answer.is_lost else UNRATED for answer in answers]


def _forms(context: Context, reply: Utterance) -> list[Chat]:
    return [_question(context[start:], reply) for start in range(max(1, len(context)))]


def _question(context: Context, reply: Utterance) -> Chat:
    turns = "\n".join(f"- {detokenise(turn)}" for turn in context)
    return (Message("user", QUESTION.format(context=turns, reply=detokenise(reply))),)
