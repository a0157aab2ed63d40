"""What a worker is, and what comes back when it fails.

A `ShardWorker` does one shard after the other. A `TurnWorker` holds several, so that what computes side by side can be of many
shards, and works on them in turns: after each it says which have ended and how the others stand.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from parley.engine.core.ray import logs
from parley.engine.core.ray.sharding import ItemT, Shard
from parley.envs.core.errors import RefusedModelError

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class ShardWorker(Protocol[ItemT, ResultT_co]):
    """Anything that can work off shards: built once, then given shard after shard."""

    def run(self, shard: Shard[ItemT]) -> ResultT_co:
        """The result for one shard; the same for the same shard, whoever runs it."""


@dataclass(frozen=True)
class UnderWay:
    """How a shard stands that has not ended.

    Args:
        share: of its work that is done, in items.
        counts: what is counted of it so far.
        kept: what it can be gone on from, JSON types; None where it is as it was told before.
    """

    share: float
    counts: Counter[str]
    kept: Any = None


@dataclass(frozen=True)
class TurnResult(Generic[ResultT_co]):
    """What came of a turn.

    Args:
        ended: the results of shards that have ended, by name.
        under_way: the others that the worker holds.
    """

    ended: Mapping[str, ResultT_co]
    under_way: Mapping[str, UnderWay]


class TurnWorker(Protocol[ItemT, ResultT_co]):
    """Anything that works on several shards at a time; a shard's result is the same in any company."""

    def turn(self, joining: Sequence[Shard[ItemT]], seconds: float) -> TurnResult[ResultT_co]:
        """Takes shards in, works on all that it holds, and tells what came of it.

        Args:
            joining: they go on from what is kept of them.
            seconds: after about which the turn ends, sooner where a shard has ended and its place is free.
        """

    def drop(self) -> None:
        """Forgets all shards."""


@dataclass(frozen=True)
class ShardFailure:
    """What comes instead of a result when a shard raised, or killed its worker.

    Args:
        reason: the kind of error and its message.
        details: the traceback, or what Ray says of the worker's death.
        ends: an error that every other shard would meet too, which ends the work; None of most.
    """

    reason: str
    details: str
    ends: RefusedModelError | None = None


@dataclass(frozen=True)
class ShardAttempt(Generic[ResultT]):
    """What a worker made of a shard.

    Args:
        result: or what it raised.
        seconds: that it took.
        node: name of the worker's machine.
        pid: of the worker's process.
    """

    result: ResultT | ShardFailure
    seconds: float
    node: str
    pid: int


def require_no_end(tried: object) -> None:
    """Raises what ends the work, where a shard met it."""
    result = tried.result if isinstance(tried, ShardAttempt) else tried
    if isinstance(result, ShardFailure) and result.ends is not None:
        raise result.ends


def attempt(worker: ShardWorker[ItemT, ResultT], shard: Shard[ItemT]) -> ShardAttempt[ResultT]:
    """Lets a worker work off a shard; what is logged meanwhile names the shard."""
    began = time.monotonic()
    with logs.metadata(**describe(shard)):
        result = _attempt(worker, shard)
    return _attempted(result, began)


def describe(shard: Shard[Any]) -> dict[str, str]:
    """A shard's fields in a line of the log."""
    return {"shard": shard.name, "first_item": shard.keys[0], "last_item": shard.keys[-1]}


def _attempt(worker: ShardWorker[ItemT, ResultT], shard: Shard[ItemT]) -> ResultT | ShardFailure:
    try:
        return worker.run(shard)
    # Ray takes SystemExit for the actor's wish to end for good; from a worker it is one more way to fail.
    except (Exception, SystemExit) as error:
        return _failure(error)


def _failure(error: BaseException) -> ShardFailure:
    ends = error if isinstance(error, RefusedModelError) else None
    return ShardFailure(f"{type(error).__name__}: {error}", traceback.format_exc(), ends)


def _attempted(result: ResultT | ShardFailure, began: float) -> ShardAttempt[ResultT]:
    return ShardAttempt(result, round(time.monotonic() - began, 3), socket.gethostname(), os.getpid())


class Turns(Generic[ItemT, ResultT]):
    """A worker's turns. Where one fails each of its shards is tried again alone, so that no more fails than what is to blame.

    Args:
        worker: who works.
    """

    def __init__(self, worker: TurnWorker[ItemT, ResultT]) -> None:
        self._worker = worker
        self._held: dict[str, tuple[Shard[ItemT], float]] = {}
        self._waiting: deque[Shard[ItemT]] = deque()
        self._suspects: deque[Shard[ItemT]] = deque()
        self._alone = False

    def take(self, joining: Sequence[Shard[ItemT]], seconds: float) -> TurnResult[ShardAttempt[ResultT]]:
        """A turn, see `TurnWorker.turn`."""
        self._waiting.extend(joining)
        if not self._held:
            self._alone = bool(self._suspects)
        queue = self._suspects if self._alone else self._waiting
        given = [queue.popleft() for _ in range(len(queue) if not self._alone else not self._held)]
        self._held |= {shard.name: (shard, time.monotonic()) for shard in given}
        try:
            with logs.metadata(shards=" ".join(self._held)):
                turn = self._worker.turn(given, seconds)
        # As in `attempt`.
        except (Exception, SystemExit) as error:
            self._worker.drop()
            if len(self._held) == 1 or isinstance(error, RefusedModelError):
                return TurnResult({name: self._ended(name, _failure(error)) for name in list(self._held)}, {})
            self._suspects.extend(shard for shard, _ in self._held.values())
            self._held = {}
            return TurnResult({}, {})
        for name, stands in turn.under_way.items():
            if stands.kept is not None:
                shard, began = self._held[name]
                self._held[name] = replace(shard, kept=stands.kept), began
        return TurnResult({name: self._ended(name, result) for name, result in turn.ended.items()}, turn.under_way)

    def _ended(self, name: str, result: ResultT | ShardFailure) -> ShardAttempt[ResultT]:
        _, began = self._held.pop(name)
        return _attempted(result, began)
