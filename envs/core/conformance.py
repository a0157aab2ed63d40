"""Conformance: what a part must keep to, such as an agent or a corpus of a user's own, as tests that anybody can run.

A `Kind` stands beside the protocol that it tests. `parley check path/file.py:Name` runs the tests of the kinds that a part
belongs to; the project's own tests run them over all that is registered.

    class Kind          what a kind of part is told by, how it is made, what it promises
    function promises   the tests of one part, each kept or not
"""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OURS = Path(__file__).resolve().parents[2]
_LIBRARIES = Path(sysconfig.get_paths()["purelib"])


class PromiseError(AssertionError):
    """A promise is not kept; says what was expected, and what was seen."""


def expect(kept: bool, expected: str, got: object) -> None:
    """Raises a `PromiseError` unless a promise is kept."""
    if not kept:
        raise PromiseError(f"{expected}; got {got}")


Test = Callable[[Any], None]
"""Raises when a part does not keep a promise, which is the first line of the test's docstring."""


@dataclass(frozen=True)
class Kind:
    """A kind of part.

    Args:
        name: what people call it, such as "agent".
        protocol: where it is defined, such as "parley.envs.negotiation.game.Agent".
        members: what every part of the kind has; it is told by them.
        make: from what a name stands for (a class, a function, an object) to the part.
        tests: what it promises, in the order in which it is asked for.
        unlike: whether something that has the members is of another kind all the same.
        excludes: names of kinds that a part of this one is not, although it has their members.
    """

    name: str
    protocol: str
    members: tuple[str, ...]
    make: Callable[[Any], Any]
    tests: tuple[Test, ...]
    unlike: Callable[[Any], bool] = lambda part: False
    excludes: tuple[str, ...] = ()

    def fits(self, named: Any) -> bool:
        """Whether something is of this kind, or makes such a part when it is called."""
        if self._has_members(named):
            return True
        if not callable(named) or inspect.isclass(named):
            return False
        try:
            return self._has_members(self.make(named))
        except Exception:
            return False

    def _has_members(self, part: Any) -> bool:
        declared = getattr(part, "__annotations__", {}) if inspect.isclass(part) else {}
        return all(hasattr(part, member) or member in declared for member in self.members) and not self.unlike(part)


@dataclass(frozen=True)
class Promise:
    """What came of one test.

    Args:
        text: what is promised.
        failure: how it was broken, with the user's file and line; empty when it is kept.
    """

    text: str
    failure: str = ""


def promises(kind: Kind, named: Any) -> list[Promise]:
    """Runs all tests of a kind, each on a part made afresh.

    Args:
        kind: what the part is.
        named: what makes it, or the part itself.
    """
    return [_asked(test, kind, named) for test in kind.tests]


def _asked(test: Test, kind: Kind, named: Any) -> Promise:
    text = (inspect.getdoc(test) or test.__name__).rstrip(".")
    try:
        test(kind.make(named))
    except PromiseError as broken:
        return Promise(text, str(broken))
    except Exception as error:
        return Promise(text, f"{type(error).__name__}: {error}{_place(error)}")
    return Promise(text)


def _place(error: Exception) -> str:
    """The last line of the user's own on the way to an error, such as " (mine.py:12)"."""
    frames = [Path(frame.filename).resolve() for frame in traceback.extract_tb(error.__traceback__)]
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
    own = [
        (path, line)
        for path, line in zip(frames, lines, strict=True)
        if path.is_file() and not path.is_relative_to(_LIBRARIES) and not _is_ours(path)
    ]
    return f" ({own[-1][0].name}:{own[-1][1]})" if own else ""


def _is_ours(path: Path) -> bool:
    rooms = [_OURS / room for room in ("engine", "envs", "policies", "tune")]
    return any(path.is_relative_to(room) for room in rooms)


def same_alone(together: Sequence[Any], alone: Sequence[Any], what: str) -> None:
    """Expects that what is made of an item does not depend on its company.

    Args:
        together: made in one call.
        alone: made in a call each.
        what: such as "the reply to a context".
    """
    for number, (first, second) in enumerate(zip(together, alone, strict=True)):
        got = f"{first!r} and, alone, {second!r} (item {number})"
        expect(first == second, f"{what} does not depend on what else is asked", got)
