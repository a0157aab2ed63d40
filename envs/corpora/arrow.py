"""Folders of memory-mapped Arrow files that are compiled once: named, checked, written and published here.

A compiled folder is `compiled/NAME/KEY` in the cache. KEY is a digest of all that its content depends on, so a folder is
never out of date; it is written aside and renamed whole, so it is never half there; `manifest.json` holds the sha256 of
every other file, so damage is noticed. Any number of processes may open, compile or rebuild the same folder at the same
time. What the files hold is their owners' business: `envs/negotiation/corpora/catalogue.py` for negotiations,
`envs/corpora/pairs/compiled.py` for pairs of utterances.

Downloads of corpus files: progress, a check of the content, and an atomic rename. Nothing else uses the network.

Where corpora and their compiled forms lie: the data root, the cache, and what to say when a file is missing.

The data root holds one folder per corpus with the files as published; it may be read-only. The cache holds what Parley
makes itself and can make again.
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
from pathlib import Path

import pyarrow as pa

from parley.envs.core.errors import DataError, file_digest, sync

Progress = Callable[[str, int, int | None], None]
"""Called with file name, bytes so far, and bytes in all where the server says so."""

TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 16


class DownloadError(DataError):
    """An address cannot be reached, or does not hold what was expected."""


def download(address: str, target: Path, mismatch: Callable[[Path], str], progress: Progress | None = None) -> None:
    """Fetches a file and puts it in place once its content is known to be right.

    Args:
        address: where it is.
        target: where it shall be; its folder is made.
        mismatch: says how a file differs from what is expected; the empty string accepts it.
        progress: told about every chunk.

    Raises:
        DownloadError: the address cannot be reached, the connection breaks, or the content is not as expected.
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
    """A path to write to; when the block ends well, the file there takes the target's place in one step.

    Args:
        target: the file to make or replace; its folder is made.

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
    # Reading and writing both fail with OSError; as a generator, this one sees the failures of reading only.
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            length = answer.headers.get("Content-Length")
            while chunk := answer.read(_CHUNK_BYTES):
                yield chunk, None if length is None else int(length)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError("an address cannot be reached", where=address, got=str(error)) from None


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


MANIFEST = "manifest.json"

logger = logging.getLogger(__name__)


def compiled_folder(cache: Path | None, name: str, *key: str | int) -> Path:
    """Where the compiled form of a corpus lies.

    Args:
        cache: see `parley.envs.corpora.arrow.cache_root` for the default.
        name: the corpus' name.
        key: all that the content depends on.
    """
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=8).hexdigest()
    return cache_root(cache) / "compiled" / name / digest


def is_whole(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder has been compiled and not been damaged since; damage is logged.

    Args:
        folder: the compiled folder, which need not exist.
        names: its files without the manifest.
    """
    if not folder.exists():
        return False
    damage = _damage(folder, names)
    if damage:
        logger.warning("the compiled corpus %s is damaged (%s) and is compiled again", folder, damage)
    return not damage


def publish(folder: Path, write: Callable[[Path], None]) -> None:
    """Makes a compiled folder appear whole.

    Args:
        folder: where it belongs; one that is damaged is replaced.
        write: writes every file but the manifest into the folder it is given.

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
    """Writes an Arrow file of one record batch."""
    with path.open("wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def map_batch(path: Path) -> pa.RecordBatch:
    """The record batch of a file that `write_batch` wrote, as views of the mapped file."""
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def _damage(folder: Path, names: Collection[str]) -> str:
    """What is wrong with a compiled folder, or the empty string."""
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
        # The folder is damaged, or another process was faster. What it wrote has the same key, hence the same content, so
        # the files are replaced one by one and no reader ever misses one.
        for path in sorted(draft.iterdir(), key=lambda path: path.name == MANIFEST):
            path.replace(folder / path.name)
