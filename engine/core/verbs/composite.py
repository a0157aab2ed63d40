"""Jobs made of other jobs: every stage is a run of its own below the job's folder, and resumes by itself.

Ways to run stages:
  * `run_stages`: one after another, in this process.
  * `run_side_by_side`: at the same time, their shards over one pool of Ray actors.
  * `run_as_needed`: each whole stage in a Ray actor, as soon as the stages that it needs are finished.
  * `BackgroundStages`: whole stages in Ray actors, while this process runs others.

`fitting_runners` checks that the cluster has room for a training's learner and env runners. RLlib itself would wait for ever
without a message.
"""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, RLock, Thread
from types import MappingProxyType
from typing import Any

from parley.engine.core.ray.pool import SharedPool, run_sharded, working_in
from parley.engine.core.ray.record import ProgressBoard
from parley.engine.core.ray.session import RaySession, can_grow, connect
from parley.engine.core.ray.shares import NOTHING, Reserved, Share, reserve
from parley.engine.core.ray.worker import make_shards
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
from parley.engine.core.verbs.sharded import ShardedConfig, session
from parley.engine.core.verbs.stage_progress import (
    DONE,
    ProgressState,
    StageProgress,
    WholeStages,
    driver_of_several,
    num_at_once,
    settings_of,
    share_of,
)
from parley.envs.core.errors import ClusterError, ParleyError, RefusedModelError, RunError

logger = logging.getLogger(__name__)
_CLOSING_S = 10.0
"""Seconds that stages run side by side have to close their runs after an interruption."""
_UNFINISHED = 0.99
"""The largest share that is reported for a stage in an actor before it is finished."""
_MAX_NAMED = 4
"""Number of stages up to which the progress names all; of more, it names those under way."""
_MOST_WARNINGS = 5
"""Warnings of stages that the last screen shows."""
LOOK_S = 1.0
"""Seconds between two looks at the progress of stages in actors."""

Stage = tuple[Job[Any, Any, Any], Any]
"""A job and its configuration."""


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


def run_stages(
    stages: Mapping[str, Stage], path: Path, reporter: Reporter, before: Callable[[str], None] = lambda name: None
) -> None:
    """Run the rest of each stage, one after another.

    Args:
        stages: the stages, as from `Composite.stages`.
        path: the folder that holds their folders.
        reporter: receives messages and progress.
        before: called with the name of each stage before it runs.
    """
    for number, (name, (job, config)) in enumerate(stages.items(), start=1):
        reporter.say(f"stage {number} of {len(stages)}: {name}")
        before(name)
        job.run(config, path / name, reporter)


def run_side_by_side(
    stages: Mapping[str, Stage],
    path: Path,
    reporter: Reporter,
    config: ShardedConfig,
    needs: Mapping[str, Collection[str]] = MappingProxyType({}),
    ahead: BackgroundStages | None = None,
) -> None:
    """Run the rest of all stages at the same time over one pool of actors; without workers, one after another.

    Each stage has a thread in this process; its shards run in the pool. So a slow stage delays only the stages that need it,
    and rows equal those of stages run one after another. If a stage fails, the others still run to their end.

    Args:
        stages: the stages, as from `Composite.stages`; their work is in shards, on one device.
        path: the folder that holds their folders.
        reporter: receives messages and progress.
        config: number of actors, and the cluster.
        needs: names of the stages that must end before a stage begins, by its name.
        ahead: runs some of these stages meanwhile. Stages that need one it does not finish are left out, without an error.

    Raises:
        RefusedModelError: a stage met it; it ends all stages.
        ParleyError: the error of the first failed stage, in their order.
    """
    pending = {name: stage for name, stage in stages.items() if not (path / name / SUMMARY).exists()}
    if ahead is None and (not config.workers or len(pending) < 2):
        run_stages(stages, path, reporter)
        return
    run_stages({name: stage for name, stage in stages.items() if name not in pending}, path, Silent())
    ended = {name: Event() for name in pending}
    failed: dict[str, BaseException] = {}
    progress, pool = JointProgress(reporter, [*pending, *([] if ahead is None else ahead.names)]), SharedPool()

    def work(name: str) -> None:
        job, settings = pending[name]
        try:
            waited = [need for need in needs.get(name, ()) if need in pending]
            for need in waited:
                ended[need].wait()
            is_ready = ahead is None or all(ahead.has_done(need) for need in needs.get(name, ()) if need in ahead.names)
            if is_ready and not failed.keys() & set(waited):
                with working_in(pool):
                    job.run(settings, path / name, progress.of(name))
                progress.advance(name, DONE)
        except BaseException as error:  # raised below, by the thread that called
            failed[name] = error
        finally:
            ended[name].set()

    with session(config.workers, config.address) as ray_session:
        if ahead is not None:
            Thread(target=ahead.follow, args=(progress,), daemon=True).start()
        _serve(pool, work, ended, config.workers, ray_session.start_timeout_s, config.gpus_per_worker)
    for name in pending:
        if name in failed:
            raise failed[name]


def run_as_needed(
    planned: Callable[[], Mapping[str, Stage]],
    needs: Mapping[str, Collection[str]],
    path: Path,
    num_workers: int,
    reporter: Reporter,
    after: Callable[[], None] = lambda: None,
    failures: dict[str, ParleyError] | None = None,
) -> None:
    """Run the rest of all stages, each whole in a Ray actor, as soon as the stages that it needs are finished.

    Actors run ahead, as in `BackgroundStages`: a stage that fails there, and those that need it, run in this process, which
    reports errors. With room for fewer than two actors, all stages run here, one after another.

    Args:
        planned: returns the stages, each after those that it needs. It is called anew for every stage, because a finished stage
            may change the configuration of later ones.
        needs: names of the stages that must be finished before a stage begins, by its name.
        path: the folder that holds their folders.
        num_workers: the largest number of actors.
        reporter: receives messages and progress.
        after: called when a stage is finished, never twice at a time.
        failures: takes the errors of failed stages by name; the others go on, without those that need a failed one. None: the
            first error ends all stages.

    Raises:
        RefusedModelError: a stage met it; it ends all stages.
        ParleyError: the error of the first failed stage, without `failures`.
    """
    names = list(planned())
    pending = [name for name in names if not (path / name / SUMMARY).exists()]
    if len(pending) < len(names):
        reporter.say(f"{len(names) - len(pending)} of {len(names)} stages are finished")
    if num_workers > 1 and len(pending) > 1:
        try:
            with connect(num_cpus=max(num_workers, os.cpu_count() or 1)) as ray_session:
                machine = driver_of_several()
                share = share_of([config for _, config in planned().values()], machine)
                if (number := num_at_once(share, ray_session, min(num_workers, len(pending)))) > 1:
                    places = reserve(share, number)
                    _run_ahead(planned, pending, needs, path, places, reporter, after, ray_session.start_timeout_s)
        except ClusterError as error:
            # The cause may be a machine too busy to start actors in time. Hours of work must not wait for a person to read it.
            reporter.say(f"{error.what}; what is left is done in this process")
    for number, name in enumerate(names, start=1):
        is_left = not (path / name / SUMMARY).exists()
        if is_left:
            reporter.say(f"stage {number} of {len(names)}: {name}")
        if failures and (lost := next((need for need in needs.get(name, ()) if need in failures), "")):
            failures[name] = RunError("not run, because it needs a stage that failed", where=lost)
            continue
        job, config = planned()[name]
        try:
            # A finished stage checks itself: it reports damage, or other settings.
            result = job.run(config, path / name, reporter if is_left else Silent())
        except RefusedModelError:
            raise
        except ParleyError as error:
            if failures is None:
                raise
            reporter.say(f"{name} ends with an error: {error.what}")
            failures[name] = error
            continue
        if failures is not None and result.failure and not any(estimate.n for estimate in result.metrics.values()):
            failures[name] = RunError(result.failure)
        if is_left:
            after()


def _run_ahead(
    planned: Callable[[], Mapping[str, Stage]],
    pending: Sequence[str],
    needs: Mapping[str, Collection[str]],
    path: Path,
    places: Reserved,
    reporter: Reporter,
    after: Callable[[], None],
    start_timeout_s: float,
) -> None:
    """Start a thread for each stage: it waits for the needed stages, hands its own to the actors, and waits for the end."""
    ended = {name: Event() for name in pending}
    progress, pool, one_at_a_time, news = (
        JointProgress(reporter, pending),
        SharedPool(),
        Lock(),
        StageProgress(ProgressBoard()),
    )

    def work(name: str) -> None:
        try:
            for need in needs.get(name, ()):
                if need in ended:
                    ended[need].wait()
            if all((path / need / SUMMARY).exists() for need in needs.get(name, ())):
                (job, config) = planned()[name]
                shards = make_shards({name: [(job, settings_of(config, places.share.machine), path / name)]}, 1)
                with working_in(pool):
                    arguments = WholeStages.arguments(news.board)
                    run_sharded(WholeStages, arguments, shards, num_workers=1, on_result=lambda shard, result: None)
                if (path / name / SUMMARY).exists():
                    progress.advance(name, DONE)
                    progress.say(f"{name} is done")
                    with one_at_a_time:
                        after()
        except Exception:
            logger.warning("%s is not done ahead", name, exc_info=True)
        finally:
            ended[name].set()

    def follow() -> None:
        while not all(event.wait(LOOK_S) for event in ended.values()):
            progress.hear(news, pending, path)

    Thread(target=follow, daemon=True).start()
    try:
        _serve(pool, work, ended, len(places.groups), start_timeout_s, places=places)
        # Read the last messages of the stages.
        progress.hear(news, pending, path)
    finally:
        places.release()


def _serve(
    pool: SharedPool,
    work: Callable[[str], None],
    ended: Mapping[str, Event],
    num_workers: int,
    start_timeout_s: float,
    num_gpus_per_worker: float = 0.0,
    places: Reserved | None = None,
) -> None:
    """Run each stage's work in a thread of its own, and serve the threads from the pool until all have ended."""
    threads = [Thread(target=work, args=(name,), daemon=True) for name in ended]
    for thread in threads:
        thread.start()
    try:
        pool.serve(
            lambda: not all(event.is_set() for event in ended.values()),
            num_workers=num_workers,
            num_gpus_per_worker=num_gpus_per_worker,
            start_timeout_s=start_timeout_s,
            places=places,
        )
    finally:
        # The threads close their runs; the pool has told them why it ended.
        deadline = time.monotonic() + _CLOSING_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class JointProgress:
    """Progress of several stages as one, with stages as units."""

    def __init__(self, reporter: Reporter, names: Sequence[str], title: str = "") -> None:
        self._reporter, self._lock = reporter, RLock()
        self._states = dict.fromkeys(names, ProgressState())
        shown = ", ".join(names) if len(names) <= _MAX_NAMED else f"{len(names)} stages"
        reporter.stage(title or f"{shown} side by side", len(names), "stages")

    def of(self, name: str) -> Reporter:
        """Return the reporter of a stage."""
        return _JointStageReporter(self, name)

    def hear(self, heard: StageProgress, names: Sequence[str], path: Path) -> None:
        """Report new messages and progress of stages that run in actors; `path` holds their folders."""
        with self._lock:
            for name in names:
                messages, far = heard.news(name)
                for text in messages:
                    self.say(f"{name}: {text}")
                if (path / name / SUMMARY).exists():
                    far = DONE
                elif far.share >= 1:
                    # A stage with several parts reaches the end of one before it is finished.
                    far = replace(far, share=_UNFINISHED)
                if far != self._states[name]:
                    self.advance(name, far)

    def say(self, text: str) -> None:
        """Report a message of a stage."""
        with self._lock:
            self._reporter.say(text)

    def advance(self, name: str, far: ProgressState) -> None:
        """Report the progress of a stage; a part of a stage with several parts is shown and not counted."""
        with self._lock:
            self._states[name] = replace(far)
            under_way = [
                " ".join(filter(None, (stage, state.part, f"{state.share:.0%}")))
                for stage, state in self._states.items()
                if 0 < state.share < 1
            ]
            self._reporter.advance(sum(state.share for state in self._states.values() if not state.part), ", ".join(under_way))


class _JointStageReporter:
    """The reporter of one stage among several."""

    def __init__(self, joint: JointProgress, name: str) -> None:
        self._joint, self._name, self._state = joint, name, ProgressState()

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begin a part of the stage."""
        self._state.begin(title, total)

    def advance(self, done: float, note: str = "") -> None:
        """Report the progress of the stage."""
        self._state.advance(done)
        self._joint.advance(self._name, self._state)

    def say(self, text: str) -> None:
        """Report a message with the stage's name before it."""
        self._joint.say(f"{self._name}: {text}")


class BackgroundStages:
    """Stages that Ray actors run while this process runs others.

    Actors only run ahead. A stage that fails in an actor, or is lost with one, is left for this process, which reports errors.
    If there is too little room, this process runs all stages.

    Args:
        chains: stages by the names of their folders. Stages of a chain run one after another, in this order; chains begin in
            their order. Finished stages are left out.
        path: the folder that holds their folders.
        num_workers: the largest number of actors; with 0 nothing runs ahead.
        num_cpus: logical CPUs of the Ray session if there is none yet; at least those of this machine.
        address: address of a Ray cluster.
        least: the number of actors that must fit, or nothing runs ahead.
        spare: resources to leave for the work of this process.

    Attributes:
        num_asked: number of actors that have work.
        num_actors: number of actors that fit; 0 if nothing runs ahead.
    """

    def __init__(
        self,
        chains: Sequence[Mapping[str, Stage]],
        path: Path,
        num_workers: int,
        *,
        num_cpus: int = 0,
        address: str = "",
        least: int = 1,
        spare: Share = NOTHING,
    ) -> None:
        pending = [{name: stage for name, stage in chain.items() if not (path / name / SUMMARY).exists()} for chain in chains]
        self._chains, self._path, self._address = [chain for chain in pending if chain], path, address
        self.num_asked, self.num_actors = min(num_workers, len(self._chains)), 0
        self._num_cpus = max(num_cpus, 2, os.cpu_count() or 1)
        self._least, self._spare = least, spare
        self._progress = StageProgress(ProgressBoard())
        self._session = ExitStack()
        self._refused: RefusedModelError | None = None
        self._thread: Thread | None = None

    @property
    def names(self) -> list[str]:
        """The stages that were not finished at the start."""
        return [name for chain in self._chains for name in chain]

    def __enter__(self) -> BackgroundStages:
        if self.num_asked >= self._least:
            ray_session = self._session.enter_context(connect(self._address or None, num_cpus=self._num_cpus))
            machine = driver_of_several()
            share = share_of([config for chain in self._chains for _, config in chain.values()], machine)
            number = num_at_once(share, ray_session, self.num_asked, self._spare)
            if number >= self._least:
                self.num_actors = number
                # This process reserves its own resources later; they wait for what is left.
                places = reserve(share, number)
                # A daemon: an interrupted process must not wait for the stages.
                self._thread = Thread(target=self._work, args=(places,), daemon=True)
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def has_done_all(self) -> bool:
        """Return whether there were stages to run ahead, and all of them are finished."""
        return bool(self._chains) and all(map(self._is_done, self.names))

    def has_done(self, name: str) -> bool:
        """Return whether a stage is finished; wait until it is, or until all stages have been tried."""
        while self._thread is not None and self._thread.is_alive() and not self._is_done(name):
            self._thread.join(LOOK_S)
        return self._is_done(name)

    def follow(self, progress: JointProgress) -> None:
        """Report the progress of the stages until all have been tried."""
        while self._thread is not None and self._thread.is_alive():
            progress.hear(self._progress, self.names, self._path)
            self._thread.join(LOOK_S)
        progress.hear(self._progress, self.names, self._path)

    def wait(self, reporter: Reporter, title: str = "what was begun beside") -> None:
        """Wait until all stages have been tried.

        Raises:
            RefusedModelError: a stage met it, so another try here is of no use.
        """
        if self._thread is not None and self._thread.is_alive():
            self.follow(JointProgress(reporter, self.names, title))
        if self._refused:
            raise self._refused

    def _is_done(self, name: str) -> bool:
        return (self._path / name / SUMMARY).exists()

    def _work(self, places: Reserved) -> None:
        machine = places.share.machine
        items = {
            f"{number:05d}": [(job, settings_of(config, machine), self._path / name) for name, (job, config) in chain.items()]
            for number, chain in enumerate(self._chains)
        }
        arguments, number = WholeStages.arguments(self._progress.board), len(places.groups)
        shards = make_shards(items, 1)
        try:
            run_sharded(WholeStages, arguments, shards, num_workers=number, on_result=lambda *_: None, places=places)
        except RefusedModelError as error:
            self._refused = error
        except Exception:
            logger.warning("no stage is done beside this process", exc_info=True)
        finally:
            with suppress(Exception):
                places.release()


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
