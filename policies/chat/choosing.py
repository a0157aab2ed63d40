"""A choice among given answers by how likely a chat model finds each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.policies.chat.model import Chat, ScoringChatModel
from parley.policies.chat.newest import newest_forms, score_newest


def nats_by_chat(model: ScoringChatModel, chats: Sequence[Chat], replies: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Return how likely the replies (m,) to each chat are, in nats; of a chat that is too long, behind its newest turns."""
    scores = score_newest(model, [newest_forms(chat) for chat in chats], replies)
    return [np.array([score.nats for score in own]) for own in scores]


def drawn(nats: np.ndarray, temperature: float, generator: np.random.Generator) -> int:
    """The likeliest place at temperature 0, else one drawn from the softmax of `nats` (m,) over the temperature."""
    # The likeliest of perturbed scores is a draw from their softmax (Gumbel).
    noise = temperature * generator.gumbel(size=len(nats)) if temperature else 0.0
    return int(np.argmax(nats + noise))
