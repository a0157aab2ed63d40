"""Workers, the shards that they work on, and the room on a cluster's machines.

A shard is K items in key order and one part in the run folder. Its composition depends on the items and K alone, so batching
inside it, and every row, is the same wherever it runs.

A `ShardWorker` does one shard after the other. A `TurnWorker` holds several, so that items of many shards are computed
together, and works on them in turns: after each turn it reports finished shards and the progress of the others.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import socket
import time
import traceback
from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar, cast

from parley.engine.core.ray import logs, session
from parley.engine.core.stats.rows import LazySequence, PackedTexts
from parley.envs.core.errors import ClusterError, RefusedModelError
from parley.envs.core.registry import worker_variables

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Shard(Generic[ItemT]):
    """A piece of the work.

    Args:
        name: five digits or more, rising with the keys.
        keys: keys of the items in rising order.
        items: the items, in the same order.
        kept: the state that an earlier attempt left, JSON types; None if there is none.
        deaths: number of processes without actors that died while they worked on it.
    """

    name: str
    keys: Sequence[str]
    items: Sequence[ItemT]
    kept: Any = None
    deaths: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def loaded(self) -> Shard[ItemT]:
        """Return the shard with its keys and items in memory, for the worker that works on it now."""
        return replace(self, keys=tuple(self.keys), items=tuple(self.items))


OtherT = TypeVar("OtherT")


class IndexedItems(Mapping[str, ItemT]):
    """Items that are made each time they are asked for, so that a dozen bytes of each are in memory.

    Args:
        keys: different keys, in the order of the items.
        make: returns an item by its index; equal indices give equal items.
    """

    def __init__(self, keys: Iterable[str], make: Callable[[int], ItemT]) -> None:
        self._keys, self._make = PackedTexts(keys), make
        numbers, are_sorted = range(len(self._keys)), all(key < other for key, other in pairwise(self._keys))
        self._sorted = array("i", numbers if are_sorted else sorted(numbers, key=self._keys.__getitem__))
        self._next = 0

    def mapped(self, change: Callable[[ItemT], OtherT]) -> IndexedItems[OtherT]:
        """Return what a function makes of each item, under the same keys."""
        items: Any = copy.copy(self)
        items._make = lambda index: change(self._make(index))
        return cast("IndexedItems[OtherT]", items)

    def _key(self, index: int) -> str:
        return self._keys[index]

    def __getitem__(self, key: str) -> ItemT:
        # Rows come in the order of their keys.
        position = self._next
        if position >= len(self._sorted) or self._key(self._sorted[position]) != key:
            position = bisect_left(self._sorted, key, key=self._key)
        if position == len(self._sorted) or self._key(self._sorted[position]) != key:
            raise KeyError(key)
        self._next = position + 1
        return self._make(self._sorted[position])

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def values(self) -> ValuesView[ItemT]:
        """Return the items in their order, of which none is looked up by its key."""
        return cast("ValuesView[ItemT]", LazySequence(self._make, range(len(self))))

    def by_key(self) -> tuple[Sequence[str], Sequence[ItemT]]:
        """Return the keys in rising order and their items."""
        return LazySequence(self._key, self._sorted), LazySequence(self._make, self._sorted)


def make_shards(items: Mapping[str, ItemT], size: int) -> list[Shard[ItemT]]:
    """Cut the work into shards of `size` items in key order; the last one may be smaller.

    Args:
        items: items by key; keys sort as text, so numbers in them need leading zeros.
        size: items per shard, at least 1.
    """
    assert size >= 1, "a shard holds at least one item"
    keys: Sequence[str]
    sorted_items: Sequence[ItemT]
    if isinstance(items, IndexedItems):
        keys, sorted_items = items.by_key()
    else:
        keys = tuple(sorted(items))
        sorted_items = LazySequence(items.__getitem__, keys)
    digits = max(5, len(str(len(keys) // size)))
    return [
        Shard(f"{number:0{digits}d}", keys[start : start + size], sorted_items[start : start + size])
        for number, start in enumerate(range(0, len(keys), size))
    ]


ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class ShardWorker(Protocol[ItemT, ResultT_co]):
    """A worker that does shards: built once, then given shard after shard."""

    def run(self, shard: Shard[ItemT]) -> ResultT_co:
        """Return the result of one shard; it depends on the shard alone."""


@dataclass(frozen=True)
class UnderWay:
    """Progress of an unfinished shard.

    Args:
        share: finished part of its work; in items, or in the units of `Work.effort`.
        counts: counts so far.
        kept: the state to resume it from, JSON types; None if unchanged since the last report.
    """

    share: float
    counts: Counter[str]
    kept: Any = None


@dataclass(frozen=True)
class TurnResult(Generic[ResultT_co]):
    """The result of a turn.

    Args:
        ended: results of finished shards, by name.
        under_way: progress of the other shards of the worker.
    """

    ended: Mapping[str, ResultT_co]
    under_way: Mapping[str, UnderWay]


class TurnWorker(Protocol[ItemT, ResultT_co]):
    """A worker on several shards at a time; the result of a shard does not depend on the others."""

    def turn(self, joining: Sequence[Shard[ItemT]], seconds: float) -> TurnResult[ResultT_co]:
        """Take shards in, work on all shards held, and return results and progress.

        Args:
            joining: new shards, which resume from their stored state.
            seconds: approximate length of the turn; it ends sooner if a shard has ended and its place is free.
        """

    def drop(self) -> None:
        """Forget all shards."""


@dataclass(frozen=True)
class ShardFailure:
    """The result of a shard that raised an error, or killed its worker.

    Args:
        reason: kind and message of the error.
        details: the traceback, or Ray's report of the worker's death.
        ends: an error that every other shard would meet too, which ends the work; None for most.
    """

    reason: str
    details: str
    ends: RefusedModelError | None = None


@dataclass(frozen=True)
class ShardAttempt(Generic[ResultT]):
    """An attempt of a worker at a shard.

    Args:
        result: the result, or the failure.
        seconds: time taken; of a shard in turns its share of them, which all shards held have equally.
        node: name of the worker's machine.
        pid: number of the worker's process.
    """

    result: ResultT | ShardFailure
    seconds: float
    node: str
    pid: int


def require_no_end(tried: object) -> None:
    """Raise the error that ends the work, if a shard met one."""
    result = tried.result if isinstance(tried, ShardAttempt) else tried
    if isinstance(result, ShardFailure) and result.ends is not None:
        raise result.ends


def attempt(worker: ShardWorker[ItemT, ResultT], shard: Shard[ItemT]) -> ShardAttempt[ResultT]:
    """Let a worker do a shard; log lines meanwhile name the shard."""
    began = time.monotonic()
    with logs.metadata(**describe(shard)):
        try:
            result: ResultT | ShardFailure = worker.run(shard.loaded())
        # Ray takes SystemExit for the actor's wish to end; from a worker it is one more way to fail.
        except (Exception, SystemExit) as error:
            result = failure(error)
    return _attempted(result, time.monotonic() - began)


def describe(shard: Shard[Any]) -> dict[str, str]:
    """Return a shard's fields in a line of the log."""
    return {"shard": shard.name, "first_item": shard.keys[0], "last_item": shard.keys[-1]}


def failure(error: BaseException) -> ShardFailure:
    """Return the failure of the error that is being handled."""
    ends = error if isinstance(error, RefusedModelError) else None
    return ShardFailure(f"{type(error).__name__}: {error}", traceback.format_exc(), ends)


def _attempted(result: ResultT | ShardFailure, seconds: float) -> ShardAttempt[ResultT]:
    return ShardAttempt(result, round(seconds, 6), socket.gethostname(), os.getpid())


class Turns(Generic[ItemT, ResultT]):
    """The turns of a worker. After a failed turn each of its shards is tried again alone, so only the faulty one fails.

    Args:
        worker: the worker.
    """

    def __init__(self, worker: TurnWorker[ItemT, ResultT]) -> None:
        self._worker = worker
        self._held: dict[str, tuple[Shard[ItemT], float]] = {}
        """Shards with the seconds spent on them."""
        self._waiting: deque[Shard[ItemT]] = deque()
        self._suspects: deque[Shard[ItemT]] = deque()
        self._alone = False

    def take(self, joining: Sequence[Shard[ItemT]], seconds: float) -> TurnResult[ShardAttempt[ResultT]]:
        """Do a turn, see `TurnWorker.turn`."""
        self._waiting.extend(joining)
        if not self._held:
            self._alone = bool(self._suspects)
        queue = self._suspects if self._alone else self._waiting
        taken = [queue.popleft().loaded() for _ in range(len(queue) if not self._alone else not self._held)]
        self._held |= {shard.name: (shard, 0.0) for shard in taken}
        began = time.monotonic()
        try:
            with logs.metadata(shards=" ".join(self._held)):
                turn = self._worker.turn(taken, seconds)
            self._spend(time.monotonic() - began)
        # As in `attempt`.
        except (Exception, SystemExit) as error:
            self._spend(time.monotonic() - began)
            self._worker.drop()
            if len(self._held) == 1 or isinstance(error, RefusedModelError):
                return TurnResult({name: self._ended(name, failure(error)) for name in list(self._held)}, {})
            self._suspects.extend(shard for shard, _ in self._held.values())
            self._held = {}
            return TurnResult({}, {})
        for name, stands in turn.under_way.items():
            if stands.kept is not None:
                shard, spent = self._held[name]
                self._held[name] = replace(shard, kept=stands.kept), spent
        return TurnResult({name: self._ended(name, result) for name, result in turn.ended.items()}, turn.under_way)

    def _spend(self, seconds: float) -> None:
        self._held = {name: (shard, spent + seconds / len(self._held)) for name, (shard, spent) in self._held.items()}

    def _ended(self, name: str, result: ResultT | ShardFailure) -> ShardAttempt[ResultT]:
        _, spent = self._held.pop(name)
        return _attempted(result, spent)


logger = logging.getLogger(__name__)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables for the number of threads; each library prefers its own, and an actor would inherit the driver's."""


def worker_environment(num_threads: int, *, has_gpus: bool) -> dict[str, str]:
    """Return environment variables of a worker, which hold for actors that it makes, too.

    Args:
        num_threads: threads that it computes with.
        has_gpus: whether it, or an actor that it makes, reserves a share of a GPU.
    """
    # Ray does not set this for actors without GPUs, which then use all of them.
    hidden = {} if has_gpus else {"CUDA_VISIBLE_DEVICES": ""}
    return {**dict.fromkeys(_THREADS, str(num_threads)), **worker_variables(), **hidden}


def capacity(nodes: Sequence[Mapping[str, Any]], num_cpus: float, num_gpus: float) -> int:
    """Return the number of workers that fit on a cluster's machines; none spans two machines, no share of a GPU two GPUs.

    Args:
        nodes: machines as `ray.nodes()` lists them: "Alive", and "Resources" with CPU and GPU totals.
        num_cpus: CPUs of one worker, above 0.
        num_gpus: GPUs of one worker; below 1 a share of one GPU.
    """
    total = 0
    for node in nodes:
        if node["Alive"]:
            fit = math.floor(node["Resources"].get("CPU", 0) / num_cpus)
            if num_gpus:
                gpus = math.floor(node["Resources"].get("GPU", 0))
                fit = min(fit, gpus * math.floor(1 / num_gpus) if num_gpus < 1 else math.floor(gpus / num_gpus))
            total += fit
    return total


def machines_up() -> frozenset[str]:
    """Return the machines of the cluster that are up, as far as its head knows."""
    import ray

    return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])


def listed(resources: Mapping[str, float]) -> str:
    """Return CPUs and GPUs in words."""
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"


def described(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of machines of each kind in words."""
    kinds = Counter(listed(node["Resources"]) for node in nodes if node["Alive"])
    return ", ".join(f"{number} machine{'s' * (number > 1)} of {kind}" for kind, number in sorted(kinds.items()))


def require_room(wanted: str, num_workers: int, num_cpus: float, num_gpus: float) -> None:
    """Check that the workers fit, or may fit later; warn if a cluster has less room now.

    Args:
        wanted: the workers in words.
        num_workers: number of workers, each on one machine.
        num_cpus: CPUs of each.
        num_gpus: GPUs of each.

    Raises:
        ClusterError: they do not fit on this machine, or not even one fits in a cluster that does not grow.
    """
    import ray

    if num_gpus > 1 and num_gpus != int(num_gpus):
        raise ClusterError("a worker has a share of one GPU or whole GPUs", got=num_gpus, fix="give 0..1, 2, 3, ...")
    room = capacity(ray.nodes(), num_cpus, num_gpus)
    if room >= num_workers:
        return
    ray_session = session.current()
    if ray_session is not None and ray_session.is_local:
        raise ClusterError(
            "this machine has too little room for the workers",
            got=f"{wanted}, room for {room} in {listed(ray.cluster_resources())}",
            fix=f"ask for at most {room} workers, or fewer CPUs and GPUs for each, or give the address of a cluster",
        )
    if not room and not session.can_grow():
        raise ClusterError(
            "no machine of the cluster has room for a worker, and nothing adds machines to it",
            got=f"{wanted}; there are {described(ray.nodes())}",
            fix="ask for fewer CPUs and GPUs for each worker, or start a machine that has them: ray start --address HEAD:PORT",
        )
    resources = listed(ray.cluster_resources())
    what = "%s are wanted, the cluster has room for %d in %s now: %s"
    then = "work starts with those" if room else "work waits for machines to be added"
    logger.warning(what, wanted, room, resources, then)
