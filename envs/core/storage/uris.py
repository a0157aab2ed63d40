"""Names of places: a path of this machine, or a URI such as s3://bucket/runs/search.

What lies at a URI is worked with through a local copy below the cache. Where that is follows from the URI alone, and the URI
from where it is, so code that is handed a path needs no second argument to know what it is a copy of. Another machine has its
cache elsewhere: what travels, or is kept, is the name (`display_path`) and never the path of a copy.

Locks on files, where the file system has them: NFS, Lustre and FUSE may be mounted without.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
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


_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")
_MARK = "@"
"""Begins the folder of an authority, which may be empty."""

HUGGING_FACE = "hf:"
"""Begins the name of a folder that Hugging Face's `save_pretrained` wrote, where a verb also takes models of Parley's own."""
CHAT_MODELS = (HUGGING_FACE, "gguf:", "openai:")
"""What the address of a chat model begins with (`policies/chat/addresses.py`), if it is none of a user's own."""


def is_uri(name: str) -> bool:
    """Whether a name is a URI; anything else is a path, or the name of something built in."""
    return "://" in name


def served_address(name: str) -> str:
    """Return how a web address is named as a chat model's server; empty for any other name."""
    is_web = name.lower().startswith(("http://", "https://"))
    return f"{CHAT_MODELS[2]}{name}{'' if '#' in name else '#MODEL'}" if is_web else ""


def split_uri(uri: str) -> tuple[str, str]:
    """A URI's root, such as "s3://bucket?region=eu-north-1", and the path below it without slashes at its ends.

    Raises:
        ConfigError: it is no URI, holds a password, or climbs with "..".
    """
    found = _URI.fullmatch(uri)
    if found is None and (served := served_address(uri)):
        raise ConfigError("a web address is no place in storage", got=uri, fix=f"for a chat model's server: {served}")
    if found is None:
        raise ConfigError("this is not the URI of a place", got=uri, fix="such as s3://BUCKET/runs/NAME or file:///FOLDER")
    authority = found["authority"]
    if ":" in authority.rpartition("@")[0]:
        shown = uri.replace(authority.rpartition("@")[0], "...")
        fix = "leave it out; storage finds its credentials in the environment, such as AWS_PROFILE"
        raise ConfigError("a URI holds a password, and URIs are written into runs and reports", got=shown, fix=fix)
    parts = [part for part in found["path"].split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ConfigError("the URI of a place climbs out of a folder", got=uri, fix="name the place without ..")
    query = f"?{found['query']}" if found["query"] else ""
    return f"{found['scheme'].lower()}://{authority}{query}", "/".join(parts)


def join_uri(uri: str, path: str) -> str:
    """The URI of what lies below a URI; the path has no slash at its ends and may be empty."""
    root, inside = split_uri(uri)
    base, mark, query = root.partition("?")
    below = "/".join(filter(None, (inside, path)))
    return f"{base}/{below}{mark}{query}" if below else root


def copies_root() -> Path:
    """The folder of all local copies."""
    return Path(os.path.abspath(cache_root())) / "copies"  # noqa: PTH100  # links stay: a copy is known by how it is spelled


def local_copy(name: str | Path) -> Path:
    """Where what a name stands for lies on this machine: a path itself, a URI's copy, which need not be there yet.

    Raises:
        ConfigError: a URI that `split_uri` refuses.
    """
    if isinstance(name, Path) or not is_uri(name):
        return Path(name)
    root, inside = split_uri(name)
    scheme, _, authority = root.partition("://")
    return copies_root() / scheme / (_MARK + quote(authority, safe="")) / inside


def uri_of(path: Path) -> str | None:
    """The URI that a path is the local copy of; None for any other path."""
    root = str(copies_root())
    absolute = os.path.abspath(path)  # noqa: PTH100  # as in `copies_root`
    if not absolute.startswith(root + os.sep):
        return None
    scheme, marked, *inside = *Path(absolute[len(root) + 1 :]).parts, ""
    if not marked.startswith(_MARK):
        return None
    return join_uri(f"{scheme}://{unquote(marked[len(_MARK) :])}", "/".join(filter(None, inside)))


def display_path(path: Path) -> str:
    """What to call a path so that any machine finds it: the URI that it is the local copy of, or the path itself."""
    return uri_of(path) or str(path)
