"""An agent of a user's own, named as `path/file.py:Name`: made, checked and played so that its mistakes are named as its own.

It is a class or a function; what calling it gives has `join(view)`, which gives an object with `speak(rows)` and `choose(rows)`
(`envs.core.play.Session`). It may take the vocabulary of the game as its one argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from envs.core.errors import ConfigError
from envs.core.own_code import own_code
from envs.core.play import Session, Utterances
from envs.negotiation.game import SideView
from envs.negotiation.vocabulary import Vocabulary

EXAMPLE = "CONTRIBUTING.md shows an agent that runs"


class OwnAgent:
    """What a user's class or function made, as an `Agent`.

    Args:
        spec: `path/file.py:Name`; also what reports call it.
        maker: what is called that.
        vocabulary: of the game.

    Raises:
        ConfigError: the user's code raised, or made something that cannot play.
    """

    def __init__(self, spec: str, maker: Any, vocabulary: Vocabulary) -> None:
        self.name, self.vocabulary = spec, vocabulary
        if not callable(maker):
            raise ConfigError("this makes no agent", where=spec, got=repr(maker), fix=f"name a class or a function; {EXAMPLE}")
        with own_code(spec):
            self._agent = called(maker, vocabulary)
        _require(self._agent, ("join",), "an agent", spec)

    def join(self, view: SideView) -> Session:
        """Takes a seat on one side of a batch of dialogues."""
        with own_code(self.name):
            session = self._agent.join(view)
        _require(session, ("speak", "choose"), "what join returns", self.name)
        return _OwnSession(session, self.name)


class _OwnSession:
    """A user's session whose moves are of the right type and number."""

    def __init__(self, session: Session, spec: str) -> None:
        self._session, self._spec = session, spec

    def speak(self, rows: np.ndarray) -> Utterances:
        with own_code(self._spec):
            said = self._session.speak(rows)
        if not isinstance(said, Utterances) or len(said.lengths) != len(rows):
            fix = "return Utterances.of([word ids of each row])"
            raise ConfigError("speak gives Utterances, one for each row", where=self._spec, got=_shown(said), fix=fix)
        return said

    def choose(self, rows: np.ndarray) -> np.ndarray:
        with own_code(self._spec):
            chosen = np.asarray(self._session.choose(rows))
        if chosen.shape != rows.shape or not np.issubdtype(chosen.dtype, np.integer):
            fix = "return an array of whole numbers, each an index into view.selections(row)"
            raise ConfigError("choose gives a whole number for each row", where=self._spec, got=_shown(chosen), fix=fix)
        return chosen


def called(maker: Callable[..., Any], vocabulary: Vocabulary) -> Any:
    """What a class or a function makes; it is given the vocabulary by that name, or where something must be given."""
    parameters = inspect.signature(maker).parameters.values()
    given = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = any(each.kind in given and (each.name == "vocabulary" or each.default is each.empty) for each in parameters)
    return maker(vocabulary) if takes else maker()


def _require(part: object, methods: tuple[str, ...], what: str, spec: str) -> None:
    missing = [name for name in methods if not callable(getattr(part, name, None))]
    if missing:
        fix = f"give it {' and '.join(missing)}; {EXAMPLE}"
        raise ConfigError(f"{what} has no method {' or '.join(missing)}", where=spec, got=_shown(part), fix=fix)


def _shown(part: object) -> str:
    text = repr(part)
    return f"{type(part).__name__} {text if len(text) <= 80 else text[:80] + '...'}"
