"""`parley status`: how a run stands, or a table of the runs of a folder."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from rich.console import Console
from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import make_console, show_lines, show_table
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.verbs.status import DAMAGED, FAILED, FINISHED, INTERRUPTED, Pace, RunStatus, statuses
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.usage import by_kind

_REASONS = 5
"""Reasons of failures that a screen shows; --json has them all."""


@dataclass(frozen=True, kw_only=True)
class StatusArguments:
    """Which run."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")] = "runs"
    """Folder or URI of a run, or of a folder that holds runs."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print {"runs": [...]} as one JSON object on standard output."""


def run_status(verb: Verb, arguments: Sequence[str]) -> int:
    """Shows how runs stand; returns the exit status."""
    asked = parse(StatusArguments, verb, arguments)
    with watching():
        run = fetched_run(asked.run)
        found = statuses(run)
    if asked.json:
        sys.stdout.write(f"{json.dumps({'runs': [status.to_json() for status in found]})}\n")
        return 0
    console = make_console()
    if len(found) == 1:
        _show_one(console, found[0])
    else:
        _show_table(console, display_path(run), found)
    unfinished = [status for status in found if status.state in (DAMAGED, FAILED, INTERRUPTED)]
    # What goes on with a run goes on with the runs below it.
    goes_on = unfinished[:1] if unfinished and unfinished[0].run == run else unfinished
    resumes = [shlex.join(["parley", "resume", display_path(status.run)]) for status in goes_on]
    show_lines(console, "next", resumes or _reports(found))
    return 0


def _show_one(console: Console, status: RunStatus) -> None:
    rows = [
        ("state", status.state + (f", by {status.writer}" if status.writer else "")),
        ("progress", _progress(status.pace)),
        ("rate", _rate(status.pace)),
        ("time left", _duration(status.left_s)),
        ("workers", _workers(status)),
        ("failed", f"{sum(status.errors.values()):,}"),
        ("answers of chat models", f"{sum(status.answers.values()):,}: {by_kind(status.answers)}" if status.answers else ""),
        ("damaged parts", f"{status.damaged:,}" if status.damaged else ""),
        ("last event", _last_event(status)),
    ]
    show_table(console, f"{display_path(status.run)}: {status.job}", ("", "now"), [row for row in rows if row[1]])
    reasons = [f"{count:,} x {reason}" for reason, count in status.errors.items()]
    more = [f"and {len(reasons) - _REASONS:,} more reasons: --json"] if len(reasons) > _REASONS else []
    show_lines(console, "errors", [*reasons[:_REASONS], *more])


def _show_table(console: Console, title: str, found: Sequence[RunStatus]) -> None:
    columns = ("run", "job", "state", "progress", "rate", "time left", "failed", "last event")
    rows = [
        (
            display_path(status.run),
            status.job,
            status.state,
            _progress(status.pace),
            _rate(status.pace),
            _duration(status.left_s),
            f"{sum(status.errors.values()):,}",
            _last_event(status),
        )
        for status in found
    ]
    show_table(console, title, columns, rows, right=("progress", "rate", "time left", "failed"))


def _reports(found: Sequence[RunStatus]) -> list[str]:
    """The page of a run that is finished alone; running ones are looked at again."""
    return [shlex.join(["parley", "report", display_path(status.run)]) for status in found[:1] if status.state == FINISHED]


def _progress(pace: Pace) -> str:
    if not pace.done and pace.total is None:
        return ""
    return f"{pace.done:,}" + (f" of {pace.total:,}" if pace.total is not None else "") + f" {pace.unit}"


def _rate(pace: Pace) -> str:
    return f"{pace.per_s:.3g} {pace.unit}/s" if pace.per_s else ""


def _workers(status: RunStatus) -> str:
    if status.workers is None:
        return ""
    return f"{status.workers:,} Ray actor{'s' * (status.workers > 1)}" if status.workers else "none: its own process works"


def _last_event(status: RunStatus) -> str:
    return f"{status.last_event}, {_duration(status.last_event_s)} ago" if status.last_event else ""


def _duration(seconds: float | None) -> str:
    """Such as "0:07", "12:30" or "3 d 4:05:06"."""
    if seconds is None:
        return ""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {clock}" if days else clock
