"""Jobs whose work is cut into shards: their settings, and the one way in which such work is done in a run folder.

Rows do not depend on how work is cut, up to the last digit of sums over what is computed side by side. A run keeps the size of
shard that it began with (`shard_size` of its first "work" event), whatever its settings say and however many workers there are
later: so it finds its shards again, and what was computed side by side stays so.

Rows of a shard whose items are asked about together: one that fails costs itself alone.
"""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from parley.engine.core.ray.pool import BroadcastModels, Progress
from parley.engine.core.ray.record import WORK, Counts, Work, write_shards
from parley.engine.core.ray.session import RaySession, connect
from parley.engine.core.ray.worker import ItemT, Shard, make_shards
from parley.engine.core.runs.parts import OK, error_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import Reporter
from parley.envs.core.config import Configuration, NonNegativeFloat, NonNegativeInt, PositiveInt
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import agent_errors, play_apart

logger = logging.getLogger(__name__)


def rows_apart(
    rows_of: Callable[[Shard[ItemT]], list[dict[str, Any]]], shard: Shard[ItemT], seed: Callable[[str], int]
) -> list[dict[str, Any]]:
    """One row per item, in order: of all items together, or, where a model that is asked fails, of each by itself.

    Args:
        rows_of: the rows of items, which do not depend on what is asked with them.
        shard: the items.
        seed: of an item, by its key.
    """

    def asked(items: Sequence[tuple[str, ItemT]]) -> list[dict[str, Any]]:
        keys, found = zip(*items, strict=True)
        with agent_errors():
            return rows_of(Shard(shard.name, keys, found))

    parts, lost = play_apart(asked, list(zip(shard.keys, shard.items, strict=True)))
    rows = {row["item_key"]: row for part in parts for row in part}
    rows |= {key: error_row(key, seed(key), str(error)) for (key, _), error in lost}
    if lost:
        logger.warning("%d of %d items are lost: %s", len(lost), len(shard), lost[0][1].what)
    return [rows[key] for key in shard.keys]


RESUME_SAFE = ("workers", "gpus_per_worker", "address", "data_root", "shard_size")
"""Settings that change how work is done and not its rows; a resumed run may differ in them.

What is not promised: a GPU's sums may differ from a CPU's in the last digit.
"""
SHARDS_PER_WORKER = 4
"""So that no worker waits long for the last one."""


@dataclass(frozen=True, kw_only=True)
class ShardedConfig(Configuration):
    """How the work is done."""

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
        """The torch device that a worker computes on."""
        return "cuda" if self.gpus_per_worker > 0 else "cpu"

    def require_device(self) -> None:
        """Makes sure that work in this process can compute on its device; actors find out themselves.

        Raises:
            ConfigError: it cannot.
        """
        if self.gpus_per_worker > 0 and not self.workers:
            require_device("cuda", "--gpus-per-worker")


@dataclass(frozen=True)
class Tally:
    """How far work is, for `Sharded.describe`.

    Args:
        total: digests of all rows, those that were saved before included.
        session: digests of this session's, with what is counted of shards under way.
        seconds: that this session has worked.
    """

    total: Counts
    session: Counts
    seconds: float


class Sharded(Work[ItemT]):
    """What a job does to its items: sent to every worker, so it holds the names of models or their shared weights.

    Attributes:
        unit: what items are called.
        event: kind of the event that says what a session did, and how long it took.
    """

    unit: ClassVar[str]
    event: ClassVar[str]

    @property
    def computes(self) -> bool:
        """Whether it computes with torch, whose threads are then as many here as in an actor: one."""
        return True

    @abstractmethod
    def shard_size(self, num_items: int, num_workers: int) -> int:
        """Items of a shard, where no setting says it; `spread` chooses most."""

    def room(self, shard_size: int) -> int:
        """Shards that a worker holds at a time, if it works in turns; 0 if not."""
        return 0

    def describe(self, tally: Tally) -> str:
        """How far the work is, in words for a reporter."""
        return ""

    def checkpoints(self) -> Iterable[str]:
        """Names of checkpoints that workers load by `fetched_model`; they travel to machines that do not see them."""
        return ()

    def shared(self) -> Sharded[ItemT]:
        """The same for actors, large arrays in the object store of the session."""
        return self


def spread(num_items: int, num_workers: int, most: int) -> int:
    """The size of shard that gives every worker several.

    Args:
        num_items: all items.
        num_workers: actors; 0 for this process.
        most: items of a shard that fill a worker's batch.
    """
    return max(1, min(most, num_items // (SHARDS_PER_WORKER * max(1, num_workers))))


def run_items(
    run: RunFolder, work: Sharded[ItemT], items: Mapping[str, ItemT], config: ShardedConfig, reporter: Reporter, title: str
) -> None:
    """Works off the items that a run does not hold yet.

    Raises:
        ClusterError: Ray cannot be reached or lacks room for the workers.
        RunError: the disk refuses.
    """
    size = _size(run, work, len(items), config, reporter)
    reporter.stage(title, len(items), work.unit)
    before: Counts = Counter()
    done_before = 0
    for part in run.read_parts():
        rows = part.to_pylist()
        # A shard with a failed item is done again, whole.
        if all(row["status"] == OK for row in rows):
            before.update(work.digest(rows))
            done_before += len(rows)
    session: Counts = Counter()
    began = time.monotonic()

    def told(counts: Counts) -> str:
        return work.describe(Tally(before + counts, counts, time.monotonic() - began))

    def on_progress(progress: Progress, counts: Counts) -> None:
        nonlocal session
        session, done = counts, done_before + progress.num_done + progress.under_way
        workers = f"{progress.num_workers} of {config.workers} workers" if config.workers else ""
        failed = f"{progress.num_failed} failed" if progress.num_failed else ""
        reporter.advance(done, ", ".join(filter(None, (told(counts), workers, failed))))

    with _place(work, config) as here:
        began = time.monotonic()
        write_shards(
            run,
            here,
            make_shards(items, size),
            num_workers=config.workers,
            num_gpus_per_worker=config.gpus_per_worker,
            room=here.room(size),
            models=BroadcastModels.put(work.checkpoints()) if config.workers else None,
            on_progress=on_progress,
        )
    counted = {work.unit: 0, **session}
    run.event(work.event, seconds=time.monotonic() - began, workers=max(config.workers, 1), **counted)


def _size(run: RunFolder, work: Sharded[Any], num_items: int, config: ShardedConfig, reporter: Reporter) -> int:
    begun = [event["shard_size"] for event in run.events() if event["kind"] == WORK and event.get("shard_size")]
    if not begun:
        return config.shard_size or work.shard_size(num_items, config.workers)
    if config.shard_size and begun[0] != min(config.shard_size, num_items):
        reporter.say(f"the run goes on in shards of {begun[0]} {work.unit}, as it began")
    return int(begun[0])


@contextmanager
def _place(work: Sharded[ItemT], config: ShardedConfig) -> Iterator[Sharded[ItemT]]:
    """Where work is done: a session for its actors, or this process, which then computes as an actor does."""
    if config.workers:
        with session(config.workers, config.address):
            yield work.shared()
    elif work.computes:
        with threads(1):
            yield work
    else:
        yield work


def ended_sessions(run: RunFolder, event: str, *counted: str) -> list[dict[str, Any]]:
    """The sessions of a run that came to their end, as their events tell of them.

    Args:
        run: the run.
        event: kind of those events.
        counted: what is read of them beside seconds and workers; of the first there must be some.
    """
    found = [each for each in run.events({event: {"seconds": float, "workers": int}}) if each["kind"] == event]
    return [each for each in found if all(isinstance(each.get(name), int) for name in counted) and each[counted[0]]]


def session(num_cpus: int, address: str) -> AbstractContextManager[RaySession]:
    """The Ray session of a cluster, or one on this machine with room for what wants so many CPUs."""
    return connect(address or None, num_cpus=None if address else max(num_cpus, os.cpu_count() or 1))
