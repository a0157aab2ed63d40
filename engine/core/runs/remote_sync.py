"""Locks of runs, and runs at URIs: each has one writer, works in a local copy, and is saved at its URI before an event says so.

    URI/config.json, ...      the files of the run folder, each put whole; config.json last, as it makes a run or a checkpoint
    URI/log/00000.jsonl       the event log in segments, because storage cannot append; the last one is put again as it grows
    URI/rows/part-*.parquet   put by the workers themselves (`engine/core/ray/record.py`), like the files in unfinished/
    URI/lease.json            the writer of the run

The URI is right and the copy is not: opening or reading a run first makes the copy the same. Rows and weights, which are large,
are copied when they are read. A copy whose lock is held is left alone, because its writer has the newest files.

`RunLock` is one writer per run on a machine. The operating system drops the lock when its holder dies, however it dies. A file
system without locks holds runs too (`envs/core/storage/uris.py`). A reader (`holder_of`) takes a shared lock for an instant,
because there is no other way to ask; a writer that meets one tries again.

`Lease` is one writer per run where locks do not reach: a file beside the run that its holder renews while it lives. Where
storage has conditional writes (`envs/core/storage/conditional.py`), each change is one: of several that begin, one writes. No
clocks are compared. A lease that seems to have run out is watched for `STALE_S`; if it does not change, its holder is dead.

Elsewhere this rests on two things: clocks that agree within some seconds, and a look before every write. A lease that was not
renewed for `STALE_S` is free. Two that begin at the same moment both write their name and look again after `SETTLE_S`: the last
name stays, the other one gives up.

A holder that was cut off for longer than `STALE_S` finds another name and stops. Until it looks, at most `RENEW_S` later, its
workers may put parts; all workers make the same parts.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from parley.engine.core.runs.documents import CONFIG, ENVIRONMENT, EVENTS, LEASE, LOG, ROWS, UNFINISHED, whole, write_whole
from parley.envs.core.errors import RunError, StorageError
from parley.envs.core.storage.copies import LOCK, fetch, is_held, is_same, make_same, publish
from parley.envs.core.storage.files import ASIDE, delete, entries, put, read, sweep
from parley.envs.core.storage.uris import AT_ONCE, EXCLUSIVE, join_uri, local_copy, lock, uri_of

if TYPE_CHECKING:
    from parley.envs.core.storage.conditional import Version

WRITABLE = "give a folder that you may write: --run DIR"
_NUM_TRIES, _LOCK_PAUSE_S = 50, 0.01


class RunLock:
    """A lock on a run folder, held by this process until `release` or death.

    Args:
        path: the lock file; made if absent, never removed, because removal would let two holders in.

    Raises:
        RunError: another process holds it, or the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise RunError("the run folder cannot be written", where=path.parent, got=error.strerror, fix=WRITABLE) from error
        try:
            _lock(self._descriptor)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise RunError(
                "another process is writing this run",
                where=path.parent,
                got=holder,
                fix="wait until it ends or stop it, or give this run another name",
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise RunError(
                "the run folder cannot be locked",
                where=path.parent,
                got=error.strerror,
                fix="give a folder on another file system: --run DIR",
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{process_name()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock, which must be held."""
        os.close(self._descriptor)


def process_name() -> str:
    """Return the name of this process in locks, such as "process 7 on node-3"."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def holder_of(path: Path) -> str | None:
    """Return the holder of a lock, such as "process 7 on node-3"; None if there is none.

    Raises:
        RunError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() if is_held(path.parent) else None
    except OSError as error:
        raise RunError("the lock of the run cannot be read", where=path, got=error.strerror) from error


def _lock(descriptor: int) -> None:
    """Take the lock, past readers; on a busy machine one of them may hold it for a whole try, hence many tries."""
    for _ in range(_NUM_TRIES):
        with suppress(BlockingIOError):
            lock(descriptor, EXCLUSIVE | AT_ONCE)
            return
        time.sleep(_LOCK_PAUSE_S)
    lock(descriptor, EXCLUSIVE | AT_ONCE)


logger = logging.getLogger(__name__)

RENEW_S, STALE_S, SETTLE_S = 20.0, 90.0, 1.0
_WATCH_S = 5.0
"""Seconds between two looks at a lease whose holder may be dead."""
_FREE = json.dumps({"holder": "", "token": "", "under": "", "time": 0.0}).encode()
"""A lease that was let go."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Lease:
    """A lease on a run at a URI, held by this process until `release`, or until it has not been renewed for too long.

    Args:
        uri: URI of the run.
        lock: the local lock file, which this process holds: an older lease taken under the same one is free.

    Raises:
        RunError: another process holds the lease; the error names it.
        StorageError: storage cannot be read or written.
    """

    def __init__(self, uri: str, lock: Path) -> None:
        self._run, self._uri = uri, join_uri(uri, LEASE)
        self._content = {"holder": process_name(), "token": uuid.uuid4().hex, "under": _identity(lock)}
        # Runs in folders of this machine have no need of it.
        from parley.envs.core.storage.conditional import conditional_file

        self._file = conditional_file(self._uri)
        self._version: Version | None = None
        self._taken_by: dict[str, Any] | None = None
        lease = _read(self._uri)
        is_held = lease is not None and self._is_others(lease) and _is_fresh(lease)
        # Of a clock that is far ahead of this one nothing follows, so such a lease is watched where that is possible.
        is_odd = lease is not None and lease["time"] - time.time() >= STALE_S
        if (is_held and not is_odd) or not self._take():
            if lease is not None and is_held:
                raise self._refusal(lease)
            self._file = None
            self._renewed = self._put()
            time.sleep(SETTLE_S)
            self._renew()
        self.check()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {uri}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that this process may still write.

        Raises:
            RunError: another process has taken over.
            StorageError: the lease ran out, and storage cannot be reached to renew it.
        """
        if time.monotonic() - self._renewed >= STALE_S:
            self._renew()
        if self._taken_by is not None:
            raise self._refusal(self._taken_by)

    def release(self) -> None:
        """Release the lease; if storage cannot be reached, it is free once it has run out."""
        self._released.set()
        self._thread.join()
        try:
            lease = _read(self._uri)
            if lease is not None and lease["token"] == self._content["token"]:
                if self._file is None:
                    delete(self._uri)
                else:
                    # A deletion has no condition.
                    self._file.put(_FREE, self._version)
        except StorageError as error:
            logger.warning("the lease of %s could not be deleted and runs out in %g s: %s", self._run, STALE_S, error.got)

    def _take(self) -> bool:
        """Take the lease by conditional writes; return False where they do not work."""
        if self._file is None:
            return False
        try:
            version = self._free_version()
            self._renewed = time.monotonic()
            self._version = self._file.put(self._encoded(), version)
            if self._version is None:
                self._taken_by = _read(self._uri) or _ended()
                return True
            works = self._file.put(self._encoded(), None) is None
        except StorageError as error:
            logger.info("no conditional writes at %s, so clocks decide: %s", self._run, error.got)
            return False
        if not works:
            logger.info("%s ignores the condition of a write, so clocks decide", self._run)
        return works

    def _free_version(self) -> Version | None:
        """Return the version of a lease that is free, None if there is no lease; a lease of others is watched first."""
        assert self._file is not None, "asked for with conditional writes alone"
        standing = self._file.read()
        if standing is None:
            return None
        if self._is_others(_decoded(standing[0], self._uri)):
            logger.warning("%s has an old lease: whether its holder is alive is known in %g s", self._run, STALE_S)
            deadline = time.monotonic() + STALE_S
            while time.monotonic() < deadline:
                time.sleep(min(_WATCH_S, STALE_S))
                now = self._file.read()
                if now is None or now[1] != standing[1]:
                    raise self._refusal(_ended() if now is None else _decoded(now[0], self._uri))
        return standing[1]

    def _is_others(self, lease: dict[str, Any]) -> bool:
        """Return whether a lease was neither let go nor taken by a process of this machine that is dead."""
        return bool(lease["token"]) and lease["under"] != self._content["under"]

    def _keep(self) -> None:
        while self._taken_by is None and not self._released.wait(RENEW_S):
            try:
                self._renew()
            except StorageError as error:
                # Not the end yet: `check` raises once the lease has run out.
                logger.warning("the lease of %s could not be renewed: %s", self._run, error.got)

    def _renew(self) -> None:
        now = time.monotonic()
        if self._file is not None:
            version = self._file.put(self._encoded(), self._version)
            if version is None:
                # The answer to an earlier write may have been lost.
                standing = self._file.read()
                lease = None if standing is None else _decoded(standing[0], self._uri)
                if standing is None or lease is None or lease["token"] != self._content["token"]:
                    self._taken_by = lease or _ended()
                    return
                version = standing[1]
            self._version, self._renewed = version, now
            return
        lease = _read(self._uri)
        if lease is None:
            # Only the taker of a lease deletes it.
            self._taken_by = _ended()
        elif lease["token"] != self._content["token"]:
            self._taken_by = lease
        else:
            self._renewed = self._put()

    def _put(self) -> float:
        now = time.monotonic()
        put(self._uri, self._encoded())
        return now

    def _encoded(self) -> bytes:
        return json.dumps({**self._content, "time": time.time()}).encode()

    def _refusal(self, taker: dict[str, Any]) -> RunError:
        left_s = max(0.0, taker["time"] + STALE_S - time.time())
        return RunError(
            "another process is writing this run",
            where=self._run,
            got=f"{taker['holder']}, heard of {max(0.0, time.time() - taker['time']):.0f} s ago",
            fix=f"wait until it ends or stop it, or give this run another name; if it is dead, try again in {left_s:.0f} s",
        )


def _ended() -> dict[str, Any]:
    return {"holder": "one that has ended since", "time": time.time()}


def keeper_of(path: Path) -> str | None:
    """Return the process that keeps this machine from writing a run now, such as "process 7 on node-3"; None if none does.

    Args:
        path: the run's local folder, which may not exist; for a run at a URI, the local copy.

    Raises:
        RunError: the lock cannot be read.
        StorageError: storage cannot be read.
    """
    lock, uri = path / LOCK, uri_of(path)
    holder = holder_of(lock)
    lease = _read(join_uri(uri, LEASE)) if holder is None and uri is not None else None
    if lease is None or not _is_fresh(lease) or (lock.is_file() and lease["under"] == _identity(lock)):
        return holder
    return str(lease["holder"])


def _read(uri: str) -> dict[str, Any] | None:
    """Return a lease; None if there is none."""
    content = read(uri)
    if content is None:
        return None
    return _decoded(content, uri)


def _decoded(content: bytes, uri: str) -> dict[str, Any]:
    with whole(uri, "delete it once no process writes the run"):
        lease: dict[str, Any] = json.loads(content)
        return {"time": float(lease["time"]), **{name: str(lease[name]) for name in ("holder", "token", "under")}}


def _is_fresh(lease: dict[str, Any]) -> bool:
    return bool(time.time() - lease["time"] < STALE_S)


def _identity(lock: Path) -> str:
    """Return an identity that no other lock file on any machine shares, as long as the machine is up."""
    stat = lock.stat()
    boot = _BOOT.read_text(encoding="utf-8").strip() if _BOOT.is_file() else f"{uuid.getnode():x}"
    return f"{boot} {stat.st_dev} {stat.st_ino}"


_SEGMENT_BYTES = 64 << 10
_PAUSE_S = 1.0
"""Seconds that events of single shards wait for others, to be put together."""
WEIGHTS = ".safetensors"
_GROWING = "tensorboard"
"""Folder whose files grow all the time; they are put when a writer ends."""
_OUR_OWN = (EVENTS, LOCK)


class Mirror:
    """The process that writes a run, as it keeps the run's URI the same as its local copy.

    Args:
        path: the local copy, whose lock this process holds.
        uri: URI of the run.

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
        # Files that belong to no run, such as hidden ones, are neither put nor deleted.
        self._remote = {name: _signature(path / name) for name in _own_files(path) if name in copied}
        self._segment = sum(_is_in(name, LOG) for name in copied)
        self._segment_start = self._end_of_log()
        self._put_at = 0.0

    def check(self) -> None:
        """Check that this process may still write, see `Lease.check`."""
        self._lease.check()

    def put_changes(self, last: bool = False) -> None:
        """Put files written since the last time, and delete deleted ones; parts and the log have their own ways.

        Args:
            last: whether to put files that grow all the time, too.

        Raises:
            RunError: another process has taken the run over.
            StorageError: storage cannot be written.
        """
        self._lease.check()
        names = [name for name in _own_files(self._path) if last or not _is_in(name, _GROWING)]
        signatures = {name: _signature(self._path / name) for name in names}
        changed = [name for name, signature in signatures.items() if self._remote.get(name) != signature]
        gone = [name for name in self._remote if name not in signatures and not _is_in(name, _GROWING)]
        # A replaced checkpoint must not count until its last file is there; the run's own `config.json` comes after all others.
        heads = [name for name in changed if PurePosixPath(name).name == CONFIG]
        heads.sort(key=lambda name: -name.count("/"))
        for name in gone + [name for name in heads if name in self._remote]:
            delete(join_uri(self._uri, name))
            del self._remote[name]
        for name in [name for name in changed if name not in heads] + heads:
            publish(self._path / name, join_uri(self._uri, name))
            self._remote[name] = _signature(self._path / name)

    def put_log(self, at_once: bool = True) -> None:
        """Put the events that were appended since the last time.

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
        """Put the rest and let the next writer in.

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
        """Let the next writer in and put nothing."""
        self._lease.release()

    def _end_of_log(self) -> int:
        log = self._path / EVENTS
        return log.stat().st_size if log.is_file() else 0


def refresh(path: Path) -> None:
    """Make the local copy of a run, or of a folder of runs, the same as its URI, without rows and weights.

    Raises:
        StorageError: storage cannot be read.
    """
    uri = uri_of(path)
    if uri is not None:
        _make_copy(path, uri, held=False)


def fetched_run(name: str) -> Path:
    """Return the folder of a run, or of a folder of runs, by name; for a URI its updated local copy.

    Raises:
        StorageError: the URI cannot be read.
        ConfigError: `split_uri` refuses the URI.
    """
    path = local_copy(name)
    refresh(path)
    return path


def replicate(path: Path) -> None:
    """Put a local file at the URI that it is the copy of; other files are left alone.

    Raises:
        StorageError: it cannot be written.
    """
    uri = uri_of(path)
    if uri is not None:
        publish(path, uri)


def withdraw(path: Path) -> None:
    """Delete the URI that a path was the local copy of; other paths are left alone.

    Raises:
        StorageError: it cannot be deleted.
    """
    uri = uri_of(path)
    if uri is not None:
        delete(uri)


def names_in(path: Path) -> set[str]:
    """Return the names directly in a folder, or at the URI that it is the copy of, where empty folders do not exist.

    Raises:
        StorageError: it cannot be listed.
    """
    uri = uri_of(path)
    if uri is None:
        return {entry.name for entry in path.glob("*")}
    return {name.partition("/")[0] for name in entries(uri, recursive=True)}


def refresh_rows(path: Path) -> None:
    """Copy the parts of a run that differ at its URI; other paths are left alone.

    Raises:
        StorageError: storage cannot be read.
    """
    uri = uri_of(path)
    if uri is not None:
        rows = join_uri(uri, ROWS)
        make_same(rows, path / ROWS, {name: entry for name, entry in entries(rows).items() if name.endswith(".parquet")})


def _make_copy(path: Path, uri: str, held: bool) -> set[str]:
    """Make a copy the same: the run in a folder and those below it, except those being written on this machine.

    Args:
        path: the copy.
        uri: URI of a run, or of a folder of runs.
        held: whether this process writes the run, which is then copied whole except for its rows.

    Returns:
        The files of the run at the URI itself, without its rows, by path from there.
    """
    remote = {name: entry for name, entry in entries(uri, recursive=True).items() if name != LEASE}
    local = {str(file.relative_to(path)) for file in _files(path)}
    runs = {_spelled(PurePosixPath(name).parent) for name in remote.keys() | local if PurePosixPath(name).name == ENVIRONMENT}
    if held:
        runs.add("")
    ours = {run for run in runs if (held and not run) or not is_held(path / run)}
    owners = {name: _owner(name, runs) for name in remote.keys() | local}
    for name in local:
        if owners[name] in ours:
            made_here = name not in remote and PurePosixPath(name).name == EVENTS
            if not made_here and (name not in remote or not is_same(path / name, remote[name])):
                (path / name).unlink()
    to_copy = {name for name in remote if owners[name] in ours and _is_copied(name, owners[name] or "", held)}
    fetch(uri, path, {name: remote[name] for name in to_copy})
    for run in ours:
        _join_log(path / run, [path / name for name in sorted(to_copy) if owners[name] == run and _is_in(name, LOG, run)])
    for name in remote:
        # A folder exists even if its files are copied later.
        if owners[name] in ours:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
    return {name for name in remote if owners[name] == "" and not _is_in(name, ROWS)}


def _is_copied(name: str, run: str, held: bool) -> bool:
    """Return whether a file is copied with its run; rows, and weights of a run that is only read, are copied on reading."""
    return not _is_in(name, ROWS, run) and (not name.endswith(WEIGHTS) or (held and not run))


def _join_log(folder: Path, segments: list[Path]) -> None:
    log, content = folder / EVENTS, b"".join(segment.read_bytes() for segment in segments)
    if content and (not log.is_file() or log.read_bytes() != content):
        write_whole(log, content)
    elif not content:
        log.unlink(missing_ok=True)


def _own_files(path: Path) -> Iterator[str]:
    """Yield the files of a run that are put as they are, by path from its folder, without those of runs below it."""
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
    return next((folder for folder in map(_spelled, PurePosixPath(name).parents) if folder in runs), None)


def _spelled(folder: PurePosixPath) -> str:
    return "" if str(folder) == "." else str(folder)


def _is_in(name: str, folder: str, run: str = "") -> bool:
    return name.startswith(f"{run}/{folder}/" if run else f"{folder}/")


def _signature(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size
