"""Jobs made of other jobs: every stage is a run of its own below the job's folder, and resumes by itself.

`run_stages` is the one way to run a graph of stages. Without Ray they run in this process, in their order. With it, Ray actors
run whole stages, and stages in shards share one pool of actors (`BackgroundStages`). Each begins as soon as the stages that it
needs are finished. This process does the rest: it checks finished stages, tries again what failed in an actor, and reports
errors.

`fitting_runners` checks that the cluster has room for a training's learner and env runners. RLlib itself would wait for ever
without a message.
"""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

from parley.engine.core.ray import logs
from parley.engine.core.ray.actors import MAX_DEATHS
from parley.engine.core.ray.identity import own_identity
from parley.engine.core.ray.pool import SharedPool, working_in
from parley.engine.core.ray.ray_internals import ProgressBoard
from parley.engine.core.ray.session import RaySession, can_grow, connect
from parley.engine.core.ray.shares import NOTHING, Share, actor_options, release, reserve
from parley.engine.core.ray.worker import ShardFailure
from parley.engine.core.runs.documents import CONFIG, SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import (
    USAGE,
    WARNINGS,
    ConfigT,
    FoundT,
    Job,
    PreparedT,
    Reporter,
    Result,
    Silent,
    failure_of,
    losses_of,
)
from parley.engine.core.verbs.sharded import ShardedConfig
from parley.engine.core.verbs.stage_progress import (
    JointProgress,
    StageRunner,
    driver_of_several,
    num_at_once,
    settings_of,
    share_of,
)
from parley.envs.core.errors import ClusterError, ParleyError, RefusedModelError, RunError

logger = logging.getLogger(__name__)
_CLOSING_S = 10.0
"""Seconds that stages run side by side have to close their runs after an interruption."""
_MOST_WARNINGS = 5
"""Warnings of stages that the last screen shows."""
LOOK_S = 1.0
"""Seconds between two looks at the progress of stages in actors."""

Stage = tuple[Job[Any, Any, Any], Any]
"""A job and its configuration."""
Planned = Mapping[str, Stage] | Callable[[], Mapping[str, Stage]]
"""Stages by name, or a function that returns them as they are now."""


class Composite(Job[ConfigT, PreparedT, FoundT]):
    """A job whose work is the work of its stages."""

    @abstractmethod
    def stages(self, config: ConfigT, path: Path) -> Mapping[str, Stage]:
        """Return the stages by the names of their folders, in the order of execution.

        Args:
            config: the configuration.
            path: the run's folder, as given; the stages name each other's folders below it.
        """

    def result(self, config: ConfigT, path: Path) -> Result:
        result = super().result(config, path)
        return replace(result, warnings=[*result.warnings, *warnings_of_stages(path, result.chat_usage)])


def warnings_of_stages(path: Path, usage: Mapping[str, Any]) -> list[str]:
    """Return the warnings of the stages below a run: failed items, and chat warnings that the run itself does not give."""
    warnings = []
    for folder in sorted(file.parent for file in path.glob(f"*/{SUMMARY}") if (file.parent / CONFIG).is_file()):
        stage = RunFolder.load(folder)
        outcomes, of_chats = stage.outcomes(), (stage.summary() or {}).get(USAGE, {})
        sentences = [failed] if (failed := failure_of(outcomes)) else losses_of(outcomes)
        sentences += [] if usage.get(WARNINGS) else of_chats.get(WARNINGS, [])
        warnings += [f"{folder.name}: {sentence}" for sentence in sentences]
    more = [f"and {len(warnings) - _MOST_WARNINGS} more of stages"] if len(warnings) > _MOST_WARNINGS else []
    return [*warnings[:_MOST_WARNINGS], *more]


def _plan_of(planned: Planned) -> Callable[[], Mapping[str, Stage]]:
    return planned if callable(planned) else lambda: planned


def one_after_another(chains: Iterable[Iterable[str]]) -> dict[str, list[str]]:
    """Return the needs of chains of stages, whose every stage needs the one before it."""
    return {name: [former] for chain in chains for former, name in pairwise(chain)}


def run_stages(
    planned: Planned,
    path: Path,
    reporter: Reporter,
    *,
    needs: Mapping[str, Collection[str]] | None = None,
    most: int = 0,
    pooled: Collection[str] = (),
    at_need: bool = False,
    address: str = "",
    title: str = "",
    background: Sequence[BackgroundStages] = (),
    after: Callable[[], None] | None = None,
    failures: dict[str, ParleyError] | None = None,
) -> None:
    """Run the rest of all stages; a failed stage ends only those that need it.

    Args:
        planned: the stages, as from `Composite.stages`, each after those that it needs. A function is called anew for every
            stage, because a finished stage may change the configuration of later ones.
        path: the folder that holds their folders.
        reporter: receives messages and progress.
        needs: names of the stages that must be finished before a stage begins, by its name. By default each stage needs the
            one before it.
        most: the largest number of Ray actors that run whole stages. Without pooled stages there are none if fewer than 2 are
            wanted or fit: all stages are then run in this process, one after another.
        pooled: names of stages in shards that share one pool of actors, if their configuration has workers.
        at_need: as in `BackgroundStages`.
        address: address of a Ray cluster.
        title: title of the progress while others than this process work.
        background: runs some of these stages meanwhile; a stage of theirs is waited for when its turn comes.
        after: called when a stage is finished, never twice at a time.
        failures: takes the errors of failed stages by name. None: the first of them is raised at the end.

    Raises:
        RefusedModelError: a stage met it; it ends all stages.
        ClusterError: the pool cannot start.
        ParleyError: the error of the first failed stage, without `failures`.
    """
    plan = _plan_of(planned)
    names = list(plan())
    is_sequence = needs is None
    needs = one_after_another([names]) if needs is None else needs
    failed: dict[str, ParleyError] = {} if failures is None else failures
    skipped = set[str]()
    pending = [name for name in names if not (path / name / SUMMARY).exists()]
    # A job that hears of every stage has many of them: one line tells which were finished.
    is_brief = after is not None
    if len(pending) < len(names) and is_brief:
        reporter.say(f"{len(names) - len(pending)} of {len(names)} stages are finished")

    def finish(name: str) -> None:
        if after is not None:
            reporter.say(f"{name} is done")
            after()

    if most > 1 or pooled:
        least = 1 if pooled else 2
        stages = BackgroundStages(
            plan, path, most, needs=needs, pooled=pooled, at_need=at_need, address=address, least=least, after=finish
        )
        try:
            with stages:
                if stages.num_at_once < stages.num_asked:
                    reporter.say(f"{max(1, stages.num_at_once)} of {len(pending)} at a time: there is no room for more")
                stages.wait(reporter, title)
        except ClusterError as error:
            if address or pooled:
                raise
            # The cause may be a machine too busy to start actors in time. Hours of work must not wait for a person to read it.
            reporter.say(f"{error.what}; what is left is done in this process")
        failed |= stages.failures
        # Stages whose progress was shown need not be reported as finished.
        is_brief = is_brief or (bool(stages.names) and all((path / name / SUMMARY).exists() for name in names))
    for number, name in enumerate(names, start=1):
        for stages in background:
            if name in stages.names:
                stages.wait(reporter, "what was begun beside")
        if name in failed:
            continue
        if lost := next((need for need in needs.get(name, ()) if need in failed), ""):
            failed[name] = RunError("not run, because it needs a stage that failed", where=lost)
            skipped.add(name)
            continue
        is_told = (is_left := not (path / name / SUMMARY).exists()) or not is_brief
        if is_told:
            reporter.say(f"stage {number} of {len(names)}: {name}")
        if is_left:
            reporter.stage(name, 0, "")
        job, config = plan()[name]
        try:
            # A finished stage checks itself: it reports damage, or other settings.
            result = job.run(config, path / name, reporter if is_told else Silent())
        except RefusedModelError:
            raise
        except ParleyError as error:
            if is_sequence:
                raise
            reporter.say(f"{name} ends with an error: {error.what}")
            failed[name] = error
            continue
        for warning in result.warnings if is_left else ():
            reporter.say(f"{name}: {warning}")
        if (
            failures is not None
            and (reason := result.failure or result.undecided)
            and not any(estimate.n for estimate in result.metrics.values())
        ):
            failed[name] = RunError(reason)
        if is_left and after is not None:
            after()
    if failures is None:
        for name in (name for name in names if name in failed and name not in skipped):
            first = failed[name]
            where = name if first.where is None else f"{name}: {first.where}"
            raise type(first)(first.what, where=where, got=first.got, fix=first.fix).with_traceback(first.__traceback__)


class BackgroundStages:
    """Stages that others than this process run, each as soon as the stages that it needs are finished.

    Whole stages are calls of Ray actors. Ray repeats a call whose process dies. A stage that raises there, or loses all its
    processes, is left for this process, which reports errors; so are the stages that need it. If there is too little room, this
    process runs all. docs/architecture.md says why these are no Ray tasks, and why none has references to results of others.

    Pooled stages have a thread each in this process, and their shards run over one pool of actors. So a slow or nearly finished
    stage keeps no actor from the others.

    Args:
        planned: the stages by the names of their folders, in the order in which they begin; as in `run_stages`.
        path: the folder that holds their folders.
        most: the largest number of actors for whole stages; with 0 there are none.
        needs: names of the stages that must be finished before a stage begins, by its name. This process may run them.
        pooled: names of the stages in shards for a pool, of the size that their configuration says.
        at_need: True if a pooled stage begins once the actors have all shards of those before: few models are in memory.
        num_cpus: logical CPUs of the Ray session if there is none yet; at least those of this machine.
        address: address of a Ray cluster.
        least: the number of those actors that must fit, or there are none.
        spare: resources to leave for the work of this process.
        after: called with the name of each stage that an actor has finished, never twice at a time.

    Attributes:
        names: the stages that were not finished at the start.
        num_asked: number of actors that have work.
        num_at_once: number of them that fit; 0 if there are none.
        failures: errors of pooled stages by name.
    """

    def __init__(
        self,
        planned: Planned,
        path: Path,
        most: int,
        *,
        needs: Mapping[str, Collection[str]] = MappingProxyType({}),
        pooled: Collection[str] = (),
        at_need: bool = False,
        num_cpus: int = 0,
        address: str = "",
        least: int = 1,
        spare: Share = NOTHING,
        after: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._planned, self._path, self._needs, self._after = _plan_of(planned), path, needs, after
        self._address, self._least, self._spare, self._at_need = address, least, spare, at_need
        stages = self._planned()
        self.names = [name for name in stages if not self._is_done(name)]
        self._whole = [name for name in self.names if name not in pooled]
        self.num_asked, self.num_at_once = min(most, len(self._whole)), 0
        played = [stages[name][1] for name in self.names if name in pooled and stages[name][1].workers]
        self._size: ShardedConfig | None = played[0] if len(played) > 1 or (played and self.num_asked) else None
        if self._size is not None:
            # Whole stages leave room for at least one actor of the pool.
            num_cpus, self._spare = max(num_cpus, self._size.workers), Share((1.0, self._size.gpus_per_worker))
        self._num_cpus = max(num_cpus, most, os.cpu_count() or 1)
        self._open: list[str] = []
        self._board, self._pool = ProgressBoard(), SharedPool()
        self._progress: JointProgress | None = None
        self._session = ExitStack()
        self.failures: dict[str, ParleyError] = {}
        self._error: BaseException | None = None
        self._unexpected: BaseException | None = None
        self._thread: Thread | None = None
        self._threads: dict[str, Thread] = {}
        self._placing: dict[Any, Any] = {}
        self._free: list[Any] = []
        self._running: dict[Any, tuple[str, Any]] = {}
        self._share, self._patience_s, self._up_at = NOTHING, 0.0, 0.0

    def __enter__(self) -> BackgroundStages:
        if self.num_asked >= self._least or self._size is not None:
            self._start(self._session.enter_context(connect(self._address or None, num_cpus=self._num_cpus)))
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._error = KeyboardInterrupt()
            self._thread.join(_CLOSING_S)
        self._session.close()

    def _start(self, ray_session: RaySession) -> None:
        machine, stages = driver_of_several(), self._planned()
        if self.num_asked >= self._least:
            self._share = share_of([stages[name][1] for name in self._whole], machine)
            self.num_at_once = num_at_once(self._share, ray_session, self.num_asked, self._spare)
            self.num_at_once *= self.num_at_once >= self._least
        # This process reserves its own resources later; they wait for what is left.
        groups = reserve(self._share, self.num_at_once)
        self._placing = {group.ready(): group for group in groups}
        self._open = [name for name in self.names if name not in self._whole or groups]
        if self._open:
            self._patience_s, self._up_at = ray_session.start_timeout_s, time.monotonic()
            # A daemon: an interrupted process must not wait for the stages.
            self._thread = Thread(target=self._work, args=(groups,), daemon=True)
            self._thread.start()

    def wait(self, reporter: Reporter, title: str = "") -> None:
        """Wait until all stages have been tried.

        Raises:
            RefusedModelError: a stage met it, so another try here is of no use.
            ClusterError: the pool has ended with it.
        """
        if self._thread is not None and self._thread.is_alive():
            self._progress = JointProgress(reporter, self.names, title)
            self._thread.join()
            self._hear(self._progress)
        if error := self._error or self._unexpected:
            raise error

    def _is_done(self, name: str) -> bool:
        return (self._path / name / SUMMARY).exists()

    def _work(self, groups: Sequence[Any]) -> None:
        try:
            if self._size is not None:
                gpus = self._size.gpus_per_worker
                self._pool.serve(
                    self._step, num_workers=self._size.workers, num_gpus_per_worker=gpus, start_timeout_s=self._patience_s
                )
            while self._step(LOOK_S):
                pass
        except (ParleyError, KeyboardInterrupt) as error:
            self._error = error
        except Exception:
            logger.warning("no stage is run beside this process", exc_info=True)
        finally:
            # The pool has told the threads why it ended; they close their runs.
            deadline = time.monotonic() + _CLOSING_S
            for thread in self._threads.values():
                thread.join(max(0.0, deadline - time.monotonic()))
            with suppress(Exception):
                release(groups)

    def _step(self, wait_s: float = 0.0) -> bool:
        """Begin the stages whose needs are finished, and note those that have been tried; return whether any is left."""
        import ray

        if self._error is not None:
            raise self._error
        begun = {*self._threads, *(name for name, _ in self._running.values())}
        for name in [name for name in self._open if name not in begun]:
            missing = [need for need in self._needs.get(name, ()) if not self._is_done(need)]
            if any(need in self.names and need not in self._open for need in missing):
                self._open.remove(name)
            elif missing:
                continue
            elif name in self._whole:
                if self._free:
                    actor, (job, config) = self._free.pop(), self._planned()[name]
                    call = actor.run.remote(job, settings_of(config, self._share.machine), self._path / name)
                    self._running[call] = name, actor
            # Its progress is shown, and nobody listens before `wait`.
            elif self._progress is not None and (not self._at_need or self._pool.needs_more(self._threads.values())):
                self._threads[name] = Thread(target=self._play, args=(name, self._progress), daemon=True)
                self._threads[name].start()
        calls = [*self._placing, *self._running]
        for ref in ray.wait(calls, num_returns=1 if wait_s else len(calls), timeout=wait_s)[0] if calls else ():
            if ref in self._placing:
                self._free.append(self._actor(self._placing.pop(ref)))
            else:
                name, actor = self._running.pop(ref)
                self._free.append(actor)
                self._open.remove(name)
                self._note_end(name, ref)
        if not calls and wait_s:
            time.sleep(wait_s)
        self._open = [name for name in self._open if name not in self._threads or self._threads[name].is_alive()]
        now = time.monotonic()
        if self._progress is not None:
            self._hear(self._progress)
        if self._running or self._free or any(thread.is_alive() for thread in self._threads.values()):
            self._up_at = now
        elif now > self._up_at + self._patience_s:
            logger.warning("no stage could start within %g s: %s", self._patience_s, ", ".join(self._open))
            return False
        return bool(self._open)

    def _hear(self, progress: JointProgress) -> None:
        for name in self._whole:
            progress.take(name, self._board.line(name), self._is_done(name))

    def _actor(self, group: Any) -> Any:
        """Return an actor in a placement group; Ray starts it again and repeats its call if its process dies."""
        import ray

        options = {"max_restarts": -1, "max_task_retries": MAX_DEATHS - 1, **actor_options(self._share, group)}
        runner = ray.remote(StageRunner).options(**options)
        return runner.remote(self._board, Path.cwd(), own_identity(), logs.settings())

    def _note_end(self, name: str, ref: Any) -> None:
        """Report how the call for a stage has ended."""
        import ray
        from ray.exceptions import RayError

        try:
            failure = ray.get(ref)
        except RayError as error:
            failure = ShardFailure(f"its process is lost: {type(error).__name__}", str(error))
        if failure is None:
            self._after(name)
        else:
            more = f"\n{failure.details}" if logs.is_debug() else ""
            logger.warning("stage %s failed: %s%s", name, failure.reason, more)
            self._error = failure.ends or self._error

    def _play(self, name: str, progress: JointProgress) -> None:
        """Run a stage in this thread, its shards in the pool."""
        job, config = self._planned()[name]
        reporter = progress.of(name)
        try:
            with working_in(self._pool):
                result = job.run(config, self._path / name, reporter)
            for warning in result.warnings:
                reporter.say(warning)
            progress.take(name, "", is_done=True)
        except ParleyError as error:
            self.failures[name] = error
        except BaseException as error:  # raised by `wait`
            self._unexpected = error


def fitting_runners(
    num_runners: int,
    learner: Mapping[str, float],
    session: RaySession,
    reporter: Reporter,
    wait_s: float = 0.0,
    gpus_per_runner: float = 0.0,
) -> int:
    """Return the number of env runners that fit beside the learner; report a wait or a smaller number.

    Args:
        num_runners: env runners wanted, with one CPU each.
        learner: CPUs and GPUs ("CPU", "GPU") that learners reserve.
        session: the Ray session that they must fit into.
        reporter: receives messages.
        wait_s: seconds to wait for a machine with room for the learner.
        gpus_per_runner: GPUs that each env runner reserves.

    Returns:
        `num_runners`, or fewer if the cluster has no room for all and never will.

    Raises:
        ClusterError: Ray would wait for ever: no room for the learner, or on this machine for the env runners.
    """
    import ray

    needed = {"CPU": num_runners + learner["CPU"], "GPU": num_runners * gpus_per_runner + learner["GPU"]}
    deadline = time.monotonic() + wait_s
    while True:
        total = {name: ray.cluster_resources().get(name, 0) for name in needed}
        if all(needed[name] <= total[name] for name in needed):
            return num_runners
        needs = f"{needed['CPU']:g} CPUs and {needed['GPU']:g} GPUs; in all there are {total['CPU']:g} and {total['GPU']:g}"
        if can_grow():
            reporter.say(f"env runners and learner need {needs}: waiting for machines to join the cluster")
            return num_runners
        room = int(total["CPU"] - learner["CPU"])
        if gpus_per_runner:
            room = min(room, int((total["GPU"] - learner["GPU"]) / gpus_per_runner))
        if not session.is_local and room >= 0 and learner["GPU"] <= total["GPU"]:
            reporter.say(f"env runners and learner need {needs}: training goes on with {room} env runners")
            return room
        if time.monotonic() >= deadline:
            break
        if wait_s:
            reporter.say(f"env runners and learner need {needs}: waiting {wait_s:g} s for a machine")
            wait_s = 0.0
        time.sleep(1)
    raise ClusterError(
        f"this {'machine' if session.is_local else 'cluster'} has too little room for env runners and learner",
        got=needs,
        fix="ask for fewer env_runners, learners, threads or GPUs, or give the address of a cluster with room, or that grows",
    )
