"""Sharded work into a run folder: what is saved is not done again, what is done is saved at once, one part per shard.

Of a run at a URI, each worker puts the parts of its shards there itself and hands back a receipt, so rows do not go through the
driver. Of any other run the driver writes them, because other machines do not see its folders. Which it is shows nowhere else.
A shard that failed becomes rows with status "error", one per item, and is tried again when the run is resumed. Of workers that
work in turns it is also saved what a shard under way is gone on from; one that was interrupted goes on from there.

Actors may die and work goes on. Without them the death of this process is the run's, so the shards that it works on are noted
(`engine/core/runs/run_folder.py`): on resuming, one that a process died over is tried again after all others, and alone. Over a
second death it fails. One death may have come from outside (a kill, the memory, a time limit) and is no fault of the shard.

What work elsewhere says of itself while it goes on: the newest text of each piece, which the driver shows.

Nothing is decided by it, and nothing is kept.

What Ray exports of a run while it is worked on: numbers for Prometheus, named `parley_...`, tagged by run and job, in ASCII.

They are kept by the driver, which hears of every shard anyway, so workers pay nothing for them; without a Ray session they are
not kept at all. A run's rows, not these, are what was found: the numbers are of one session, and end with it.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Generic, Protocol
from urllib.parse import quote

import pyarrow as pa

from parley.engine.core.ray import logs, ray_internals
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


class ProgressBoard:
    """The newest text of each piece of work, in the memory of Ray's head; who works is sent the board.

    A head that does not answer costs a text, and no work.
    """

    def __init__(self) -> None:
        self._name = f"parley-board-{uuid.uuid4().hex}"

    def put(self, key: int | str, text: str) -> None:
        """Puts up the text of a piece of work in place of its last one."""
        with suppress(Exception):
            ray_internals.put_note(self._name, str(key), text)

    def line(self, key: int | str) -> str:
        """What a piece of work says; empty before its first text."""
        with suppress(Exception):
            return ray_internals.note(self._name, str(key))
        return ""

    def clear(self, key: int | str) -> None:
        """Takes the text of a piece of work away."""
        with suppress(Exception):
            ray_internals.drop_note(self._name, str(key))


COUNTERS = {
    "shards": "shards that came back, failed ones included",
    "items": "items of work that came back, failed ones included",
    "errors": "items that failed",
    "candidates": "inputs or sentences that attacks and searches tried",
    "hits": "targets of a search for which an input of the wanted type of hit was found",
    "dialogues": "dialogues that were played to their end",
}
"""What is counted, by name without `parley_`, and what it means; Ray exports them as `ray_parley_NAME_total`."""
GAUGES = {"items_left": "items of work that have not come back", "workers": "workers that have started"}
"""What goes up and down; Ray exports them as `ray_parley_NAME`."""
_TAGS = ("run", "job")


def ascii_text(text: str) -> str:
    """Return a text as Ray's metrics take it, other letters as percent codes such as those of a URL."""
    return "".join(letter if letter.isascii() else quote(letter, errors="surrogateescape") for letter in text)


class Meters:
    """The numbers of one run."""

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
        """Counts on, by the names of `COUNTERS`."""
        for name, number in counts.items():
            assert name in COUNTERS, f"no counter is called {name}"
            # Ray counts up alone, and takes a zero for a mistake.
            if number and self._counters:
                self._counters[name].inc(number)

    def show(self, **values: int) -> None:
        """Sets the names of `GAUGES`."""
        for name, value in values.items():
            assert name in GAUGES, f"no gauge is called {name}"
            if self._gauges:
                self._gauges[name].set(value)


logger = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]
Counts = Counter[str]
PUT_S = 30.0
"""Seconds after which a worker puts again at a URI what a shard is gone on from."""
MAX_DEATHS = 2
"""Processes without actors that die over a shard before it fails."""
WORK = "work"
"""Kind of the event that says how many items a run has, in shards of which size, and how many workers a session began with."""


class Work(Protocol[ItemT]):
    """What is done to items: it travels to every worker, and is asked by the driver."""

    @abstractmethod
    def seed(self, key: str) -> int:
        """The seed of an item, by its key."""

    @abstractmethod
    def worker(self) -> ShardWorker[ItemT, Rows] | TurnWorker[ItemT, Rows]:
        """Makes a worker whose result for a shard is its rows, one per item, keyed by the run's columns."""

    @abstractmethod
    def digest(self, rows: Rows) -> Counts:
        """What is counted of a shard's rows while the run goes on; a pure function, called where the rows are made.

        Names of `meters.COUNTERS` among it are added to the run's meters.
        """


@dataclass(frozen=True)
class ShardResult:
    """What comes back of a shard.

    Args:
        saved: what the part holds that its worker put, and its size in bytes; None when it is for the driver to write.
        rows: then these; none otherwise.
        digest: of the rows.
    """

    saved: tuple[Part, int] | None
    rows: Rows
    digest: Counts


class ShardWriter(Generic[ItemT]):
    """A worker that sees to its rows.

    Args:
        work: what it does.
        schema: the columns of the rows.
        rows_uri: where parts are put; empty when the driver writes them.
        models: that the work reads, where it is on another machine perhaps.
        begun: where it notes the shards that it works on; None for an actor.

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
            # Before the work and not after it.
            require_writable(rows_uri)
        self._work, self._schema, self._rows_uri, self._begun = work, schema, rows_uri, begun
        self._worker: Any = work.worker()
        self._held: dict[str, Shard[ItemT]] = {}
        self._put: dict[str, float] = {}

    def run(self, shard: Shard[ItemT]) -> ShardResult:
        """Works the shard off, and saves its rows where that is up to the worker."""
        self._note([shard])
        return self._receipt(shard, self._worker.run(shard))

    def turn(self, joining: Sequence[Shard[ItemT]], seconds: float) -> TurnResult[ShardResult]:
        """A turn of a worker that works in turns; what shards are gone on from is saved as rows are, a URI's now and then."""
        self._held |= {shard.name: shard for shard in joining}
        self._put |= {shard.name: -inf if shard.kept is None else 0.0 for shard in joining}
        if joining:
            self._note(self._held.values())
        turn: TurnResult[Rows] = self._worker.turn(joining, seconds)
        ended = {name: self._receipt(self._held.pop(name), rows) for name, rows in turn.ended.items()}
        failed = {name for name, rows in turn.ended.items() if any(row["status"] != OK for row in rows)}
        if self._rows_uri:
            for name, stands in turn.under_way.items():
                if stands.kept is not None and time.monotonic() - self._put[name] > PUT_S:
                    put_unfinished(self._rows_uri, name, stands.kept)
                    self._put[name] = time.monotonic()
            for name in ended:
                # Of an item that failed at its end alone a resumed run goes on from there.
                if self._put.pop(name) > -inf and name not in failed:
                    delete_unfinished(self._rows_uri, name)
        return TurnResult(ended, turn.under_way)

    def drop(self) -> None:
        """Forgets all shards."""
        self._held = {}
        self._worker.drop()

    def _note(self, held: Collection[Shard[ItemT]]) -> None:
        if any(shard.deaths >= MAX_DEATHS for shard in held):
            what = f"the process died {MAX_DEATHS} times while it worked on this shard, by a crash, os._exit or a kill"
            fix = "--workers 1, whose death the run outlives, or more memory and time; parley resume tries it again"
            raise RunError(what, fix=fix)
        if self._begun is not None:
            self._begun.note(shard.name for shard in held)

    def _receipt(self, shard: Shard[ItemT], rows: Rows) -> ShardResult:
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
    """Works off the shards that the run does not hold yet and saves their rows.

    Args:
        run: opened for writing.
        work: what is done to the items.
        shards: all of the run's work, the saved part included; of one size, but for the last.
        num_workers: as in `run_sharded`, like the rest.
        num_gpus_per_worker: as in `run_sharded`.
        room: as in `run_sharded`.
        models: that actors read; None where they are here.
        on_progress: told at the start, after each turn and after each shard, once its rows are saved: the progress, which
            counts what is left to do, and the digests so far, with what is counted of shards under way.
        start_timeout_s: as in `run_sharded`.

    Returns:
        The final progress over what was left to do.

    Raises:
        RunError: a part holds other items than the shard of its name, or the disk refuses.
        StorageError: the URI of the run cannot be written, from here or by a worker.
        ClusterError: as in `run_sharded`.
    """
    kept = read_unfinished(run.path) if room else {}
    begun = InFlightShards(run.path)
    left = [
        replace(shard, kept=kept.get(shard.name), deaths=0 if num_workers else begun.deaths.get(shard.name, 0))
        for shard in shards
        if not run.is_done(shard.name, shard.keys)
    ]
    left.sort(key=lambda shard: shard.deaths)
    if again := [shard.name for shard in left if 0 < shard.deaths < MAX_DEATHS]:
        what = "the process died at work on shard %s: tried once more, last and alone; a run with --workers 1 outlives that"
        logger.warning(what, ", ".join(again))
    if len(left) < len(shards):
        logger.info("%d of %d shards are saved already", len(shards) - len(left), len(shards))
    size = max(map(len, shards), default=0)
    run.event(WORK, items=sum(map(len, shards)), left=sum(map(len, left)), workers=num_workers, shard_size=size)

    meters = Meters(str(run.path), run.job)
    counts: Counts = Counter()
    under_way: dict[str, Counts] = {}

    def save(shard: Shard[ItemT], result: ShardResult | ShardFailure) -> None:
        under_way.pop(shard.name, None)
        begun.deaths.pop(shard.name, None)
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
        # As in `ShardWriter.turn`; of a shard that raised nobody knows what did it, and it is begun anew.
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
            for each in under_way.values():
                total.update(each)
            on_progress(progress, total)

    with logs.metadata(run=str(run.path), job=run.job):
        try:
            return run_sharded(
                ShardWriter,
                (work, run.schema, run.rows_uri, models, None if num_workers else begun),
                left,
                num_workers=num_workers,
                on_result=save,
                room=room,
                on_under_way=keep,
                num_gpus_per_worker=num_gpus_per_worker,
                on_progress=show,
                start_timeout_s=start_timeout_s,
            )
        finally:
            begun.note(())
