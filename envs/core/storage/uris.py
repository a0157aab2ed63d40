"""URIs such as s3://bucket/runs/search, the paths of their local copies, and file locks.

Content at a URI is used through a local copy below the cache. The URI determines the path of its copy, and that path the URI.
Machines have different caches, so rows and messages hold the name (`display_path`), never the path of a copy.

Locks need a file system that has them; NFS, Lustre and FUSE may be mounted without.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from parley.envs.core.errors import ConfigError
from parley.envs.corpora.arrow import cache_root

logger = logging.getLogger(__name__)

EXCLUSIVE, SHARED, AT_ONCE = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_has_warned = False


def lock(descriptor: int, kind: int) -> bool:
    """Lock an open file until it is closed.

    Args:
        descriptor: the open file.
        kind: `EXCLUSIVE` or `SHARED`, with `AT_ONCE` not to wait.

    Returns:
        Whether the file system has locks. If not, the file is not locked, and one warning is logged.

    Raises:
        BlockingIOError: another process holds the lock, and `AT_ONCE` is set.
        OSError: another error of the lock.
    """
    try:
        fcntl.flock(descriptor, kind)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _warn(error)
        return False
    return True


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold the lock of an open file, if its file system has locks, in a `with` block."""
    has_lock = lock(descriptor, EXCLUSIVE)
    try:
        yield
    finally:
        if has_lock:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _warn(error: OSError) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        logger.warning(
            "this file system has no locks (%s): nothing keeps two processes from writing one run at a time, and parley status "
            "takes a running run for an interrupted one; give each process a run of its own",
            error.strerror,
        )


_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")
_MARK = "@"
"""Prefix of the folder of an authority, which may be empty."""

HUGGING_FACE = "hf:"
"""Prefix of a folder from Hugging Face's `save_pretrained`, in verbs that also take Parley's own models."""
CHAT_MODELS = (HUGGING_FACE, "gguf:", "openai:", "http:", "ws:", "cmd:", "defended:")
"""Prefixes of the addresses of chat models (`policies/chat/addresses.py`), except a user's own."""


def has_chat_prefix(name: str) -> bool:
    """Return whether a name begins like the address of a chat model; a web address is none."""
    return name.startswith(CHAT_MODELS) and not name.startswith(("http://", "ws://"))


def is_uri(name: str) -> bool:
    """Return whether a name is a URI, not a path or a built-in name."""
    return "://" in name


def served_address(name: str) -> str:
    """Return the address of a chat model's server for a web address; empty for any other name."""
    is_web = name.lower().startswith(("http://", "https://"))
    return f"{CHAT_MODELS[2]}{name}{'' if '#' in name else '#MODEL'}" if is_web else ""


def split_uri(uri: str) -> tuple[str, str]:
    """Return a URI's root, such as "s3://bucket?region=eu-north-1", and the path below it without outer slashes.

    Raises:
        ConfigError: the text is no URI, holds a password, or contains "..".
    """
    match = _URI.fullmatch(uri)
    if match is None and (served := served_address(uri)):
        raise ConfigError("a web address is no place in storage", got=uri, fix=f"for a chat model's server: {served}")
    if match is None:
        raise ConfigError("this is not the URI of a place", got=uri, fix="such as s3://BUCKET/runs/NAME or file:///FOLDER")
    authority = match["authority"]
    if ":" in authority.rpartition("@")[0]:
        shown = uri.replace(authority.rpartition("@")[0], "...")
        fix = "leave it out; storage finds its credentials in the environment, such as AWS_PROFILE"
        raise ConfigError("a URI holds a password, and URIs are written into runs and reports", got=shown, fix=fix)
    parts = [part for part in match["path"].split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ConfigError("the URI of a place climbs out of a folder", got=uri, fix="name the place without ..")
    query = f"?{match['query']}" if match["query"] else ""
    return f"{match['scheme'].lower()}://{authority}{query}", "/".join(parts)


def join_uri(uri: str, path: str) -> str:
    """Return the URI of a path below a URI; the path has no outer slashes and may be empty."""
    root, inside = split_uri(uri)
    base, mark, query = root.partition("?")
    below = "/".join(filter(None, (inside, path)))
    return f"{base}/{below}{mark}{query}" if below else root


def copies_root() -> Path:
    """Return the folder of all local copies."""
    return Path(os.path.abspath(cache_root())) / "copies"  # noqa: PTH100  # links stay: a copy is known by how it is spelled


def local_copy(name: str | Path) -> Path:
    """Return the local path of a name: the path itself, or that of a URI's copy, which may not exist yet.

    Raises:
        ConfigError: a URI that `split_uri` refuses.
    """
    if isinstance(name, Path) or not is_uri(name):
        return Path(name)
    root, inside = split_uri(name)
    scheme, _, authority = root.partition("://")
    return copies_root() / scheme / (_MARK + quote(authority, safe="")) / inside


def uri_of(path: Path) -> str | None:
    """Return the URI of a local copy; None for any other path."""
    root = str(copies_root())
    absolute = os.path.abspath(path)  # noqa: PTH100  # as in `copies_root`
    if not absolute.startswith(root + os.sep):
        return None
    scheme, marked, *inside = *Path(absolute[len(root) + 1 :]).parts, ""
    if not marked.startswith(_MARK):
        return None
    return join_uri(f"{scheme}://{unquote(marked[len(_MARK) :])}", "/".join(filter(None, inside)))


def display_path(path: Path) -> str:
    """Return the machine-independent name of a path: the URI of a local copy, or the path itself."""
    return uri_of(path) or str(path)
