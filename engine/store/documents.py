"""Files that are either whole or absent: write aside, fsync, rename, fsync the folder.

Also what JSON can hold of a value (`plain`). Nothing here knows what a run is.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from envs.core.disk import sync

ASIDE = ".writing"
"""The ending of a file that is being written; one that lies around was left by a process that died."""


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file so that a reader, or a restart after a crash, sees all of it or the file as it was before.

    Raises:
        OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    with whole_file(path) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be written bit by bit in a `with` block, whose end puts it where it belongs, see `write_whole`.

    Raises:
        OSError: as there. Whatever the block raises leaves nothing behind either.
    """
    aside = path.with_name(path.name + ASIDE)
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_document(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON document whole, see `write_whole`."""
    text = json.dumps(plain(values), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, f"{text}\n".encode())


def plain(value: Any) -> Any:
    """A value as JSON types: numpy scalars and arrays unwrapped, paths as text, NaN and infinities as null.

    Raises:
        TypeError: JSON has no form for the value.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    raise TypeError(f"JSON has no form for a {type(value).__name__}: {value!r}")
