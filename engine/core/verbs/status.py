"""Status of a run: state, progress, pace and failures; nothing is changed.

Everything is read from the folder. So it works for a run that another process or machine writes now, and for one that died: the
lock tells the two apart, the parts hold the saved items, and the event log gives the pace.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parley.engine.core.ray.record import WORK
from parley.engine.core.runs.documents import CONFIG
from parley.engine.core.runs.parts import Outcomes
from parley.engine.core.runs.run_folder import RunFolder, is_summarised, last_session
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import Steps
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.model import ANSWERS, ANSWERS_FOLDER, SCORED, RunUsage

logger = logging.getLogger(__name__)

RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed items", "interrupted"
"""States: a process writes the run; it has its summary and all rows; the same with failed items; neither."""
DAMAGED = "damaged summary"
"""State of a run whose summary cannot be read; a resume writes it again."""
ITEMS = "items"


@dataclass(frozen=True)
class Pace:
    """Progress of a run, and its pace since the last start or resume.

    Args:
        unit: name of the counted units.
        done: number of finished units, without failed ones.
        total: largest number of units; None if unknown.
        per_s: units a second; None before the first.
    """

    unit: str = ITEMS
    done: int = 0
    total: int | None = None
    per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """Status of one run.

    Args:
        run: the run's folder.
        job: the run's job.
        state: one of `RUNNING`, `FINISHED`, `FAILED`, `INTERRUPTED`, `DAMAGED`.
        writer: the process that writes it, such as "process 7 on node-3"; None if none does.
        pace: progress and pace.
        left_s: remaining seconds at that pace; None if nobody works or it is unknown.
        workers: actors of the last session, 0 for none; None if items are not sharded.
        errors: number of failed items by reason.
        damaged: number of parts that cannot be read.
        answers: answers of chat models by kind (`parley.policies.chat.model.AnswerKind`); empty if there are none.
        last_event: kind of the newest event; empty without one.
        last_event_s: seconds since that event.
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
        """Return the status as JSON types."""
        plain = {"run": display_path(self.run), "errors": dict(self.errors), "answers": dict(self.answers)}
        return {**asdict(replace(self, errors={}, answers={})), **plain}


def run_status(path: Path, now: datetime | None = None) -> RunStatus:
    """Return the status of a run.

    Args:
        path: the run's folder.
        now: the present time with its zone; that of the clock by default.

    Raises:
        RunError: there is no run, or it cannot be read.
    """
    run = RunFolder.load(path)
    # Read first: if a writer ends meanwhile, the rest shows more progress than its state says, never less.
    writer = run.writer()
    # The steps of several trainings are stored in their own folders.
    declared: Steps | None = None
    with suppress(RunError):
        declared = None if run.config.get("seeds", 1) > 1 else find(run.job).load().steps
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
        # Counted from the last event of progress, which may be old.
        left_s = max(0.0, (pace.total - pace.done - outcomes.failed) / pace.per_s - (age_s or 0.0))
    return RunStatus(
        run=path,
        job=run.job,
        state=_state(run, writer, events, outcomes),
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
    """Return the status of a run and of the runs below it, or of the runs in a folder; by name, the folder's own first.

    A folder below that cannot be read as a run is left out with a warning.

    Raises:
        RunError: there is no run.
    """
    below = []
    # A checkpoint also has a configuration, but no `environment.json`.
    for path in sorted(path.parent for path in folder.glob(f"*/{CONFIG}") if (path.parent / "environment.json").is_file()):
        try:
            below.append(run_status(path, now))
        except RunError as error:
            logger.warning("%s is left out: %s", path, str(error).replace("\n ", ","))
    if below and not (folder / CONFIG).is_file():
        return below
    return [run_status(folder, now), *below]


def _answers(path: Path) -> dict[str, int]:
    """Return the answers in a run's own folder by kind; answers of stages belong to the stages."""
    folder = path / ANSWERS_FOLDER
    if not (folder / ANSWERS).is_file():
        return {}
    from parley.policies.chat.answers import ChatAnswers

    total = RunUsage(ChatAnswers(folder).usage()).total
    return dict((total.kinds + Counter({SCORED: total.scored})).most_common())


def _state(run: RunFolder, writer: str | None, events: list[dict[str, Any]], outcomes: Outcomes) -> str:
    if writer is not None:
        return RUNNING
    try:
        if run.summary() is None or not is_summarised(events) or has_lost_rows(events, outcomes):
            return INTERRUPTED
    except RunError:
        return DAMAGED
    return FAILED if outcomes.failed else FINISHED


def has_lost_rows(events: Sequence[Mapping[str, Any]], outcomes: Outcomes) -> bool:
    """Return whether a run has fewer rows than the items of its work, as after a part was deleted or damaged."""
    items = [event["items"] for event in events if event["kind"] == WORK and isinstance(event.get("items"), int)]
    return bool(items) and outcomes.done + outcomes.failed < items[-1]


def _items(session: list[dict[str, Any]], done: int, total: int) -> Pace:
    shards = [event for event in session if event["kind"] == "shard"]
    start = next((event for event in session if event["kind"] == WORK), None)
    if start is None or not shards:
        return Pace(ITEMS, done, total)
    seconds = (_time(shards[-1]) - _time(start)).total_seconds()
    finished = sum(event["done"] + event["failed"] for event in shards)
    return Pace(ITEMS, done, total, finished / seconds if seconds > 0 else None)


def _steps(
    run: RunFolder, declared: Steps | None, events: list[dict[str, Any]], session: list[dict[str, Any]], done: int
) -> Pace:
    """Return the progress in numbered steps; for a run without them, the number of its items."""
    numbered = [] if declared is None else [event for event in events if event["kind"] == declared.kind]
    if declared is None or not numbered:
        return Pace(ITEMS, done)
    steps = [event for event in session if event["kind"] == declared.kind]
    seconds = (_time(steps[-1]) - _time(steps[0])).total_seconds() if steps else 0.0
    pace = (len(steps) - 1) / seconds if seconds > 0 else None
    return Pace(declared.unit, numbered[-1]["number"], declared.total(run.config), pace)


def _time(event: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(event["time"])
