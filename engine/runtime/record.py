"""Sharded work into a run folder: what is saved is not done again, what is done is saved at once.

The driver alone writes, one part per shard. A shard that failed becomes rows with status "error", one per item, and is
tried again when the run is resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.runtime import logs
from engine.runtime.meters import Meters
from engine.runtime.pool import Progress, run_sharded
from engine.runtime.sharding import ItemT, Shard
from engine.runtime.worker import ShardFailure, ShardWorker
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK, error_row

logger = logging.getLogger(__name__)

Rows = Sequence[Mapping[str, Any]]
WORK = "work"
"""Kind of the event that says how many items a run has and how many workers a session began with."""


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
    tally: Callable[[Rows], Mapping[str, int]] | None = None,
    on_rows: Callable[[Rows], None] | None = None,
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
        tally: what rows that worked add to the run's meters (`meters.COUNTERS`), beside shards, items and errors.
        on_rows: told the rows of each shard once they are saved, before `on_progress`; of a failed one, its error rows.
        on_progress: as in `run_sharded`; counts what is left to do.
        start_timeout_s: as in `run_sharded`.

    Returns:
        The final progress over what was left to do.

    Raises:
        RunError: a part holds other items than the shard of its name, or the disk refuses.
        ClusterError: as in `run_sharded`.
    """
    left = [shard for shard in shards if not run.is_done(shard.name, shard.keys)]
    if len(left) < len(shards):
        logger.info("%d of %d shards are saved already", len(shards) - len(left), len(shards))
    run.event(WORK, items=sum(map(len, shards)), left=sum(map(len, left)), workers=num_workers)

    meters = Meters(str(run.path), run.job)

    def save(shard: Shard[ItemT], result: Rows | ShardFailure) -> None:
        if isinstance(result, ShardFailure):
            run.event("shard_failed", name=shard.name, reason=result.reason, details=result.details)
            result = [error_row(key, seed_of(key), result.reason) for key in shard.keys]
        strays = {row["item_key"] for row in result} ^ set(shard.keys)
        assert not strays, f"{worker_class} returned other rows than the shard asks for: {sorted(strays)[:5]}"
        run.write_shard(shard.name, result)
        worked = [row for row in result if row["status"] == OK]
        meters.add(shards=1, items=len(result), errors=len(result) - len(worked), **(tally(worked) if tally else {}))
        if on_rows:
            on_rows(result)

    def show(progress: Progress) -> None:
        meters.show(items_left=progress.num_items - progress.num_done, workers=progress.num_workers)
        if on_progress:
            on_progress(progress)

    with logs.about(run=str(run.path), job=run.job):
        return run_sharded(
            worker_class,
            worker_args,
            left,
            num_workers=num_workers,
            on_result=save,
            num_cpus_per_worker=num_cpus_per_worker,
            num_gpus_per_worker=num_gpus_per_worker,
            on_progress=show,
            start_timeout_s=start_timeout_s,
        )
