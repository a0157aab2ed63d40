"""Sharded work into a run folder: what is saved is not done again, what is done is saved at once, one part per shard.

Of a run at a URI, each worker puts the parts of its shards there itself and hands back a receipt, so rows do not go through the
driver. Of any other run the driver writes them, because other machines do not see its folders. Which it is shows nowhere else.
A shard that failed becomes rows with status "error", one per item, and is tried again when the run is resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from engine.runtime import logs
from engine.runtime.meters import Meters
from engine.runtime.pool import Progress, run_sharded
from engine.runtime.sharding import ItemT, Shard
from engine.runtime.worker import ShardFailure, ShardWorker
from engine.store.parts import Part, put_part, require_writable, to_table
from engine.store.run_folder import RunFolder
from engine.store.schemas import error_row

logger = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]
DigestT = TypeVar("DigestT")
WORK = "work"
"""Kind of the event that says how many items a run has and how many workers a session began with."""


@dataclass(frozen=True)
class Receipt(Generic[DigestT]):
    """What comes back of a shard.

    Args:
        saved: what the part holds that its worker put, and its size in bytes; None when it is for the driver to write.
        rows: then these; none otherwise.
        digest: of the rows.
    """

    saved: tuple[Part, int] | None
    rows: Rows
    digest: DigestT


class Recorder(Generic[ItemT, DigestT]):
    """A worker that sees to its rows.

    Args:
        worker_class: makes the worker that makes them.
        worker_args: its arguments.
        digest: a pure function of the rows of a shard.
        schema: the columns of the rows.
        rows_uri: where parts are put; empty when the driver writes them.

    Raises:
        StorageError: this machine may not write there.
    """

    def __init__(
        self,
        worker_class: Callable[..., ShardWorker[ItemT, Rows]],
        worker_args: Sequence[Any],
        digest: Callable[[Rows], DigestT],
        schema: pa.Schema,
        rows_uri: str,
    ) -> None:
        if rows_uri:
            # Before the work and not after it.
            require_writable(rows_uri)
        self._worker = worker_class(*worker_args)
        self._digest, self._schema, self._rows_uri = digest, schema, rows_uri

    def run(self, shard: Shard[ItemT]) -> Receipt[DigestT]:
        """Works the shard off, and saves its rows where that is up to the worker."""
        rows = self._worker.run(shard)
        strays = {row["item_key"] for row in rows} ^ set(shard.keys)
        assert not strays, f"{self._worker} returned other rows than the shard asks for: {sorted(strays)[:5]}"
        digest = self._digest(rows)
        if not self._rows_uri:
            return Receipt(None, rows, digest)
        table = to_table(rows, self._schema)
        size = put_part(self._rows_uri, shard.name, table)
        return Receipt((Part.of(table), size), (), digest)


def nothing(rows: Rows) -> None:
    """The digest of rows that nobody asks about."""


def uncounted(digest: Any) -> Mapping[str, int]:
    """What a digest adds to the meters of a job that has none of its own: nothing."""
    return {}


def record_shards(
    run: RunFolder,
    worker_class: Callable[..., ShardWorker[ItemT, Rows]],
    worker_args: Sequence[Any],
    shards: Sequence[Shard[ItemT]],
    *,
    seed_of: Callable[[str], int],
    num_workers: int,
    num_cpus_per_worker: float = 1,
    num_gpus_per_worker: float = 0.0,
    digest: Callable[[Rows], Any] = nothing,
    on_digest: Callable[[Any], None] = nothing,
    meter: Callable[[Any], Mapping[str, int]] = uncounted,
    on_progress: Callable[[Progress], None] | None = None,
    start_timeout_s: float | None = None,
) -> Progress:
    """Works off the shards that the run does not hold yet and saves their rows.

    Args:
        run: opened for writing.
        worker_class: makes a worker whose result for a shard is its rows, one per item, keyed by the run's columns.
        worker_args: as in `run_sharded`.
        shards: all of the run's work, the saved part included.
        seed_of: the seed of an item, for the rows of those that failed.
        num_workers: as in `run_sharded`, like the rest.
        num_cpus_per_worker: as in `run_sharded`.
        num_gpus_per_worker: as in `run_sharded`.
        digest: what is wanted of a shard's rows while the run goes on, small; a pure function, called where the rows are made.
        on_digest: told the digest of each shard once its rows are saved, before `on_progress`; of a failed one, that of its
            error rows.
        meter: what a digest adds to the run's meters (`meters.COUNTERS`), beside shards, items and errors.
        on_progress: as in `run_sharded`; counts what is left to do.
        start_timeout_s: as in `run_sharded`.

    Returns:
        The final progress over what was left to do.

    Raises:
        RunError: a part holds other items than the shard of its name, or the disk refuses.
        StorageError: the URI of the run cannot be written, from here or by a worker.
        ClusterError: as in `run_sharded`.
    """
    left = [shard for shard in shards if not run.is_done(shard.name, shard.keys)]
    if len(left) < len(shards):
        logger.info("%d of %d shards are saved already", len(shards) - len(left), len(shards))
    run.event(WORK, items=sum(map(len, shards)), left=sum(map(len, left)), workers=num_workers)

    meters = Meters(str(run.path), run.job)

    def save(shard: Shard[ItemT], result: Receipt[Any] | ShardFailure) -> None:
        if isinstance(result, ShardFailure):
            run.event("shard_failed", name=shard.name, reason=result.reason, details=result.details)
            rows = [error_row(key, seed_of(key), result.reason) for key in shard.keys]
            result = Receipt(None, rows, digest(rows))
        if result.saved is None:
            part = run.write_shard(shard.name, result.rows)
        else:
            part, size = result.saved
            run.note_part(shard.name, part, size)
        meters.add(shards=1, items=part.num_items, errors=part.num_failed, **meter(result.digest))
        on_digest(result.digest)

    def show(progress: Progress) -> None:
        meters.show(items_left=progress.num_items - progress.num_done, workers=progress.num_workers)
        if on_progress:
            on_progress(progress)

    with logs.metadata(run=str(run.path), job=run.job):
        return run_sharded(
            Recorder,
            (worker_class, worker_args, digest, run.schema, run.rows_uri),
            left,
            num_workers=num_workers,
            on_result=save,
            num_cpus_per_worker=num_cpus_per_worker,
            num_gpus_per_worker=num_gpus_per_worker,
            on_progress=show,
            start_timeout_s=start_timeout_s,
        )
