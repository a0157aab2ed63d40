"""Chat models as rankers: the mean log-probability of a reply's tokens as the answer to its context.

A reply without a token has no likelihood: it is scored as the least that a reply of the batch's kind can be, `EMPTY`. Of a
context that is longer than the model reads the oldest turns are left out (`newest.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.pairs.written import detokenise
from parley.envs.ranking.groups import Context
from parley.policies.chat.local import LocalChatModel
from parley.policies.chat.model import Access, Chat, ScoringChatModel, require_access
from parley.policies.chat.newest import NewestTurns, Questions
from parley.policies.chat.responder import chat_of_turns
from parley.policies.ranking.ranker import LimitedRanker, Pair, Unread

EMPTY = -100.0
"""Nats a token of a reply without one: below what any model gives, so that nothing is never the answer."""


class ChatRanker(LimitedRanker):
    """A chat model that scores replies.

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
        """Nats a token, negative; a reply that comes twice in a context is read once."""
        asked = list(dict.fromkeys((context, reply) for context, candidates in pairs for reply in candidates if reply))
        nats = dict(zip(asked, self._newest(asked), strict=True))
        return [np.array([nats.get((context, reply), EMPTY) for reply in candidates]) for context, candidates in pairs]

    def unread(self, context: Context, candidates: Sequence[Utterance]) -> Unread:
        """Turns that were left out for any reply so far; replies are read whole."""
        return Unread(self._newest.left_out.get(context, 0))

    def _nats(self, asked: Questions) -> list[float]:
        scores = self.chat_model.score([_chat(context) for context, _ in asked], [detokenise(reply) for _, reply in asked])
        return [score.nats / score.num_tokens for score in scores]


def _chat(context: Context) -> Chat:
    return chat_of_turns([detokenise(turn) for turn in context])
