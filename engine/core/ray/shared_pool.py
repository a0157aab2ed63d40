"""One pool of actors for several pieces of sharded work: whichever has shards left, a free worker takes them.

Each piece is done in a thread of its own, whose `run_sharded` hands its shards over here; the pool's own thread gives them to
actors in the order in which they come. So a piece that is nearly done, or slow, keeps no actor from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from threading import Lock
from typing import Any

from parley.engine.core.ray import logs
from parley.engine.core.ray.actors import ActorPool
from parley.engine.core.ray.sharding import Shard
from parley.engine.core.ray.shares import Reserved
from parley.engine.core.ray.worker import ShardAttempt, ShardFailure, describe, require_no_end

KEPT = 2
"""Pieces of work whose workers an actor keeps: their models are in memory."""


@dataclass(frozen=True)
class _Piece:
    """A shard of a piece of work.

    Args:
        number: the work's.
        spec: a reference to its worker's class and arguments, in a list, so that it is opened where the worker is built.
        shard: of it.
    """

    number: int
    spec: Sequence[Any]
    shard: Shard[Any]


@dataclass(frozen=True)
class _Unbuilt:
    """Comes back of a shard whose worker could not be built: the error would be every shard's."""

    error: Exception


class Several:
    """A worker that holds workers of several pieces of work, each built when its first shard comes."""

    def __init__(self) -> None:
        self._built: dict[int, Any] = {}

    def run(self, shard: Shard[_Piece]) -> Any:
        """What the shard's own worker makes of it."""
        import ray

        (piece,) = shard.items
        if piece.number not in self._built:
            while len(self._built) >= KEPT:
                del self._built[next(iter(self._built))]
            try:
                worker_class, worker_args = ray.get(piece.spec[0])
                self._built[piece.number] = worker_class(*worker_args)
            except Exception as error:
                return _Unbuilt(error)
        # As its driver names it, and not with the number that tells it from those of the other pieces.
        with logs.metadata(**describe(piece.shard)):
            return self._built[piece.number].run(piece.shard)


class SharedPool:
    """Actors that several threads share, while one thread calls `serve`."""

    def __init__(self) -> None:
        self._numbers, self._lock = count(), Lock()
        self._coming: list[Shard[_Piece]] = []
        self._results: dict[int, SimpleQueue[Any]] = {}
        self._error: BaseException | None = None

    def work(
        self, worker_class: Callable[..., Any], worker_args: Sequence[Any], shards: Sequence[Shard[Any]]
    ) -> Generator[tuple[Shard[Any], ShardAttempt[Any] | ShardFailure, int]]:
        """As `ActorPool.work`, of a piece of work in a thread of its own.

        Raises:
            ClusterError: as there, in all threads.
            Exception: what building the worker raised.
        """
        import ray

        number, results = next(self._numbers), SimpleQueue[Any]()
        spec = [ray.put((worker_class, worker_args))]
        pieces = [Shard(f"{number:03d}-{one.name}", one.keys, (_Piece(number, spec, one),)) for one in shards]
        with self._lock:
            if self._error is not None:
                raise self._error
            self._results[number] = results
            self._coming += pieces
        try:
            for _ in shards:
                found = results.get()
                if isinstance(found, BaseException):
                    raise found
                shard, tried, num_up = found
                if isinstance(tried, ShardAttempt) and isinstance(tried.result, _Unbuilt):
                    raise tried.result.error
                yield shard, tried, num_up
        finally:
            with self._lock:
                del self._results[number]
                self._coming = [one for one in self._coming if one.items[0].number != number]

    def serve(
        self,
        is_open: Callable[[], bool],
        *,
        num_workers: int,
        num_gpus_per_worker: float,
        start_timeout_s: float,
        places: Reserved | None = None,
    ) -> None:
        """Works off what threads hand over.

        Args:
            is_open: whether more may come.
            num_workers: actors, as in `run_sharded`, like the rest.
            num_gpus_per_worker: as there.
            start_timeout_s: as there.
            places: as there.

        Raises:
            ClusterError: as there.
            RefusedModelError: a shard of any piece met it; all pieces end.
        """

        def more() -> list[Shard[_Piece]] | None:
            with self._lock:
                come, self._coming = self._coming, []
            return come if come or is_open() else None

        try:
            size, gpus = num_workers, num_gpus_per_worker
            pool = ActorPool[_Piece, Any](Several, (), num_workers=size, num_cpus=1, num_gpus=gpus, places=places)
            with closing(pool.work(more, start_timeout_s)) as done:
                for shard, tried, num_up in done:
                    require_no_end(tried)
                    (piece,) = shard.items
                    with self._lock:
                        results = self._results.get(piece.number)
                    # Nobody waits any more for a piece of work that has failed.
                    if results is not None:
                        results.put((piece.shard, tried, num_up))
        except BaseException as error:
            with self._lock:
                self._error = error
                for results in self._results.values():
                    results.put(error)
            raise
