"""Where corpora and their compiled forms lie: the data root, the cache, and what to say when a file is missing.

The data root holds one folder per corpus with the files as published; it may be read-only. The cache holds what Parley
makes itself and can make again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from parley.envs.core.errors import DataError

DATA_VARIABLE = "PARLEY_DATA"
CACHE_VARIABLE = "PARLEY_CACHE"
UNNAMED = "NAME"
"""Stands in the commands of a message for a corpus until it is known what it was asked for by (`parley.envs.corpora.lines`)."""


class UnwholeCorpusError(DataError):
    """A corpus is not whole: files are missing or lines are broken."""


def cache_root(explicit: Path | None = None) -> Path:
    """The folder for what can be made again: the argument, else `PARLEY_CACHE`, else the user's cache folder.

    Returns:
        A path that need not exist yet; by default `parley` under `XDG_CACHE_HOME`, or under `~/.cache` without it.
    """
    if explicit is not None:
        return explicit.expanduser()
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "parley"


def data_root(explicit: Path | None = None) -> Path:
    """The folder that holds the corpora: the argument, else `PARLEY_DATA`, else `data` in the cache.

    Returns:
        A path that need not exist yet; `require_files` says what is missing.
    """
    if explicit is not None:
        return explicit.expanduser()
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named).expanduser()
    return cache_root() / "data"


def root_words(explicit: Path | None) -> list[str]:
    """The words of a command by which it finds the corpora where this one was told to look; none when nothing was said."""
    return [] if explicit is None else ["--data-root", str(explicit)]


def missing_files(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of the names that are not files in the folder, in the given order."""
    return [name for name in names if not (folder / name).is_file()]


def require_files(corpus: str, folder: Path, names: Sequence[str], remedy: str) -> None:
    """Checks that the files of a corpus are there.

    Args:
        corpus: the corpus' registered name.
        folder: where its files belong.
        names: the files.
        remedy: how to get them, for the message.

    Raises:
        UnwholeCorpusError: the folder or some of the files are missing; the message names each file and where to put it.
    """
    missing = missing_files(folder, names)
    if not missing:
        return
    raise UnwholeCorpusError(
        f"the corpus {corpus!r} is not complete",
        where=folder,
        got=f"no {', '.join(missing)}" if folder.is_dir() else "no such folder",
        fix=f"{remedy}, and put {', '.join(missing)} into {folder}; "
        f"or name another data root with --data-root or {DATA_VARIABLE}",
    )


def read_file(path: Path) -> bytes:
    """The content of a corpus file.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            "a corpus file cannot be read", where=path, got=error.strerror, fix="check that you may read it"
        ) from None
