"""The actor that holds one worker, built only on a machine that has the driver's code.

The class travels to workers by value (`actors.py`), like `identity.py`. So a machine with another Parley, or with none, can
report that. It imports from Parley only once the code is known to be the driver's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parley.engine.core.ray.identity import differences, identity

if TYPE_CHECKING:
    from parley.engine.core.ray.logs import LogSettings
    from parley.engine.core.ray.worker import ShardAttempt, TurnResult

WorkerSpec = tuple[Callable[..., Any], Sequence[Any], "LogSettings"]
"""A worker's class, its arguments, and the log settings of the driver."""


class WorkerActor:
    """An actor that holds one worker, which computes with as many threads as are reserved."""

    def __init__(self, num_threads: int) -> None:
        # The worker is built by the first call: Ray would restart an actor that dies in its constructor for ever.
        self._num_threads = num_threads
        self._worker: Any = None
        self._end: ShardAttempt[Any] | None = None
        self._turns: Any = None

    def start(self, wanted: Mapping[str, str], spec: Sequence[Any]) -> tuple[dict[str, str], str] | None:
        """Build the worker unless it exists; errors of its constructor are raised.

        Args:
            wanted: the driver's identity.
            spec: a reference to a `WorkerSpec`, in a list, so that it is not opened before the identities are compared.

        Returns:
            None; if the identities differ nothing is built, and this machine's identity and address are returned.
        """
        import ray

        versions = identity()
        if differences(wanted, versions):
            return versions, ray.util.get_node_ip_address()
        if self._worker is None:
            from parley.engine.core.ray import logs

            worker_class, worker_args, log_settings = ray.get(spec[0])
            logs.follow(log_settings)
            self._worker = worker_class(*worker_args)
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(self._num_threads)
        return None

    def turn(self, joining: Any, seconds: float) -> TurnResult[Any] | None:
        """Do a turn of the worker, see `TurnWorker.turn`; None as in `run`."""
        if self._worker is None:
            return None

        from parley.engine.core.ray.worker import Turns

        if self._turns is None:
            self._turns = Turns(self._worker)
        turn: TurnResult[Any] = self._turns.take(joining, seconds)
        return turn

    def run(self, shard: Any) -> ShardAttempt[Any] | None:
        """Return the worker's `ShardAttempt` at a shard; None if Ray has restarted the actor, which then has no worker.

        An error that every shard would meet is returned for the waiting shards too, until the driver has heard of it.
        """
        if self._worker is None:
            return None

        from parley.engine.core.ray.worker import ShardFailure, attempt

        if self._end is None:
            tried = attempt(self._worker, shard)
            if not (isinstance(tried.result, ShardFailure) and tried.result.ends):
                return tried
            self._end = tried
        return self._end
