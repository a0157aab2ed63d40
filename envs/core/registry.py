"""One `Registry` per kind of part (corpus, agent, preset): names to factories, found lazily.

A part is registered by decorator, by a lazy "module:attribute" target (so that listing names imports nothing heavy), by
an installed package's entry point, or named on the spot as `path/file.py:Name`.

Which Python files of a user's own may be imported: `path/file.py:Name` runs whatever is in the file.

Somebody who types such a name knows the file. A name that comes out of a file, such as the configuration of a run that was
sent, is nobody's word. So the command line trusts the files that were typed, and asks for every other one; `Registry` asks here
before it imports a file. A file inside a run folder is imported only where it was typed. Python's own callers, who decide for
themselves, are not asked. Workers trust what their driver trusted when it started them.

Python files of a user's own: what goes wrong in them is told as theirs.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb, walk_tb
from types import CodeType, FrameType
from typing import Any

from parley.envs.core.errors import ConfigError, ModelError, ParleyError
from parley.envs.core.visible import well_formed

VARIABLE = "PARLEY_TRUSTED_FILES"
"""Tells a worker which files its driver trusts: a JSON list, or `EVERY`."""
EVERY = "every"
RUN_FORMAT = "parley run"
"""Begins the format of a run, as its config.json says it."""
_ENDING = ".py:"
_BETWEEN = re.compile(r"[\s,=\"']+")
_KIND = re.compile(r"[a-z]+:(?=[^:]+\.py:)")
"""Says what a name stands for, such as `liar:` before `path/file.py:Name`."""


class Trust:
    """Files that may be imported.

    Args:
        files: the trusted ones.
        every: whether all other files are trusted too, but for those inside a run folder.
        agrees: asks the user about a name; whether it may be imported.
    """

    def __init__(
        self, files: Iterable[str] = (), every: bool = False, agrees: Callable[[str], bool] = lambda name: False
    ) -> None:
        self._files, self._every, self._agrees = set(files), every, agrees

    def require(self, name: str) -> None:
        """Makes sure that a file may be imported.

        Args:
            name: `path/file.py:Name`.

        Raises:
            ConfigError: it may not.
        """
        spellings = _spellings(name)
        if self._files & spellings:
            return
        path = name.rpartition(":")[0]
        if (run := _run_around(Path(path))) is not None:
            raise ConfigError(
                "a Python file inside a run folder is not imported",
                where=path,
                got=f"it lies in the run {run}",
                fix="read the file, copy it out of the run, and name the copy on the command line",
            )
        if not self._every and not self._agrees(name):
            raise ConfigError(
                "a Python file would be imported that was not typed on this command line, and it can do whatever you can",
                where=name,
                fix="read the file; then type its name, or add --trust-code",
            )
        self._files |= spellings

    def variable(self) -> str:
        """What `VARIABLE` tells workers."""
        return EVERY if self._every else json.dumps(sorted(self._files))


_trust: Trust | None = None


@contextmanager
def trusting(trust: Trust) -> Iterator[None]:
    """Asks `trust` before a file is imported, for the length of a `with` block."""
    global _trust
    before, _trust = _trust, trust
    try:
        yield
    finally:
        _trust = before


def require_trust(name: str) -> None:
    """Makes sure that the file of `path/file.py:Name` may be imported; raises as `Trust.require` does."""
    trust = _current()
    if trust is not None:
        trust.require(name)


def require_trust_in(settings: Any) -> None:
    """Makes sure that every file which settings name may be imported, before work begins; raises as `Trust.require` does.

    Args:
        settings: nested JSON types.
    """
    for text in _texts(settings):
        whole = _is_name(text) and Path(text.rpartition(":")[0]).is_file()
        for name in [text] if whole else filter(_is_name, _BETWEEN.split(text)):
            require_trust(_without_kind(name))


def typed_files(arguments: Iterable[str]) -> set[str]:
    """The files that are named on a command line, as `Trust` takes them."""
    texts = [part for argument in arguments for part in (argument, argument.partition("=")[2], *_BETWEEN.split(argument))]
    names = [name for text in filter(_is_name, texts) for name in (text, _without_kind(text))]
    return {spelling for name in names for spelling in _spellings(name)}


def worker_variables() -> dict[str, str]:
    """Environment variables with which a worker trusts what this process trusts now; none where nobody is asked."""
    trust = _current()
    return {} if trust is None else {VARIABLE: trust.variable()}


def _current() -> Trust | None:
    if _trust is not None or VARIABLE not in os.environ:
        return _trust
    told = os.environ[VARIABLE]
    return Trust(every=True) if told == EVERY else Trust(json.loads(told))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _is_name(text: str) -> bool:
    return _ENDING in text


def _without_kind(name: str) -> str:
    kind = _KIND.match(name)
    return name[kind.end() :] if kind else name


def _spellings(name: str) -> set[str]:
    """The file of a name as it is spelled, absolute, and without links."""
    path = Path(name.rpartition(":")[0])
    return {str(path), str(path.absolute()), str(path.resolve())}


def _run_around(path: Path) -> Path | None:
    """The run folder that a file lies in; None where it lies in none."""
    return next((folder for folder in path.resolve().parents if _is_run(folder)), None)


def _is_run(folder: Path) -> bool:
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["format"]).startswith(RUN_FORMAT)
    except (OSError, KeyError, RecursionError, TypeError, ValueError):
        return False


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


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint such as ", did you mean 'attack'?", or the empty string when nothing is near."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


class Registry:
    """Names of one kind of part, with a one-line summary each.

    Args:
        kind: what is registered, for messages ("corpus").
        entry_point_group: installed packages may add parts under this group ("parley.corpora").
    """

    def __init__(self, kind: str, entry_point_group: str) -> None:
        self.kind = kind
        self.entry_point_group = entry_point_group
        self._targets: dict[str, Any] = {}
        self._summaries: dict[str, str] = {}

    def register(self, name: str, summary: str, target: str | None = None) -> Callable[[Any], Any]:
        """Adds a part; used as a decorator, or directly with a lazy "module:attribute" target.

        Raises:
            ConfigError: the name is taken.
        """
        if name in self._targets:
            raise ConfigError(f"the {self.kind} {name!r} is registered twice", fix="give one of them another name")
        self._summaries[name] = summary
        self._targets[name] = target

        def decorate(part: Any) -> Any:
            self._targets[name] = part
            return part

        return decorate

    def __contains__(self, name: object) -> bool:
        return name in self._targets or any(point.name == name for point in _installed(self.entry_point_group))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._targets, *(point.name for point in _installed(self.entry_point_group))}))

    def summary(self, name: str) -> str:
        """The one-line summary that listings print."""
        return self._summaries.get(name, "from an installed package")

    def get(self, name: str) -> Any:
        """The part of that name.

        Args:
            name: a registered name, or `path/file.py:Name` for a part of the user's own.

        Raises:
            ConfigError: no such part, with the nearest name; or a file that may not be imported (`envs/core/registry.py`).
        """
        if name in self._targets:
            target = self._targets[name]
            return _load(target) if isinstance(target, str) else target
        for point in _installed(self.entry_point_group):
            if point.name == name:
                return point.load()
        if ".py:" in name:
            return _load_file(name)
        known = f"known: {', '.join(self)}; or " if [*self] else ""
        served = f"; openai:{name} is a chat model's server" if name.startswith(("http://", "https://")) else ""
        raise ConfigError(
            f"no {self.kind} is called {name!r}{nearest(name, self)}",
            fix=f"{known}name your own as path/file.py:Name{served}",
        )


@cache
def _installed(group: str) -> tuple[EntryPoint, ...]:
    """Parts of installed packages; read once, for the metadata of every package is looked through."""
    return tuple(entry_points(group=group))


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


class _AsItStands(SourceFileLoader):
    """Reads a file anew: compiled code that lies beside it may be of another text of the same second and length."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_file(name: str) -> Any:
    path, _, attribute = name.rpartition(":")
    stem = Path(path).stem
    spec = importlib.util.spec_from_file_location(stem, path, loader=_AsItStands(stem, path))
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ConfigError("no such Python file", where=path, fix="name an existing file as path/file.py:Name")
    require_trust(name)
    module = importlib.util.module_from_spec(spec)
    with own_start(name):
        spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise ConfigError(f"the file defines no {attribute!r}", where=path, fix=f"define it{nearest(attribute, dir(module))}")
    return getattr(module, attribute)
