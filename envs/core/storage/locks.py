"""Locks on files, where the file system has them: NFS, Lustre and FUSE may be mounted without."""

from __future__ import annotations

import errno
import fcntl
import logging

logger = logging.getLogger(__name__)

EXCLUSIVE, SHARED, AT_ONCE = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_has_warned = False


def lock(descriptor: int, kind: int) -> bool:
    """Lock an open file until it is closed.

    Args:
        descriptor: of the file.
        kind: `EXCLUSIVE` or `SHARED`, and `AT_ONCE` to wait for nobody.

    Returns:
        Whether the file system has locks. Where it has none, a warning says once what that means, and nothing is locked.

    Raises:
        BlockingIOError: another process holds the file, and this one does not wait.
        OSError: the file cannot be locked for another reason.
    """
    try:
        fcntl.flock(descriptor, kind)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _warn(error)
        return False
    return True


def _warn(error: OSError) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        logger.warning(
            "this file system has no locks (%s): nothing keeps two processes from writing one run at a time, and parley status "
            "takes a running run for an interrupted one; give each process a run of its own",
            error.strerror,
        )
