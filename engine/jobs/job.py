"""What a job is: a frozen configuration, presets that return one, and a function that runs it in a run folder.

Each job module defines a `Job`; `catalogue.py` lists them. Jobs print nothing: they tell a `Watcher` how far they are and
return a `Result`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine.metrics.statistics import Estimate, Metric


@dataclass(frozen=True)
class Result:
    """What a job leaves behind.

    Args:
        run: its folder.
        title: heading of the result table.
        metrics: estimates by name.
        legend: what the metrics mean, by name.
        files: what was written that a user may want next.
        next_commands: what to type next.
    """

    run: Path
    title: str
    metrics: Mapping[str, Estimate]
    legend: Mapping[str, Metric] = field(default_factory=dict)
    files: Sequence[Path] = ()
    next_commands: Sequence[str] = ()


class Watcher(Protocol):
    """Who watches a job at work."""

    def stage(self, title: str, total: int, unit: str) -> None:
        """A new piece of work begins, `total` units long."""

    def advance(self, done: int, note: str = "") -> None:
        """`done` units of the current stage are finished; `note` is the newest figure worth seeing."""

    def say(self, text: str) -> None:
        """One line worth keeping on the screen."""


@dataclass(frozen=True)
class Job:
    """One verb of the command line.

    Args:
        name: what a run folder calls it, and `parley resume` finds it by.
        config: the type of its configuration, a frozen dataclass whose fields all have defaults or come from a preset.
        presets: functions that return a full configuration, by name; the first one is the default.
        run: does the work in a run folder.
    """

    name: str
    config: type
    presets: Mapping[str, Callable[[], Any]]
    run: Callable[[Any, Path, Watcher], Result]


class Silent:
    """A watcher that looks away; for tests and notebooks."""

    def stage(self, title: str, total: int, unit: str) -> None: ...

    def advance(self, done: int, note: str = "") -> None: ...

    def say(self, text: str) -> None: ...
