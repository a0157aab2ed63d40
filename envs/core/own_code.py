"""Python files of a user's own: what goes wrong in them is told as theirs."""

from __future__ import annotations

import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from types import FrameType
from typing import Any

from envs.core.errors import ConfigError, ParleyError


@contextmanager
def own_code(spec: str) -> Iterator[None]:
    """A block that runs code of a user's own; what it raises becomes an error that names the user's file and line.

    Args:
        spec: `path/file.py:Name`, or the name of what an installed package brings.

    Raises:
        ConfigError: the code raised; the user's own traceback is its cause.
    """
    try:
        yield
    except ParleyError:
        raise
    except Exception as error:
        path = Path(spec.rpartition(":")[0] or spec)
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        raise ConfigError(
            "the Python file raised an error",
            where=":".join(map(str, [path, *lines[-1:]])),
            got=f"{type(error).__name__}: {error}",
            fix="mend it; --debug shows the traceback",
        ) from error


def takes_messages(part: object) -> bool:
    """Whether something is a function of `messages`, by the name of its parameter: a chat model, and no maker of an agent."""
    return inspect.isfunction(part) and list(inspect.signature(part).parameters) == ["messages"]


class OutOfTimeError(BaseException):
    """A block took longer than it may; no `except Exception` in it keeps that back."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """A block that is broken off after some seconds, where Python can: in the main thread, between two of its steps.

    Args:
        seconds: it may take.

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
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            # An alarm that somebody else waits for.
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3))


def made_by(maker: Callable[..., Any], part: object) -> Any:
    """What a class or a function makes; it is given the part where it takes something without a default."""
    given = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(maker).parameters.values()
    return maker(part) if any(each.kind in given and each.default is each.empty for each in parameters) else maker()
