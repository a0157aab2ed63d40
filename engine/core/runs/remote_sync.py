"""Runs at URIs: a run is worked on in a local copy, and what is saved there is put at the URI before an event tells of it.

    URI/config.json, ...      the files of the run folder, each put whole; config.json last, as it makes a run or a checkpoint
    URI/log/00000.jsonl       the event log in segments, because storage cannot append; the last one is put again as it grows
    URI/rows/part-*.parquet   put by the workers themselves (`engine/core/ray/record.py`), as is what lies in unfinished/
    URI/lease.json            who writes the run

The URI is right and the copy is not: whoever opens or looks at a run makes the copy the same first. Rows and weights, which are
large, are copied when they are read. A copy whose lock is held is left alone, because its writer has the newest of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.layout import CONFIG, ENVIRONMENT, EVENTS, LEASE, LOG, ROWS, UNFINISHED
from parley.engine.core.runs.remote_lock import Lease
from parley.envs.core.storage.copies import LOCK, fetch, is_held, is_same, make_same, publish
from parley.envs.core.storage.files import ASIDE, delete, entries, put, sweep
from parley.envs.core.storage.uris import join_uri, local_copy, uri_of

_SEGMENT_BYTES = 64 << 10
_PAUSE_S = 1.0
"""Events of single shards wait this long for company."""
WEIGHTS = ".safetensors"
_GROWING = "tensorboard"
"""Folder whose files grow all the time; put when a writer ends."""
_OUR_OWN = (EVENTS, LOCK)


class Mirror:
    """Keeps a run's URI the same as its local copy, for the process that writes it.

    Args:
        path: the local copy, whose lock this process holds.
        uri: of the run.

    Raises:
        RunError: another process writes the run.
        StorageError: storage cannot be read or written.
    """

    def __init__(self, path: Path, uri: str) -> None:
        self._path, self._uri = path, uri
        self._lease = Lease(uri, path / LOCK)
        try:
            sweep(uri)
            copied = _make_copy(path, uri, held=True)
        except BaseException:
            self._lease.release()
            raise
        # Files of no run, such as hidden ones, are neither put nor deleted.
        self._there = {name: _signature(path / name) for name in _own_files(path) if name in copied}
        self._segment = sum(_is_in(name, LOG) for name in copied)
        self._segment_start = self._end_of_log()
        self._put_at = 0.0

    def check(self) -> None:
        """Makes sure that this process may still write, see `Lease.check`."""
        self._lease.check()

    def put_changes(self, last: bool = False) -> None:
        """Puts what was written since the last time, and deletes what was deleted; parts and the log have their own ways.

        Args:
            last: whether files that grow all the time are put too.

        Raises:
            RunError: another process has taken the run over.
            StorageError: storage cannot be written.
        """
        self._lease.check()
        found = [name for name in _own_files(self._path) if last or not _is_in(name, _GROWING)]
        here = {name: _signature(self._path / name) for name in found}
        changed = [name for name, signature in here.items() if self._there.get(name) != signature]
        gone = [name for name in self._there if name not in here and not _is_in(name, _GROWING)]
        # A checkpoint that is replaced is none until the last of it is there; the run's own comes after all others.
        heads = [name for name in changed if PurePosixPath(name).name == CONFIG]
        heads.sort(key=lambda name: -name.count("/"))
        for name in gone + [name for name in heads if name in self._there]:
            delete(join_uri(self._uri, name))
            del self._there[name]
        for name in [name for name in changed if name not in heads] + heads:
            publish(self._path / name, join_uri(self._uri, name))
            self._there[name] = _signature(self._path / name)

    def put_log(self, at_once: bool = True) -> None:
        """Puts the events that were appended since the last time.

        Args:
            at_once: whether this cannot wait for the next event.

        Raises:
            RunError: another process has taken the run over.
            StorageError: storage cannot be written.
        """
        if not at_once and time.monotonic() - self._put_at < _PAUSE_S:
            return
        self._lease.check()
        end = self._end_of_log()
        with (self._path / EVENTS).open("rb") as log:
            log.seek(self._segment_start)
            put(join_uri(self._uri, f"{LOG}/{self._segment:05d}.jsonl"), log.read(end - self._segment_start))
        self._put_at = time.monotonic()
        if end - self._segment_start >= _SEGMENT_BYTES:
            self._segment, self._segment_start = self._segment + 1, end

    def close(self) -> None:
        """Puts what is left and lets the next writer in.

        Raises:
            RunError: another process has taken the run over.
            StorageError: storage cannot be written.
        """
        try:
            self.put_changes(last=True)
            self.put_log()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Lets the next writer in and puts nothing."""
        self._lease.release()

    def _end_of_log(self) -> int:
        log = self._path / EVENTS
        return log.stat().st_size if log.is_file() else 0


def refresh(path: Path) -> None:
    """Makes the copy of a run, or of a folder of runs, the same as its URI, rows and weights left out; nothing for other paths.

    Raises:
        StorageError: storage cannot be read.
    """
    uri = uri_of(path)
    if uri is not None:
        _make_copy(path, uri, held=False)


def fetched_run(name: str) -> Path:
    """The folder of what a name stands for as a run, or as a folder of runs: a path itself, of a URI its copy, made the same.

    Raises:
        StorageError: the URI cannot be read.
        ConfigError: a URI that `split_uri` refuses.
    """
    path = local_copy(name)
    refresh(path)
    return path


def replicate(path: Path) -> None:
    """Puts a local file at the URI that it is the copy of; nothing for other files.

    Raises:
        StorageError: it cannot be written.
    """
    uri = uri_of(path)
    if uri is not None:
        publish(path, uri)


def withdraw(path: Path) -> None:
    """Deletes at its URI what a path was the local copy of; nothing for other paths.

    Raises:
        StorageError: it cannot be deleted.
    """
    uri = uri_of(path)
    if uri is not None:
        delete(uri)


def names_in(path: Path) -> set[str]:
    """What lies directly in a folder, or at the URI that it is the copy of, where an empty folder is nothing.

    Raises:
        StorageError: it cannot be listed.
    """
    uri = uri_of(path)
    if uri is None:
        return {entry.name for entry in path.glob("*")}
    return {name.partition("/")[0] for name in entries(uri, recursive=True)}


def refresh_rows(path: Path) -> None:
    """Copies the parts of a run that are others at its URI; nothing for other paths.

    Raises:
        StorageError: storage cannot be read.
    """
    uri = uri_of(path)
    if uri is not None:
        rows = join_uri(uri, ROWS)
        make_same(rows, path / ROWS, {name: entry for name, entry in entries(rows).items() if name.endswith(".parquet")})


def _make_copy(path: Path, uri: str, held: bool) -> set[str]:
    """Makes a copy the same: the run in a folder and those below it, each as far as it is not being written on this machine.

    Args:
        path: the copy.
        uri: of a run, or of a folder of runs.
        held: whether this process writes the run, which is then copied whole but for its rows.

    Returns:
        The files of the run at the URI itself, its rows left out, by path from there.
    """
    there = {name: entry for name, entry in entries(uri, recursive=True).items() if name != LEASE}
    here = {str(file.relative_to(path)) for file in _files(path)}
    runs = {_spelled(PurePosixPath(name).parent) for name in there.keys() | here if PurePosixPath(name).name == ENVIRONMENT}
    if held:
        runs.add("")
    ours = {run for run in runs if (held and not run) or not is_held(path / run)}
    owners = {name: _owner(name, runs) for name in there.keys() | here}
    for name in here:
        if owners[name] in ours:
            made_here = name not in there and PurePosixPath(name).name == EVENTS
            if not made_here and (name not in there or not is_same(path / name, there[name])):
                (path / name).unlink()
    wanted = {name for name in there if owners[name] in ours and _is_copied(name, owners[name] or "", held)}
    fetch(uri, path, {name: there[name] for name in wanted})
    for run in ours:
        _join_log(path / run, [path / name for name in sorted(wanted) if owners[name] == run and _is_in(name, LOG, run)])
    for name in there:
        # A folder is there even where its files are copied later.
        if owners[name] in ours:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
    return {name for name in there if owners[name] == "" and not _is_in(name, ROWS)}


def _is_copied(name: str, run: str, held: bool) -> bool:
    """Whether a file of a run is copied with it; rows, and weights where a run is only looked at, are when they are read."""
    return not _is_in(name, ROWS, run) and (not name.endswith(WEIGHTS) or (held and not run))


def _join_log(folder: Path, segments: list[Path]) -> None:
    log, content = folder / EVENTS, b"".join(segment.read_bytes() for segment in segments)
    if content and (not log.is_file() or log.read_bytes() != content):
        write_whole(log, content)
    elif not content:
        log.unlink(missing_ok=True)


def _own_files(path: Path) -> Iterator[str]:
    """The files of a run that are put as they are, by path from its folder; those of runs below it are theirs."""
    for file in path.iterdir():
        if file.is_dir():
            if file.name not in (ROWS, UNFINISHED, LOG) and not (file / ENVIRONMENT).is_file():
                yield from (str(inside.relative_to(path)) for inside in _files(file) if not _is_in_a_run(inside, path))
        elif file.name not in _OUR_OWN and _counts(file):
            yield file.name


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and file.name != LOCK and _counts(file))


def _counts(file: Path) -> bool:
    return not file.name.startswith(".") and not file.name.endswith(ASIDE)


def _is_in_a_run(file: Path, top: Path) -> bool:
    return any((folder / ENVIRONMENT).is_file() for folder in file.parents if top in folder.parents)


def _owner(name: str, runs: set[str]) -> str | None:
    """The innermost run folder that a file is in; None where it is in none."""
    return next((folder for folder in map(_spelled, PurePosixPath(name).parents) if folder in runs), None)


def _spelled(folder: PurePosixPath) -> str:
    return "" if str(folder) == "." else str(folder)


def _is_in(name: str, folder: str, run: str = "") -> bool:
    return name.startswith(f"{run}/{folder}/" if run else f"{folder}/")


def _signature(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size
