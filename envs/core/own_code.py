"""Python files of a user's own: what goes wrong in them is told as theirs."""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from traceback import extract_tb, walk_tb
from types import FrameType
from typing import Any

from parley.envs.core.errors import ConfigError, ModelError, ParleyError
from parley.envs.core.visible import well_formed

START_LIMIT_S = 600.0
"""Seconds that importing a file of a user's own may take, or making what it names."""
MAX_HANGS = 3
"""Calls in a row that may take too long, after which code is not called any more."""


@contextmanager
def own_code(spec: str) -> Iterator[None]:
    """A block that runs code of a user's own; what it raises becomes an error that names the user's file and line.

    Args:
        spec: `path/file.py:Name`, or the name of what an installed package brings.

    Raises:
        ConfigError: the code raised, or wanted to end the process; the user's own traceback is its cause.
    """
    try:
        yield
    except ParleyError:
        raise
    except (Exception, SystemExit) as error:
        if is_terminated(error):
            raise
        path = Path(spec.rpartition(":")[0] or spec)
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        raise ConfigError(
            "the Python file raised an error",
            where=":".join(map(str, [path, *lines[-1:]])),
            got=well_formed(f"{type(error).__name__}: {error}"),
            fix="mend it; --debug shows the traceback",
        ) from error


def made_part(kind: str, name: str, named: Any, members: Sequence[str], *resources: Any) -> Any:
    """A part of a kind from what a name stands for: a class that needs no arguments, a function of resources, or an object.

    Args:
        kind: what it has to be, for messages.
        name: a registered name, or `path/file.py:Name`.
        named: what is called so.
        members: what every part of the kind has.
        resources: what functions are called with.

    Raises:
        ConfigError: a file of a user's own raised an error, or what it makes is of another kind.
    """
    with own_code(name) if ".py:" in name else nullcontext():
        part = named if not callable(named) else named() if isinstance(named, type) else named(*resources)
    if lacking := [member for member in members if not hasattr(part, member)]:
        got = f"a {type(part).__name__} without {', '.join(lacking)}"
        raise ConfigError(f"this is no {kind}", where=name, got=got, fix=f"parley check {name} says what it is")
    return part


def is_terminated(end: BaseException) -> bool:
    """Whether the answer to SIGTERM ends the process, as in Ray's actors, and no code that runs in it."""
    if not isinstance(end, SystemExit):
        return False
    answer = getattr(signal.getsignal(signal.SIGTERM), "__code__", None)
    return any(frame.f_code is answer for frame, _ in walk_tb(end.__traceback__))


def takes_messages(part: object) -> bool:
    """Whether something is a function of `messages`, by the name of its parameter: a chat model, and no maker of an agent."""
    return inspect.isfunction(part) and list(inspect.signature(part).parameters) == ["messages"]


class OutOfTimeError(BaseException):
    """A block took longer than it may; no `except Exception` in it keeps that back."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A block that is broken off after some seconds, where Python can: in the main thread, between two of its steps.

    Raises:
        OutOfTimeError: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    began, before = time.monotonic(), signal.signal(signal.SIGALRM, on_alarm)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        try:
            yield
        finally:
            # The alarm may still go off here.
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
        if left:
            # An alarm that somebody else waits for.
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3))


@contextmanager
def own_start(spec: str) -> Iterator[None]:
    """A block that imports a file of a user's own, or makes what it names: as `own_code`, and it may not take for ever.

    Raises:
        ConfigError: the code raised or took too long.
    """
    try:
        with own_code(spec), time_limit(START_LIMIT_S):
            yield
    except OutOfTimeError:
        what, fix = f"this took more than {START_LIMIT_S:g} s to start", "do what takes long when it is first asked"
        raise ConfigError(what, where=spec, fix=fix) from None


class TimedCalls:
    """Calls of a user's own code, each with a time limit; where several in a row exceed it, it is not called any more.

    Args:
        spec: what the code was named by.
        seconds: for a call.
        fix: what gives it more of them.
    """

    def __init__(self, spec: str, seconds: float, fix: str) -> None:
        self._spec, self._seconds, self._fix = spec, seconds, fix
        self._num_hangs = 0

    @contextmanager
    def call(self, what: str, parts: int = 1, *, answers: bool = True) -> Iterator[None]:
        """A block that calls it.

        Args:
            what: is called.
            parts: of the call, each of which may take the seconds.
            answers: whether a call that ends says that the next one will.

        Raises:
            ConfigError: the code raised.
            ModelError: it took too long, or is not called any more.
        """
        if self._num_hangs == MAX_HANGS:
            told = f"this is not asked any more: {MAX_HANGS} times in a row a call took more than {self._seconds:g} s"
            raise ModelError(told, where=self._spec, fix=self._fix)
        limit_s = self._seconds * max(1, parts)
        try:
            with own_code(self._spec), time_limit(limit_s):
                yield
        except OutOfTimeError:
            self._num_hangs += 1
            raise ModelError(f"{what} took more than {limit_s:g} s", where=self._spec, fix=self._fix) from None
        self._num_hangs *= not answers


def made_by(maker: Callable[..., Any], part: object) -> Any:
    """What a class or a function makes; it is given the part where it takes something without a default."""
    given = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(maker).parameters.values()
    return maker(part) if any(each.kind in given and each.default is each.empty for each in parameters) else maker()
