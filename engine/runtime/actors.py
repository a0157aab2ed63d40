"""A pool of Ray actors, fed so that none waits and none floods, and kept alive while workers and machines die.

* At most two shards are in flight per actor: one runs, the next is there when it ends.
* A worker that dies, by itself or with its machine, is restarted by Ray where there is room. Its shards are tried again,
  each alone on whichever worker is free, so that one that kills its workers does not take others along; after three deaths
  it fails. A result is handed over once.
* A worker that cannot be built ends the run: nothing could be done with it. So does one whose machine has other code than
  this process: its rows would differ from the others'.
* Workers that get no resources are an error, after a while where machines may still be added, never a silent wait.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic

from engine.runtime import identity, logs, session, workplace
from engine.runtime.sharding import ItemT, Shard
from engine.runtime.worker import Attempt, ResultT, ShardFailure, ShardWorker
from envs.core.errors import ClusterError
from envs.core.trust import worker_variables

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 2
MAX_DEATHS = 3
LOOK_S = 5.0
"""Seconds without a result after which it is looked whether the actors that have work are up."""


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


class ActorPool(Generic[ItemT, ResultT]):
    """Actors that hold one worker each.

    Args:
        worker_class: makes a worker.
        worker_args: its arguments.
        num_workers: how many actors, at least 1.
        num_cpus: CPUs that each reserves, above 0; also its threads, at least 1.
        num_gpus: GPUs that each reserves; with 0 it sees none.

    Raises:
        ClusterError: there is no session, or one that cannot grow has too little room.
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
        variables = {"OMP_NUM_THREADS": str(num_threads), **worker_variables()}
        if not num_gpus:
            # Ray leaves this alone for actors without GPUs, which then see, and use, all of them.
            variables["CUDA_VISIBLE_DEVICES"] = ""
        # A machine with another Parley, or with none, must be able to say so.
        for module in (identity, workplace):
            ray.cloudpickle.register_pickle_by_value(module)
        actor = ray.remote(workplace.Seat).options(
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            max_restarts=-1,
            # Makes calls wait while an actor restarts. Each call turns the retries themselves off, because Ray would repeat
            # the shards in flight together, and bind them to this actor even when its machine is gone.
            max_task_retries=MAX_DEATHS,
            runtime_env={"env_vars": variables},
        )
        # Once in the object store, and given with the calls: Ray cannot restart an actor whose own arguments hold references.
        recipe: workplace.Recipe = (worker_class, worker_args, logs.settings())
        self._recipe = ray.put(recipe)
        self._identity = identity.own_identity()
        self._actors = [actor.remote(num_threads) for _ in range(num_workers)]
        self._stumbles = [0] * num_workers
        self._deaths: Counter[str] = Counter()
        self._waiting: deque[Shard[ItemT]] = deque()
        self._suspects: deque[Shard[ItemT]] = deque()
        self._starting: dict[Any, int] = {}
        self._running: dict[Any, tuple[int, Shard[ItemT], bool]] = {}

    def work(
        self, shards: Sequence[Shard[ItemT]], start_timeout_s: float
    ) -> Generator[tuple[Shard[ItemT], Attempt[ResultT] | ShardFailure, int]]:
        """Shards with what came of them in order of completion, and how many workers have started; ends the actors at the end.

        What came of a shard that was given up, because its workers died or it cannot travel, is a failure alone.

        Args:
            shards: the work.
            start_timeout_s: seconds to wait while no worker is up.

        Raises:
            ClusterError: no worker started in time, one died while it started, or its machine has other code.
            Exception: what building a worker raised.
        """
        import ray

        self._waiting.extend(shards)
        try:
            for seat in range(len(self._actors)):
                self._start(seat)
            idle_since = time.monotonic()
            while self._waiting or self._suspects or self._running:
                patience_s = LOOK_S if self._running else max(0.0, idle_since + start_timeout_s - time.monotonic())
                back, _ = ray.wait([*self._starting, *self._running], timeout=patience_s)
                if not back and not self._running:
                    raise self._no_start(start_timeout_s)
                if self._running:
                    idle_since = time.monotonic()
                if not back:
                    self._take_back()
                for ref in back:
                    if ref in self._starting:
                        self._welcome(ref)
                    elif outcome := self._collect(ref):
                        yield *outcome, len(self._actors) - len(self._starting)
                self._feed()
        finally:
            for actor in self._actors:
                ray.kill(actor)

    def _start(self, seat: int) -> None:
        if seat not in self._starting.values():
            call = self._actors[seat].start.options(max_task_retries=0)
            self._starting[call.remote(self._identity, [self._recipe])] = seat

    def _welcome(self, ref: Any) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        seat = self._starting.pop(ref)
        try:
            found = ray.get(ref)
            self._stumbles[seat] = 0
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayError as error:
            self._stumbles[seat] += 1
            if self._stumbles[seat] == MAX_DEATHS:
                raise ClusterError(
                    "a worker dies while it starts", got=str(error), fix="run with 0 workers to see it fail in this process"
                ) from error
            self._start(seat)
            return
        if found is not None:
            raise identity.refusal(self._identity, *found)

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
        ref = self._actors[seat].run.options(max_task_retries=0).remote(shard)
        self._running[ref] = (seat, shard, alone)

    def _take_back(self) -> None:
        """Takes work back from actors that are down.

        What was given to one after its death, before that was known here, waits for Ray to restart it: for ever, where its
        machine is gone and no other has room.
        """
        import ray

        down = set()
        for seat in {seat for seat, _, _ in self._running.values()}:
            if ray._private.state.actors(self._actors[seat]._actor_id.hex())["State"] != "ALIVE":
                down.add(seat)
        for ref, (seat, shard, alone) in list(self._running.items()):
            if seat in down:
                del self._running[ref]
                self._put_back(seat, shard, alone)

    def _put_back(self, seat: int, shard: Shard[ItemT], alone: bool) -> None:
        """For work that nobody has begun; its worker must have come up before it is given more."""
        self._start(seat)
        (self._suspects if alone else self._waiting).appendleft(shard)

    def _collect(self, ref: Any) -> tuple[Shard[ItemT], Attempt[ResultT] | ShardFailure] | None:
        """A shard and what became of it; None when it is to be tried again."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        seat, shard, alone = self._running.pop(ref)
        try:
            if (tried := ray.get(ref)) is not None:
                return shard, tried
            self._put_back(seat, shard, alone)
            return None
        except RayTaskError as error:
            # Not from the work, which `attempt` answers for: shard or result cannot travel.
            return shard, ShardFailure(f"{type(error.cause).__name__}: {error.cause}", str(error))
        except RayError as error:
            # Its worker must have come up again before it is given more.
            self._start(seat)
            self._deaths[shard.name] += 1
            if self._deaths[shard.name] == MAX_DEATHS:
                return shard, ShardFailure(f"{type(error).__name__}: its worker died {MAX_DEATHS} times", str(error))
            logger.warning("shard %s lost its worker: it is tried again, alone", shard.name, extra={"shard": shard.name})
            self._suspects.append(shard)
            return None

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
        if not room and not session.can_grow():
            raise ClusterError(
                "no machine of the cluster has room for a worker, and nothing adds machines to it",
                got=f"{self._wanted}; there are {_machines(ray.nodes())}",
                fix="ask for fewer CPUs and GPUs for each worker, or start a machine that has them: "
                "ray start --address HEAD:PORT",
            )
        here_now = _listed(ray.cluster_resources())
        what = "%s are wanted, the cluster has room for %d in %s now: %s"
        then = "work starts with those" if room else "work waits for machines to be added"
        logger.warning(what, self._wanted, room, here_now, then)

    def _no_start(self, waited_s: float) -> ClusterError:
        import ray

        return ClusterError(
            f"no worker could start within {waited_s:g} s",
            got=f"{self._wanted}; in all {_listed(ray.cluster_resources())}, free {_listed(ray.available_resources())}",
            fix="ask for fewer or smaller workers, end what holds the resources, or add machines",
        )


def _listed(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"


def _machines(nodes: Sequence[Mapping[str, Any]]) -> str:
    kinds = Counter(_listed(node["Resources"]) for node in nodes if node["Alive"])
    return ", ".join(f"{number} machine{'s' * (number > 1)} of {kind}" for kind, number in sorted(kinds.items()))
