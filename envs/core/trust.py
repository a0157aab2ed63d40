"""Which Python files of a user's own may be imported: `path/file.py:Name` runs whatever is in the file.

Somebody who types such a name knows the file. A name that comes out of a file, such as the configuration of a run that was
sent, is nobody's word. So the command line trusts the files that were typed, and asks for every other one; `Registry` asks here
before it imports a file. A file inside a run folder is imported only where it was typed. Python's own callers, who decide for
themselves, are not asked. Workers trust what their driver trusted when it started them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.envs.core.errors import ConfigError

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
