"""Sharded work: `run_sharded` sends each shard to a worker and hands each result to this process as soon as it is there.

The workers are Ray actors (`actors.py`: back-pressure and deaths), or, with `num_workers=0`, one worker in this process without
Ray. Some do a shard at a time, others hold several and work in turns (`worker.py`). The results are the same, because items
draw from their own seed streams.

`SharedArrays` are read-only arrays, such as a model's weights. The driver puts them into Ray's object store once; every machine
fetches them once, and its workers map the same pages. So workers need no file of the driver's.

`BroadcastModels` brings models to machines that do not see the driver's disk. The driver puts the files of each checkpoint into
the object store. A worker that sees the driver's disk reads them there; another one keeps a copy below its cache, named by its
digest. Models at a URI are fetched from there (`envs/core/storage`) and not sent.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any

import numpy as np

from parley.engine.core.ray import logs, ray_internals, session
from parley.engine.core.ray.actors import ActorPool
from parley.engine.core.ray.worker import (
    ItemT,
    ResultT,
    Shard,
    ShardAttempt,
    ShardFailure,
    ShardWorker,
    TurnResult,
    Turns,
    TurnWorker,
    UnderWay,
    attempt,
    describe,
    require_no_end,
)
from parley.envs.core.errors import StorageError
from parley.envs.core.storage.copies import fetched_model, hand_over
from parley.envs.core.storage.uris import is_uri
from parley.envs.corpora.arrow import cache_root
from parley.policies.core.responder import PARTS, model_inside

logger = logging.getLogger(__name__)
_shared_pool: ContextVar[SharedPool | None] = ContextVar("shared pool", default=None)

_Results = Generator[tuple[Shard[ItemT], ShardAttempt[ResultT] | ShardFailure | UnderWay, int]]
"""Shards with their results or progress, and the number of workers that have started."""
TURN_S = 0.5
"""Seconds of a turn of a worker in this process; for actors see `actors.py`."""


@contextmanager
def working_in(shared: SharedPool) -> Iterator[None]:
    """Hand the actors' work of a `with` block in this thread to a shared pool."""
    token = _shared_pool.set(shared)
    try:
        yield
    finally:
        _shared_pool.reset(token)


@dataclass(frozen=True)
class Progress:
    """Progress of a pool.

    Args:
        num_done: items whose shard has come back, with failed ones.
        num_failed: items in failed shards.
        num_items: all items.
        num_workers: workers that have started.
        work: finished work, that of unfinished shards included, in units of `effort`.
        busy_s: seconds that workers spent on the shards that came back, without their start.
    """

    num_done: int
    num_failed: int
    num_items: int
    num_workers: int
    work: float = 0.0
    busy_s: float = 0.0


def run_sharded(
    worker_class: Callable[..., ShardWorker[ItemT, ResultT] | TurnWorker[ItemT, ResultT]],
    worker_args: Sequence[Any],
    shards: Sequence[Shard[ItemT]],
    *,
    num_workers: int,
    on_result: Callable[[Shard[ItemT], ResultT | ShardFailure], None],
    room: int = 0,
    on_under_way: Callable[[Shard[ItemT], UnderWay], None] = lambda shard, stands: None,
    effort: Callable[[ItemT], float] | None = None,
    num_cpus_per_worker: float = 1,
    num_gpus_per_worker: float = 0.0,
    on_progress: Callable[[Progress], None] | None = None,
    start_timeout_s: float | None = None,
) -> Progress:
    """Do the work of shards, and hand over each result in this process as it comes.

    Args:
        worker_class: makes a worker; called once in each actor, and again after a restart.
        worker_args: its arguments; they are pickled, so give paths of weights, not weights.
        shards: the work; no more workers are started than there are shards.
        num_workers: number of actors; 0 runs everything in this process without Ray. Otherwise a `session.connect` block must
            be around the call.
        on_result: takes each shard and its result or failure, in order of completion; an error of it ends the run.
        room: number of shards that a worker holds at a time, if it works in turns (`TurnWorker`); 0 if not.
        on_under_way: takes the progress of each unfinished shard of a worker after each turn.
        effort: returns the work of an item, in the units of `UnderWay.share`; 1 if not given.
        num_cpus_per_worker: CPUs that each actor reserves, and threads that it computes with (at least 1).
        num_gpus_per_worker: GPUs that each actor reserves, a fraction to share one; with 0 it sees none.
        on_progress: called once at the start, after each result and each turn.
        start_timeout_s: seconds for the first worker to start; the session's (`RaySession.start_timeout_s`) by default.

    Returns:
        The final progress.

    Raises:
        ClusterError: no session, too little room in it for the workers, or workers that die while they start.
        RefusedModelError: a shard met it.
        Exception: an error of building a worker.
    """
    num_items, num_done, num_failed, ended_work, busy_s = sum(map(len, shards)), 0, 0, 0.0, 0.0
    progress = Progress(0, 0, num_items, 0)
    if on_progress:
        on_progress(progress)
    if not shards:
        return progress
    results: _Results[ItemT, ResultT]
    if num_workers and (shared := _shared_pool.get()) is not None:
        results = shared.work(worker_class, worker_args, shards, room)
    elif num_workers == 0:
        # `room` says which kind of worker it is.
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
        )
        ray_session = session.current() or session.RaySession("joined")
        batches = iter((shards,))
        timeout_s = ray_session.start_timeout_s if start_timeout_s is None else start_timeout_s
        results = pool.work(lambda: next(batches, None), timeout_s)
    under_way: dict[str, float] = {}
    # Closed at once if `on_result` raises, so that no actor outlives the call.
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
                busy_s += tried.seconds if isinstance(tried, ShardAttempt) else 0.0
                ended_work += len(shard) if effort is None else sum(map(effort, shard.items))
                on_result(shard, result)
            work = ended_work + sum(under_way.values())
            progress = Progress(num_done, num_failed, num_items, num_started, work, busy_s)
            if on_progress:
                on_progress(progress)
    return progress


def _logged(shard: Shard[Any], tried: ShardAttempt[ResultT] | ShardFailure) -> ResultT | ShardFailure:
    """Log a line on the result of a shard; here, because a worker's last lines are lost with its machine."""
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
        # A shard over which a process died is tried alone, so that it does not fail others.
        while waiting and len(held) < (1 if waiting[0].deaths else room):
            joining.append(waiting.popleft())
            held[joining[-1].name] = joining[-1]
        turn = turns.take(joining, TURN_S)
        for name, tried in turn.ended.items():
            yield held.pop(name), tried, 1
        for name, stands in turn.under_way.items():
            yield held[name], stands, 1


@dataclass(frozen=True)
class SharedArrays:
    """A handle on shared arrays, which may be an argument of workers' calls, or of actors that may be restarted.

    The driver must keep the handle while they work: a worker's handle does not keep the arrays.

    Args:
        reference: reference of the object store.
    """

    reference: Any

    @classmethod
    def put(cls, arrays: Mapping[str, np.ndarray]) -> SharedArrays:
        """Share arrays by name; a `session.connect` block must be around the call and around all use of the handle."""
        import ray

        return cls(ray.put(dict(arrays)))

    def get(self) -> dict[str, np.ndarray]:
        """Return the arrays, read-only, without a copy."""
        import ray

        arrays: dict[str, np.ndarray] = ray.get(self.reference)
        return arrays

    def __reduce__(self) -> tuple[Callable[..., SharedArrays], tuple[bytes, ...]]:
        return _from_address, ray_internals.address_of(self.reference)


def _from_address(*address: bytes) -> SharedArrays:
    return SharedArrays(ray_internals.reference_at(*address))


@dataclass(frozen=True)
class _BroadcastModel:
    """The files of a checkpoint.

    Args:
        folder: folder on the driver's disk.
        stamps: size and time of each file, by name.
        digest: digest of all files.
        content: the bytes of the files by name, in the object store.
    """

    folder: Path
    stamps: Mapping[str, tuple[int, int] | None]
    digest: str
    content: SharedArrays

    @classmethod
    def put(cls, folder: Path) -> _BroadcastModel:
        files = {name: (folder / name).read_bytes() for name in PARTS}
        whole = hashlib.sha256()
        for content in files.values():
            whole.update(hashlib.sha256(content).digest())
        shared = SharedArrays.put({name: np.frombuffer(content, dtype=np.uint8) for name, content in files.items()})
        return cls(folder, {name: _stamp(folder / name) for name in PARTS}, whole.hexdigest()[:16], shared)

    def here(self) -> Path:
        """Return the folder of the files on this machine."""
        if all(_stamp(self.folder / name) == stamp for name, stamp in self.stamps.items()):
            return self.folder
        copy = Path(os.path.abspath(cache_root())) / "carried" / self.digest  # noqa: PTH100  # as other copies are named
        if not copy.is_dir():
            aside = copy.with_name(f".{copy.name}.{uuid.uuid4().hex}.partial")
            try:
                aside.mkdir(parents=True)
                for name, content in self.content.get().items():
                    (aside / name).write_bytes(content.data)
                # Another worker may have been first.
                if not copy.is_dir():
                    aside.rename(copy)
            except OSError as error:
                if not copy.is_dir():
                    fix = "make room, or name another cache folder with PARLEY_CACHE"
                    raise StorageError("a model cannot be kept on this machine", where=copy, got=error, fix=fix) from error
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        return copy


@dataclass(frozen=True)
class BroadcastModels:
    """A handle on models, which may be an argument of workers; the driver must keep it while they work.

    Args:
        models: models by the names that the work uses.
    """

    models: Mapping[str, _BroadcastModel]

    @classmethod
    def put(cls, names: Iterable[str]) -> BroadcastModels:
        """Share the checkpoints among some names; other names, such as those of scripted agents, are left alone.

        A `session.connect` block must be around the call and around all use of the handle.

        Args:
            names: run or checkpoint folders, or names of other things.
        """
        folders = {name: model_inside(fetched_model(name)).absolute() for name in names if name and not is_uri(name)}
        existing = {folder for folder in folders.values() if all((folder / part).is_file() for part in PARTS)}
        models = {folder: _BroadcastModel.put(folder) for folder in existing}
        return cls({name: models[folder] for name, folder in folders.items() if folder in existing})

    def open(self) -> None:
        """Make the names stand for the models in this process, whatever its disk holds.

        Raises:
            StorageError: the disk has no room for them.
        """
        hand_over({name: model.here() for name, model in self.models.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> BroadcastModels:
        return self


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


KEPT = 2
"""Number of pieces of work whose workers an actor keeps, with their models in memory."""


@dataclass(frozen=True)
class _Piece:
    """A shard of a piece of work.

    Args:
        number: number of the piece.
        spec: a reference to its worker's class and arguments, in a list, so that it is opened where the worker is built.
        shard: one of its shards.
    """

    number: int
    spec: Sequence[Any]
    shard: Shard[Any]


@dataclass(frozen=True)
class _BuildFailure:
    """The result of a shard whose worker could not be built: every shard would get the same error."""

    error: Exception


class Several(TurnWorker[_Piece, Any]):
    """A worker that holds workers of several pieces of work, each built for its first shard; one kind of workers or the other.

    Its results are attempts of the shards' own workers, which know their seconds.
    """

    def __init__(self) -> None:
        self.drop()

    def drop(self) -> None:
        self._built: dict[int, Any] = {}
        self._held: dict[int, dict[str, str]] = {}
        """Names of the shards held, by piece and by their own names."""
        self._waiting = deque[Shard[_Piece]]()

    def _build(self, piece: _Piece) -> Any:
        """Return the worker of a piece; nothing while `KEPT` others hold shards."""
        import ray

        if piece.number not in self._built and len(self._built) >= KEPT:
            idle = next((number for number in self._built if not self._held.get(number)), None)
            if idle is None:
                return None
            del self._built[idle]
        if piece.number not in self._built:
            try:
                worker_class, worker_args = ray.get(piece.spec[0])
                self._built[piece.number] = worker_class(*worker_args)
            except Exception as error:
                return _BuildFailure(error)
        return self._built[piece.number]

    def run(self, shard: Shard[_Piece]) -> Any:
        """Return the attempt of the shard's own worker, or why there is none."""
        (piece,) = shard.items
        worker = self._build(piece)
        tried = worker if isinstance(worker, _BuildFailure) else attempt(worker, piece.shard)
        return tried.result if isinstance(tried, ShardAttempt) and isinstance(tried.result, ShardFailure) else tried

    def turn(self, joining: Sequence[Shard[_Piece]], seconds: float) -> TurnResult[Any]:
        """Let each piece have a turn with its shards; those of further pieces wait until another one has none left."""
        ended, under_way, joined = dict[str, Any](), dict[str, UnderWay](), dict[int, list[Shard[Any]]]()
        waiting, self._waiting = [*self._waiting, *joining], deque()
        for shard in waiting:
            (piece,) = shard.items
            worker = self._build(piece)
            if worker is None:
                self._waiting.append(shard)
            elif isinstance(worker, _BuildFailure):
                ended[shard.name] = worker
            else:
                self._held.setdefault(piece.number, {})[piece.shard.name] = shard.name
                joined.setdefault(piece.number, []).append(replace(piece.shard, kept=shard.kept))
        held = {number: names for number, names in self._held.items() if names}
        for number, names in held.items():
            turn = self._built[number].take(joined.get(number, ()), seconds / len(held))
            under_way |= {names[name]: stands for name, stands in turn.under_way.items()}
            for name, tried in turn.ended.items():
                ended[names.pop(name)] = tried.result if isinstance(tried.result, ShardFailure) else tried
        return TurnResult(ended, under_way)


def _turns_of(worker_class: Callable[..., TurnWorker[Any, Any]], *worker_args: Any) -> Turns[Any, Any]:
    return Turns(worker_class(*worker_args))


class SharedPool:
    """Actors that several threads share, while one thread calls `serve` and gives them shards in the order of arrival."""

    def __init__(self) -> None:
        self._numbers, self._lock = count(), Lock()
        self._arriving: list[Shard[_Piece]] = []
        self._results: dict[int, SimpleQueue[Any]] = {}
        self._room, self._num_waiting = 0, 0
        self._callers = set[Thread]()
        self._error: BaseException | None = None

    def needs_more(self, threads: Iterable[Thread]) -> bool:
        """Return whether workers have got all shards, and no thread that still works will hand over its first ones."""
        with self._lock:
            is_empty = not self._arriving and not self._num_waiting
            return is_empty and all(thread in self._callers or not thread.is_alive() for thread in threads)

    def work(
        self, worker_class: Callable[..., Any], worker_args: Sequence[Any], shards: Sequence[Shard[Any]], room: int
    ) -> Generator[tuple[Shard[Any], ShardAttempt[Any] | ShardFailure | UnderWay, int]]:
        """Do a piece of work in a thread of its own, like `ActorPool.work`.

        Args:
            worker_class: this and the rest as in `run_sharded`; all pieces have workers that work in turns, or none has.
            worker_args: its arguments.
            shards: the work.
            room: as in `run_sharded`; an actor has the largest one of all pieces.

        Raises:
            ClusterError: as in `ActorPool.work`, in all threads.
            Exception: an error of building the worker.
        """
        import ray

        number, results, left = next(self._numbers), SimpleQueue[Any](), len(shards)
        spec = [ray.put((_turns_of, (worker_class, *worker_args)) if room else (worker_class, worker_args))]
        pieces = [
            Shard(f"{number:03d}-{part.name}", part.keys, (_Piece(number, spec, part),), kept=part.kept) for part in shards
        ]
        with self._lock:
            if self._error is not None:
                raise self._error
            self._results[number] = results
            self._arriving += pieces
            self._room = max(self._room, room)
            self._callers.add(current_thread())
        try:
            while left:
                reply = results.get()
                if isinstance(reply, BaseException):
                    raise reply
                shard, tried, num_up = reply
                left -= not isinstance(tried, UnderWay)
                if isinstance(tried, ShardAttempt) and isinstance(tried.result, _BuildFailure):
                    raise tried.result.error
                yield shard, tried, num_up
        finally:
            with self._lock:
                del self._results[number]
                self._arriving = [piece for piece in self._arriving if piece.items[0].number != number]

    def serve(
        self, is_open: Callable[[], bool], *, num_workers: int, num_gpus_per_worker: float, start_timeout_s: float
    ) -> None:
        """Do the work that threads hand over.

        Args:
            is_open: returns whether more work may come.
            num_workers: number of actors; this and the rest as in `run_sharded`.
            num_gpus_per_worker: as in `run_sharded`.
            start_timeout_s: as in `run_sharded`.

        Raises:
            ClusterError: as in `run_sharded`.
            RefusedModelError: a shard of any piece met it; it ends all pieces.
        """

        def more() -> list[Shard[_Piece]] | None:
            with self._lock:
                arrived, self._arriving = self._arriving, []
                pool.room, self._num_waiting = self._room, pool.num_waiting + len(arrived)
            return arrived if arrived or is_open() else None

        try:
            size, gpus = num_workers, num_gpus_per_worker
            pool = ActorPool[_Piece, Any](Several, (), num_workers=size, num_cpus=1, num_gpus=gpus)
            with closing(pool.work(more, start_timeout_s)) as done:
                for shard, tried, num_up in done:
                    require_no_end(tried)
                    if isinstance(tried, ShardAttempt) and isinstance(tried.result, ShardAttempt):
                        tried = tried.result
                    (piece,) = shard.items
                    with self._lock:
                        results = self._results.get(piece.number)
                    # A piece of work that has failed is no longer waited for.
                    if results is not None:
                        results.put((piece.shard, tried, num_up))
        except BaseException as error:
            with self._lock:
                self._error = error
                for results in self._results.values():
                    results.put(error)
            raise
