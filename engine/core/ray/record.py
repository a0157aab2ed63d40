"""Sharded work into a run folder: saved shards are not done again, and a finished shard is saved at once, as one part.

In a run at a URI each worker puts the parts of its shards there and returns a `ShardResult` without rows. In any other run the
driver writes them, because other machines do not see its folders. A failed shard becomes rows with status "error", one per
item, and is tried again when the run resumes. Workers that work in turns also save the state of shards under way, from which an
interrupted shard resumes.

Actors may die and work continues. Without actors the death of this process ends the run, so it notes the shards that it works
on (`engine/core/runs/run_folder.py`). On resuming, a shard over which a process died is tried again after all others, and
alone. After a second death it fails. One death may have come from outside (a kill, the memory, a time limit) and not from the
shard.

`Meters` exports numbers through Ray to Prometheus, named `parley_...` and tagged by run and job, in ASCII. The driver keeps
them, so workers pay nothing; without a Ray session there are none. They belong to one session; the rows are the results.
"""

from __future__ import annotations

import logging
import sys
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Generic, Protocol
from urllib.parse import quote

import pyarrow as pa

from parley.engine.core.ray import logs
from parley.engine.core.ray.pool import BroadcastModels, Progress, run_sharded
from parley.engine.core.ray.worker import ItemT, Shard, ShardFailure, ShardWorker, TurnResult, TurnWorker, UnderWay
from parley.engine.core.runs.parts import OK, Part, error_row, put_part, require_writable, to_table
from parley.engine.core.runs.run_folder import (
    InFlightShards,
    RunFolder,
    delete_unfinished,
    put_unfinished,
    read_unfinished,
    remove_unfinished,
    write_unfinished,
)
from parley.envs.core.errors import RunError

logger = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]
Counts = Counter[str]
PUT_S = 30.0
"""Seconds between two writes of the state of a shard under way to a URI."""
MAX_DEATHS = 2
"""Number of processes without actors that die over a shard before it fails."""
WORK = "work"
"""Kind of the event that holds the number of items, the shard size, and the number of workers of a session."""


class Work(Protocol[ItemT]):
    """The work on items; it is sent to every worker, and used by the driver."""

    @abstractmethod
    def seed(self, key: str) -> int:
        """Return the seed of an item, by its key."""

    is_uneven: ClassVar[bool] = False
    """True if items differ in their work."""

    def effort(self, item: ItemT) -> float:
        """Return the work of an item, for the estimate of the time left; in any unit. Asked for if items differ in it."""
        return 1.0

    @abstractmethod
    def worker(self) -> ShardWorker[ItemT, Rows] | TurnWorker[ItemT, Rows]:
        """Return a worker whose result for a shard is its rows, one per item, keyed by the run's columns."""

    @abstractmethod
    def digest(self, rows: Rows) -> Counts:
        """Return counts of a shard's rows for the progress; a pure function, called where the rows are made.

        Counts with names of `COUNTERS` are added to the run's meters.
        """


@dataclass(frozen=True)
class ShardResult:
    """The result of a shard.

    Args:
        saved: summary and size in bytes of the part that the worker put; None if the driver must write it.
        rows: the rows for the driver to write; empty otherwise.
        digest: counts of the rows.
    """

    saved: tuple[Part, int] | None
    rows: Rows
    digest: Counts


class ShardWriter(Generic[ItemT]):
    """A worker that saves its rows.

    Args:
        work: its work.
        schema: columns of the rows.
        rows_uri: URI for the parts; empty if the driver writes them.
        models: models that the work reads, for another machine.
        begun: notes of the shards that it works on; None for an actor.

    Raises:
        StorageError: this machine may not write there, or has no room for the models.
    """

    def __init__(
        self,
        work: Work[ItemT],
        schema: pa.Schema,
        rows_uri: str,
        models: BroadcastModels | None = None,
        begun: InFlightShards | None = None,
    ) -> None:
        if models is not None:
            models.open()
        if rows_uri:
            # Checked before the work and not after it.
            require_writable(rows_uri)
        self._work, self._schema, self._rows_uri, self._begun = work, schema, rows_uri, begun
        self._worker: Any = work.worker()
        self._held: dict[str, Shard[ItemT]] = {}
        self._put: dict[str, float] = {}

    def run(self, shard: Shard[ItemT]) -> ShardResult:
        """Do a shard, and save its rows if that is the worker's task."""
        self._note_shards([shard])
        return self._saved(shard, self._worker.run(shard))

    def turn(self, joining: Sequence[Shard[ItemT]], seconds: float) -> TurnResult[ShardResult]:
        """Do a turn of a worker that works in turns; save rows, and at a URI also the state of shards now and then."""
        self._held |= {shard.name: shard for shard in joining}
        self._put |= {shard.name: -inf if shard.kept is None else 0.0 for shard in joining}
        if joining:
            self._note_shards(self._held.values())
        turn: TurnResult[Rows] = self._worker.turn(joining, seconds)
        ended = {name: self._saved(self._held.pop(name), rows) for name, rows in turn.ended.items()}
        failed = {name for name, rows in turn.ended.items() if any(row["status"] != OK for row in rows)}
        if self._rows_uri:
            for name, stands in turn.under_way.items():
                if stands.kept is not None and time.monotonic() - self._put[name] > PUT_S:
                    put_unfinished(self._rows_uri, name, stands.kept)
                    self._put[name] = time.monotonic()
            for name in ended:
                # A shard with failed items keeps its state, from which a resumed run continues.
                if self._put.pop(name) > -inf and name not in failed:
                    delete_unfinished(self._rows_uri, name)
        return TurnResult(ended, turn.under_way)

    def drop(self) -> None:
        """Forget all shards."""
        self._held = {}
        self._worker.drop()

    def _note_shards(self, held: Collection[Shard[ItemT]]) -> None:
        if any(shard.deaths >= MAX_DEATHS for shard in held):
            what = f"the process died {MAX_DEATHS} times while it worked on this shard, by a crash, os._exit or a kill"
            fix = "--workers 1, whose death the run outlives, or more memory and time; parley resume tries it again"
            raise RunError(what, fix=fix)
        if self._begun is not None:
            self._begun.note(shard.name for shard in held)

    def _saved(self, shard: Shard[ItemT], rows: Rows) -> ShardResult:
        strays = {row["item_key"] for row in rows} ^ set(shard.keys)
        assert not strays, f"{self._worker} returned other rows than the shard asks for: {sorted(strays)[:5]}"
        digest = self._work.digest(rows)
        if not self._rows_uri:
            return ShardResult(None, rows, digest)
        table = to_table(rows, self._schema)
        size = put_part(self._rows_uri, shard.name, table)
        return ShardResult((Part.of(table), size), (), digest)


def write_shards(
    run: RunFolder,
    work: Work[ItemT],
    shards: Sequence[Shard[ItemT]],
    *,
    num_workers: int,
    num_gpus_per_worker: float = 0.0,
    room: int = 0,
    models: BroadcastModels | None = None,
    on_progress: Callable[[Progress, Counts], None] | None = None,
    start_timeout_s: float | None = None,
) -> Progress:
    """Do the shards that the run does not hold yet, and save their rows.

    Args:
        run: the run, opened for writing.
        work: the work on the items.
        shards: all shards of the run, with the saved ones; of one size, except for the last.
        num_workers: this and the rest as in `run_sharded`.
        num_gpus_per_worker: as in `run_sharded`.
        room: as in `run_sharded`.
        models: models that actors read; None if they are on this machine.
        on_progress: called at the start, after each turn and after each shard, once its rows are saved: with the progress over
            the work that was left, and the counts so far, those of shards under way included.
        start_timeout_s: as in `run_sharded`.

    Returns:
        The final progress over the work that was left.

    Raises:
        RunError: a part holds other items than the shard of its name, or the disk refuses.
        StorageError: the URI of the run cannot be written, from here or by a worker.
        ClusterError: as in `run_sharded`.
    """
    states = read_unfinished(run.path) if room else {}
    in_flight = InFlightShards(run.path)
    unfinished = [
        replace(shard, kept=states.get(shard.name), deaths=0 if num_workers else in_flight.deaths.get(shard.name, 0))
        for shard in shards
        if not run.is_done(shard.name, shard.keys)
    ]
    unfinished.sort(key=lambda shard: shard.deaths)
    if again := [shard.name for shard in unfinished if 0 < shard.deaths < MAX_DEATHS]:
        what = "the process died at work on shard %s: tried once more, last and alone; a run with --workers 1 outlives that"
        logger.warning(what, ", ".join(again))
    if len(unfinished) < len(shards):
        logger.info("%d of %d shards are saved already", len(shards) - len(unfinished), len(shards))
    size = max(map(len, shards), default=0)
    run.event(WORK, items=sum(map(len, shards)), left=sum(map(len, unfinished)), workers=num_workers, shard_size=size)

    meters = Meters(str(run.path), run.job)
    counts: Counts = Counter()
    under_way: dict[str, Counts] = {}

    def save(shard: Shard[ItemT], result: ShardResult | ShardFailure) -> None:
        under_way.pop(shard.name, None)
        in_flight.deaths.pop(shard.name, None)
        has_failed = isinstance(result, ShardFailure)
        if isinstance(result, ShardFailure):
            run.event("shard_failed", name=shard.name, reason=result.reason, details=result.details)
            rows = [error_row(key, work.seed(key), result.reason) for key in shard.keys]
            result = ShardResult(None, rows, work.digest(rows))
        if result.saved is None:
            part = run.write_shard(shard.name, result.rows)
        else:
            part, size = result.saved
            run.note_part(shard.name, part, size)
        # As in `ShardWriter.turn`; a shard that raised begins anew, because the cause is unknown.
        if room and (has_failed or not part.num_failed):
            remove_unfinished(run.path, shard.name)
            if has_failed and run.rows_uri:
                delete_unfinished(run.rows_uri, shard.name)
        metered = {name: number for name, number in result.digest.items() if name in COUNTERS}
        meters.add(shards=1, items=part.num_items, errors=part.num_failed, **metered)
        counts.update(result.digest)

    def keep(shard: Shard[ItemT], stands: UnderWay) -> None:
        under_way[shard.name] = stands.counts
        if stands.kept is not None and not run.rows_uri:
            write_unfinished(run.path, shard.name, stands.kept)

    def show(progress: Progress) -> None:
        meters.show(items_left=progress.num_items - progress.num_done, workers=progress.num_workers)
        if on_progress:
            total = Counter(counts)
            for shard_counts in under_way.values():
                total.update(shard_counts)
            on_progress(progress, total)

    with logs.metadata(run=str(run.path), job=run.job):
        try:
            return run_sharded(
                ShardWriter,
                (work, run.schema, run.rows_uri, models, None if num_workers else in_flight),
                unfinished,
                num_workers=num_workers,
                on_result=save,
                room=room,
                on_under_way=keep,
                effort=work.effort if work.is_uneven else None,
                num_gpus_per_worker=num_gpus_per_worker,
                on_progress=show,
                start_timeout_s=start_timeout_s,
            )
        finally:
            in_flight.note(())


COUNTERS = {
    "shards": "shards that came back, failed ones included",
    "items": "items of work that came back, failed ones included",
    "errors": "items that failed",
    "candidates": "inputs or sentences that attacks and searches tried",
    "hits": "targets of a search for which an input of the wanted type of hit was found",
    "dialogues": "dialogues that were played to their end",
}
"""Meanings of the counters, by name without `parley_`; Ray exports them as `ray_parley_NAME_total`."""
GAUGES = {"items_left": "items of work that have not come back", "workers": "workers that have started"}
"""Meanings of the gauges, by name; Ray exports them as `ray_parley_NAME`."""
_TAGS = ("run", "job")


def ascii_text(text: str) -> str:
    """Return a text as Ray's metrics take it, other letters as percent codes such as those of a URL."""
    return "".join(letter if letter.isascii() else quote(letter, errors="surrogateescape") for letter in text)


class Meters:
    """The meters of one run."""

    def __init__(self, run: str, job: str) -> None:
        self._counters: dict[str, Any] = {}
        self._gauges: dict[str, Any] = {}
        if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
            return
        from ray.util.metrics import Counter, Gauge

        tags = {"run": ascii_text(run), "job": ascii_text(job)}
        self._counters = {name: Counter(f"parley_{name}", text, _TAGS) for name, text in COUNTERS.items()}
        self._gauges = {name: Gauge(f"parley_{name}", text, _TAGS) for name, text in GAUGES.items()}
        for meter in (*self._counters.values(), *self._gauges.values()):
            meter.set_default_tags(tags)

    def add(self, **counts: int) -> None:
        """Add to the counters of `COUNTERS`, by name."""
        for name, number in counts.items():
            assert name in COUNTERS, f"no counter is called {name}"
            # Ray's counters only rise, and reject a zero.
            if number and self._counters:
                self._counters[name].inc(number)

    def show(self, **values: int) -> None:
        """Set the gauges of `GAUGES`, by name."""
        for name, value in values.items():
            assert name in GAUGES, f"no gauge is called {name}"
            if self._gauges:
                self._gauges[name].set(value)
