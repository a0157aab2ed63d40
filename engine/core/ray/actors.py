"""A pool of Ray actors with back-pressure, which survives the deaths of workers and machines.

* At most two shards are in flight per worker: one runs, the next is ready when it ends. A worker that works in turns holds as
  many as fit; after a turn waiting shards replace finished ones, but no more than its share of the rest.
* Ray restarts a dead worker where there is room. Its shards are tried again, each alone on any free worker, so that one that
  kills its workers does not fail others; after three deaths it fails. A result is handed over once.
* A lost or unreachable machine is not the fault of the work: deaths with it are not counted. The other workers continue; the
  run ends if no worker has been up for a set time.
* A worker that dies three times in a row while it starts, on machines that are up, is given up, and the run ends with the last
  worker. A worker that cannot be built ends the run, because all would have its error. So does a machine with other code than
  this process, because its rows would differ.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from parley.engine.core.ray import identity, logs, ray_internals, session, workplace
from parley.engine.core.ray.worker import (
    ItemT,
    ResultT,
    Shard,
    ShardAttempt,
    ShardFailure,
    ShardWorker,
    TurnResult,
    TurnWorker,
    UnderWay,
    listed,
    machines_up,
    require_room,
    worker_environment,
)
from parley.envs.core.errors import ClusterError

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT = 2
MAX_DEATHS = 3
MAX_LOSSES = 10
"""Number of workers that a shard may lose with their machines: it might be the cause."""
LOOK_S = 5.0
"""Seconds without a result after which the pool checks whether its busy workers are up."""
TURN_S, TURNS_PER_S = 1.0, 50
"""Seconds of a worker's turn; longer if so many workers would end more turns a second than the driver can take."""
MORE_S = 0.2
"""Seconds between two checks for further shards, if more may come."""
RETRY_S = 1.0
"""Seconds after which a failed start is tried again; Ray learns of a lost machine only after some seconds."""


@dataclass(eq=False)
class _Worker:
    """A worker, up or not.

    Args:
        actor: the actor that holds it.
        machines: machines that were up at the last check.
        machine: its machine.
        is_up: whether it is built, as far as is known here.
        ask_at: time of the next start after a failed one, on the clock of `time.monotonic`.
        error: error of its last failed start.
        num_restarts: restarts of the actor at the last check.
        num_failures: deaths in a row at its start, on machines that were still up afterwards.
        held: shards that it holds between turns, by name.
        alone: whether the held shard is a suspect.
    """

    actor: Any
    machines: frozenset[str]
    machine: str = ""
    is_up: bool = False
    ask_at: float | None = None
    error: Exception | None = None
    num_restarts: int = 0
    num_failures: int = 0
    held: dict[str, Shard[Any]] = field(default_factory=dict)
    alone: bool = False


class ActorPool(Generic[ItemT, ResultT]):
    """Actors that hold one worker each.

    Args:
        worker_class: makes a worker.
        worker_args: its arguments.
        num_workers: number of actors, at least 1.
        num_cpus: CPUs that each reserves, above 0; also its threads, at least 1.
        num_gpus: GPUs that each reserves; with 0 it sees none.
        room: number of shards that each holds, if it works in turns; 0 if not. It may rise.

    Raises:
        ClusterError: there is no session, or one that cannot grow has too little room.
    """

    def __init__(
        self,
        worker_class: Callable[..., ShardWorker[ItemT, ResultT] | TurnWorker[ItemT, ResultT]],
        worker_args: Sequence[Any],
        *,
        num_workers: int,
        num_cpus: float,
        num_gpus: float,
        room: int = 0,
    ) -> None:
        import ray

        if not ray.is_initialized():
            raise ClusterError("there is no Ray session", fix="put `with connect(address):` around the work")
        self._wanted = f"{num_workers} workers of {num_cpus:g} CPUs and {num_gpus:g} GPUs each"
        require_room(self._wanted, num_workers, num_cpus, num_gpus)
        num_threads = max(1, int(num_cpus))
        # A machine with another Parley, or with none, must be able to report that.
        for module in (identity, workplace):
            ray.cloudpickle.register_pickle_by_value(module)
        sizes = {"num_cpus": num_cpus, "num_gpus": num_gpus}
        options: dict[str, Any] = sizes | {
            "max_restarts": -1,
            # Calls wait while an actor restarts. Each call turns off the retries themselves, because Ray would repeat all
            # shards in flight together, and tie them to this actor even when its machine is gone.
            "max_task_retries": MAX_DEATHS,
            "runtime_env": {"env_vars": worker_environment(num_threads, has_gpus=num_gpus > 0)},
        }
        actor = ray.remote(workplace.WorkerActor).options(**options)
        # Put once into the object store and sent with the calls: Ray cannot restart an actor whose arguments hold references.
        spec: workplace.WorkerSpec = (worker_class, worker_args, logs.settings())
        self._spec = ray.put(spec)
        self._identity = identity.own_identity()
        machines = machines_up()
        self._workers = [_Worker(actor.remote(num_threads), machines) for _ in range(num_workers)]
        self._deaths: defaultdict[str, list[str]] = defaultdict(list)
        """The machines of the workers that died at a shard, by shard."""
        self._waiting: deque[Shard[ItemT]] = deque()
        self._suspects: deque[Shard[ItemT]] = deque()
        self._starting: dict[Any, _Worker] = {}
        self._running: dict[Any, tuple[_Worker, tuple[Shard[ItemT], ...], bool]] = {}
        self.room, self._turn_s = room, max(TURN_S, num_workers / TURNS_PER_S)

    def work(
        self, more: Callable[[], Sequence[Shard[ItemT]] | None], start_timeout_s: float
    ) -> Generator[tuple[Shard[ItemT], ShardAttempt[ResultT] | ShardFailure | UnderWay, int]]:
        """Yield shards with their results in order of completion, and the number of workers up; end the actors at the end.

        Workers that work in turns also yield the progress of unfinished shards. A shard that was given up, because its workers
        died or it cannot be sent, yields a failure.

        Args:
            more: returns shards that have come since its last call; None if no more will come.
            start_timeout_s: seconds without any worker after which the run ends, unless one is being built.

        Raises:
            ClusterError: for that time no worker was up or had a place, all died while they started, or a machine has other
                code.
            Exception: an error of building a worker.
        """
        import ray

        is_open = True
        try:
            for worker in self._workers:
                self._start(worker)
            up_at = time.monotonic()
            while True:
                if is_open:
                    arrived = more()
                    is_open = arrived is not None
                    self._waiting.extend(arrived or ())
                    if arrived:
                        self._feed()
                held = any(worker.held for worker in self._workers)
                if not (is_open or self._waiting or self._suspects or self._running or held):
                    break
                if self._num_up():
                    up_at = time.monotonic()
                left_s = up_at + start_timeout_s - time.monotonic()
                if left_s <= 0:
                    self._require_place(start_timeout_s)
                    up_at, left_s = time.monotonic(), start_timeout_s
                patience_s = min(left_s, RETRY_S if self._retry_starts() else LOOK_S, MORE_S if is_open else LOOK_S)
                calls = [*self._starting, *self._running]
                if not calls:
                    time.sleep(patience_s)
                    continue
                finished, _ = ray.wait(calls, timeout=patience_s)
                if not finished:
                    self._take_back()
                for ref in finished:
                    if ref in self._starting:
                        self._mark_up(ref)
                    else:
                        for shard, outcome in self._collect(ref):
                            yield shard, outcome, self._num_up()
                self._feed()
        finally:
            for worker in self._workers:
                ray.kill(worker.actor)

    @property
    def num_waiting(self) -> int:
        """Return the number of shards that no worker has."""
        return len(self._waiting) + len(self._suspects)

    def _num_up(self) -> int:
        return sum(worker.is_up for worker in self._workers)

    def _start(self, worker: _Worker) -> None:
        """Have the worker built, unless it is being built already."""
        worker.ask_at, worker.held, worker.alone = None, {}, False
        if worker.is_up:
            worker.is_up = False
            logger.warning("a worker is lost: %d of %d workers are up", self._num_up(), len(self._workers))
        if worker not in self._starting.values():
            call = worker.actor.start.options(max_task_retries=0)
            self._starting[call.remote(self._identity, [self._spec])] = worker

    def _mark_up(self, ref: Any) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        worker = self._starting.pop(ref)
        try:
            mismatch = ray.get(ref)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayError as error:
            worker.error, worker.ask_at = error, time.monotonic() + RETRY_S
            return
        if mismatch is not None:
            raise identity.refusal(self._identity, *mismatch)
        state = ray_internals.actor_state(worker.actor)
        worker.is_up, worker.num_failures = True, 0
        worker.num_restarts, worker.machine, worker.machines = state.num_restarts, state.machine, machines_up()

    def _retry_starts(self) -> bool:
        """Retry workers that failed to start a while ago; return whether there are any."""
        absent = [worker for worker in self._workers if worker.ask_at is not None]
        for worker in absent:
            if worker.ask_at is not None and worker.ask_at <= time.monotonic():
                self._restart_or_give_up(worker)
        return bool(absent)

    def _restart_or_give_up(self, worker: _Worker) -> None:
        """Start a worker again, unless it has died too often at its start, on machines that are still up."""
        import ray

        state, machines = ray_internals.actor_state(worker.actor), machines_up()
        died = state.is_dead or state.num_restarts > worker.num_restarts
        # Otherwise it cannot be reached, or was lost with its machine.
        worker.num_failures += died and machines >= worker.machines
        worker.num_restarts, worker.machines = state.num_restarts, machines
        if worker.num_failures < MAX_DEATHS:
            self._start(worker)
            return
        self._workers.remove(worker)
        ray.kill(worker.actor)
        if not self._workers:
            fix = "run with 0 workers to see it fail in this process"
            raise ClusterError("a worker dies while it starts", got=str(worker.error), fix=fix) from worker.error
        what = "a worker died %d times while it started: work goes on with %d others"
        logger.warning(what, MAX_DEATHS, len(self._workers))

    def _feed(self) -> None:
        """Give every worker that is up as much as fits; suspects come last, and alone."""
        in_flight = Counter(worker for worker, _, _ in self._running.values())
        busy = {worker for worker, _, alone in self._running.values() if alone}
        for worker in self._workers:
            if worker in busy or not worker.is_up:
                continue
            if self.room:
                if not in_flight[worker]:
                    self._next_turn(worker)
                continue
            # A second shard waits at a worker only if every other worker, also one that is starting, has one.
            idle = sum(not in_flight[other] for other in self._workers if other is not worker)
            while self._waiting and in_flight[worker] < (MAX_IN_FLIGHT if len(self._waiting) > idle else 1):
                self._submit(worker, self._waiting.popleft(), alone=False)
                in_flight[worker] += 1
            if self._suspects and not self._waiting and not in_flight[worker]:
                self._submit(worker, self._suspects.popleft(), alone=True)

    def _submit(self, worker: _Worker, shard: Shard[ItemT], alone: bool) -> None:
        ref = worker.actor.run.options(max_task_retries=0).remote(shard)
        self._running[ref] = (worker, (shard,), alone)

    def _next_turn(self, worker: _Worker) -> None:
        """Let a worker continue with the shards it holds, and with its share of the waiting ones."""
        num = 0 if worker.alone else min(self.room - len(worker.held), -(-len(self._waiting) // len(self._workers)))
        joining = [self._waiting.popleft() for _ in range(num)]
        if self._suspects and not self._waiting and not worker.held and not joining:
            joining, worker.alone = [self._suspects.popleft()], True
        worker.held |= {shard.name: shard for shard in joining}
        if worker.held:
            ref = worker.actor.turn.options(max_task_retries=0).remote(joining, self._turn_s)
            self._running[ref] = (worker, tuple(worker.held.values()), worker.alone)

    def _take_back(self) -> None:
        """Take work back from workers that are down.

        Work given to a worker after its unnoticed death waits for Ray to restart it: for ever, if its machine is gone and no
        other has room.
        """
        busy = {worker for worker, _, _ in self._running.values()}
        down = {worker for worker in busy if not ray_internals.actor_state(worker.actor).is_alive}
        for ref, (worker, shards, alone) in list(self._running.items()):
            if worker in down:
                del self._running[ref]
                self._put_back(worker, shards, alone)

    def _put_back(self, worker: _Worker, shards: Sequence[Shard[ItemT]], alone: bool) -> None:
        """Put back work that was not begun; its worker must come up before it is given more."""
        self._start(worker)
        (self._suspects if alone else self._waiting).extendleft(reversed(shards))

    def _collect(self, ref: Any) -> Iterator[tuple[Shard[ItemT], ShardAttempt[ResultT] | ShardFailure | UnderWay]]:
        """Yield shards with their results, except for those that must be tried again."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        worker, shards, alone = self._running.pop(ref)
        try:
            tried = ray.get(ref)
        except RayTaskError as error:
            # Not from the work, whose errors `attempt` catches: the shard or the result cannot be sent.
            failure = ShardFailure(f"{type(error.cause).__name__}: {error.cause}", str(error))
            worker.held = {}
            yield from ((shard, failure) for shard in shards)
        except RayError as error:
            # Its worker must come up again before it is given more.
            self._start(worker)
            for shard in shards:
                if (given_up := self._failure_of_lost(worker, shard, error)) is not None:
                    yield shard, given_up
        else:
            if tried is None:
                self._put_back(worker, shards, alone)
            elif isinstance(tried, TurnResult):
                yield from self._turn_results(worker, tried)
            else:
                yield shards[0], tried

    def _turn_results(
        self, worker: _Worker, turn: TurnResult[ShardAttempt[ResultT]]
    ) -> Iterator[tuple[Shard[ItemT], ShardAttempt[ResultT] | UnderWay]]:
        """Yield results and progress of a turn; the worker keeps unfinished shards with their new state."""
        for name in worker.held.keys() & turn.ended.keys():
            yield worker.held.pop(name), turn.ended[name]
        for name in worker.held.keys() & turn.under_way.keys():
            stands = turn.under_way[name]
            if stands.kept is not None:
                worker.held[name] = replace(worker.held[name], kept=stands.kept)
            yield worker.held[name], stands
        worker.alone = worker.alone and bool(worker.held)

    def _failure_of_lost(self, worker: _Worker, shard: Shard[ItemT], error: Exception) -> ShardFailure | None:
        """Return the failure of a shard whose worker died too often; None if it is to be tried again."""
        deaths, machines = self._deaths[shard.name], machines_up()
        deaths.append(worker.machine)
        num_deaths = sum(machine in machines for machine in deaths)
        if num_deaths == MAX_DEATHS or len(deaths) == MAX_LOSSES:
            return ShardFailure(f"{type(error).__name__}: its worker died {len(deaths)} times", str(error))
        logger.warning("shard %s lost its worker: it is tried again, alone", shard.name, extra={"shard": shard.name})
        self._suspects.append(shard)
        return None

    def _require_place(self, waited_s: float) -> None:
        """Let workers with a place finish building, however long it takes: a large model does not load in minutes."""
        import ray

        num = sum(ray_internals.actor_state(worker.actor).is_alive for worker in self._starting.values())
        if num:
            logger.warning("%d of %d workers have been built for %g s, and are waited for", num, len(self._workers), waited_s)
            return
        started = any(worker.machine for worker in self._workers)
        raise ClusterError(
            f"no worker {'has been up for' if started else 'could start within'} {waited_s:g} s",
            got=f"{self._wanted}; in all {listed(ray.cluster_resources())}, free {listed(ray.available_resources())}",
            fix="ask for fewer or smaller workers, end what holds the resources, or add machines; "
            f"{session.TIMEOUT_VARIABLE} says how many seconds are waited",
        )
