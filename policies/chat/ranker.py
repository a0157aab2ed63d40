"""Chat models as rankers: the mean log-probability of a reply's tokens as the answer to its context.

A reply without a token has no likelihood: it is scored as the least that a reply of the batch's kind can be, `EMPTY`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envs.pairs.written import detokenise
from policies.chat.model import Access, ScoringChatModel, require_access
from policies.chat.responder import chat_of_turns
from policies.ranker import BatchRanker, Pair

EMPTY = -100.0
"""Nats a token of a reply without one: below what any model gives, so that nothing is never the answer."""


class ChatRanker(BatchRanker):
    """A chat model that scores replies.

    Args:
        chat_model: one that gives scores.

    Raises:
        ConfigError: texts are all that can be seen of it.
    """

    def __init__(self, chat_model: ScoringChatModel) -> None:
        require_access(chat_model, Access.SCORES, "ranking by how likely replies are")
        self.chat_model = chat_model

    def score_all(self, pairs: Sequence[Pair]) -> list[np.ndarray]:
        """Nats a token, negative; a reply that comes twice in a context is read once."""
        asked = {(context, reply): None for context, candidates in pairs for reply in candidates if reply}
        chats = [chat_of_turns([detokenise(turn) for turn in context]) for context, _ in asked]
        found = self.chat_model.score(chats, [detokenise(reply) for _, reply in asked])
        nats = {pair: score.nats / score.num_tokens for pair, score in zip(asked, found, strict=True)}
        return [np.array([nats.get((context, reply), EMPTY) for reply in candidates]) for context, candidates in pairs]
