"""One writer per run where locks do not reach: a lease, a file beside the run that its holder renews while it lives.

A lease that was not renewed for `STALE_S` is nobody's. Object storage has no lock, so this rests on two things: clocks that
agree within some seconds, and every holder looking before it writes. Two that begin at the same moment both write their name
and look again after `SETTLE_S`: the last name stands, the other one gives up. A holder that was cut off for longer than
`STALE_S` finds another name and stops. Until it looks, at most `RENEW_S` later, its workers may put parts; they are the same
whoever makes them.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from parley.engine.core.runs.manifest import whole
from parley.engine.core.runs.layout import LEASE
from parley.engine.core.runs.lock import holder_of, process_name
from parley.envs.core.errors import RunError, StorageError
from parley.envs.core.storage.copies import LOCK
from parley.envs.core.storage.files import delete, put, read
from parley.envs.core.storage.uris import join_uri, uri_of

logger = logging.getLogger(__name__)

RENEW_S, STALE_S, SETTLE_S = 20.0, 90.0, 1.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Lease:
    """Holds a run at a URI for this process until `release`, or until it has not been renewed for too long.

    Args:
        uri: of the run.
        lock: the local lock file, which this process holds: a lease that was taken under the same one is nobody's any more.

    Raises:
        RunError: another process holds it, with its name.
        StorageError: storage cannot be read or written.
    """

    def __init__(self, uri: str, lock: Path) -> None:
        self._run, self._uri = uri, join_uri(uri, LEASE)
        self._content = {"holder": process_name(), "token": uuid.uuid4().hex, "under": _identity(lock)}
        found = _read(self._uri)
        if found is not None and _is_fresh(found) and found["under"] != self._content["under"]:
            raise self._refusal(found)
        self._renewed = self._put()
        self._taken_by: dict[str, Any] | None = None
        time.sleep(SETTLE_S)
        self._renew()
        self.check()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {uri}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Makes sure that this process may still write.

        Raises:
            RunError: another process has taken over.
            StorageError: the lease ran out, and storage cannot be reached to renew it.
        """
        if time.time() - self._renewed >= STALE_S:
            self._renew()
        if self._taken_by is not None:
            raise self._refusal(self._taken_by)

    def release(self) -> None:
        """Lets the next writer in; where storage cannot be reached, once the lease has run out."""
        self._released.set()
        self._thread.join()
        try:
            found = _read(self._uri)
            if found is not None and found["token"] == self._content["token"]:
                delete(self._uri)
        except StorageError as error:
            logger.warning("the lease of %s could not be deleted and runs out in %g s: %s", self._run, STALE_S, error.got)

    def _keep(self) -> None:
        while self._taken_by is None and not self._released.wait(RENEW_S):
            try:
                self._renew()
            except StorageError as error:
                # Not the end yet: `check` says so when the lease has run out.
                logger.warning("the lease of %s could not be renewed: %s", self._run, error.got)

    def _renew(self) -> None:
        found = _read(self._uri)
        if found is None:
            # Only who has taken a lease deletes it.
            self._taken_by = {"holder": "one that has ended since", "time": time.time()}
        elif found["token"] != self._content["token"]:
            self._taken_by = found
        else:
            self._renewed = self._put()

    def _put(self) -> float:
        now = time.time()
        put(self._uri, json.dumps({**self._content, "time": now}).encode())
        return now

    def _refusal(self, other: dict[str, Any]) -> RunError:
        left_s = max(0.0, other["time"] + STALE_S - time.time())
        return RunError(
            "another process is writing this run",
            where=self._run,
            got=f"{other['holder']}, heard of {max(0.0, time.time() - other['time']):.0f} s ago",
            fix=f"wait until it ends or stop it, or give this run another name; if it is dead, try again in {left_s:.0f} s",
        )


def keeper_of(path: Path) -> str | None:
    """Who keeps this machine from writing a run now, such as "process 7 on node-3"; None when nobody does.

    Args:
        path: the run's folder here, there or not: of a run at a URI the local copy.

    Raises:
        RunError: its lock cannot be read.
        StorageError: storage cannot be read.
    """
    lock, uri = path / LOCK, uri_of(path)
    here = holder_of(lock)
    found = _read(join_uri(uri, LEASE)) if here is None and uri is not None else None
    if found is None or not _is_fresh(found) or (lock.is_file() and found["under"] == _identity(lock)):
        return here
    return str(found["holder"])


def _read(uri: str) -> dict[str, Any] | None:
    """A lease; None where there is none.

    Raises:
        RunError: it is damaged.
        StorageError: storage cannot be read.
    """
    content = read(uri)
    if content is None:
        return None
    with whole(uri, "delete it once no process writes the run"):
        found: dict[str, Any] = json.loads(content)
        return {"time": float(found["time"]), **{name: str(found[name]) for name in ("holder", "token", "under")}}


def _is_fresh(lease: dict[str, Any]) -> bool:
    return bool(time.time() - lease["time"] < STALE_S)


def _identity(lock: Path) -> str:
    """What no other lock file on any machine has in common with this one, as long as the machine is up."""
    found = lock.stat()
    boot = _BOOT.read_text(encoding="utf-8").strip() if _BOOT.is_file() else f"{uuid.getnode():x}"
    return f"{boot} {found.st_dev} {found.st_ino}"
