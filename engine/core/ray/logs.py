"""Log lines as JSON: one object a line on standard error, from the driver and, through Ray, from its workers.

A line has "time" (UTC, ISO 8601, milliseconds), "level", "message" and "logger"; "run", "job", "shard", "first_item" and
"last_item" name its subject, "node" and "pid" the worker that wrote it. The `extra` of a record follows under its own names.

This module imports the standard library alone, because the command line uses it before anything else.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

DEBUG_VARIABLE = "PARLEY_DEBUG"
LOGGER = "parley"
"""The logger of the project, which logs from INFO on; all others log from WARNING on, as always."""
_FOR_RAY = {
    # Ray puts "(WorkerActor pid=7) " before a worker's lines, and drops lines that differ only in their numbers.
    "RAY_DISABLE_WORKER_LOG_PREFIX": "1",
    "RAY_DEDUP_LOGS": "0",
}
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}

_metadata: ContextVar[Mapping[str, Any]] = ContextVar("metadata", default=MappingProxyType({}))
_in_json = False


@dataclass(frozen=True)
class LogSettings:
    """The log settings of a driver, for its workers.

    Args:
        in_json: whether lines are JSON.
        metadata: fields of all lines.
    """

    in_json: bool
    metadata: Mapping[str, Any]


def is_debug() -> bool:
    """Return whether errors show their traceback: by `parley --debug`, or by the environment."""
    return os.environ.get(DEBUG_VARIABLE) == "1"


@contextmanager
def debugging() -> Iterator[None]:
    """Show tracebacks within a `with` block."""
    before = os.environ.get(DEBUG_VARIABLE)
    os.environ[DEBUG_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(DEBUG_VARIABLE)
        if before is not None:
            os.environ[DEBUG_VARIABLE] = before


def is_json() -> bool:
    """Return whether this process writes its log as JSON lines."""
    return _in_json


@contextmanager
def json_lines() -> Iterator[None]:
    """Write the log as JSON lines within a `with` block; Ray must not have been imported yet."""
    global _in_json
    before = dict(os.environ)
    os.environ.update(_FOR_RAY)
    project = logging.getLogger(LOGGER)
    level = project.level
    handler = _listen({})
    logging.captureWarnings(True)
    _in_json = True
    try:
        yield
    finally:
        _in_json = False
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)
        project.setLevel(level)
        for name in _FOR_RAY:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


@contextmanager
def quiet(names: Collection[str], level: int) -> Iterator[None]:
    """Raise the level of some loggers within a `with` block."""
    before = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(level)
        yield
    finally:
        for name, former in before.items():
            logging.getLogger(name).setLevel(former)


@contextmanager
def metadata(**fields: Any) -> Iterator[None]:
    """Add fields to every log line within a `with` block."""
    token = _metadata.set({**_metadata.get(), **fields})
    try:
        yield
    finally:
        _metadata.reset(token)


def settings() -> LogSettings:
    """Return the settings by which a worker logs as this process does now."""
    return LogSettings(_in_json, dict(_metadata.get()))


def follow(driver: LogSettings) -> None:
    """Make a worker's process log as its driver does, until it ends."""
    if driver.in_json:
        _listen({**driver.metadata, "node": socket.gethostname(), "pid": os.getpid()})


def _listen(always: Mapping[str, Any]) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine(always))
    logging.getLogger().addHandler(handler)
    logging.getLogger(LOGGER).setLevel(logging.INFO)
    return handler


class JsonLine(logging.Formatter):
    """A formatter of records as JSON objects.

    Args:
        always: fields of every line of the process.
    """

    def __init__(self, always: Mapping[str, Any]) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "message": record.getMessage(), "logger": record.name}
        line |= {**self._always, **_metadata.get()}
        # Ray adds private fields to every record.
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD and not name.startswith("_")}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
