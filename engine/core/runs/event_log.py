"""The event log of a run: JSON lines, appended and fsynced one by one, so that what was reported did happen.

A line has "time" (UTC, ISO 8601, milliseconds) and "kind"; the rest is up to who reports.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from parley.engine.core.runs.documents import no_link, plain

logger = logging.getLogger(__name__)

Needs = Mapping[str, Mapping[str, type]]
SESSIONS = ("started", "resumed")
"""Kinds of the events by which a run begins, and by which it goes on."""
SUMMARISED = "summary"
"""Kind of the event that says that a session has written the summary of its run."""
_OWN = {"shard": {"name": str, "done": int, "failed": int}}


def append_event(path: Path, kind: str, fields: dict[str, Any]) -> None:
    """Appends one line and waits until it is on the disk.

    Raises:
        OSError: the disk is full or the file cannot be written; the log is as it was before.
    """
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    text = json.dumps({"time": moment, "kind": kind, **plain(fields)}, ensure_ascii=False, allow_nan=False)
    line = f"{text}\n".encode()
    with open(path, "ab", buffering=0, opener=no_link) as log:
        before = log.seek(0, os.SEEK_END)
        try:
            while line:
                # A disk with little room takes a part of the line; writing on makes it say why.
                line = line[os.write(log.fileno(), line) :]
            os.fsync(log.fileno())
        except OSError:
            log.truncate(before)
            raise


def read_events(path: Path, needs: Needs = MappingProxyType({})) -> list[dict[str, Any]]:
    """The events, oldest first; lines that were cut short, or are damaged otherwise, are left out with a warning.

    Args:
        path: the log.
        needs: by kind of event, the fields that the reader counts on and their types; a float may be a whole number.
    """
    if not path.is_file():
        return []
    # Not `splitlines`: what speakers said may hold other ends of lines.
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").split("\n") if line]
    events = [event for line in lines if (event := _event(line, {**needs, **_OWN})) is not None]
    if lost := len(lines) - len(events):
        logger.warning("%s: %s cannot be read and left out", path, "1 line" if lost == 1 else f"{lost} lines")
    return events


def seconds_of(events: Sequence[Mapping[str, Any]]) -> float:
    """Seconds on the wall that a run took: of each session those from its start to its last event."""
    told = [(event["kind"], datetime.fromisoformat(event["time"])) for event in events]
    return sum((after - before).total_seconds() for (_, before), (kind, after) in pairwise(told) if kind not in SESSIONS)


def last_session(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events since a run was last started or resumed."""
    begins = [number for number, event in enumerate(events) if event["kind"] in SESSIONS]
    return list(events[begins[-1] :]) if begins else []


def is_summarised(events: Sequence[dict[str, Any]]) -> bool:
    """Whether the summary of a run that has one is of its last session; one that was cut short leaves that of another.

    Where no line of the log is left, the summary itself says that there is one.
    """
    session = last_session(events)
    return not session or any(event["kind"] == SUMMARISED for event in session)


def _event(line: str, needs: Needs) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
        dated = datetime.fromisoformat(event["time"]).tzinfo is not None
        fields = needs.get(event["kind"], {})
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    return event if dated and all(_is(event.get(name), kind) for name, kind in fields.items()) else None


def _is(value: object, kind: type) -> bool:
    return isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)


def end_last_line(path: Path) -> None:
    """Ends a line that a crash cut short, so that the next event gets a line of its own."""
    if path.is_file() and path.stat().st_size:
        with open(path, "rb+", opener=no_link) as log:
            log.seek(-1, os.SEEK_END)
            if log.read(1) != b"\n":
                log.write(b"\n")
