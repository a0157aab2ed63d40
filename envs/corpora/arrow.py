"""Folders of memory-mapped Arrow files that are compiled once: named, checked, written and published here.

A compiled folder is `compiled/NAME/KEY` in the cache. KEY is a digest of all that its content depends on, so a folder is
never out of date; it is written aside and renamed whole, so it is never half there; `manifest.json` holds the sha256 of
every other file, so damage is noticed. Any number of processes may open, compile or rebuild the same folder at the same
time. What the files hold is their owners' business: `envs/negotiation/corpora/compiled.py` for negotiations,
`envs/corpora/pairs/compiled.py` for pairs of utterances.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa

from parley.envs.core.disk import file_digest, sync
from parley.envs.core.errors import DataError
from parley.envs.corpora.root import CACHE_VARIABLE, cache_root

MANIFEST = "manifest.json"

logger = logging.getLogger(__name__)


def compiled_folder(cache: Path | None, name: str, *key: str | int) -> Path:
    """Where the compiled form of a corpus lies.

    Args:
        cache: see `parley.envs.corpora.root.cache_root` for the default.
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
