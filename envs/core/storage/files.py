"""Read, write, list and delete whole files at URIs, through `pyarrow.fs`.

A file at a URI is complete or absent. Object stores show only complete objects; elsewhere a file is written under a temporary
name and renamed. This module knows nothing of runs or models.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from parley.envs.core.errors import StorageError, sync
from parley.envs.core.registry import Registry
from parley.envs.core.storage.uris import split_uri

filesystems = Registry("kind of storage", "parley.storage")
"""Filesystems by URI scheme, for schemes that pyarrow does not know.

Each is a function from a URI's root to a `pyarrow.fs.FileSystem` and the path of that root in it.
"""

ASIDE = ".writing"
"""Suffix of a file that is being written; one that stays was left by a process that died."""
_CHUNK = 8 << 20
_RENAMING = ("local", "hdfs")
"""Kinds of filesystems that show incomplete files; there a file is written aside and renamed."""
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
"""Fixes by a part of the storage's error message."""


@dataclass(frozen=True)
class StoredEntry:
    """A file at a URI.

    Args:
        size: bytes.
        modified_ns: modification time in nanoseconds since 1970; None if the storage gives none.
    """

    size: int
    modified_ns: int | None


def read(uri: str) -> bytes | None:
    """Return the content of a file, or None if there is none.

    Raises:
        StorageError: the file cannot be read.
    """
    with _storage_errors(uri, "read"):
        system, path = _resolve(uri)
        try:
            with system.open_input_stream(path) as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            return None
        return content


def download(uri: str, path: Path) -> bool:
    """Copy a file at a URI into a local file, in chunks, and return whether there is such a file.

    Raises:
        StorageError: the file cannot be read.
        OSError: the local file cannot be written.
    """
    with _storage_errors(uri, "read"):
        system, inside = _resolve(uri)
        try:
            source = system.open_input_stream(inside)
        except FileNotFoundError:
            return False
    with source, path.open("wb") as file:
        while True:
            with _storage_errors(uri, "read"):
                chunk = source.read(_CHUNK)
            if not chunk:
                return True
            file.write(chunk)


def put(uri: str, content: Any) -> StoredEntry:
    """Write a file atomically: a reader sees the new content or the old.

    Args:
        uri: of the file.
        content: bytes, or anything else with a buffer, such as a memory map.

    Returns:
        The entry of the file.

    Raises:
        StorageError: the file cannot be written.
    """
    with _storage_errors(uri, "written"):
        system, path = _resolve(uri)
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
    """Return the files below a URI by relative path, sorted; empty if there are none.

    Args:
        uri: of a folder.
        recursive: whether to list subfolders too.

    Raises:
        StorageError: the folder cannot be listed.
    """
    from pyarrow import fs

    with _storage_errors(uri, "listed"):
        system, path = _resolve(uri)
        infos = system.get_file_info(fs.FileSelector(path, recursive=recursive, allow_not_found=True))
    files = [info for info in infos if info.type == fs.FileType.File and not info.path.endswith(ASIDE)]
    start = len(path.rstrip("/")) + 1
    return dict(sorted((info.path[start:], _entry(info)) for info in files))


def sweep(uri: str) -> None:
    """Delete partial files that dead writers left below a URI; a worker of a killed run may still end one meanwhile.

    Raises:
        StorageError: a file cannot be listed or deleted.
    """
    from pyarrow import fs

    with _storage_errors(uri, "swept"):
        system, path = _resolve(uri)
        if system.type_name in _RENAMING:
            for info in system.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
                if info.path.endswith(ASIDE):
                    with suppress(FileNotFoundError):
                        system.delete_file(info.path)


def delete(uri: str) -> None:
    """Delete a file, if there is one.

    Raises:
        StorageError: the file cannot be deleted.
    """
    with _storage_errors(uri, "deleted"):
        system, path = _resolve(uri)
        with suppress(FileNotFoundError):
            system.delete_file(path)


def _resolve(uri: str) -> tuple[Any, str]:
    root, inside = split_uri(uri)
    system, base = _filesystem(root)
    return system, "/".join(filter(None, (base.rstrip("/"), inside))) if base != "/" else f"/{inside}"


@lru_cache(maxsize=32)
def _filesystem(root: str) -> tuple[Any, str]:
    """Return the filesystem and base path of a URI's root; cached, because opening may query the network."""
    scheme = root.partition("://")[0]
    if scheme in filesystems:
        custom: tuple[Any, str] = filesystems.get(scheme)(root)
        return custom
    from pyarrow import fs

    opened: tuple[Any, str] = fs.FileSystem.from_uri(f"{root}/" if scheme == "file" else root)
    return opened


def _stream(system: Any, path: str, content: Any) -> None:
    with system.open_output_stream(path) as stream:
        stream.write(content)
        if system.type_name == "local":
            stream.flush()
    if system.type_name == "local":
        # Otherwise a power cut could keep the rename and lose the content.
        sync(path)


def _forget(system: Any, path: str) -> None:
    try:
        system.delete_file(path)
    except OSError:
        # The error that stopped the writing may stop this too; `sweep` deletes the file later.
        return


def _entry(info: Any) -> StoredEntry:
    return StoredEntry(info.size, info.mtime_ns)


@contextmanager
def _storage_errors(uri: str, verb: str) -> Iterator[None]:
    """Turn errors of the storage into a `StorageError` with a fix."""
    from pyarrow import ArrowInvalid, ArrowNotImplementedError

    try:
        yield
    except (ArrowInvalid, ArrowNotImplementedError) as error:
        schemes = ", ".join(["file", "s3", "gs", "hdfs", "abfs", *filesystems])
        raise StorageError(
            "this URI names no storage", where=uri, got=_first(error), fix=f"one that begins with {schemes}"
        ) from None
    except OSError as error:
        got = _first(error)
        fix = next((fix for sign, fix in _REMEDIES.items() if sign in got.lower()), "see that it can be reached from here")
        raise StorageError(f"storage cannot be {verb}", where=uri, got=got, fix=fix) from error


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
