"""Chat models as rankers where texts are all that can be seen of them: each reply is rated by a number from 0 to 100.

An answer that is no such number is asked about once more; what is none then is `UNRATED`, below every rating, and is counted
and warned of. A reply without words is not asked about, and is `UNRATED` too. An answer that is no reply (cut in thinking,
filtered, ...) rates nothing: the context has no scores, and the reason is the kind of the answer. Of a context that is longer
than the model reads the oldest turns are left out (`newest.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import numpy as np

from parley.envs.core.errors import RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.written import detokenise
from parley.envs.ranking.groups import Context
from parley.policies.chat.model import AnswerKind, Chat, ChatModel, Message
from parley.policies.chat.newest import Questions, note_left_out
from parley.policies.chat.settings import DEFAULT
from parley.policies.chat.strict import StrictQuestion
from parley.policies.ranking.ranker import LimitedRanker, Pair, Unread, UnscoredError

logger = logging.getLogger(__name__)

QUESTION = """Below is a conversation and a reply to it.

Conversation:
{context}

Reply: {reply}

How well does the reply fit as the next turn? Answer with one whole number from 0, not at all, to 100, as well as can be."""
REPAIR = "Answer with one whole number from 0 to 100 and nothing else."
"""What is asked where the first answer is no such number."""
UNRATED = -1.0
"""Score of a reply that was not rated."""
_NUMBER = re.compile(r"[\s\"'`*]*(\d{1,3})[\s\"'`*.]*")


class RatingRanker(LimitedRanker):
    """A chat model that rates replies, one question a reply.

    Args:
        chat_model: who is asked.
        max_tokens: tokens of an answer at most.
    """

    def __init__(self, chat_model: ChatModel, max_tokens: int = DEFAULT.judge_tokens) -> None:
        self.chat_model, self._asked = chat_model, StrictQuestion(chat_model, rating_of, REPAIR, max_tokens)
        self._left_out, self._is_told = dict[Context, int](), False

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray | RankerError]:
        """Return ratings from 0 to 100, or `UNRATED`; a reply that comes twice in a context is asked about once."""
        asked = list(dict.fromkeys((context, reply) for context, candidates in pairs for reply in candidates if reply))
        ratings = dict(zip(asked, self._rated(asked), strict=True))
        return [self._scores([ratings.get((context, reply), UNRATED) for reply in candidates]) for context, candidates in pairs]

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Turns that were left out for any reply so far; replies are read whole."""
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
    """The number from 0 to 100 that an answer consists of; None for any other answer, such as a sentence that holds one."""
    found = _NUMBER.fullmatch(text)
    return float(found[1]) if found and int(found[1]) <= 100 else None


def _forms(context: Context, reply: Utterance) -> list[Chat]:
    return [_question(context[start:], reply) for start in range(max(1, len(context)))]


def _question(context: Context, reply: Utterance) -> Chat:
    said = "\n".join(f"- {detokenise(turn)}" for turn in context)
    return (Message("user", QUESTION.format(context=said, reply=detokenise(reply))),)
