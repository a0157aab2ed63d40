"""Stages that actors do whole: their settings there, what they reserve, and how they tell what they are at.

On one machine such a stage learns in its actor. On a cluster the actor is on the driver's machine, which has the run's folder,
the models and the corpus, and may have no CPUs for work; learner, env runners and workers are actors of its own, on whatever
machine has room. What comes out is the same.
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

_TELL_S = 1.0
"""Seconds between two texts of how far a stage is."""
_KEPT = 20
"""Lines of a stage that are kept for the driver, which looks each second."""
_OURS = "PARLEY_"
"""Begins the names of variables by which this process was told where things lie."""


def settings_of(config: Any, machine: str) -> Any:
    """A stage's settings as an actor does it.

    Args:
        config: as they were asked for.
        machine: the driver's of a cluster; empty where there is no other.
    """
    changes: dict[str, Any] = {"trainers": 0, "workers": 0, "address": ""}
    if machine:
        runners = max(1, getattr(config, "env_runners", 0))
        changes |= {"workers": runners}
        changes |= {"remote_learner": True, "env_runners": runners} if hasattr(config, "remote_learner") else {}
    return replace(config, **{name: value for name, value in changes.items() if hasattr(config, name)})


def share_of(configs: Iterable[Any], machine: str) -> Share:
    """What an actor reserves that does any of some stages.

    Args:
        configs: their settings, as they were asked for.
        machine: as in `settings_of`.
    """
    share = reduce(or_, (_share(settings_of(config, machine), machine) for config in configs))
    # A stage of one process, such as a fit, is done on the driver's machine, as it is without actors.
    return replace(share, own=(0.0, share.own[1])) if machine and share.others else share


def _share(config: Any, machine: str) -> Share:
    """Of one: its actor, learners of their own, and env runners or workers, which take turns."""
    workers, learners = getattr(config, "workers", 0), getattr(config, "num_learner_actors", 0)
    learner_gpus, playing_gpus = getattr(config, "learner_gpus", 0.0), getattr(config, "gpus_per_worker", 0.0)
    learner = (float(getattr(config, "threads", 1)), learner_gpus)
    runner = (1.0, max(getattr(config, "runner_gpus", 0.0), playing_gpus))
    others = [learner] * learners + [runner] * max(getattr(config, "env_runners", 0), workers)
    own_gpus = max(0.0 if learners else learner_gpus, 0.0 if workers else playing_gpus)
    return Share((1.0, own_gpus), tuple(others), machine)


def driver_of_several() -> str:
    """This process' machine where the session has others too; empty where it has none."""
    import ray

    return ray.get_runtime_context().get_node_id() if len(machines_up()) > 1 else ""


def num_at_once(share: Share, here: RaySession, most: int, spare: Share = NOTHING) -> int:
    """How many actors of a share the session's machines hold beside another; one machine by its processors.

    Args:
        share: of each.
        here: the session.
        most: how many are wanted.
        spare: what is to be left for others.
    """
    import ray

    nodes = ray.nodes()
    if here.is_local:
        num_cpus = min(nodes[0]["Resources"].get("CPU", 0), max(2, os.cpu_count() or 1))
        nodes = [{**nodes[0], "Resources": {**nodes[0]["Resources"], "CPU": num_cpus}}]
    return most if can_grow() else num_fitting(share, nodes, most, spare)


class WholeStages:
    """The worker that does stages.

    Args:
        folder: which relative paths are relative to.
        variables: of the driver's process, that say where things lie; a cluster's own have others.
        board: where it says how far they are.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str], board: ProgressBoard) -> None:
        os.chdir(folder)
        os.environ.update(variables)
        self._board = board

    def run(self, shard: Shard[list[tuple[Job[Any, Any, Any], Any, Path]]]) -> None:
        """Does the stages of a chain, one after another."""
        for chain in shard.items:
            for job, config, path in chain:
                told = _StageReporter(self._board, path.name)
                try:
                    job.run(config, path, told)
                except ParleyError as error:
                    told.say(f"it ends with an error: {error.what}")
                    raise

    @classmethod
    def arguments(cls, board: ProgressBoard) -> tuple[Any, ...]:
        """Its arguments, for a worker on this machine."""
        return Path.cwd(), {name: value for name, value in os.environ.items() if name.startswith(_OURS)}, board


@dataclass
class ProgressState:
    """How far a stage is, by what it tells.

    Attributes:
        share: of what it is at.
        part: what that is; empty where it is the whole stage, as far as is known.
    """

    share: float = 0.0
    part: str = ""
    _total: int = 1
    _has_begun: bool = False

    def begin(self, title: str, total: int) -> None:
        """A length of work begins; after the first one nobody knows how many there are. One that counts nothing is none."""
        if not total:
            return
        self.share, self.part, self._total = 0.0, title if self._has_begun else "", total
        self._has_begun = True

    def advance(self, done: float) -> None:
        """So many units of that length are done."""
        self.share = done / self._total


DONE = ProgressState(1.0)
"""Of a stage that is finished."""


class _StageReporter:
    """The reporter of a stage in an actor."""

    def __init__(self, board: ProgressBoard, name: str) -> None:
        self._board, self._name = board, name
        self._far, self._put_at = ProgressState(), 0.0
        self._said: list[str] = []

    def stage(self, title: str, total: int, unit: str) -> None:
        """A length of its work."""
        self._far.begin(title, total)

    def advance(self, done: float, note: str = "") -> None:
        """Puts up its share, now and then."""
        self._far.advance(done)
        if time.monotonic() - self._put_at > _TELL_S:
            self._put()

    def say(self, text: str) -> None:
        """Puts up the line, at once."""
        self._said.append(text)
        self._put()

    def _put(self) -> None:
        self._put_at = time.monotonic()
        told = {"share": self._far.share, "part": self._far.part, "num": len(self._said), "said": self._said[-_KEPT:]}
        self._board.put(self._name, json.dumps(told))


class StageProgress:
    """What stages in actors tell, for the driver.

    Args:
        board: where they put it.
    """

    def __init__(self, board: ProgressBoard) -> None:
        self.board = board
        self._num: dict[str, int] = {}

    def news(self, name: str) -> tuple[list[str], ProgressState]:
        """The lines that a stage has said since it was last asked, and how far it is."""
        line = self.board.line(name)
        told: dict[str, Any] = json.loads(line) if line else {"share": 0.0, "part": "", "num": 0, "said": []}
        # An actor that has died begins anew.
        new = told["num"] - min(self._num.get(name, 0), told["num"])
        self._num[name] = told["num"]
        return told["said"][-new:] if new else [], ProgressState(told["share"], told["part"])
