"""A choice among given answers by how likely a chat model finds each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.chat.model import Chat, ScoringChatModel


def nats_by_chat(model: ScoringChatModel, chats: Sequence[Chat], replies: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """How likely the replies (m,) to each chat are, in nats."""
    scores = model.score(
        [chat for chat, own in zip(chats, replies, strict=True) for _ in own], [reply for own in replies for reply in own]
    )
    return np.split(np.array([score.nats for score in scores]), np.cumsum([len(own) for own in replies])[:-1])


def drawn(nats: np.ndarray, temperature: float, generator: np.random.Generator) -> int:
    """The likeliest place at temperature 0, else one drawn from the softmax of `nats` (m,) over the temperature."""
    # The likeliest of perturbed scores is a draw from their softmax (Gumbel).
    noise = temperature * generator.gumbel(size=len(nats)) if temperature else 0.0
    return int(np.argmax(nats + noise))
