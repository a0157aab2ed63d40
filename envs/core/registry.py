"""Registries of parts by name (corpora, agents, presets), and the safe import and call of a user's own Python files.

A part is registered by decorator, by a lazy "module:attribute" target (listing names imports nothing heavy), by the entry
point of an installed package, or named directly as `path/file.py:Name`.

Importing `path/file.py:Name` runs the file, so it needs trust. The command line trusts the files that the user typed, and asks
about any other, such as one named by the configuration of a downloaded run. A file inside a run folder is imported only if the
user typed it. Callers from Python are not asked. A worker trusts the files that its driver trusted when it started the worker.

Errors in a user's file become errors that name this file and line, and calls have time limits.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import json
import os
import re
import shlex
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
"""Environment variable with the files that the driver trusts: a JSON list, or `EVERY`."""
EVERY = "every"
RUN_FORMAT = "parley run"
"""Prefix of the format of a run in its config.json."""
_ENDING = ".py:"
_PROGRAM = "cmd:"
"""Prefix of a program that is a chat model (`policies/chat/program.py`)."""
_BETWEEN = re.compile(r"[\s,=\"']+")
_KIND = re.compile(r"[a-z]+:(?=[^:]+\.py:)")
"""Prefix for the kind of a part, such as `liar:` before `path/file.py:Name`."""


class Trust:
    """Python files that may be imported.

    Args:
        files: the trusted files.
        every: trust all other files too, except those inside a run folder.
        agrees: asks the user whether a name may be imported.
    """

    def __init__(
        self, files: Iterable[str] = (), every: bool = False, agrees: Callable[[str], bool] = lambda name: False
    ) -> None:
        self._files, self._every, self._agrees = set(files), every, agrees

    def require(self, name: str) -> None:
        """Raise unless a file may be imported.

        Args:
            name: `path/file.py:Name`.

        Raises:
            ConfigError: the file is not trusted.
        """
        spellings = _spellings(name)
        if self._files & spellings:
            return
        if _is_program(name):
            if not self._every and not self._agrees(name):
                what = "a program would be started that was not typed on this command line, and it can do whatever you can"
                raise ConfigError(what, where=name, fix="look at it; then type its address, or add --trust-code")
            self._files |= spellings
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
                fix="read the file; then give the command that names it, or add --trust-code",
            )
        self._files |= spellings

    def variable(self) -> str:
        """Return the value of `VARIABLE` for workers."""
        return EVERY if self._every else json.dumps(sorted(self._files))


_trust: Trust | None = None


@contextmanager
def trusting(trust: Trust) -> Iterator[None]:
    """Check files against `trust` before imports, inside a `with` block."""
    global _trust
    before, _trust = _trust, trust
    try:
        yield
    finally:
        _trust = before


def require_trust(name: str) -> None:
    """Raise as `Trust.require` unless the file of `path/file.py:Name` may be imported."""
    trust = _current()
    if trust is not None:
        trust.require(name)


def require_trust_in(settings: Any) -> None:
    """Raise as `Trust.require` unless every file that settings name may be imported; call it before work begins.

    Args:
        settings: nested JSON types.
    """
    for text in _texts(settings):
        if _is_program(text):
            require_trust(text)
            continue
        is_file_name = _is_name(text) and Path(text.rpartition(":")[0]).is_file()
        for name in [text] if is_file_name else filter(_is_name, _BETWEEN.split(text)):
            require_trust(_without_kind(name))


def typed_files(arguments: Iterable[str]) -> set[str]:
    """Return the files that a command line names, as `Trust` takes them."""
    texts = [part for argument in arguments for part in (argument, argument.partition("=")[2], *_BETWEEN.split(argument))]
    names = [name for text in filter(_is_name, texts) for name in (text, _without_kind(text))]
    names += filter(_is_program, texts)
    return {spelling for name in names for spelling in _spellings(name)}


def worker_variables() -> dict[str, str]:
    """Return environment variables that give a worker the trust of this process; empty if it has none."""
    trust = _current()
    return {} if trust is None else {VARIABLE: trust.variable()}


def _current() -> Trust | None:
    if _trust is not None or VARIABLE not in os.environ:
        return _trust
    value = os.environ[VARIABLE]
    return Trust(every=True) if value == EVERY else Trust(json.loads(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _is_name(text: str) -> bool:
    return _ENDING in text


def _is_program(text: str) -> bool:
    return text.startswith(_PROGRAM)


def program_spelling(name: str) -> str:
    """Return the address of a program with absolute paths where its words are files here, for workers in other folders."""
    try:
        words = shlex.split(name.removeprefix(_PROGRAM))
    except ValueError:
        return name
    spelled = [
        str(Path(word).absolute()) if (number or "/" in word) and Path(word).exists() else word
        for number, word in enumerate(words)
    ]
    return _PROGRAM + shlex.join(spelled)


def _without_kind(name: str) -> str:
    kind = _KIND.match(name)
    return name[kind.end() :] if kind else name


def _spellings(name: str) -> set[str]:
    """Return the file of a name in three spellings: as given, absolute, and without links; of a program two."""
    if _is_program(name):
        return {name, program_spelling(name)}
    path = Path(name.rpartition(":")[0])
    return {str(path), str(path.absolute()), str(path.resolve())}


def _run_around(path: Path) -> Path | None:
    return next((folder for folder in path.resolve().parents if _is_run(folder)), None)


def _is_run(folder: Path) -> bool:
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["format"]).startswith(RUN_FORMAT)
    except (OSError, KeyError, RecursionError, TypeError, ValueError):
        return False


START_LIMIT_S = 600.0
"""Most seconds to import a user's file, or to make the named part."""
MAX_HANGS = 3
"""Timeouts in a row after which user code is not called again."""


@contextmanager
def own_code(spec: str) -> Iterator[None]:
    """Turn errors of user code in a block into a `ConfigError` with the user's file and line.

    Args:
        spec: `path/file.py:Name`, or the name of a part of an installed package.

    Raises:
        ConfigError: the code raised or tried to exit; the user's traceback is the cause.
    """
    try:
        yield
    except ParleyError:
        raise
    except (Exception, SystemExit) as error:
        if is_terminated(error):
            raise
        path = Path(spec.rpartition(":")[0] or spec)
        file = path.resolve()
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if Path(frame.filename).resolve() == file]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        raise ConfigError(
            "the Python file raised an error",
            where=":".join(map(str, [path, *lines[-1:]])),
            got=well_formed(f"{type(error).__name__}: {error}"),
            fix="mend it; --debug shows the traceback",
        ) from error


def made_part(kind: str, name: str, named: Any, members: Sequence[str], *resources: Any) -> Any:
    """Return a part made from a class without arguments, a function of resources, or an instance.

    Args:
        kind: the kind of part, for messages.
        name: a registered name, or `path/file.py:Name`.
        named: the object of that name.
        members: attributes of every part of the kind.
        resources: arguments of a function.

    Raises:
        ConfigError: a user's file raised an error, or the part is of another kind.
    """
    with own_code(name) if ".py:" in name else nullcontext():
        part = named if not callable(named) else named() if isinstance(named, type) else named(*resources)
    if lacking := [member for member in members if not hasattr(part, member)]:
        got = f"a {type(part).__name__} without {', '.join(lacking)}"
        raise ConfigError(f"this is no {kind}", where=name, got=got, fix=f"parley check {name} says what it is")
    return part


def is_terminated(end: BaseException) -> bool:
    """Return whether the handler of SIGTERM raised this exit, as in Ray's actors, and not user code."""
    if not isinstance(end, SystemExit):
        return False
    answer = getattr(signal.getsignal(signal.SIGTERM), "__code__", None)
    return any(frame.f_code is answer for frame, _ in walk_tb(end.__traceback__))


def takes_messages(part: object) -> bool:
    """Return whether an object is a function of `messages`, which makes it a chat model."""
    return inspect.isfunction(part) and list(inspect.signature(part).parameters) == ["messages"]


def is_chat_name(name: str, registry: Registry, own: str) -> bool:
    """Return whether a name is a chat model: by its prefix, or as a user's own.

    A user's own is a class with `answer` or `reply` and without the method `own`, or a function of `messages`.

    Raises:
        ConfigError: a user's file cannot be imported.
    """
    from parley.envs.core.storage.uris import has_chat_prefix

    if ".py:" not in name or has_chat_prefix(name):
        return has_chat_prefix(name)
    part = registry.get(name)
    answers = inspect.isclass(part) and not hasattr(part, own) and (hasattr(part, "answer") or hasattr(part, "reply"))
    return answers or takes_messages(part)


class OutOfTimeError(BaseException):
    """A block that exceeded its time limit; `except Exception` does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt a block after some seconds, if it runs in the main thread and between two Python steps.

    Raises:
        OutOfTimeError: it took longer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    start, before = time.monotonic(), signal.signal(signal.SIGALRM, on_alarm)
    remaining, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        try:
            yield
        finally:
            # The alarm may still go off here.
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
        if remaining:
            # The alarm of an outer timer.
            signal.setitimer(signal.ITIMER_REAL, max(remaining - (time.monotonic() - start), 1e-3))


@contextmanager
def own_start(spec: str) -> Iterator[None]:
    """Import a user's file or make its part in a block, with the errors of `own_code` and a time limit.

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
    """Calls of user code, each with a time limit; after several timeouts in a row, calls fail at once.

    Args:
        spec: the name of the code.
        seconds: limit per call.
        fix: how to raise the limit, for errors.
    """

    def __init__(self, spec: str, seconds: float, fix: str) -> None:
        self._spec, self._seconds, self._fix = spec, seconds, fix
        self._num_hangs = 0

    @contextmanager
    def call(self, what: str, parts: int = 1, *, answers: bool = True) -> Iterator[None]:
        """Call user code in a block.

        Args:
            what: the call in words, for errors.
            parts: units of work in the call; the limit is multiplied by them.
            answers: whether success of this call resets the count of timeouts.

        Raises:
            ConfigError: the code raised.
            ModelError: the call took too long, or calls have been stopped.
        """
        if self._num_hangs == MAX_HANGS:
            what_failed = f"this is not asked any more: {MAX_HANGS} times in a row a call took more than {self._seconds:g} s"
            raise ModelError(what_failed, where=self._spec, fix=self._fix)
        limit_s = self._seconds * max(1, parts)
        try:
            with own_code(self._spec), time_limit(limit_s):
                yield
        except OutOfTimeError:
            self._num_hangs += 1
            raise ModelError(f"{what} took more than {limit_s:g} s", where=self._spec, fix=self._fix) from None
        self._num_hangs *= not answers


def made_by(maker: Callable[..., Any], part: object) -> Any:
    """Return what a class or function makes; it gets the part if it has a parameter without a default."""
    given = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(maker).parameters.values()
    return (
        maker(part)
        if any(parameter.kind in given and parameter.default is parameter.empty for parameter in parameters)
        else maker()
    )


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint such as ", did you mean 'attack'?", or an empty string if no name is near."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


class Registry:
    """Names of one kind of part, each with a one-line summary.

    Args:
        kind: the kind of part, for messages ("corpus").
        entry_point_group: installed packages may add parts under this group ("parley.corpora").
    """

    def __init__(self, kind: str, entry_point_group: str) -> None:
        self.kind = kind
        self.entry_point_group = entry_point_group
        self._targets: dict[str, Any] = {}
        self._summaries: dict[str, str] = {}

    def register(self, name: str, summary: str, target: str | None = None) -> Callable[[Any], Any]:
        """Register a part, as a decorator or with a lazy "module:attribute" target.

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
        """Return the one-line summary for listings."""
        return self._summaries.get(name, "from an installed package")

    def get(self, name: str) -> Any:
        """Return the part of that name.

        Args:
            name: a registered name, or `path/file.py:Name` for a part of the user's own.

        Raises:
            ConfigError: an unknown part (with the nearest name), or a file that is not trusted.
        """
        if name in self._targets:
            target = self._targets[name]
            return _load(target) if isinstance(target, str) else target
        for point in _installed(self.entry_point_group):
            if point.name == name:
                return point.load()
        if ".py:" in name:
            return _load_file(name)
        choices = f"known: {', '.join(self)}; or " if [*self] else ""
        served = f"; openai:{name} is a chat model's server" if name.startswith(("http://", "https://")) else ""
        raise ConfigError(
            f"no {self.kind} is called {name!r}{nearest(name, self)}",
            fix=f"{choices}name your own as path/file.py:Name{served}",
        )


@cache
def _installed(group: str) -> tuple[EntryPoint, ...]:
    """Return the parts of installed packages; cached, because reading all package metadata is slow."""
    return tuple(entry_points(group=group))


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


class _UncachedLoader(SourceFileLoader):
    """A loader that ignores compiled code, which may come from other text of the same second and length."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_file(name: str) -> Any:
    path, _, attribute = name.rpartition(":")
    stem = Path(path).stem
    spec = importlib.util.spec_from_file_location(stem, path, loader=_UncachedLoader(stem, path))
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ConfigError("no such Python file", where=path, fix="name an existing file as path/file.py:Name")
    require_trust(name)
    module = importlib.util.module_from_spec(spec)
    with own_start(name):
        spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise ConfigError(f"the file defines no {attribute!r}", where=path, fix=f"define it{nearest(attribute, dir(module))}")
    return getattr(module, attribute)
