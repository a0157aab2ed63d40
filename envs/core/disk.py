"""What a power cut must not undo."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: str | Path) -> None:
    """Waits until a file's content is on the disk; of a folder, until the files in it have the names that they were given."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
