"""How a run stands: whether somebody writes it, how far it is, how fast it goes, what failed. Changes nothing.

Everything is read from the folder, so it can be asked of a run that another process, or another machine, writes now, and of
one that died: the lock tells the two apart, the parts say what is saved, the event log how fast that came.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parley.engine.core.ray.record import WORK
from parley.engine.core.runs.documents import CONFIG
from parley.engine.core.runs.run_folder import RunFolder, is_summarised, last_session
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import Steps
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.answers import ANSWERS, ANSWERS_FOLDER, ChatAnswers
from parley.policies.chat.model import RunUsage

logger = logging.getLogger(__name__)

RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed items", "interrupted"
"""States: a process writes the run; it has its summary; it has, and some of its items failed; neither."""
DAMAGED = "damaged summary"
"""It has a summary that cannot be read; to resume it writes that again."""
ITEMS = "items"


@dataclass(frozen=True)
class Pace:
    """How far a run is, and how fast it went since it was last started or resumed.

    Args:
        unit: what is counted.
        done: how many there are, failed ones not included.
        total: how many there will be, at most; None where that cannot be known.
        per_s: a second; None before the first.
    """

    unit: str = ITEMS
    done: int = 0
    total: int | None = None
    per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """How one run stands.

    Args:
        run: its folder.
        job: its job.
        state: one of `RUNNING`, `FINISHED`, `FAILED`, `INTERRUPTED`, `DAMAGED`.
        writer: the process that writes it, such as "process 7 on node-3"; None when none does.
        pace: how far it is.
        left_s: seconds that are left at that pace; None when nobody works or it cannot be known.
        workers: actors that the last session asked for, 0 for none; None where items are not shared out.
        errors: failed items by reason.
        damaged: parts that cannot be read.
        answers: answers of chat models by kind (`parley.policies.chat.model.AnswerKind`); empty where nobody asked any.
        last_event: kind of the newest event; empty without one.
        last_event_s: how many seconds ago that was.
    """

    run: Path
    job: str
    state: str
    writer: str | None
    pace: Pace
    left_s: float | None = None
    workers: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    damaged: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)
    last_event: str = ""
    last_event_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The same as JSON types."""
        plain = {"run": display_path(self.run), "errors": dict(self.errors), "answers": dict(self.answers)}
        return {**asdict(replace(self, errors={}, answers={})), **plain}


def run_status(path: Path, now: datetime | None = None) -> RunStatus:
    """How a run stands.

    Args:
        path: its folder.
        now: the time, with its zone; that of the clock when not given.

    Raises:
        RunError: there is no run, or it cannot be read.
    """
    run = RunFolder.load(path)
    # Before the rest is read: a writer that ends in between has left more than is needed, never less.
    writer = run.writer()
    # The steps of several trainings are noted in their own folders.
    declared = None if run.config.get("seeds", 1) > 1 else _declared(run.job)
    numbered = {} if declared is None else {declared.kind: {"number": int}}
    events = run.events({WORK: {"items": int, "workers": int}, **numbered})
    outcomes = run.outcomes(events)
    session = last_session(events)
    shared = [event for event in events if event["kind"] == WORK]
    if shared:
        pace = _items(session, outcomes.done, shared[-1]["items"])
    else:
        pace = _steps(run, declared, events, session, outcomes.done)
    age_s = None if not events else ((now or datetime.now(UTC)) - _time(events[-1])).total_seconds()
    left_s = None
    if writer and pace.per_s and pace.total is not None:
        # Counted from the last news of progress, which may be a while ago.
        left_s = max(0.0, (pace.total - pace.done - outcomes.failed) / pace.per_s - (age_s or 0.0))
    return RunStatus(
        run=path,
        job=run.job,
        state=_state(run, writer, events, outcomes.failed),
        writer=writer,
        pace=pace,
        left_s=left_s,
        workers=shared[-1]["workers"] if shared else None,
        errors=dict(outcomes.errors.most_common()),
        damaged=outcomes.damaged,
        answers=_answers(path),
        last_event=events[-1]["kind"] if events else "",
        last_event_s=age_s,
    )


def statuses(folder: Path, now: datetime | None = None) -> list[RunStatus]:
    """How a run and the runs below it stand, or the runs of a folder; by name, the folder's own first.

    A folder below that cannot be read as a run is left out with a warning.

    Raises:
        RunError: there is no run.
    """
    below = []
    # A checkpoint has a configuration too, and no environment that it was measured in.
    for path in sorted(path.parent for path in folder.glob(f"*/{CONFIG}") if (path.parent / "environment.json").is_file()):
        try:
            below.append(run_status(path, now))
        except RunError as error:
            logger.warning("%s is left out: %s", path, str(error).replace("\n ", ","))
    if below and not (folder / CONFIG).is_file():
        return below
    return [run_status(folder, now), *below]


def _answers(path: Path) -> dict[str, int]:
    """Return the answers that lie in a run's own folder by kind; those of its stages are the stages' own."""
    folder = path / ANSWERS_FOLDER
    if not (folder / ANSWERS).is_file():
        return {}
    total = RunUsage(ChatAnswers(folder).usage()).total
    return dict(total.kinds.most_common())


def _state(run: RunFolder, writer: str | None, events: list[dict[str, Any]], num_failed: int) -> str:
    if writer is not None:
        return RUNNING
    try:
        if run.summary() is None or not is_summarised(events):
            return INTERRUPTED
    except RunError:
        return DAMAGED
    return FAILED if num_failed else FINISHED


def _items(session: list[dict[str, Any]], done: int, total: int) -> Pace:
    shards = [event for event in session if event["kind"] == "shard"]
    begun = next((event for event in session if event["kind"] == WORK), None)
    if begun is None or not shards:
        return Pace(ITEMS, done, total)
    seconds = (_time(shards[-1]) - _time(begun)).total_seconds()
    came = sum(event["done"] + event["failed"] for event in shards)
    return Pace(ITEMS, done, total, came / seconds if seconds > 0 else None)


def _declared(job: str) -> Steps | None:
    """The numbered steps of a job; None where it has none, or is of another version."""
    try:
        return find(job).load().steps
    except RunError:
        return None


def _steps(
    run: RunFolder, declared: Steps | None, events: list[dict[str, Any]], session: list[dict[str, Any]], done: int
) -> Pace:
    """Progress of a run whose events are numbered steps; of another one, no more than the items that it holds."""
    numbered = [] if declared is None else [event for event in events if event["kind"] == declared.kind]
    if declared is None or not numbered:
        return Pace(ITEMS, done)
    steps = [event for event in session if event["kind"] == declared.kind]
    seconds = (_time(steps[-1]) - _time(steps[0])).total_seconds() if steps else 0.0
    pace = (len(steps) - 1) / seconds if seconds > 0 else None
    return Pace(declared.unit, numbered[-1]["number"], declared.total(run.config), pace)


def _time(event: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(event["time"])
