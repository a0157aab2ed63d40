"""Conformance tests that anybody can run on a part, such as a user's own agent or corpus.

A `Kind` lies beside the protocol that it tests. `parley check path/file.py:Name` runs the tests of each kind that the part
belongs to. The project's own tests run them on all registered parts.

    class Kind          members, factory and tests of a kind of part
    function promises   the results of the tests on one part
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
_LIBRARIES, _PYTHON = (Path(sysconfig.get_paths()[name]).resolve() for name in ("purelib", "stdlib"))


class PromiseError(AssertionError):
    """A broken promise: the expected and the observed behaviour."""


def expect(kept: bool, expected: str, got: object) -> None:
    """Raise a `PromiseError` unless a promise is kept."""
    if not kept:
        raise PromiseError(f"{expected}; got {got}")


Test = Callable[[Any], None]
"""Raises if a part breaks a promise; the promise is the first line of the test's docstring."""


@dataclass(frozen=True)
class Kind:
    """A kind of part, with its conformance tests.

    Args:
        name: such as "agent".
        protocol: its definition, such as "parley.envs.negotiation.game.Agent".
        members: attributes that identify a part of the kind.
        make: makes the part from the named object (a class, a function, an instance).
        tests: the promises, in order of execution.
        unlike: whether an object with these members is of another kind.
        excludes: names of other kinds whose members such a part has, though it is not of them.
    """

    name: str
    protocol: str
    members: tuple[str, ...]
    make: Callable[[Any], Any]
    tests: tuple[Test, ...]
    unlike: Callable[[Any], bool] = lambda part: False
    excludes: tuple[str, ...] = ()

    def fits(self, named: Any) -> bool:
        """Return whether an object is of this kind, or makes such a part when called."""
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
    """The result of one test.

    Args:
        text: the promise.
        failure: the error, with the user's file and line; empty if the promise is kept.
    """

    text: str
    failure: str = ""


def promises(kind: Kind, named: Any) -> list[Promise]:
    """Run all tests of a kind, each on a new part.

    Args:
        kind: the kind of the part.
        named: the part, or what makes it.
    """
    return [_run(test, kind, named) for test in kind.tests]


def _run(test: Test, kind: Kind, named: Any) -> Promise:
    text = (inspect.getdoc(test) or test.__name__).rstrip(".")
    try:
        test(kind.make(named))
    except PromiseError as broken:
        return Promise(text, str(broken))
    except Exception as error:
        return Promise(text, f"{type(error).__name__}: {error}{_user_line(error)}")
    return Promise(text)


def _user_line(error: BaseException) -> str:
    """Return the last line of the user's code in the traceback of an error's cause, such as " (mine.py:12)"."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = [(Path(frame.filename).resolve(), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    others = (_LIBRARIES, _PYTHON, *(_OURS / room for room in ("engine", "envs", "policies", "tune")))
    lines = [f" ({path.name}:{line})" for path, line in frames if path.is_file() and not any(map(path.is_relative_to, others))]
    return lines[-1] if lines else ""


def same_alone(together: Sequence[Any], alone: Sequence[Any], what: str) -> None:
    """Expect that the result for an item does not depend on the rest of the batch.

    Args:
        together: results of one call.
        alone: results of one call per item.
        what: the result in words, such as "the reply to a context".
    """
    for number, (first, second) in enumerate(zip(together, alone, strict=True)):
        got = f"{first!r} and, alone, {second!r} (item {number})"
        expect(first == second, f"{what} does not depend on what else is asked", got)
