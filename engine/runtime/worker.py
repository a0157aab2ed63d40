"""What a worker is, and what comes back when it fails."""

from __future__ import annotations

import os
import socket
import time
import traceback
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from engine.runtime import logs
from engine.runtime.sharding import ItemT, Shard

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class ShardWorker(Protocol[ItemT, ResultT_co]):
    """Anything that can work off shards: built once, then given shard after shard."""

    def run(self, shard: Shard[ItemT]) -> ResultT_co:
        """The result for one shard; the same for the same shard, whoever runs it."""


@dataclass(frozen=True)
class ShardFailure:
    """What comes instead of a result when a shard raised, or killed its worker.

    Args:
        reason: the kind of error and its message.
        details: the traceback, or what Ray says of the worker's death.
    """

    reason: str
    details: str


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


def attempt(worker: ShardWorker[ItemT, ResultT], shard: Shard[ItemT]) -> ShardAttempt[ResultT]:
    """Lets a worker work off a shard; what is logged meanwhile names the shard."""
    began = time.monotonic()
    with logs.metadata(**describe(shard)):
        result = _attempt(worker, shard)
    return ShardAttempt(result, round(time.monotonic() - began, 3), socket.gethostname(), os.getpid())


def describe(shard: Shard[Any]) -> dict[str, str]:
    """A shard's fields in a line of the log."""
    return {"shard": shard.name, "first_item": shard.keys[0], "last_item": shard.keys[-1]}


def _attempt(worker: ShardWorker[ItemT, ResultT], shard: Shard[ItemT]) -> ResultT | ShardFailure:
    try:
        return worker.run(shard)
    # Ray takes SystemExit for the actor's wish to end for good; from a worker it is one more way to fail.
    except (Exception, SystemExit) as error:
        return ShardFailure(f"{type(error).__name__}: {error}", traceback.format_exc())
