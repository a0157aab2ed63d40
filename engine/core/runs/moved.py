"""Runs that were moved or copied: where what they name lies now.

A run keeps the name that its folder had when it was started. The names in its settings, such as runs/demo/target of the
campaign runs/demo/minmax, hold where that folder was. What was moved or copied together lies in the same way to each other: so
a name is looked for from where the run lies now, and stands as it is where nothing is there. A name that shares no folder with
the run's old one is never changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.files import entries
from parley.envs.core.storage.uris import CHAT_MODELS, display_path, is_uri, local_copy, split_uri, uri_of

_PYTHON = ".py:"
"""Stands in the name of a part in a Python file, before the part's own."""


def relocated(path: Path, before: str, value: Any) -> Any:
    """Return settings of a run with the names of what was moved along as they are now.

    Args:
        path: the run's folder.
        before: what that was called when the run was started; empty for runs that do not know.
        value: the settings, JSON types.
    """
    return value if not before or _is_there(path, before) else _walked(path, before, value)


def _is_there(path: Path, before: str) -> bool:
    """Return whether a run still lies where it was started."""
    now = display_path(path)
    return now == before or (not is_uri(now) and not is_uri(before) and _absolute(now) == _absolute(before))


def _absolute(name: str) -> str:
    return os.path.abspath(name)  # noqa: PTH100  # links stay, as in the names of copies


def _walked(path: Path, before: str, value: Any) -> Any:
    if isinstance(value, str):
        return ",".join(_name_now(path, before, name) for name in value.split(","))
    if isinstance(value, Mapping):
        return {key: _walked(path, before, part) for key, part in value.items()}
    return [_walked(path, before, part) for part in value] if isinstance(value, list) else value


def _name_now(path: Path, before: str, name: str) -> str:
    prefix = next((kind for kind in CHAT_MODELS if name.startswith(kind)), "")
    file, colon, part = name.removeprefix(prefix).rpartition(":") if _PYTHON in name else (name.removeprefix(prefix), "", "")
    below = _from_run(before, file.strip())
    if below is None:
        return name
    now = _candidate(path, below)
    return f"{prefix}{now}{colon}{part}" if now else name


def _candidate(path: Path, below: str) -> str:
    """Return what lies at a path relative to a run, empty where nothing does."""
    uri = uri_of(path)
    if uri is None:
        file = Path(os.path.normpath(path / below))
        return str(file) if file.exists() else ""
    root, inside = split_uri(uri)
    place = os.path.normpath(PurePosixPath(inside) / below)
    base, mark, query = root.partition("?")
    found_uri = f"{base}/{place}{mark}{query}"
    return found_uri if local_copy(found_uri).exists() or entries(found_uri, recursive=True) else ""


def _from_run(before: str, name: str) -> str | None:
    """Return the path of a name relative to a run's old folder; None where they share no folder."""
    try:
        (root, folders), (other_root, others) = _parts(before), _parts(name)
    except ConfigError:
        # The address of a server, or a text that holds one.
        return None
    if root == other_root:
        shared = 0
        while shared < min(len(folders), len(others)) and folders[shared] == others[shared]:
            shared += 1
        return _relative(folders, shared, others[shared:]) if shared else None
    if other_root:
        return None
    # A relative name beside a run that was named by its whole path: the folder in which the end of the one begins the other.
    for shared in range(len(others), 0, -1):
        for end in range(len(folders), shared - 1, -1):
            if folders[end - shared : end] == others[:shared]:
                return _relative(folders, end, others[shared:])
    return None


def _relative(folders: list[str], shared: int, down: list[str]) -> str | None:
    """Return the path from a run to what lies below a folder above it, or the run itself; a folder above it is no name."""
    return "/".join([".."] * (len(folders) - shared) + down) or "." if down or shared == len(folders) else None


def _parts(name: str) -> tuple[str, list[str]]:
    """Return the root of a name, empty for a relative one, and its folders."""
    if is_uri(name):
        root, inside = split_uri(name)
        return root, list(PurePosixPath(inside).parts)
    pure = PurePosixPath(os.path.normpath(name)) if name else PurePosixPath()
    return (pure.root, list(pure.parts[1:])) if pure.root else ("", [part for part in pure.parts if part != "."])
