"""Whole files at URIs, through `pyarrow.fs`: read, put, listed, deleted.

A file at a URI is whole or absent. Object stores show an object when all of it is there; elsewhere a file is written aside
and renamed. Nothing here knows what a run or a model is.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from parley.envs.core.errors import StorageError, sync
from parley.envs.core.registry import Registry
from parley.envs.core.storage.uris import split_uri

filesystems = Registry("kind of storage", "parley.storage")
"""By the scheme of their URIs, those that pyarrow does not know itself; each is a function from a URI's root to a
`pyarrow.fs.FileSystem` and the path of that root in it."""

ASIDE = ".writing"
"""Where files are renamed, the ending of one that is being written; one that lies around was left by a process that died."""
_CHUNK = 8 << 20
_RENAMING = ("local", "hdfs")
"""Kinds of filesystems that show a file while it is written."""
_REMEDIES = {
    "no such bucket": "make the bucket, or name another one",
    "nosuchbucket": "make the bucket, or name another one",
    "access denied": "give this process credentials that may read, write, list and delete there",
    "access_denied": "give this process credentials that may read, write, list and delete there",
    "permission": "give this process credentials that may read, write, list and delete there",
    "forbidden": "give this process credentials that may read, write, list and delete there",
    "credential": "give this process credentials, such as AWS_PROFILE or GOOGLE_APPLICATION_CREDENTIALS",
    "no space": "make room there",
}
"""What helps, by what storage says in its own words."""


@dataclass(frozen=True)
class StoredEntry:
    """A file at a URI.

    Args:
        size: bytes.
        modified_ns: when it was put, nanoseconds since 1970; None where storage does not say.
    """

    size: int
    modified_ns: int | None


def read(uri: str) -> bytes | None:
    """The content of a file; None when there is none.

    Raises:
        StorageError: it cannot be read.
    """
    with _told(uri, "read"):
        system, path = _at(uri)
        try:
            with system.open_input_stream(path) as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            return None
        return content


def download(uri: str, path: Path) -> None:
    """Copies a file at a URI into a local file, some megabytes at a time.

    Raises:
        StorageError: it is not there or cannot be read.
        OSError: the local file cannot be written.
    """
    with _told(uri, "read"):
        system, inside = _at(uri)
        source = system.open_input_stream(inside)
    with source, path.open("wb") as file:
        while True:
            with _told(uri, "read"):
                chunk = source.read(_CHUNK)
            if not chunk:
                return
            file.write(chunk)


def put(uri: str, content: Any) -> StoredEntry:
    """Writes a file so that a reader sees all of it, or what was there before.

    Args:
        uri: of the file.
        content: bytes, or anything else with a buffer, such as a memory map.

    Returns:
        The file as storage lists it.

    Raises:
        StorageError: it cannot be written.
    """
    with _told(uri, "written"):
        system, path = _at(uri)
        if system.type_name in _RENAMING:
            aside = f"{path}.{uuid.uuid4().hex}{ASIDE}"
            system.create_dir(path.rpartition("/")[0], recursive=True)
            try:
                _stream(system, aside, content)
                system.move(aside, path)
            except BaseException:
                _forget(system, aside)
                raise
        else:
            _stream(system, path, content)
        return _entry(system.get_file_info(path))


def entries(uri: str, recursive: bool = False) -> dict[str, StoredEntry]:
    """The files below a URI by their paths from there, in the order of these; none when nothing is there.

    Args:
        uri: of a folder.
        recursive: whether to look into the folders below it.

    Raises:
        StorageError: they cannot be listed.
    """
    from pyarrow import fs

    with _told(uri, "listed"):
        system, path = _at(uri)
        infos = system.get_file_info(fs.FileSelector(path, recursive=recursive, allow_not_found=True))
    found = [info for info in infos if info.type == fs.FileType.File and not info.path.endswith(ASIDE)]
    start = len(path.rstrip("/")) + 1
    return dict(sorted((info.path[start:], _entry(info)) for info in found))


def sweep(uri: str) -> None:
    """Deletes what writers that died left half-written below a URI; only for who alone writes there.

    Raises:
        StorageError: it cannot be listed or deleted.
    """
    from pyarrow import fs

    with _told(uri, "swept"):
        system, path = _at(uri)
        if system.type_name in _RENAMING:
            for info in system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
                if info.path.endswith(ASIDE):
                    system.delete_file(info.path)


def delete(uri: str) -> None:
    """Deletes a file, if there is one.

    Raises:
        StorageError: it cannot be deleted.
    """
    with _told(uri, "deleted"):
        system, path = _at(uri)
        try:
            system.delete_file(path)
        except FileNotFoundError:
            return


def _at(uri: str) -> tuple[Any, str]:
    root, inside = split_uri(uri)
    system, base = _opened(root)
    return system, "/".join(filter(None, (base.rstrip("/"), inside))) if base != "/" else f"/{inside}"


@lru_cache(maxsize=32)
def _opened(root: str) -> tuple[Any, str]:
    """The filesystem of a URI's root, and that root in it; kept, because opening one may ask the network for a region."""
    scheme = root.partition("://")[0]
    if scheme in filesystems:
        found: tuple[Any, str] = filesystems.get(scheme)(root)
        return found
    from pyarrow import fs

    opened: tuple[Any, str] = fs.FileSystem.from_uri(f"{root}/" if scheme == "file" else root)
    return opened


def _stream(system: Any, path: str, content: Any) -> None:
    with system.open_output_stream(path) as stream:
        stream.write(content)
        if system.type_name == "local":
            stream.flush()
    if system.type_name == "local":
        # A rename may otherwise survive a power cut that the content does not.
        sync(path)


def _forget(system: Any, path: str) -> None:
    try:
        system.delete_file(path)
    except OSError:
        # What hindered the writing hinders this; who opens the place for writing next sweeps it up.
        return


def _entry(info: Any) -> StoredEntry:
    return StoredEntry(info.size, info.mtime_ns)


@contextmanager
def _told(uri: str, verb: str) -> Iterator[None]:
    """Turns what storage says into what the user can do about it."""
    from pyarrow import ArrowInvalid, ArrowNotImplementedError

    try:
        yield
    except (ArrowInvalid, ArrowNotImplementedError) as error:
        known = ", ".join(["file", "s3", "gs", "hdfs", "abfs", *filesystems])
        raise StorageError(
            "this URI names no storage", where=uri, got=_first(error), fix=f"one that begins with {known}"
        ) from None
    except OSError as error:
        got = _first(error)
        fix = next((fix for sign, fix in _REMEDIES.items() if sign in got.lower()), "see that it can be reached from here")
        raise StorageError(f"storage cannot be {verb}", where=uri, got=got, fix=fix) from error


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
