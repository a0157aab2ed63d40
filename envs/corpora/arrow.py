"""Folders of corpora: the data root, the cache, downloads, and compiled folders of memory-mapped Arrow files.

The data root holds one folder per corpus with the published files; it may be read-only. The cache holds files that Parley
makes and can make again.

A compiled folder is `compiled/NAME/KEY` in the cache. KEY is a digest of all that the content depends on, so the folder is
never out of date. It is written aside and renamed, so it is complete or absent. `manifest.json` holds the SHA-256 of every
other file, so damage is detected. Many processes may open, compile or rebuild one folder at a time. The content is defined in
`envs/negotiation/corpora/catalogue.py` for negotiations and in `envs/corpora/pairs/compiled.py` for pairs of utterances.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import logging
import os
import tempfile
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

import pyarrow as pa

from parley.envs.core.errors import DataError, file_digest, sync

Progress = Callable[[str, int, int | None], None]
"""Called with file name, bytes so far, and the total if the server sends it."""

TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 16


class DownloadError(DataError):
    """An address that cannot be reached, or has unexpected content."""


def download(address: str, target: Path, mismatch: Callable[[Path], str], progress: Progress | None = None) -> None:
    """Download a file, check it, and rename it into place.

    Args:
        address: URL of the file.
        target: local path; its folder is created.
        mismatch: returns how a file differs from the expected one; an empty string accepts it.
        progress: called after every chunk.

    Raises:
        DownloadError: the address cannot be reached, the connection breaks, or the content is unexpected.
        DataError: the file cannot be written.
    """
    with replacing(target) as draft:
        with draft.open("wb") as sink:
            num_bytes = 0
            for chunk, total in _chunks(address):
                sink.write(chunk)
                num_bytes += len(chunk)
                if progress is not None:
                    progress(target.name, num_bytes, total)
        difference = mismatch(draft)
        if difference:
            raise DownloadError("an address holds other content than expected", where=address, got=difference)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a path to write to; after the block, the file replaces the target in one step.

    Args:
        target: the file to create or replace; its folder is created.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-", ignore_cleanup_errors=True) as aside:
            draft = Path(aside) / target.name
            yield draft
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(target)
    except OSError as error:
        raise DataError(
            "a corpus file cannot be written",
            where=target,
            got=error.strerror or str(error),
            fix="free some space there, or name a folder you may write to with --data-root or PARLEY_DATA",
        ) from None


def _chunks(address: str) -> Iterator[tuple[bytes, int | None]]:
    # Reading and writing both raise OSError; a generator sees only errors of reading.
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
            length = response.headers.get("Content-Length")
            while chunk := response.read(_CHUNK_BYTES):
                yield chunk, None if length is None else int(length)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError("an address cannot be reached", where=address, got=str(error)) from None


DATA_VARIABLE = "PARLEY_DATA"
CACHE_VARIABLE = "PARLEY_CACHE"
UNNAMED = "NAME"
"""Placeholder of a corpus in commands of a message, until its requested name is known (`envs/corpora/lines.py`)."""


class UnwholeCorpusError(DataError):
    """A corpus with missing files or broken lines."""


def cache_root(explicit: Path | None = None) -> Path:
    """Return the cache folder: the argument, else `PARLEY_CACHE`, else the user's cache folder.

    Returns:
        A path that may not exist yet; by default `parley` under `XDG_CACHE_HOME`, or under `~/.cache` without it.
    """
    if explicit is not None:
        return explicit.expanduser()
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "parley"


def data_root(explicit: Path | None = None) -> Path:
    """Return the folder of the corpora: the argument, else `PARLEY_DATA`, else `data` in the cache.

    Returns:
        A path that may not exist yet; `require_files` reports missing files.
    """
    if explicit is not None:
        return explicit.expanduser()
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named).expanduser()
    return cache_root() / "data"


def root_words(explicit: Path | None) -> list[str]:
    """Return the flag that makes a command use the given data root; empty if none was given, or the one without a flag."""
    return [] if explicit in (None, data_root()) else ["--data-root", str(explicit)]


def missing_files(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the names that are not files in the folder, in the given order."""
    return [name for name in names if not (folder / name).is_file()]


def require_files(corpus: str, folder: Path, names: Sequence[str], remedy: str) -> None:
    """Raise if files of a corpus are missing.

    Args:
        corpus: the corpus' registered name.
        folder: the folder of its files.
        names: the files.
        remedy: how to get the files, for the message.

    Raises:
        UnwholeCorpusError: the folder or some files are missing; the message names them and their folder.
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
    """Return the content of a corpus file.

    Raises:
        DataError: the file cannot be read.
    """
    with opened_file(path) as file:
        return file.read()


@contextmanager
def opened_file(path: Path) -> Iterator[BufferedReader]:
    """Open a corpus file to read in a `with` block.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        fix = "check its name, and that you may read it"
        raise DataError("the file cannot be read", where=path, got=error.strerror, fix=fix) from None


MANIFEST = "manifest.json"

logger = logging.getLogger(__name__)


def compiled_folder(cache: Path | None, name: str, *key: str | int) -> Path:
    """Return the folder of a compiled corpus.

    Args:
        cache: the cache folder; None for the default of `cache_root`.
        name: the corpus' name.
        key: all values that the content depends on.
    """
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=8).hexdigest()
    return cache_root(cache) / "compiled" / name / digest


def is_whole(folder: Path, names: Collection[str]) -> bool:
    """Return whether a compiled folder exists and is undamaged; damage is logged.

    Args:
        folder: the compiled folder, which may not exist.
        names: its files, without the manifest.
    """
    if not folder.exists():
        return False
    damage = _damage(folder, names)
    if damage:
        logger.warning("the compiled corpus %s is damaged (%s) and is compiled again", folder, damage)
    return not damage


def publish(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a compiled folder aside, and rename it into place.

    Args:
        folder: the target; a damaged folder is replaced.
        write: writes all files except the manifest into the given folder.

    Raises:
        DataError: the folder cannot be written.
    """
    try:
        parent = folder.parent
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{folder.name}-", ignore_cleanup_errors=True) as aside:
            draft = Path(aside) / "new"
            draft.mkdir()
            write(draft)
            digests = {path.name: file_digest(path) for path in sorted(draft.iterdir())}
            (draft / MANIFEST).write_text(json.dumps(digests, indent=1), encoding="utf-8")
            for path in (*draft.iterdir(), draft):
                sync(path)
            _move(draft, folder)
        sync(parent)
    except OSError as error:
        raise DataError(
            "a compiled corpus cannot be written",
            where=folder,
            got=error.strerror or str(error),
            fix=f"free some space there, or name another folder in {CACHE_VARIABLE}",
        ) from None


def write_batch(path: Path, batch: pa.RecordBatch) -> None:
    """Write an Arrow file of one record batch."""
    with path.open("wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def map_batch(path: Path) -> pa.RecordBatch:
    """Return the record batch of a file from `write_batch`, as views of the mapped file."""
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def _damage(folder: Path, names: Collection[str]) -> str:
    """Return the damage of a compiled folder, or an empty string."""
    try:
        digests = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if set(digests) != set(names):
            return f"{MANIFEST} names other files"
        for name in sorted(names):
            if file_digest(folder / name) != digests[name]:
                return f"{name} has changed since it was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, TypeError) as error:
        return f"{MANIFEST} cannot be read: {error}"
    return ""


def _move(draft: Path, folder: Path) -> None:
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        # The folder is damaged, or another process was faster. The same key means the same content, so replacing the files
        # one by one never leaves a reader without a file.
        for path in sorted(draft.iterdir(), key=lambda path: path.name == MANIFEST):
            path.replace(folder / path.name)
