"""The fluency of words under a judge: a negotiator that Parley trained, or a chat model that gives likelihoods.

A negotiator scores words of the game, with the ends of utterances. A chat model scores texts: its likelihoods leave out the
ends, and it gives no least likely word. Figures of two judges are not comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np

from parley.engine.negotiation.verbs.agents import require_judge
from parley.envs.core.play import agent_errors
from parley.envs.negotiation.agents import is_chat_model
from parley.envs.negotiation.game import NegotiationGame
from parley.policies.chat.model import ScoringChatModel
from parley.policies.chat.settings import ChatSeat

if TYPE_CHECKING:
    from parley.engine.negotiation.attacks.adversary import Attempt
    from parley.policies.negotiator.model import Negotiator


class JudgedSentence(NamedTuple):
    """The likelihood of a sentence."""

    nats: float
    """Its negative log-likelihood."""
    lowest_probability: float | None
    """The probability of its least likely token; None if the judge does not give it."""


class FluencyJudge(Protocol):
    """A model that gives the likelihoods of words."""

    def dialogues(self, game: NegotiationGame, side: int) -> np.ndarray:
        """Return the nats (B,) of the words that a side wrote itself in finished dialogues."""

    def sentences(
        self, game: NegotiationGame, rows: Sequence[int], attempts: Sequence[Attempt], sentences: Sequence[np.ndarray]
    ) -> list[JudgedSentence]:
        """Return the likelihoods of sentences that side 0 said, or could have said, in the turns of attempts.

        Args:
            game: the dialogues.
            rows: the dialogue of each attempt.
            attempts: attempts, which hold the turns.
            sentences: word ids of each sentence.
        """


def load_judge(spec: str, device: str, seat: ChatSeat) -> FluencyJudge:
    """Load a judge by its name.

    Raises:
        CheckpointError: there is no such model, or it is damaged.
        ConfigError: it is a chat model that gives no likelihoods.
    """
    named = require_judge(spec)
    if is_chat_model(spec):
        from parley.policies.chat.seat import chat_model

        return ChatJudge(cast("ScoringChatModel", chat_model(spec, seat.on(device), answers=None)))
    from parley.policies.negotiator.speaker import load_model

    return NegotiatorJudge(load_model(Path(named)).to(device))


class NegotiatorJudge(FluencyJudge):
    """A negotiator as a `FluencyJudge`.

    Args:
        model: a negotiator, such as the supervised agent.
    """

    def __init__(self, model: Negotiator) -> None:
        self._model = model

    def dialogues(self, game: NegotiationGame, side: int) -> np.ndarray:
        from parley.policies.negotiator.model import utterance_nll

        return utterance_nll(self._model, game, side)[0]

    def sentences(
        self, game: NegotiationGame, rows: Sequence[int], attempts: Sequence[Attempt], sentences: Sequence[np.ndarray]
    ) -> list[JudgedSentence]:
        from parley.policies.negotiator.model import sentence_nll

        starts = np.array([attempt.start for attempt in attempts])
        sentence_nats = sentence_nll(self._model, game, np.array(rows), starts, sentences)
        return [JudgedSentence(float(nats.sum()), float(np.exp(-nats.max()))) for nats in sentence_nats]


class ChatJudge(FluencyJudge):
    """A chat model as a `FluencyJudge`.

    Args:
        model: a chat model that gives likelihoods.
    """

    def __init__(self, model: ScoringChatModel) -> None:
        self._model = model

    def dialogues(self, game: NegotiationGame, side: int) -> np.ndarray:
        from parley.policies.chat.negotiator import before
        from parley.policies.chat.seat import PlacedUtterance, nats_of

        utterances = [
            PlacedUtterance(row, turn, " ".join(words))
            for row in range(len(game))
            for turn, (speaker, words) in enumerate(_written_turns(game, row))
            if speaker == side
        ]
        nats = np.zeros(len(game))
        with agent_errors():
            np.add.at(
                nats,
                [utterance.row for utterance in utterances],
                nats_of(self._model, partial(before, game.view(side)), utterances),
            )
        return nats

    def sentences(
        self, game: NegotiationGame, rows: Sequence[int], attempts: Sequence[Attempt], sentences: Sequence[np.ndarray]
    ) -> list[JudgedSentence]:
        from parley.policies.chat.negotiator import before
        from parley.policies.chat.seat import PlacedUtterance, nats_of

        utterances = [
            PlacedUtterance(row, attempt.turn, " ".join(game.written(0, words.tolist())))
            for row, attempt, words in zip(rows, attempts, sentences, strict=True)
        ]
        with agent_errors():
            return [
                JudgedSentence(nats, None) for nats in nats_of(self._model, partial(before, game.view(0)), utterances).tolist()
            ]


def _written_turns(game: NegotiationGame, row: int) -> list[tuple[int, list[str]]]:
    """Return the turns that an agent wrote; an end that a limit forces is left out."""
    turns = game.transcript(row)
    return turns[:-1] if game.forced[row] else turns
