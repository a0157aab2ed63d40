"""Local copies of files and folders at URIs; a copy is updated from its URI before it is read.

A copied file carries the modification time of the original, so size and time show whether it is current. Run folders have
their own rules (`engine/core/runs/remote_sync.py`).
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
"""Folder of a run's model."""
LOCK = "lock"
"""File in a run's folder that its writer locks."""
_AT_ONCE = 16
_handed: dict[str, Path] = {}
"""Local folders of models by the names that they have on the driver."""


def hand_over(folders: Mapping[str, Path]) -> None:
    """Register local folders for names of models in this process: in a worker, copies of the driver's models."""
    _handed.update(folders)


def fetched_model(name: str | Path) -> Path:
    """Return the local folder of a model: a folder from `hand_over`, the path itself, or the copy of a URI.

    From a run at a URI only its model is copied, from any other folder its files. If nothing is at the URI, the copy is empty.

    Raises:
        StorageError: the URI cannot be read.
        ConfigError: a URI that `split_uri` refuses, or a web address.
    """
    if (handed := _handed.get(str(name))) is not None:
        return handed
    folder = local_copy(name)
    if isinstance(name, Path) or not is_uri(name):
        return folder
    if (served := served_address(name)) and name.partition("://")[0].lower() not in filesystems:
        raise ConfigError("a web address is no place in storage", got=name, fix=f"for a chat model's server: {served}")
    with turn_of(folder):
        # If a process of this machine writes the run, its copy is the newest.
        if not is_held(folder) and not is_held(folder.parent):
            inside = entries(join_uri(name, CHECKPOINT))
            make_same(join_uri(name, CHECKPOINT), folder / CHECKPOINT, inside)
            if not inside:
                make_same(name, folder, entries(name))
    return folder


def fetched_file(name: str) -> Path:
    """Return the local file of a name: the path itself, or the copy of a URI.

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
        if not path.is_file():
            raise StorageError("the file was deleted while it was copied", where=name, fix="name one that stays")
    return path


def make_same(uri: str, folder: Path, there: Mapping[str, StoredEntry]) -> None:
    """Make the files of a local folder equal to those at a URI; its subfolders stay unchanged.

    Args:
        uri: of the folder.
        folder: its local copy; created if there are files.
        there: the files at the URI, by name.

    Raises:
        StorageError: the files cannot be read or copied.
    """
    for path in folder.glob("*"):
        if path.is_file() and path.name not in there and path.name != LOCK:
            path.unlink()
    fetch(uri, folder, there)


def fetch(uri: str, folder: Path, wanted: Mapping[str, StoredEntry]) -> None:
    """Copy files from below a URI, except files that are current; a file that was deleted meanwhile is deleted here, too.

    A worker of a killed run may delete the state of its last shard while the next run begins, and a writer while others read.

    Args:
        uri: of a folder.
        folder: its local copy.
        wanted: the files, by path relative to the URI.

    Raises:
        StorageError: a file cannot be read or copied.
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
    """Write a local file to a URI, and mark the local file as its current copy.

    Raises:
        StorageError: the URI cannot be written.
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
    """Return whether a local file is a current copy of a file at a URI."""
    try:
        local = path.stat()
    except FileNotFoundError:
        return False
    return entry.modified_ns is not None and (local.st_size, local.st_mtime_ns) == (entry.size, entry.modified_ns)


def is_held(folder: Path) -> bool:
    """Return whether a process of this machine writes the run of a local copy; this process counts."""
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
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{ASIDE}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if download(uri, partial):
            _stamp(partial, entry)
            partial.replace(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        got = error.strerror or str(error)
        fix = "make room or mend the disk, or name another cache folder with PARLEY_CACHE"
        raise StorageError("what lies at a URI cannot be copied to here", where=path, got=got, fix=fix) from error
    finally:
        partial.unlink(missing_ok=True)


def _stamp(path: Path, entry: StoredEntry) -> None:
    if entry.modified_ns is not None:
        os.utime(path, ns=(entry.modified_ns, entry.modified_ns))


@contextmanager
def turn_of(folder: Path) -> Iterator[None]:
    """Hold the lock on a folder of the cache, so that of many workers one copies a model.

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
