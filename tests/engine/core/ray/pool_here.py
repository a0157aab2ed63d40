"""Workers as hostile as Ray's actors may be, in this process: what rows of a verb must not depend on.

That Ray's actors do the same, and that their deaths cost nothing, is proved for the frame (`test_pool.py`, `test_record.py`,
`test_turns.py`) and for one verb of either kind (`selfplay`, `search`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from ray import cloudpickle

from parley.engine.core.ray import pool
from parley.engine.core.ray.worker import Shard, ShardAttempt, Turns, UnderWay, attempt
from parley.engine.core.verbs import sharded

Results = Generator[tuple[Shard[Any], ShardAttempt[Any] | UnderWay, int]]


def _sent(value: Any) -> Any:
    """What arrives of a value that travels to another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))


class PoolHere:
    """Two workers in the place of `ActorPool`, built from what travels to actors.

    Shards are dealt from the last to the first, to either worker by turns, and results travel, too. The first worker does a
    shard and dies before it is heard of: another one takes its place, and does that shard after all others.
    """

    most = 0
    """Shards of the largest work so far."""

    def __init__(
        self, worker_class: Callable[..., Any], worker_args: Sequence[Any], *, num_workers: int, room: int = 0, **_: Any
    ) -> None:
        self._spec, self._num, self._room = cloudpickle.dumps((worker_class, worker_args)), num_workers, room

    def work(self, more: Callable[[], Sequence[Shard[Any]] | None], start_timeout_s: float) -> Results:
        """Yield all shards with their results, as `ActorPool.work`."""
        shards = list(more() or ())[::-1]
        PoolHere.most = max(PoolHere.most, len(shards))
        workers = [self._worker() for _ in range(self._num)]
        if self._room:
            yield from self._turns([Turns(worker) for worker in workers], shards)
            return
        attempt(workers[0], _sent(shards[0]))
        workers[0] = self._worker()
        for number, shard in enumerate([*shards[1:], shards[0]]):
            yield shard, _sent(attempt(workers[number % self._num], _sent(shard))), self._num

    def _worker(self) -> Any:
        worker_class, worker_args = cloudpickle.loads(self._spec)
        return worker_class(*worker_args)

    def _turns(self, workers: list[Turns[Any, Any]], shards: list[Shard[Any]]) -> Results:
        workers[0].take(_sent(shards[:1]), 0.0)
        workers[0] = Turns(self._worker())
        waiting, held = [*shards[1:], shards[0]], [dict[str, Shard[Any]]() for _ in workers]
        while waiting or any(held):
            for turns, own in zip(workers, held, strict=True):
                joining = [waiting.pop(0) for _ in range(min(len(waiting), self._room - len(own), 1))]
                own.update({shard.name: shard for shard in joining})
                turn = _sent(turns.take(_sent(joining), 0.0)) if own else None
                for name, tried in (turn.ended if turn else {}).items():
                    yield own.pop(name), tried, self._num
                for name, stands in (turn.under_way if turn else {}).items():
                    yield own[name], stands, self._num


def put_in_place(patch: pytest.MonkeyPatch) -> None:
    """Let runs with workers have such, and no session."""
    patch.setattr(PoolHere, "most", 0)
    patch.setattr(pool, "ActorPool", PoolHere)
    patch.setattr(sharded, "_placed", lambda work, config: nullcontext(work))
    patch.setattr(sharded.BroadcastModels, "put", staticmethod(lambda names: None))
