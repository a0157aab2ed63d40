"""One writer per run: a lock that the operating system drops when its holder dies, however it dies.

A file system without locks holds runs too (`envs/core/storage/locks.py`). Who only looks (`holder_of`) takes a shared lock for an
instant, because there is no other way to ask; a writer that meets one tries again.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from parley.envs.core.errors import RunError
from parley.envs.core.storage.copies import is_held
from parley.envs.core.storage.locks import AT_ONCE, EXCLUSIVE, lock

WRITABLE = "give a folder that you may write: --run DIR"
_NUM_TRIES, _PAUSE_S = 50, 0.01


class RunLock:
    """Holds a run folder for this process until `release` or death.

    Args:
        path: the lock file; made when absent, never removed, because removing it would let two holders in.

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
        """Lets the next writer in; the lock must be held."""
        os.close(self._descriptor)


def process_name() -> str:
    """What this process is called in locks, such as "process 7 on node-3"."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def holder_of(path: Path) -> str | None:
    """Who holds a lock, such as "process 7 on node-3"; None when nobody does.

    Raises:
        RunError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() if is_held(path.parent) else None
    except OSError as error:
        raise RunError("the lock of the run cannot be read", where=path, got=error.strerror) from error


def _lock(descriptor: int) -> None:
    """Takes the lock, past those who only look: tried so often, for on a busy machine a time may pass in one try."""
    for _ in range(_NUM_TRIES):
        with suppress(BlockingIOError):
            lock(descriptor, EXCLUSIVE | AT_ONCE)
            return
        time.sleep(_PAUSE_S)
    lock(descriptor, EXCLUSIVE | AT_ONCE)
