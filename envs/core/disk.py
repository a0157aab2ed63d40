"""Files on a disk: what they hold, and what a power cut must not undo."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sync(path: str | Path) -> None:
    """Waits until a file's content is on the disk; of a folder, until the files in it have the names that they were given."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
