"""One writer per run: a lock that the operating system drops when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from envs.core.errors import RunError


class RunLock:
    """Holds a run folder for this process until `release` or death.

    Args:
        path: the lock file; made when absent, never removed, because removing it would let two holders in.

    Raises:
        RunError: another process holds it, or the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError("the run folder cannot be written", where=path.parent, got=error.strerror) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 200).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise RunError(
                "another process is writing this run",
                where=path.parent,
                got=holder,
                fix="wait until it ends or stop it, or give this run another name",
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise RunError("the run folder cannot be locked", where=path.parent, got=error.strerror) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Lets the next writer in; the lock must be held."""
        os.close(self._descriptor)
