"""The date of a run: the day it began, which chat templates print however long the run takes, and on whichever machine."""

from __future__ import annotations

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from parley.engine.core.runs.event_log import read_events
from parley.engine.core.runs.layout import CONFIG, ENVIRONMENT, EVENTS
from parley.engine.core.runs.manifest import read_json
from parley.policies.chat.settings import DateSettings

ConfigT = TypeVar("ConfigT")
DATE = "date"
"""Entry of `environment.json` that holds it."""


def date_of(path: Path) -> str:
    """Return the ISO date of the run in a folder; today where there is none yet.

    Raises:
        RunError: what is stored there is damaged.
    """
    if not (path / CONFIG).is_file():
        return date.today().isoformat()
    if (path / ENVIRONMENT).is_file() and isinstance(stored := read_json(path / ENVIRONMENT).get(DATE), str):
        return stored
    # Runs of older versions note when they began, and no date.
    times = [str(event["time"]) for event in read_events(path / EVENTS)]
    return times[0][: len("2026-11-28")] if times else date.today().isoformat()


def dated(config: ConfigT, day: str) -> ConfigT:
    """Return a configuration in which settings of chat templates have a date wherever none was asked for."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return config
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        own = field.name == DATE and isinstance(config, DateSettings)
        if (other := value or day if own else dated(value, day)) is not value:
            changed[field.name] = other
    return dataclasses.replace(config, **changed) if changed else config
