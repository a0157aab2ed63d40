"""Whole stages in Ray actors: their settings and reservations there, and how they report progress to the driver.

On one machine a stage learns inside its actor. On a cluster the actor is on the driver's machine, which has the run's folder,
the models and the corpus, but maybe no CPUs for work. Learner, env runners and workers are then further actors, on any machine
with room. The results are the same.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from parley.engine.core.ray.record import ProgressBoard
from parley.engine.core.ray.session import RaySession, can_grow
from parley.engine.core.ray.shares import NOTHING, Share, num_fitting
from parley.engine.core.ray.worker import Shard, machines_up
from parley.engine.core.verbs.job import Job
from parley.envs.core.errors import ParleyError

_REPORT_S = 1.0
"""Seconds between two progress reports of a stage."""
_MAX_MESSAGES = 20
"""Number of latest messages that a stage keeps for the driver, which looks each second."""
_VARIABLE_PREFIX = "PARLEY_"
"""Prefix of the environment variables that say where things lie."""


def settings_of(config: Any, machine: str) -> Any:
    """Return the settings of a stage that runs in an actor.

    Args:
        config: the settings as asked for.
        machine: the driver's node in a cluster; empty if there is no other machine.
    """
    changes: dict[str, Any] = {"trainers": 0, "workers": 0, "address": ""}
    if machine:
        runners = max(1, getattr(config, "env_runners", 0))
        changes |= {"workers": runners}
        changes |= {"remote_learner": True, "env_runners": runners} if hasattr(config, "remote_learner") else {}
    return replace(config, **{name: value for name, value in changes.items() if hasattr(config, name)})


def share_of(configs: Iterable[Any], machine: str) -> Share:
    """Return the resources that an actor reserves to run any of some stages.

    Args:
        configs: settings of the stages, as asked for.
        machine: as in `settings_of`.
    """
    share = reduce(or_, (_share(settings_of(config, machine), machine) for config in configs))
    # A stage of one process, such as a fit, runs on the driver's machine, as it does without actors.
    return replace(share, own=(0.0, share.own[1])) if machine and share.others else share


def _share(config: Any, machine: str) -> Share:
    """Return the share of one stage: its actor, learners, and env runners or workers, which take turns."""
    workers, learners = getattr(config, "workers", 0), getattr(config, "num_learner_actors", 0)
    learner_gpus, playing_gpus = getattr(config, "learner_gpus", 0.0), getattr(config, "gpus_per_worker", 0.0)
    learner = (float(getattr(config, "threads", 1)), learner_gpus)
    runner = (1.0, max(getattr(config, "runner_gpus", 0.0), playing_gpus))
    other_actors = [learner] * learners + [runner] * max(getattr(config, "env_runners", 0), workers)
    own_gpus = max(0.0 if learners else learner_gpus, 0.0 if workers else playing_gpus)
    return Share((1.0, own_gpus), tuple(other_actors), machine)


def driver_of_several() -> str:
    """Return this process's node if the session has several machines; empty otherwise."""
    import ray

    return ray.get_runtime_context().get_node_id() if len(machines_up()) > 1 else ""


def num_at_once(share: Share, here: RaySession, most: int, spare: Share = NOTHING) -> int:
    """Return the number of actors with this share that fit on the session's machines; one machine counts its processors.

    Args:
        share: resources of each actor.
        here: the session.
        most: number of actors wanted.
        spare: resources to leave for others.
    """
    import ray

    nodes = ray.nodes()
    if here.is_local:
        num_cpus = min(nodes[0]["Resources"].get("CPU", 0), max(2, os.cpu_count() or 1))
        nodes = [{**nodes[0], "Resources": {**nodes[0]["Resources"], "CPU": num_cpus}}]
    return most if can_grow() else num_fitting(share, nodes, most, spare)


class WholeStages:
    """The worker that runs whole stages.

    Args:
        folder: the working folder.
        variables: environment variables of the driver that say where things lie; those of a cluster machine differ.
        board: the board for progress reports.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], board: ProgressBoard) -> None:
        os.chdir(folder)
        os.environ.update(variables)
        self._board = board

    def run(self, shard: Shard[list[tuple[Job[Any, Any, Any], Any, Path]]]) -> None:
        """Run the stages of a chain, one after another."""
        for chain in shard.items:
            for job, config, path in chain:
                reporter = _StageReporter(self._board, path.name)
                try:
                    job.run(config, path, reporter)
                except ParleyError as error:
                    reporter.say(f"it ends with an error: {error.what}")
                    raise

    @classmethod
    def arguments(cls, board: ProgressBoard) -> tuple[Any, ...]:
        """Return the constructor's arguments for a worker on this machine."""
        return Path.cwd(), {name: value for name, value in os.environ.items() if name.startswith(_VARIABLE_PREFIX)}, board


@dataclass
class ProgressState:
    """Progress of a stage, from its reports.

    Attributes:
        share: finished share of the present part.
        part: name of the part; empty if it is the whole stage, as far as known.
    """

    share: float = 0.0
    part: str = ""
    _total: int = 1
    _has_begun: bool = False

    def begin(self, title: str, total: int) -> None:
        """Begin a part; after the first part the number of parts is unknown. A part without units does not count."""
        if not total:
            return
        self.share, self.part, self._total = 0.0, title if self._has_begun else "", total
        self._has_begun = True

    def advance(self, done: float) -> None:
        """Set the number of finished units of the part."""
        self.share = done / self._total


DONE = ProgressState(1.0)
"""The state of a finished stage."""


class _StageReporter:
    """The reporter of a stage inside an actor."""

    def __init__(self, board: ProgressBoard, name: str) -> None:
        self._board, self._name = board, name
        self._far, self._put_at = ProgressState(), 0.0
        self._messages: list[str] = []

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begin a part of the stage."""
        self._far.begin(title, total)

    def advance(self, done: float, note: str = "") -> None:
        """Publish the progress, at most once a second."""
        self._far.advance(done)
        if time.monotonic() - self._put_at > _REPORT_S:
            self._put()

    def say(self, text: str) -> None:
        """Publish a message at once."""
        self._messages.append(text)
        self._put()

    def _put(self) -> None:
        self._put_at = time.monotonic()
        report = {
            "share": self._far.share,
            "part": self._far.part,
            "num": len(self._messages),
            "said": self._messages[-_MAX_MESSAGES:],
        }
        self._board.put(self._name, json.dumps(report))


class StageProgress:
    """Progress reports of stages in actors, as the driver reads them.

    Args:
        board: the board on which they publish.
    """

    def __init__(self, board: ProgressBoard) -> None:
        self.board = board
        self._num: dict[str, int] = {}

    def news(self, name: str) -> tuple[list[str], ProgressState]:
        """Return new messages of a stage since the last call, and its progress."""
        line = self.board.line(name)
        report: dict[str, Any] = json.loads(line) if line else {"share": 0.0, "part": "", "num": 0, "said": []}
        # An actor that replaces a dead one starts with an empty list.
        new = report["num"] - min(self._num.get(name, 0), report["num"])
        self._num[name] = report["num"]
        return report["said"][-new:] if new else [], ProgressState(report["share"], report["part"])
