"""Links in run folders. A run may come from anywhere, and what a link leads to outside of it is not the run's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path


def refuse_links_out(run: Path) -> None:
    """Refuse a run in which a link leads out of it: reading, writing and deleting would follow it.

    The folder itself may be a link, because the user has named it.

    Args:
        run: the folder, there or not.

    Raises:
        RunError: a link leads out, or a folder cannot be listed.
    """
    try:
        root = os.path.realpath(run)
        for link in _links(root) if run.is_dir() else ():
            target = os.path.realpath(link)
            if os.path.commonpath((root, target)) != root:
                raise RunError(
                    "a link in the run leads out of it",
                    where=display_path(run / os.path.relpath(link, root)),
                    got=f"it leads to {target}",
                    fix="delete the link, or put a copy of what it leads to in its place",
                )
    except OSError as error:
        raise RunError("the run folder cannot be read", where=display_path(run), got=error.strerror) from error


def _links(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from _links(entry.path)
