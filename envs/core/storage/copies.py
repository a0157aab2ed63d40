"""Local copies of what lies at URIs, made the same as it before they are read: a copy is never right against its URI.

A copied file carries the time at which storage says that the original was put, so size and time tell whether it is still the
same. Folders of runs have rules of their own (`engine/core/runs/remote_sync.py`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from parley.envs.core.errors import ConfigError, StorageError
from parley.envs.core.storage.files import ASIDE, StoredEntry, download, entries, filesystems, put
from parley.envs.core.storage.uris import (
    AT_ONCE,
    EXCLUSIVE,
    SHARED,
    is_uri,
    join_uri,
    local_copy,
    lock,
    served_address,
    split_uri,
)

CHECKPOINT = "checkpoint"
"""Folder of a run in which its model lies."""
LOCK = "lock"
"""File of a run's folder that its writer holds a lock on."""
_AT_ONCE = 16
_handed: dict[str, Path] = {}
"""Folders of models that another machine's disk holds under these names."""


def hand_over(folders: Mapping[str, Path]) -> None:
    """Makes names stand for folders in this process (`fetched_model`): in a worker, for copies of the driver's models."""
    _handed.update(folders)


def fetched_model(name: str | Path) -> Path:
    """The local folder of what a name stands for as a model: what was handed over, a path itself, of a URI its copy.

    Of a run at a URI its model alone is copied, of any other folder its files. Nothing at the URI is no error: then nothing
    is in the copy either.

    Raises:
        StorageError: the URI cannot be read.
        ConfigError: a URI that `split_uri` refuses, or a web address, which names no storage.
    """
    if (handed := _handed.get(str(name))) is not None:
        return handed
    folder = local_copy(name)
    if isinstance(name, Path) or not is_uri(name):
        return folder
    if (served := served_address(name)) and name.partition("://")[0].lower() not in filesystems:
        raise ConfigError("a web address is no place in storage", got=name, fix=f"for a chat model's server: {served}")
    with turn_of(folder):
        # A process on this machine that writes the run has the newest of it.
        if not is_held(folder) and not is_held(folder.parent):
            inside = entries(join_uri(name, CHECKPOINT))
            make_same(join_uri(name, CHECKPOINT), folder / CHECKPOINT, inside)
            if not inside:
                make_same(name, folder, entries(name))
    return folder


def fetched_file(name: str) -> Path:
    """The local file that a name stands for: a path itself, of a URI its copy.

    Raises:
        StorageError: nothing is at the URI, or it cannot be read.
        ConfigError: a URI that `split_uri` refuses.
    """
    path = local_copy(name)
    if is_uri(name):
        root, inside = split_uri(name)
        folder = join_uri(root, inside.rpartition("/")[0])
        with turn_of(path.parent):
            there = entries(folder)
            if path.name not in there:
                got = ", ".join(list(there)[:8]) or "nothing"
                raise StorageError("there is no such file", where=name, got=got, fix="name one that is there")
            fetch(folder, path.parent, {path.name: there[path.name]})
    return path


def make_same(uri: str, folder: Path, there: Mapping[str, StoredEntry]) -> None:
    """Makes the files of a local folder the same as those at a URI; the folders in it are left alone.

    Args:
        uri: of the folder.
        folder: its copy; made when there is something to copy.
        there: its files by name.

    Raises:
        StorageError: they cannot be read, or copied to here.
    """
    for path in folder.glob("*"):
        if path.is_file() and path.name not in there and path.name != LOCK:
            path.unlink()
    fetch(uri, folder, there)


def fetch(uri: str, folder: Path, wanted: Mapping[str, StoredEntry]) -> None:
    """Copies files from below a URI, those that are the same here left out.

    Args:
        uri: of a folder.
        folder: its local copy.
        wanted: files by path from there.

    Raises:
        StorageError: one cannot be read, or copied to here.
    """
    other = [path for path, entry in wanted.items() if not is_same(folder / path, entry)]
    if len(other) < 2:
        for path in other:
            _fetch(join_uri(uri, path), folder / path, wanted[path])
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(other))) as pool:
        for done in [pool.submit(_fetch, join_uri(uri, path), folder / path, wanted[path]) for path in other]:
            done.result()


def publish(path: Path, uri: str) -> None:
    """Puts a local file at a URI and notes that the two are the same.

    Raises:
        StorageError: it cannot be written.
        OSError: the local file cannot be read.
    """
    from pyarrow import memory_map

    if path.stat().st_size:
        with memory_map(str(path)) as content:
            entry = put(uri, content.read_buffer())
    else:
        entry = put(uri, b"")
    _stamp(path, entry)


def is_same(path: Path, entry: StoredEntry) -> bool:
    """Whether a local file is the copy of a file at a URI as it is now."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return entry.modified_ns is not None and (found.st_size, found.st_mtime_ns) == (entry.size, entry.modified_ns)


def is_held(folder: Path) -> bool:
    """Whether a process of this machine, this one included, writes the run whose copy a folder is."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        lock(descriptor, SHARED | AT_ONCE)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _fetch(uri: str, path: Path, entry: StoredEntry) -> None:
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}{ASIDE}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        download(uri, aside)
        _stamp(aside, entry)
        aside.replace(path)
    except OSError as error:
        got = error.strerror or str(error)
        fix = "make room or mend the disk, or name another cache folder with PARLEY_CACHE"
        raise StorageError("what lies at a URI cannot be copied to here", where=path, got=got, fix=fix) from error
    finally:
        aside.unlink(missing_ok=True)


def _stamp(path: Path, entry: StoredEntry) -> None:
    if entry.modified_ns is not None:
        os.utime(path, ns=(entry.modified_ns, entry.modified_ns))


@contextmanager
def turn_of(folder: Path) -> Iterator[None]:
    """Lets one process of this machine after the other make a folder below the cache, so that many workers copy a model once.

    Raises:
        StorageError: the cache cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder.with_name(f".{folder.name}.turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        fix = "name a cache folder that can be written with PARLEY_CACHE"
        raise StorageError("the cache cannot be written", where=folder, got=error.strerror, fix=fix) from error
    try:
        lock(descriptor, EXCLUSIVE)
        yield
    finally:
        os.close(descriptor)
