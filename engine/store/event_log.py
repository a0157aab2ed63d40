"""The event log of a run: JSON lines, appended and fsynced one by one, so that what was reported did happen.

A line has "time" (UTC, ISO 8601, milliseconds) and "kind"; the rest is up to who reports.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.store.documents import plain

logger = logging.getLogger(__name__)


def append_event(path: Path, kind: str, fields: dict[str, Any]) -> None:
    """Appends one line and waits until it is on the disk.

    Raises:
        OSError: the disk is full or the file cannot be written; the log is as it was before.
    """
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    text = json.dumps({"time": moment, "kind": kind, **plain(fields)}, ensure_ascii=False, allow_nan=False)
    line = f"{text}\n".encode()
    with path.open("ab", buffering=0) as log:
        before = log.seek(0, os.SEEK_END)
        try:
            while line:
                # A disk with little room takes a part of the line; writing on makes it say why.
                line = line[os.write(log.fileno(), line) :]
            os.fsync(log.fileno())
        except OSError:
            log.truncate(before)
            raise


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events, oldest first; lines that a crash cut short are left out with a warning."""
    if not path.is_file():
        return []
    events, broken = [], 0
    for line in path.read_text(errors="replace").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            broken += 1
    if broken:
        logger.warning("%s: %d lines are cut short and left out", path, broken)
    return events


def end_last_line(path: Path) -> None:
    """Ends a line that a crash cut short, so that the next event gets a line of its own."""
    if path.is_file() and path.stat().st_size:
        with path.open("rb+") as log:
            log.seek(-1, os.SEEK_END)
            if log.read(1) != b"\n":
                log.write(b"\n")
