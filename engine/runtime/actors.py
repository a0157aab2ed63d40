"""A pool of Ray actors, fed so that none waits and none floods, and kept alive while workers and machines die.

* At most two shards are in flight per actor: one runs, the next is there when it ends.
* A worker that dies is restarted and its shards run again, by Ray, up to three times; a result is handed over once.
* A shard that keeps killing its worker takes the one queued behind it along. Both are tried once more, each alone, so
  that only the guilty one fails.
* When a machine is lost, its workers are replaced (they wait until there is room) and their shards go to the others.
* A worker that cannot be built ends the run: nothing could be done with it. Workers that get no resources are an error
  after a while, never a silent wait.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic

from engine.runtime import session
from engine.runtime.sharding import ItemT, Shard
from engine.runtime.worker import ResultT, ShardFailure, ShardWorker, attempt
from envs.core.errors import ClusterError

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 2
MAX_TASK_RETRIES = 3
_LOOK_AROUND_S = 5.0
"""How long nothing may come back before the machines are looked at."""


def capacity(nodes: Sequence[Mapping[str, Any]], num_cpus: float, num_gpus: float) -> int:
    """How many workers fit on a cluster's machines; a worker never spans two, nor a share of a GPU two GPUs.

    Args:
        nodes: as `ray.nodes()` lists them: "Alive", and "Resources" with CPU and GPU totals.
        num_cpus: CPUs of one worker, above 0.
        num_gpus: GPUs of one worker; below 1 a share of one.
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


class Seat:
    """What runs inside an actor: one worker, built with the threads that its reservation allows."""

    def __init__(self, worker_class: Callable[..., Any], worker_args: Sequence[Any], num_threads: int) -> None:
        self._error: Exception | None = None
        try:
            self._worker = worker_class(*worker_args)
        except Exception as error:
            # Raised from here, Ray would build the actor again and again and print each traceback.
            self._error = error
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(num_threads)

    def start(self) -> str:
        """The id of the machine it sits on; raises what building the worker raised."""
        import ray

        if self._error is not None:
            raise self._error
        return ray.get_runtime_context().get_node_id()

    def run(self, shard: Shard[Any]) -> Any:
        """The worker's result or failure."""
        return attempt(self._worker, shard)


class ActorPool(Generic[ItemT, ResultT]):
    """Actors that hold one worker each.

    Args:
        worker_class: makes a worker.
        worker_args: its arguments.
        num_workers: how many actors, at least 1.
        num_cpus: CPUs that each reserves, above 0; also its threads, at least 1.
        num_gpus: GPUs that each reserves; with 0 it sees none.

    Raises:
        ClusterError: there is no session, or a local one has too little room.
    """

    def __init__(
        self,
        worker_class: Callable[..., ShardWorker[ItemT, ResultT]],
        worker_args: Sequence[Any],
        *,
        num_workers: int,
        num_cpus: float,
        num_gpus: float,
    ) -> None:
        import ray

        if not ray.is_initialized():
            raise ClusterError("there is no Ray session", fix="put `with connect(address):` around the work")
        self._wanted = f"{num_workers} workers of {num_cpus:g} CPUs and {num_gpus:g} GPUs each"
        self._check_room(num_workers, num_cpus, num_gpus)
        num_threads = max(1, int(num_cpus))
        variables = {"OMP_NUM_THREADS": str(num_threads)}
        if not num_gpus:
            # Ray leaves this alone for actors without GPUs, which then see, and use, all of them.
            variables["CUDA_VISIBLE_DEVICES"] = ""
        seat = ray.remote(Seat).options(
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            max_restarts=-1,
            max_task_retries=MAX_TASK_RETRIES,
            runtime_env={"env_vars": variables},
        )
        self._make = lambda: seat.remote(worker_class, worker_args, num_threads)
        self._actors = [self._make() for _ in range(num_workers)]
        self._machines = [""] * num_workers
        self._stumbles = [0] * num_workers
        self._waiting: deque[Shard[ItemT]] = deque()
        self._suspects: deque[Shard[ItemT]] = deque()
        self._starting: dict[Any, int] = {}
        self._running: dict[Any, tuple[int, Shard[ItemT], bool]] = {}

    def work(
        self, shards: Sequence[Shard[ItemT]], start_timeout_s: float
    ) -> Generator[tuple[Shard[ItemT], ResultT | ShardFailure, int]]:
        """Shards with their results in order of completion, and how many workers have started; ends the actors at the end.

        Args:
            shards: the work.
            start_timeout_s: seconds to wait while no worker has started.

        Raises:
            ClusterError: no worker started in time, or one died while it started.
            Exception: what building a worker raised.
        """
        import ray

        self._waiting.extend(shards)
        try:
            for seat in range(len(self._actors)):
                self._start(seat)
            deadline = time.monotonic() + start_timeout_s
            while self._waiting or self._suspects or self._running:
                back, _ = ray.wait([*self._starting, *self._running], num_returns=1, timeout=_LOOK_AROUND_S)
                if self._running:
                    deadline = time.monotonic() + start_timeout_s
                elif not back and time.monotonic() > deadline:
                    raise self._no_start(start_timeout_s)
                if not back:
                    self._replace_lost()
                elif back[0] in self._starting:
                    self._welcome(back[0])
                elif outcome := self._collect(back[0]):
                    yield *outcome, len(self._actors) - len(self._starting)
                self._feed()
        finally:
            for actor in self._actors:
                ray.kill(actor)

    def _start(self, seat: int) -> None:
        if seat not in self._starting.values():
            # Counted here, because Ray prints a line for each retry that the end of the pool cuts off.
            self._starting[self._actors[seat].start.options(max_task_retries=0).remote()] = seat

    def _welcome(self, ref: Any) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        seat = self._starting.pop(ref)
        try:
            self._machines[seat] = ray.get(ref)
            self._stumbles[seat] = 0
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayError as error:
            self._stumbles[seat] += 1
            if self._stumbles[seat] > MAX_TASK_RETRIES:
                raise ClusterError(
                    "a worker dies while it starts", got=str(error), fix="run with 0 workers to see it fail in this process"
                ) from error
            self._start(seat)

    def _feed(self) -> None:
        """Gives every started worker what it has room for; suspects only when nothing else is left, and alone."""
        in_flight = Counter(seat for seat, _, _ in self._running.values())
        busy = {seat for seat, _, alone in self._running.values() if alone} | set(self._starting.values())
        for seat in range(len(self._actors)):
            if seat in busy:
                continue
            while self._waiting and in_flight[seat] < MAX_IN_FLIGHT:
                self._give(seat, self._waiting.popleft(), alone=False)
                in_flight[seat] += 1
            if self._suspects and not self._waiting and not in_flight[seat]:
                self._give(seat, self._suspects.popleft(), alone=True)

    def _give(self, seat: int, shard: Shard[ItemT], alone: bool) -> None:
        retries = 0 if alone else MAX_TASK_RETRIES
        ref = self._actors[seat].run.options(max_task_retries=retries).remote(shard)
        self._running[ref] = (seat, shard, alone)

    def _collect(self, ref: Any) -> tuple[Shard[ItemT], ResultT | ShardFailure] | None:
        """A shard and what became of it; None when it is to be tried again."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        seat, shard, alone = self._running.pop(ref)
        try:
            return shard, ray.get(ref)
        except RayTaskError as error:
            # The worker returned, and what it returned cannot travel.
            return shard, ShardFailure(f"the result cannot be sent back: {error.cause!r}", str(error))
        except RayError as error:
            # Its worker must have come up again before it is given more.
            self._start(seat)
            if alone:
                return shard, ShardFailure(f"the worker died on it, also alone: {type(error).__name__}", str(error))
            logger.warning("shard %s lost its worker %d times: it is tried once more, alone", shard.name, MAX_TASK_RETRIES + 1)
            self._suspects.append(shard)
            return None

    def _replace_lost(self) -> None:
        """Puts new workers in the place of those whose machine is gone; the shards they had go back to the front."""
        import ray

        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        for seat, machine in enumerate(self._machines):
            if machine and machine not in alive:
                logger.warning("the machine of worker %d is lost: its shards go to the others", seat)
                ray.kill(self._actors[seat])
                self._actors[seat], self._machines[seat] = self._make(), ""
                for ref, (owner, shard, alone) in list(self._running.items()):
                    if owner == seat:
                        del self._running[ref]
                        (self._suspects if alone else self._waiting).appendleft(shard)
                self._starting = {ref: owner for ref, owner in self._starting.items() if owner != seat}
                self._start(seat)

    def _check_room(self, num_workers: int, num_cpus: float, num_gpus: float) -> None:
        import ray

        if num_gpus > 1 and num_gpus != int(num_gpus):
            raise ClusterError("a worker has a share of one GPU or whole GPUs", got=num_gpus, fix="give 0..1, 2, 3, ...")
        room = capacity(ray.nodes(), num_cpus, num_gpus)
        if room >= num_workers:
            return
        here = session.current()
        if here is not None and here.is_local:
            raise ClusterError(
                "this machine has too little room for the workers",
                got=f"{self._wanted}, room for {room} in {_listed(ray.cluster_resources())}",
                fix=f"ask for at most {room} workers, or fewer CPUs and GPUs for each, or give the address of a cluster",
            )
        logger.warning("%s are wanted, the cluster has room for %d now: work starts with those", self._wanted, room)

    def _no_start(self, waited_s: float) -> ClusterError:
        import ray

        return ClusterError(
            f"no worker could start within {waited_s:g} s",
            got=f"{self._wanted}; in all {_listed(ray.cluster_resources())}, free {_listed(ray.available_resources())}",
            fix="ask for fewer or smaller workers, end what holds the resources, or add machines",
        )


def _listed(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"
