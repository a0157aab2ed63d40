"""Jobs that are made of other jobs: each stage is a run of its own below the run's folder, and resumes by itself.

Stages that need nothing of each other may be done side by side: whole ones in Ray actors (`BackgroundStages`, and
`run_as_needed` where some need others; `whole.py`), those whose work is in shards over one pool of actors (`run_side_by_side`).

Where a training's env runners and learner have room: asked before RLlib is, which would wait for ever without a word.

Whole stages that Ray actors do ahead, while this process does others: `BackgroundStages`.
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
from parley.envs.core.errors import ClusterError, RefusedModelError


def fitting_runners(
    num_runners: int,
    learner: Mapping[str, float],
    session: RaySession,
    reporter: Reporter,
    wait_s: float = 0.0,
    gpus_per_runner: float = 0.0,
) -> int:
    """How many env runners there is room for beside the learner; says what is waited for or left out.

    Args:
        num_runners: how many are wanted, of a CPU each.
        learner: CPUs and GPUs ("CPU", "GPU") that learners reserve.
        session: that they are to fit.
        reporter: who looks on.
        wait_s: seconds to wait for a machine with room for the learner.
        gpus_per_runner: GPUs that each env runner reserves.

    Returns:
        `num_runners`, or fewer where the cluster has no room for all and never will.

    Raises:
        ClusterError: Ray would wait for ever: there is no room for the learner, or on this machine for the env runners.
    """
    import ray

    wanted = {"CPU": num_runners + learner["CPU"], "GPU": num_runners * gpus_per_runner + learner["GPU"]}
    deadline = time.monotonic() + wait_s
    while True:
        there = {name: ray.cluster_resources().get(name, 0) for name in wanted}
        if all(wanted[name] <= there[name] for name in wanted):
            return num_runners
        needs = f"{wanted['CPU']:g} CPUs and {wanted['GPU']:g} GPUs; in all there are {there['CPU']:g} and {there['GPU']:g}"
        if can_grow():
            reporter.say(f"env runners and learner need {needs}: waiting for machines to join the cluster")
            return num_runners
        room = int(there["CPU"] - learner["CPU"])
        if gpus_per_runner:
            room = min(room, int((there["GPU"] - learner["GPU"]) / gpus_per_runner))
        if not session.is_local and room >= 0 and learner["GPU"] <= there["GPU"]:
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


logger = logging.getLogger(__name__)
_CLOSING_S = 10.0
"""Seconds in which stages that were done side by side close their runs after an interruption."""
_UNFINISHED = 0.99
"""The largest share that a stage in an actor is told by until it is finished."""
_NAMED = 4
"""Stages side by side up to which all are named; of more, those under way."""
_MOST_WARNINGS = 5
"""Warnings of stages that the last screen shows."""
LOOK_S = 1.0
"""Seconds after which it is looked how far stages in actors are."""

Stage = tuple[Job[Any, Any, Any], Any]
"""A job and its configuration."""


class Composite(Job[ConfigT, PreparedT, FoundT]):
    """A job whose work is that of its stages."""

    @abstractmethod
    def stages(self, config: ConfigT, path: Path) -> Mapping[str, Stage]:
        """The stages by the names of their folders, in the order in which they are done.

        Args:
            config: what is asked for.
            path: the run's folder, as it was given; the stages name each other's folders below it.
        """

    def result(self, config: ConfigT, path: Path) -> Result:
        """Return what the run holds, with the warnings of its stages."""
        result = super().result(config, path)
        return replace(result, warnings=[*result.warnings, *_warnings_of_stages(path, result.chat_usage)])


def _warnings_of_stages(path: Path, usage: Mapping[str, Any]) -> list[str]:
    """Return what the stages below a run warn of: items that failed, and answers that the whole run does not warn of."""
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
    """Does what is left of each stage, one after the other.

    Args:
        stages: as `Composite.stages` gives them.
        path: the folder that theirs lie in.
        reporter: who looks on.
        before: called with the name of each before it is done.
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
    """Does what is left of each stage, all at the same time over one pool of actors; without workers one after the other.

    What a stage does alone is done in a thread of this process, its sharded work in the pool. So a slow stage holds up none but
    those that need it, and rows are those of stages done one after the other. One that fails leaves the others to their end.

    Args:
        stages: as `Composite.stages` gives them; their work is in shards, on one device.
        path: the folder that theirs lie in.
        reporter: who looks on.
        config: how many actors there are, and where.
        needs: names of other stages that must have come to their end before one begins.
        ahead: does some of those meanwhile. What needs one that it does not finish is left undone, without an error.

    Raises:
        RefusedModelError: a stage met it, which ends all of them.
        ParleyError: what the first of the stages that failed, in their order, says.
    """
    left = {name: stage for name, stage in stages.items() if not (path / name / SUMMARY).exists()}
    if ahead is None and (not config.workers or len(left) < 2):
        run_stages(stages, path, reporter)
        return
    run_stages({name: stage for name, stage in stages.items() if name not in left}, path, Silent())
    ended = {name: Event() for name in left}
    failed: dict[str, BaseException] = {}
    told, pool = JointProgress(reporter, [*left, *([] if ahead is None else ahead.names)]), SharedPool()

    def work(name: str) -> None:
        job, settings = left[name]
        try:
            waited = [other for other in needs.get(name, ()) if other in left]
            for other in waited:
                ended[other].wait()
            is_ready = ahead is None or all(ahead.has_done(other) for other in needs.get(name, ()) if other in ahead.names)
            if is_ready and not failed.keys() & set(waited):
                with working_in(pool):
                    job.run(settings, path / name, told.of(name))
                told.advance(name, DONE)
        except BaseException as error:  # raised below, by the thread that called
            failed[name] = error
        finally:
            ended[name].set()

    with session(config.workers, config.address) as here:
        if ahead is not None:
            Thread(target=ahead.follow, args=(told,), daemon=True).start()
        _serve(pool, work, ended, config.workers, here.start_timeout_s, config.gpus_per_worker)
    for name in left:
        if name in failed:
            raise failed[name]


def run_as_needed(
    planned: Callable[[], Mapping[str, Stage]],
    needs: Mapping[str, Collection[str]],
    path: Path,
    num_workers: int,
    reporter: Reporter,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Does what is left of stages, each whole in a Ray actor, as soon as those that it needs are finished.

    They are done ahead, as by `BackgroundStages`: what fails, and what needs it, is left to be done here, where errors are
    told. With room for fewer than two, all is done here, one stage after another.

    Args:
        planned: gives the stages, in an order in which each comes after those that it needs; asked anew for every stage, for
            what a finished one left may say what others are like.
        needs: names of stages that must be finished before one begins, by its name.
        path: the folder that theirs lie in.
        num_workers: actors at most.
        reporter: who looks on.
        after: called when a stage has been done, never twice at a time.
    """
    names = list(planned())
    left = [name for name in names if not (path / name / SUMMARY).exists()]
    if len(left) < len(names):
        reporter.say(f"{len(names) - len(left)} of {len(names)} stages are finished")
    if num_workers > 1 and len(left) > 1:
        try:
            with connect(num_cpus=max(num_workers, os.cpu_count() or 1)) as here:
                machine = driver_of_several()
                share = share_of([config for _, config in planned().values()], machine)
                if (number := num_at_once(share, here, min(num_workers, len(left)))) > 1:
                    _run_ahead(planned, left, needs, path, reserve(share, number), reporter, after, here.start_timeout_s)
        except ClusterError as error:
            # Such as a machine too busy to start actors in time; hours of work do not wait for somebody to read that.
            reporter.say(f"{error.what}; what is left is done in this process")
    for number, name in enumerate(names, start=1):
        is_left = not (path / name / SUMMARY).exists()
        if is_left:
            reporter.say(f"stage {number} of {len(names)}: {name}")
        job, config = planned()[name]
        # A finished stage looks whether it is; what is damaged or of other settings is told.
        job.run(config, path / name, reporter if is_left else Silent())
        if is_left:
            after()


def _run_ahead(
    planned: Callable[[], Mapping[str, Stage]],
    left: Sequence[str],
    needs: Mapping[str, Collection[str]],
    path: Path,
    places: Reserved,
    reporter: Reporter,
    after: Callable[[], None],
    start_timeout_s: float,
) -> None:
    """A thread for each stage waits for what it needs, hands it to the actors, and waits for its end."""
    ended = {name: Event() for name in left}
    told, pool, one_at_a_time, heard = JointProgress(reporter, left), SharedPool(), Lock(), StageProgress(ProgressBoard())

    def work(name: str) -> None:
        try:
            for other in needs.get(name, ()):
                if other in ended:
                    ended[other].wait()
            if all((path / other / SUMMARY).exists() for other in needs.get(name, ())):
                (job, config) = planned()[name]
                shards = make_shards({name: [(job, settings_of(config, places.share.machine), path / name)]}, 1)
                with working_in(pool):
                    arguments = WholeStages.arguments(heard.board)
                    run_sharded(WholeStages, arguments, shards, num_workers=1, on_result=lambda shard, result: None)
                if (path / name / SUMMARY).exists():
                    told.advance(name, DONE)
                    told.say(f"{name} is done")
                    with one_at_a_time:
                        after()
        except Exception:
            logger.warning("%s is not done ahead", name, exc_info=True)
        finally:
            ended[name].set()

    def follow() -> None:
        while not all(event.wait(LOOK_S) for event in ended.values()):
            told.hear(heard, left, path)

    Thread(target=follow, daemon=True).start()
    try:
        _serve(pool, work, ended, len(places.groups), start_timeout_s, places=places)
        # What the last ones said when they ended.
        told.hear(heard, left, path)
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
    """Does the work of each stage in a thread of its own, and serves them from the pool until all have ended."""
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
        # They close their runs; the pool has told them why it ended.
        until = time.monotonic() + _CLOSING_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


class JointProgress:
    """Tells of several stages as of one, whose units they are."""

    def __init__(self, reporter: Reporter, names: Sequence[str], title: str = "") -> None:
        self._reporter, self._lock = reporter, RLock()
        self._far = dict.fromkeys(names, ProgressState())
        shown = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} stages"
        reporter.stage(title or f"{shown} side by side", len(names), "stages")

    def of(self, name: str) -> Reporter:
        """Whom a stage tells."""
        return _OneOf(self, name)

    def hear(self, heard: StageProgress, names: Sequence[str], path: Path) -> None:
        """What some of them, which actors do, have told since the last time; theirs are the folders below a path."""
        with self._lock:
            for name in names:
                said, far = heard.news(name)
                for text in said:
                    self.say(f"{name}: {text}")
                if (path / name / SUMMARY).exists():
                    far = DONE
                elif far.share >= 1:
                    # Work of several lengths is done with one of them before it is finished.
                    far = replace(far, share=_UNFINISHED)
                if far != self._far[name]:
                    self.advance(name, far)

    def say(self, text: str) -> None:
        """A line of one of them."""
        with self._lock:
            self._reporter.say(text)

    def advance(self, name: str, far: ProgressState) -> None:
        """How far one of them is; what is done of one of several lengths is shown and not counted."""
        with self._lock:
            self._far[name] = replace(far)
            under_way = [
                " ".join(filter(None, (one, each.part, f"{each.share:.0%}")))
                for one, each in self._far.items()
                if 0 < each.share < 1
            ]
            self._reporter.advance(sum(each.share for each in self._far.values() if not each.part), ", ".join(under_way))


class _OneOf:
    """The reporter of a stage among several."""

    def __init__(self, together: JointProgress, name: str) -> None:
        self._together, self._name, self._far = together, name, ProgressState()

    def stage(self, title: str, total: int, unit: str) -> None:
        """A length of its work."""
        self._far.begin(title, total)

    def advance(self, done: float, note: str = "") -> None:
        """Tells how far it is."""
        self._far.advance(done)
        self._together.advance(self._name, self._far)

    def say(self, text: str) -> None:
        """With the stage's name before it."""
        self._together.say(f"{self._name}: {text}")


class BackgroundStages:
    """Stages that Ray actors do while this process does others.

    They are only done ahead: what fails there, or is lost with an actor, is left to be done here, where errors are told. So is
    all of it where there is too little room.

    Args:
        chains: stages by the names of their folders; those of a chain are done one after another, in this order, and chains
            are begun in theirs. Stages that are finished are left out.
        path: the folder of their runs.
        num_workers: actors at most; with 0 nothing is done ahead.
        num_cpus: logical CPUs of the Ray session where none is there yet; this machine has as many at least.
        address: of a Ray cluster.
        least: actors that there must be room for, or nothing is done ahead.
        spare: what is to be left for what this process does meanwhile.

    Attributes:
        num_asked: actors that there is something to do for.
        num_actors: those that there is room for; 0 where nothing is done ahead.
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
        left = [{name: one for name, one in chain.items() if not (path / name / SUMMARY).exists()} for chain in chains]
        self._chains, self._path, self._address = [chain for chain in left if chain], path, address
        self.num_asked, self.num_actors = min(num_workers, len(self._chains)), 0
        self._num_cpus = max(num_cpus, 2, os.cpu_count() or 1)
        self._least, self._spare = least, spare
        self._heard = StageProgress(ProgressBoard())
        self._session = ExitStack()
        self._refused: RefusedModelError | None = None
        self._thread: Thread | None = None

    @property
    def names(self) -> list[str]:
        """The stages that were not finished before."""
        return [name for chain in self._chains for name in chain]

    def __enter__(self) -> BackgroundStages:
        if self.num_asked >= self._least:
            here = self._session.enter_context(connect(self._address or None, num_cpus=self._num_cpus))
            machine = driver_of_several()
            share = share_of([config for chain in self._chains for _, config in chain.values()], machine)
            number = num_at_once(share, here, self.num_asked, self._spare)
            if number >= self._least:
                self.num_actors = number
                # Reserved before anything else of this process is, which may then wait for what is left.
                places = reserve(share, number)
                # Were it waited for when this process is interrupted, that would take as long as its stages.
                self._thread = Thread(target=self._work, args=(places,), daemon=True)
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def has_done_all(self) -> bool:
        """Whether there was something to do ahead, and all of it is done."""
        return bool(self._chains) and all(map(self._is_done, self.names))

    def has_done(self, name: str) -> bool:
        """Whether a stage is finished, once it is or all have been tried."""
        while self._thread is not None and self._thread.is_alive() and not self._is_done(name):
            self._thread.join(LOOK_S)
        return self._is_done(name)

    def follow(self, told: JointProgress) -> None:
        """Tells how far the stages are until all have been tried."""
        while self._thread is not None and self._thread.is_alive():
            told.hear(self._heard, self.names, self._path)
            self._thread.join(LOOK_S)
        told.hear(self._heard, self.names, self._path)

    def wait(self, reporter: Reporter, title: str = "what was begun beside") -> None:
        """Waits until all has been tried.

        Raises:
            RefusedModelError: a stage met it, so that asking again here is of no use.
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
        arguments, number = WholeStages.arguments(self._heard.board), len(places.groups)
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
