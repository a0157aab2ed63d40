"""Protocols of a dialogue game (game, player, session), and the loop that plays it.

This module knows no game; `envs/negotiation/game.py` is one. Any agent (model, script, person) that fits a game's view can
play it. All dialogues of a game run as one batch: rows index them, and a session moves in many rows at once.

Shapes: n = number of rows passed, L = width of an utterance array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError

_BEHIND = 0
HUMAN = "human"
"""Name of the agent that is a person at the terminal."""
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class AgentError(ConfigError):
    """A failure of an agent in a dialogue: a user's own agent, or a chat model.

    Attributes:
        rows: the dialogues in which it failed, if known; the others can continue.
    """

    rows: tuple[int, ...] = ()


@contextmanager
def agent_errors() -> Iterator[None]:
    """Turn configuration and model errors of a block into `AgentError`, except errors that end the command."""
    try:
        yield
    except (AgentError, RefusedModelError):
        raise
    except (ConfigError, ModelError) as error:
        raise AgentError(error.what, where=error.where, got=error.got, fix=error.fix) from error


def isolate_failures(
    play: Callable[[Sequence[ItemT]], ResultT], items: Sequence[ItemT]
) -> tuple[list[ResultT], list[tuple[ItemT, AgentError]]]:
    """Play dialogues as one batch, and lose only those in which an agent fails.

    Dialogues that an error names are left out, and the others are played again. If it names none, each is played alone.

    Args:
        play: plays a batch of dialogues.
        items: all dialogues.

    Returns:
        The results, and the lost dialogues with the reason.
    """
    try:
        return [play(items)], []
    except AgentError as error:
        if len(items) == 1:
            return [], [(items[0], error)]
        if named := sorted({row for row in error.rows if row < len(items)}):
            rest = [item for row, item in enumerate(items) if row not in named]
            played, lost = isolate_failures(play, rest) if rest else ([], [])
            return played, [*((items[row], error) for row in named), *lost]
    outcomes = [isolate_failures(play, [item]) for item in items]
    return [part for parts, _ in outcomes for part in parts], [pair for _, pairs in outcomes for pair in pairs]


@dataclass(frozen=True)
class Utterances:
    """The utterances of n speakers: token ids (n, L) int64, and lengths (n,) int64; tokens beyond a length are ignored."""

    tokens: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, utterances: Sequence[Sequence[int] | np.ndarray]) -> Utterances:
        """Build utterances from the token ids of n speakers."""
        lengths = np.array([len(words) for words in utterances], dtype=np.int64)
        tokens = np.full((len(utterances), int(lengths.max(initial=1))), _BEHIND, dtype=np.int64)
        for i, words in enumerate(utterances):
            tokens[i, : len(words)] = words
        return cls(tokens, lengths)


class Session(Protocol):
    """One agent's part in a batch of dialogues; it keeps its own memory."""

    def speak(self, rows: np.ndarray) -> Utterances:
        """Return the next utterance in each of the dialogues `rows` (n,) int64."""

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Return the selection in each of the dialogues `rows`: (n,) int64, an index into the possible selections."""


ViewT_co = TypeVar("ViewT_co", covariant=True)
ViewT_contra = TypeVar("ViewT_contra", contravariant=True)


class Player(Protocol[ViewT_contra]):
    """An agent that can play games whose sides have such a view."""

    @property
    def name(self) -> str:
        """The name in reports."""

    def join(self, view: ViewT_contra) -> Session:
        """Take a side in a batch of dialogues."""


class Game(Protocol[ViewT_co]):
    """A batch of dialogues between sides numbered from 0."""

    def view(self, side: int) -> ViewT_co:
        """Return the view of a side; it stays up to date while the game goes on."""

    def rows_to_speak(self, side: int) -> np.ndarray:
        """Return the dialogues (n,) in which that side speaks next."""

    def rows_to_choose(self, side: int) -> np.ndarray:
        """Return the dialogues (n,) in which that side chooses now."""

    def say(self, rows: np.ndarray, utterances: Utterances) -> None:
        """Add the utterance of the side to move to each of the dialogues."""

    def choose(self, side: int, rows: np.ndarray, selections: np.ndarray) -> None:
        """Record the selection (n,) of a side in each of the dialogues."""


GameT = TypeVar("GameT", bound="Game[object]")


def play_sessions(game: GameT, sessions: Sequence[Session]) -> GameT:
    """Play every dialogue of a game to its end.

    No side chooses while a side can speak, so choices are made in the largest possible batches.

    Args:
        game: fresh or half-played dialogues.
        sessions: the sessions of side 0, side 1, and so on.

    Returns:
        The same game, finished.
    """
    moved = True
    while moved:
        moved = False
        for side, session in enumerate(sessions):
            if (rows := game.rows_to_speak(side)).size:
                game.say(rows, session.speak(rows))
                moved = True
        if moved:
            continue
        for side, session in enumerate(sessions):
            if (rows := game.rows_to_choose(side)).size:
                game.choose(side, rows, session.choose(rows))
                moved = True
    return game
