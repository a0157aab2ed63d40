"""Jobs with one row for each item: their settings, their work in shards, and the one way to run it in a run folder.

Such a job is a `Sharded` task, its worker, and an `ItemsJob`, which says what `prepare` finds and what the rows mean.

Rows do not depend on the cut, up to the last digit of sums over items that are computed together. A run keeps its first shard
size (`shard_size` of its first "work" event), whatever the settings and the number of workers are later. So it recognises its
shards, and items that were computed together stay together.
"""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from parley.engine.core.ray.pool import BroadcastModels, Progress
from parley.engine.core.ray.record import WORK, Counts, Rows, Work, write_shards
from parley.engine.core.ray.session import RaySession, connect
from parley.engine.core.ray.worker import ItemT, Shard, make_shards
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import OK, error_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import TABLE_FILE, ConfigT, Job, Reporter, Silent
from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt, PositiveInt
from parley.envs.core.errors import ConfigError, LimitReachedError
from parley.envs.core.play import agent_errors, isolate_failures
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import display_path
from parley.policies.chat.limits import MAX_REQUESTS
from parley.policies.chat.model import ANSWERS_FOLDER

logger = logging.getLogger(__name__)


RESUME_SAFE = ("workers", "gpus_per_worker", "address", "data_root", "shard_size")
"""Settings that change how work is done and not its rows; a resumed run may differ in them.

Not promised: sums on a GPU may differ from those on a CPU in the last digit.
"""
SHARDS_PER_WORKER = 4
"""Several shards for each worker, so that none waits long for the last one."""


@dataclass(frozen=True, kw_only=True)
class ShardedConfig(Configuration):
    """Settings of sharded work."""

    seed: NonNegativeInt = 1
    """Master seed."""
    workers: NonNegativeInt = 0
    """Ray actors that work; 0 works in this process without Ray."""
    gpus_per_worker: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, for each actor."""
    address: str = ""
    """Address of a Ray cluster for those actors; a local one when empty."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    shard_size: PositiveInt | None = None
    """Items that a worker does at a time and that are saved together; chosen when not given, and kept by a resumed run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.address and not self.workers:
            fix = "say how many Ray actors work there: --workers N"
            raise ConfigError("a cluster is named and no work would go there", where="--address", got=self.address, fix=fix)

    @property
    def device(self) -> str:
        """The torch device of a worker."""
        return "cuda" if self.gpus_per_worker > 0 else "cpu"

    def require_device(self) -> None:
        """Check that this process can compute on its device; actors check for themselves.

        Raises:
            ConfigError: it cannot.
        """
        if self.gpus_per_worker > 0 and not self.workers:
            require_device("cuda", "--gpus-per-worker")


@dataclass(frozen=True)
class Tally:
    """Progress of work, for `Sharded.describe`.

    Args:
        total: digests of all rows, with those saved before.
        session: digests of this session's rows, with counts of shards under way.
        seconds: working time of this session.
    """

    total: Counts
    session: Counts
    seconds: float


class Sharded(Work[ItemT]):
    """The work of a job on its items. It is sent to every worker, so it holds names of models or their shared weights.

    Attributes:
        unit: name of the items.
        event: kind of the event that records the work and the time of a session.
        digest_columns: columns that `digest` reads beside `status`; empty for all. A resume reads no others.
        purpose: name of the seeds of the items, which follow from it, the master seed and the key.
        batch: items that fill a worker's batch; a shard has no more.
        config: settings of the run.
    """

    unit: ClassVar[str]
    event: ClassVar[str]
    digest_columns: ClassVar[tuple[str, ...]] = ()
    purpose: ClassVar[str]
    batch: ClassVar[int]
    config: Any

    def seed(self, key: str) -> int:
        return derive_seed(self.config.seed, self.purpose, key)

    def digest(self, rows: Rows) -> Counts:
        return Counter({self.unit: sum(row["status"] == OK for row in rows)})

    @property
    def computes(self) -> bool:
        """Return whether the work computes with torch; torch then has one thread here, as in an actor."""
        return True

    def shard_size(self, num_items: int, num_workers: int) -> int:
        """Return the number of items in a shard, if no setting gives it."""
        return spread(num_items, num_workers, self.batch)

    def room(self, shard_size: int) -> int:
        """Return the number of shards that a worker holds at a time, if it works in turns; 0 if not."""
        return 0

    def describe(self, tally: Tally) -> str:
        """Return the progress of the work in words."""
        return ""

    def checkpoints(self) -> Iterable[str]:
        """Return the names of checkpoints that workers load by `fetched_model`; they are sent to machines without them."""
        return ()

    def shared(self) -> Sharded[ItemT]:
        """Return the same work for actors, with large arrays in the object store of the session."""
        return self


def spread(num_items: int, num_workers: int, most: int) -> int:
    """Return a shard size that gives every worker several shards.

    Args:
        num_items: number of all items.
        num_workers: number of actors; 0 for this process.
        most: number of items that fill a worker's batch.
    """
    return max(1, min(most, num_items // (SHARDS_PER_WORKER * max(1, num_workers))))


def run_items(
    run: RunFolder, work: Sharded[ItemT], items: Mapping[str, ItemT], config: ShardedConfig, reporter: Reporter, title: str
) -> None:
    """Do the work on the items that a run does not hold yet.

    Raises:
        ClusterError: Ray cannot be reached or lacks room for the workers.
        RunError: the disk refuses.
    """
    size = _size(run, work, len(items), config, reporter)
    # Items of equal work are counted; of unequal ones the share of the work tells the time left.
    efforts = {key: work.effort(item) for key, item in items.items()} if work.is_uneven else {}
    is_even = len({*efforts.values()}) <= 1
    total, unit = (len(items), work.unit) if is_even else (100, "%")
    per_effort = total / (sum(efforts.values()) or len(items) or 1.0)
    reporter.stage(title, total, unit)
    before: Counts = Counter()
    done_before, work_before = 0, 0.0
    columns = ["item_key", "status", *work.digest_columns]
    for part in run.read_parts():
        rows = (part.select(columns) if work.digest_columns else part).to_pylist()
        # A shard with a failed item is done again as a whole.
        if all(row["status"] == OK for row in rows):
            before.update(work.digest(rows))
            done_before += len(rows)
            work_before += sum(efforts.get(row["item_key"], 1.0) for row in rows)
    session: Counts = Counter()
    began = time.monotonic()

    def progress_text(counts: Counts) -> str:
        return work.describe(Tally(before + counts, counts, time.monotonic() - began))

    num_done = done_before

    def on_progress(progress: Progress, counts: Counts) -> None:
        nonlocal session, num_done
        session, num_done = counts, done_before + progress.num_done
        counted = "" if is_even else f"{num_done:,} of {len(items):,} {work.unit}"
        workers = f"{progress.num_workers} of {config.workers} workers" if config.workers else ""
        failed = f"{progress.num_failed} failed" if progress.num_failed else ""
        note = ", ".join(filter(None, (counted, progress_text(counts), workers, failed)))
        reporter.advance((work_before + progress.work) * per_effort, note)

    with _placed(work, config) as placed_work:
        began = time.monotonic()
        try:
            ended = write_shards(
                run,
                placed_work,
                make_shards(items, size),
                num_workers=config.workers,
                num_gpus_per_worker=config.gpus_per_worker,
                room=placed_work.room(size),
                models=BroadcastModels.put(work.checkpoints()) if config.workers else None,
                on_progress=on_progress,
            )
        except LimitReachedError as error:
            from parley.policies.chat.answers import usage_of

            usage, left, fix = usage_of(run.path), len(items) - num_done, str(error.fix)
            kept = f"{usage.total.asked + usage.total.scored if usage else 0:,} answers of models are kept"
            what = f"{error.what}: {kept}, {left:,} of {len(items):,} {work.unit} are without a row"
            if fix.startswith(MAX_REQUESTS):
                fix = f"{MAX_REQUESTS} {run.config['chat']['max_requests'] + left} suffices if each takes one request"
            fix = f"{shlex.join(['parley', 'resume', display_path(run.path)])} {fix}"
            raise LimitReachedError(what, where=error.where, got=error.got, fix=fix) from None
    counted = {work.unit: 0, **session}
    took = {"seconds": time.monotonic() - began, "busy_s": ended.busy_s}
    run.event(work.event, **took, workers=max(config.workers, 1), **counted)


TaskT = TypeVar("TaskT", bound=Sharded[Any])


@dataclass(frozen=True)
class Prepared(Generic[TaskT, ItemT]):
    """The checked parts of a run.

    Args:
        task: the work, as workers get it.
        items: by key.
        facts: what else the summary needs, by name.
    """

    task: TaskT
    items: Mapping[str, ItemT]
    facts: Mapping[str, Any] = field(default_factory=dict)


class ItemsJob(Job[ConfigT, Prepared[TaskT, ItemT], Prepared[TaskT, ItemT]]):
    """A job with one row for each item, whose `measure` reads the rows.

    Attributes:
        doing: title of the work in the progress.
    """

    doing: str
    files: tuple[str, ...] = (TABLE_FILE, SUMMARY, "rows")
    resume_safe = RESUME_SAFE

    def task_in(self, run: RunFolder, prepared: Prepared[TaskT, ItemT]) -> TaskT:
        """Return the task for a run; one that asks chat models keeps their answers in the run's folder."""
        task: Any = prepared.task
        return replace(task, answers=str((run.path / ANSWERS_FOLDER).absolute())) if hasattr(task, "answers") else task

    def work(self, run: RunFolder, prepared: Prepared[TaskT, ItemT], reporter: Reporter) -> Prepared[TaskT, ItemT]:
        run_items(run, self.task_in(run, prepared), prepared.items, prepared.task.config, reporter, self.doing)
        reporter.stage("computing metrics, their intervals and significances", 0, "")
        return prepared

    def num_items(self, config: ConfigT) -> int:
        return len(self.prepare(config, Path(self.run_name), Silent()).items)


def _size(run: RunFolder, work: Sharded[Any], num_items: int, config: ShardedConfig, reporter: Reporter) -> int:
    sizes = [event["shard_size"] for event in run.events() if event["kind"] == WORK and event.get("shard_size")]
    if not sizes:
        return config.shard_size or work.shard_size(num_items, config.workers)
    if config.shard_size and sizes[0] != min(config.shard_size, num_items):
        reporter.say(f"the run goes on in shards of {sizes[0]} {work.unit}, as it began")
    return int(sizes[0])


@contextmanager
def _placed(work: Sharded[ItemT], config: ShardedConfig) -> Iterator[Sharded[ItemT]]:
    """Provide the work with a session for its actors, or let this process compute as an actor does."""
    if config.workers:
        with session(config.workers, config.address):
            yield work.shared()
    elif work.computes:
        with threads(1):
            yield work
    else:
        yield work


def ended_sessions(run: RunFolder, event: str, *counted: str) -> list[dict[str, Any]]:
    """Return the events of the sessions of a run that came to their end.

    Args:
        run: the run.
        event: kind of those events.
        counted: counters read from them beside workers and `busy_s`, the seconds that these worked; the first must be above 0.
    """
    events = [entry for entry in run.events({event: {"seconds": float, "workers": int}}) if entry["kind"] == event]
    ended = [entry for entry in events if all(isinstance(entry.get(name), int) for name in counted) and entry[counted[0]]]
    # Sessions of earlier versions know the time from their start to their end.
    return [{"busy_s": entry["seconds"] * entry["workers"], **entry} for entry in ended]


def session(num_cpus: int, address: str) -> AbstractContextManager[RaySession]:
    """Return the Ray session of a cluster, or one on this machine with room for `num_cpus` CPUs."""
    return connect(address or None, num_cpus=None if address else max(num_cpus, os.cpu_count() or 1))


def rows_apart(
    rows_of: Callable[[Shard[ItemT]], list[dict[str, Any]]], shard: Shard[ItemT], seed: Callable[[str], int]
) -> list[dict[str, Any]]:
    """Return one row per item, in order: computed together, or one by one if a model fails, so a failure costs one item.

    Args:
        rows_of: computes the rows of items; a row does not depend on the other items.
        shard: the items.
        seed: returns the seed of an item, by its key.
    """

    def compute(items: Sequence[tuple[str, ItemT]]) -> list[dict[str, Any]]:
        keys, values = zip(*items, strict=True)
        with agent_errors():
            return rows_of(Shard(shard.name, keys, values))

    parts, lost = isolate_failures(compute, list(zip(shard.keys, shard.items, strict=True)))
    rows = {row["item_key"]: row for part in parts for row in part}
    rows |= {key: error_row(key, seed(key), str(error)) for (key, _), error in lost}
    if lost:
        logger.warning("%d of %d items are lost: %s", len(lost), len(shard), lost[0][1].what)
    return [rows[key] for key in shard.keys]
