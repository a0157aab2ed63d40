"""Files that are either whole or absent: write aside, fsync, rename, fsync the folder.

Also what JSON can hold of a value (`plain`). Nothing here knows what a run is.
"""

from __future__ import annotations

import json
import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from parley.envs.core.disk import sync

ASIDE = ".writing"
"""The ending of a file that is being written; one that lies around was left by a process that died."""
_WRITER = re.compile(rf"\.(\d+)-[0-9a-f]{{8}}(?:\.[^.]*)?{re.escape(ASIDE)}$")
"""What a file that is being written is called by, with the number of the process."""


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file so that a reader, or a restart after a crash, sees all of it or the file as it was before.

    Args:
        path: the file.
        content: of it.
        durable: as in `whole_file`.

    Raises:
        OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    with whole_file(path, durable=durable) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to be written bit by bit in a `with` block, whose end puts it where it belongs, see `write_whole`.

    Until then it has a name of its own, which says the process: two writers take nothing from each other, whoever clears up
    leaves it alone (`leftovers`), and no link that lies there is followed.

    Args:
        path: the file; a link of that name is replaced.
        durable: whether to wait for the disk, so that the file outlives the machine.

    Raises:
        OSError: as there. Whatever the block raises leaves nothing behind either.
    """
    aside = path.with_name(f"{path.stem}.{os.getpid()}-{uuid.uuid4().hex[:8]}{path.suffix}{ASIDE}")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def leftovers(folder: Path) -> list[Path]:
    """Return the files of a folder that were being written by processes which have died since."""
    return [path for path in folder.glob(f"*{ASIDE}") if not _is_being_written(path)]


def _is_being_written(aside: Path) -> bool:
    writer = _WRITER.search(aside.name)
    if writer is None:
        return False
    try:
        os.kill(int(writer[1]), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def no_link(path: str, flags: int) -> int:
    """Open a file for Python's `open(..., opener=no_link)`, but no link.

    Raises:
        OSError: there is a link, or the file cannot be opened.
    """
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


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
