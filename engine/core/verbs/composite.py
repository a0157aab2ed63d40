"""Jobs that are made of other jobs: each stage is a run of its own below the run's folder, and resumes by itself.

Stages that need nothing of each other may be done side by side: whole ones in Ray actors (`Beside`, and `run_as_needed` where
some need others; `whole.py`), those whose work is in shards over one pool of actors (`run_side_by_side`).
"""

from __future__ import annotations

import logging
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, RLock, Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parley.engine.core.ray.pool import run_sharded, working_in
from parley.engine.core.ray.progress_board import Board
from parley.engine.core.ray.session import connect
from parley.engine.core.ray.sharding import make_shards
from parley.engine.core.ray.shared_pool import SharedPool
from parley.engine.core.ray.shares import Reserved, reserve
from parley.engine.core.runs.layout import CONFIG, SUMMARY
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
    HowFar,
    StageNews,
    WholeStages,
    driver_of_several,
    num_at_once,
    settings_of,
    share_of,
)
from parley.envs.core.errors import ClusterError

if TYPE_CHECKING:
    from parley.engine.core.verbs.background_stages import Beside

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
    ahead: Beside | None = None,
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
    told, pool = Together(reporter, [*left, *([] if ahead is None else ahead.names)]), SharedPool()

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

    They are done ahead, as by `Beside`: what fails, and what needs it, is left to be done here, where errors are told. With
    room for fewer than two, all is done here, one stage after another.

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
    told, pool, one_at_a_time, heard = Together(reporter, left), SharedPool(), Lock(), StageNews(Board())

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


class Together:
    """Tells of several stages as of one, whose units they are."""

    def __init__(self, reporter: Reporter, names: Sequence[str], title: str = "") -> None:
        self._reporter, self._lock = reporter, RLock()
        self._far = dict.fromkeys(names, HowFar())
        shown = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} stages"
        reporter.stage(title or f"{shown} side by side", len(names), "stages")

    def of(self, name: str) -> Reporter:
        """Whom a stage tells."""
        return _OneOf(self, name)

    def hear(self, heard: StageNews, names: Sequence[str], path: Path) -> None:
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

    def advance(self, name: str, far: HowFar) -> None:
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

    def __init__(self, together: Together, name: str) -> None:
        self._together, self._name, self._far = together, name, HowFar()

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
