"""Chat models as rankers where texts are all that can be seen of them: each reply is rated by a number from 0 to 100.

An answer that is no such number is asked about once more; what is none then is `UNRATED`, below every rating, and is counted
and warned of. A reply without words is not asked about, and is `UNRATED` too. Of a context that is longer than the model reads
the oldest turns are left out (`newest.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import numpy as np

from envs.candidates.groups import Context
from envs.pairs.turns import Utterance
from envs.pairs.written import detokenise
from policies.chat.model import Chat, ChatModel, Message
from policies.chat.newest import NewestTurns, Questions
from policies.chat.strict import StrictQuestion
from policies.ranker import LimitedRanker, Pair, Unread

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
    """A chat model that rates replies, one question a reply."""

    def __init__(self, chat_model: ChatModel) -> None:
        self.chat_model, self._asked = chat_model, StrictQuestion(chat_model, rating_of, REPAIR)
        self._newest = NewestTurns(self._rated)

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Ratings from 0 to 100, or `UNRATED`; a reply that comes twice in a context is asked about once."""
        asked = list(dict.fromkeys((context, reply) for context, candidates in pairs for reply in candidates if reply))
        found = dict(zip(asked, self._newest(asked), strict=True))
        return [np.array([found.get((context, reply), UNRATED) for reply in candidates]) for context, candidates in pairs]

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Turns that were left out for any reply so far; replies are read whole."""
        return Unread(self._newest.left_out.get(context, 0))

    def _rated(self, asked: Questions) -> list[float]:
        found = self._asked([_question(*each) for each in asked])
        if None in found:
            what = "%s rates %d replies by no number, asked twice; %d so far"
            logger.warning(what, self.chat_model.name, found.count(None), self._asked.unparsable)
        return [UNRATED if rating is None else rating for rating in found]


def rating_of(text: str) -> float | None:
    """The number from 0 to 100 that an answer consists of; None for any other answer, such as a sentence that holds one."""
    found = _NUMBER.fullmatch(text)
    return float(found[1]) if found and int(found[1]) <= 100 else None


def _question(context: Context, reply: Utterance) -> Chat:
    said = "\n".join(f"- {detokenise(turn)}" for turn in context)
    return (Message("user", QUESTION.format(context=said, reply=detokenise(reply))),)
