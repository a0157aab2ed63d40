"""Sharded work: each shard goes to a worker, each result comes back to this process as soon as it is there.

The workers are Ray actors (`actors.py` says how they are fed and what happens when they die), or, with `num_workers=0`, one
worker in this process without Ray. Some do a shard at a time, others hold several and work in turns (`worker.py`). Nothing else
depends on which: items draw from their own seed streams, so the results are the same.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from parley.engine.core.ray import logs, session
from parley.engine.core.ray.actors import ActorPool
from parley.engine.core.ray.sharding import ItemT, Shard
from parley.engine.core.ray.shared_pool import SharedPool
from parley.engine.core.ray.shares import Reserved
from parley.engine.core.ray.worker import (
    ResultT,
    ShardAttempt,
    ShardFailure,
    ShardWorker,
    Turns,
    TurnWorker,
    UnderWay,
    attempt,
    describe,
    require_no_end,
)

logger = logging.getLogger(__name__)
_shared_pool: ContextVar[SharedPool | None] = ContextVar("shared pool", default=None)

_Results = Generator[tuple[Shard[ItemT], ShardAttempt[ResultT] | ShardFailure | UnderWay, int]]
"""Shards with what came of them, or how they stand, and how many workers have started."""
TURN_S = 0.5
"""Seconds of a turn of a worker in this process; of actors see `actors.py`."""


@contextmanager
def working_in(shared: SharedPool) -> Iterator[None]:
    """Hands the actors' work of a `with` block in this thread to a pool that others share."""
    token = _shared_pool.set(shared)
    try:
        yield
    finally:
        _shared_pool.reset(token)


@dataclass(frozen=True)
class Progress:
    """How far a pool is.

    Args:
        num_done: items whose shard has come back, failed ones included.
        num_failed: items in failed shards.
        num_items: all items.
        num_workers: workers that have started.
        under_way: the work that is done on shards which have not come back, in items.
    """

    num_done: int
    num_failed: int
    num_items: int
    num_workers: int
    under_way: float = 0.0


def run_sharded(
    worker_class: Callable[..., ShardWorker[ItemT, ResultT] | TurnWorker[ItemT, ResultT]],
    worker_args: Sequence[Any],
    shards: Sequence[Shard[ItemT]],
    *,
    num_workers: int,
    on_result: Callable[[Shard[ItemT], ResultT | ShardFailure], None],
    room: int = 0,
    on_under_way: Callable[[Shard[ItemT], UnderWay], None] = lambda shard, stands: None,
    num_cpus_per_worker: float = 1,
    num_gpus_per_worker: float = 0.0,
    on_progress: Callable[[Progress], None] | None = None,
    start_timeout_s: float | None = None,
    places: Reserved | None = None,
) -> Progress:
    """Works off shards and hands each result over, in this process, as it comes.

    Args:
        worker_class: makes a worker; called once in each actor, and again after a restart.
        worker_args: its arguments; they are pickled, so give paths of weights rather than weights.
        shards: the work; no more workers are started than there are shards.
        num_workers: actors; 0 runs everything in this process without Ray. Otherwise a `session.connect` block must be
            around the call.
        on_result: takes each shard and its result or failure, in order of completion; what it raises ends the run.
        room: shards that a worker holds at a time, if it works in turns (`TurnWorker`); 0 if not.
        on_under_way: told after each turn how a shard stands that the worker holds.
        num_cpus_per_worker: CPUs that each actor reserves, and threads that it computes with (at least 1).
        num_gpus_per_worker: GPUs that each actor reserves, a fraction to share one; with 0 it sees none.
        on_progress: called once at the start, after each result and each turn.
        start_timeout_s: seconds for the first worker to start; the session's (`Session.start_timeout_s`) when not given.
        places: what is reserved for actors that make actors, as in `ActorPool`.

    Returns:
        The final progress.

    Raises:
        ClusterError: no session, too little room in it for the workers, or workers that die while they start.
        RefusedModelError: a shard met it.
        Exception: what building a worker raised.
    """
    num_items, num_done, num_failed = sum(map(len, shards)), 0, 0
    progress = Progress(0, 0, num_items, 0)
    if on_progress:
        on_progress(progress)
    if not shards:
        return progress
    results: _Results[ItemT, ResultT]
    if num_workers and (shared := _shared_pool.get()) is not None:
        assert not room, "workers that work in turns have a pool of their own"
        results = shared.work(worker_class, worker_args, shards)
    elif num_workers == 0:
        # Of which kind it is, `room` says.
        worker: Any = worker_class(*worker_args)
        results = _turns_here(Turns(worker), shards, room) if room else _work_here(worker, shards)
    else:
        pool = ActorPool(
            worker_class,
            worker_args,
            num_workers=min(num_workers, len(shards)),
            num_cpus=num_cpus_per_worker,
            num_gpus=num_gpus_per_worker,
            room=room,
            places=places,
        )
        here = session.current() or session.RaySession("joined")
        given = iter((shards,))
        results = pool.work(lambda: next(given, None), here.start_timeout_s if start_timeout_s is None else start_timeout_s)
    under_way: dict[str, float] = {}
    # Closed at once when `on_result` raises, so that no actor outlives the call.
    with closing(results):
        for shard, tried, num_started in results:
            if isinstance(tried, UnderWay):
                under_way[shard.name] = tried.share
                on_under_way(shard, tried)
            else:
                under_way.pop(shard.name, None)
                require_no_end(tried)
                result = _logged(shard, tried)
                num_failed += len(shard) * isinstance(result, ShardFailure)
                num_done += len(shard)
                on_result(shard, result)
            progress = Progress(num_done, num_failed, num_items, num_started, sum(under_way.values()))
            if on_progress:
                on_progress(progress)
    return progress


def _logged(shard: Shard[Any], tried: ShardAttempt[ResultT] | ShardFailure) -> ResultT | ShardFailure:
    """Writes a line on what came of a shard: here, for a worker's last lines are lost when its machine is."""
    metadata: dict[str, Any] = {**describe(shard), "items": len(shard)}
    result: ResultT | ShardFailure
    if isinstance(tried, ShardAttempt):
        result = tried.result
        metadata |= {"seconds": tried.seconds, "node": tried.node, "pid": tried.pid}
    else:
        result = tried
    if isinstance(result, ShardFailure):
        more = f"\n{result.details}" if logs.is_debug() else ""
        logger.warning("shard %s failed: %s%s", shard.name, result.reason, more, extra=metadata)
    else:
        logger.info("shard %s is done", shard.name, extra=metadata)
    return result


def _work_here(worker: ShardWorker[ItemT, ResultT], shards: Sequence[Shard[ItemT]]) -> _Results[ItemT, ResultT]:
    for shard in shards:
        yield shard, attempt(worker, shard), 1


def _turns_here(turns: Turns[ItemT, ResultT], shards: Sequence[Shard[ItemT]], room: int) -> _Results[ItemT, ResultT]:
    waiting, held = deque(shards), dict[str, Shard[ItemT]]()
    while waiting or held:
        joining = []
        # One that a process has died over is tried alone, so that it does not take others along.
        while waiting and len(held) < (1 if waiting[0].deaths else room):
            joining.append(waiting.popleft())
            held[joining[-1].name] = joining[-1]
        turn = turns.take(joining, TURN_S)
        for name, tried in turn.ended.items():
            yield held.pop(name), tried, 1
        for name, stands in turn.under_way.items():
            yield held[name], stands, 1
