"""What a worker is, and what comes back when it fails."""

from __future__ import annotations

import logging
import time
import traceback
from dataclasses import dataclass
from typing import Protocol, TypeVar

from engine.runtime import logs
from engine.runtime.sharding import ItemT, Shard

logger = logging.getLogger(__name__)

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


def attempt(worker: ShardWorker[ItemT, ResultT], shard: Shard[ItemT]) -> ResultT | ShardFailure:
    """The worker's result for a shard, or what it raised."""
    with logs.about(shard=shard.name, first_item=shard.keys[0], last_item=shard.keys[-1]):
        began = time.monotonic()
        result = _attempt(worker, shard)
        outcome = "failed" if isinstance(result, ShardFailure) else "is done"
        logger.info(
            "shard %s %s", shard.name, outcome, extra={"items": len(shard), "seconds": round(time.monotonic() - began, 3)}
        )
    return result


def _attempt(worker: ShardWorker[ItemT, ResultT], shard: Shard[ItemT]) -> ResultT | ShardFailure:
    try:
        return worker.run(shard)
    # Ray takes SystemExit for the actor's wish to end for good; from a worker it is one more way to fail.
    except (Exception, SystemExit) as error:
        return ShardFailure(f"{type(error).__name__}: {error}", traceback.format_exc())
