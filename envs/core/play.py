"""Playing a game of dialogue: who takes part, what the game offers, and the loop that lets everybody move.

It knows no game; `envs/negotiation/game.py` is one. Any agent (a model, a script, a person) that fits its view can play it.
All dialogues of a game are played side by side: rows index them, and a session moves in many of them at once.

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
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class AgentError(ConfigError):
    """An agent failed in a dialogue: a user's own, or a chat model.

    Attributes:
        rows: the dialogues of the game that it failed in, where that is known; the others can go on without them.
    """

    rows: tuple[int, ...] = ()


@contextmanager
def agent_errors() -> Iterator[None]:
    """A block whose errors are those of an agent, but for one that ends the command."""
    try:
        yield
    except (AgentError, RefusedModelError):
        raise
    except (ConfigError, ModelError) as error:
        raise AgentError(error.what, where=error.where, got=error.got, fix=error.fix) from error


def play_apart(
    play: Callable[[Sequence[ItemT]], ResultT], items: Sequence[ItemT]
) -> tuple[list[ResultT], list[tuple[ItemT, AgentError]]]:
    """Play dialogues side by side, so that no more are lost than an agent fails in.

    Those that an error names are left out, and the others are played again; where it names none, each is played by itself.

    Args:
        play: what is made of some dialogues.
        items: all of them.

    Returns:
        What was made of them, and the dialogues that were lost, with the reason.
    """
    try:
        return [play(items)], []
    except AgentError as error:
        if len(items) == 1:
            return [], [(items[0], error)]
        if named := sorted({row for row in error.rows if row < len(items)}):
            rest = [item for row, item in enumerate(items) if row not in named]
            played, lost = play_apart(play, rest) if rest else ([], [])
            return played, [*((items[row], error) for row in named), *lost]
    apart = [play_apart(play, [item]) for item in items]
    return [part for parts, _ in apart for part in parts], [pair for _, pairs in apart for pair in pairs]


@dataclass(frozen=True)
class Utterances:
    """What n speakers say: token ids (n, L) int64 and how many of each row count (n,) int64; what stands behind is ignored."""

    tokens: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, said: Sequence[Sequence[int] | np.ndarray]) -> Utterances:
        """From the token ids of each of n speakers."""
        lengths = np.array([len(words) for words in said], dtype=np.int64)
        tokens = np.full((len(said), int(lengths.max(initial=1))), _BEHIND, dtype=np.int64)
        for i, words in enumerate(said):
            tokens[i, : len(words)] = words
        return cls(tokens, lengths)


class Session(Protocol):
    """One agent's part in a batch of dialogues. A session keeps whatever memory it needs."""

    def speak(self, rows: np.ndarray) -> Utterances:
        """The next utterance in each of the dialogues `rows` (n,) int64."""

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """The selection in each of the dialogues `rows`: (n,) int64, an index into what may be selected there."""


ViewT_co = TypeVar("ViewT_co", covariant=True)
ViewT_contra = TypeVar("ViewT_contra", contravariant=True)


class Player(Protocol[ViewT_contra]):
    """Anything that can take part in games whose sides see such a view."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def join(self, view: ViewT_contra) -> Session:
        """Takes a side in a batch of dialogues."""


class Game(Protocol[ViewT_co]):
    """A batch of dialogues between sides numbered from 0."""

    def view(self, side: int) -> ViewT_co:
        """What that side may see; it stays up to date while the game goes on."""

    def rows_to_speak(self, side: int) -> np.ndarray:
        """Dialogues (n,) in which it is that side's turn to speak."""

    def rows_to_choose(self, side: int) -> np.ndarray:
        """Dialogues (n,) in which that side has to choose now."""

    def say(self, rows: np.ndarray, utterances: Utterances) -> None:
        """The side to move says its utterance in each of the dialogues."""

    def choose(self, side: int, rows: np.ndarray, selections: np.ndarray) -> None:
        """A side chooses (n,) in each of the dialogues."""


GameT = TypeVar("GameT", bound="Game[object]")


def play_sessions(game: GameT, sessions: Sequence[Session]) -> GameT:
    """Plays every dialogue of a game to its end.

    Nobody chooses while anybody can speak, so that choices are made for as many dialogues at once as there are.

    Args:
        game: fresh or half-played dialogues.
        sessions: of side 0, side 1, and so on.

    Returns:
        The same game: no side can move any more.
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
