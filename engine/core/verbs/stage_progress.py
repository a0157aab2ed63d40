"""Whole stages in Ray actors: their settings and reservations there, and how they report progress to the driver.

On one machine a stage learns inside its actor. On a cluster the actor is on the driver's machine, which has the run's folder,
the models and the corpus, but maybe no CPUs for work. Learner, env runners and workers are then further actors, on any machine
with room. The results are the same.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from threading import RLock
from typing import Any

from parley.engine.core.ray import logs
from parley.engine.core.ray.identity import require
from parley.engine.core.ray.logs import LogSettings
from parley.engine.core.ray.ray_internals import ProgressBoard
from parley.engine.core.ray.session import RaySession, can_grow
from parley.engine.core.ray.shares import NOTHING, Share, num_fitting
from parley.engine.core.ray.worker import ShardFailure, failure, machines_up
from parley.engine.core.verbs.job import Job, Reporter
from parley.envs.core.errors import ParleyError

_REPORT_S = 1.0
"""Seconds between two progress reports of a stage."""
_MAX_MESSAGES = 20
"""Number of latest messages that a stage keeps for the driver, which looks each second."""
_UNFINISHED = 0.99
"""The largest share that is reported for a stage before it is finished."""
_MAX_NAMED = 4
"""Number of stages up to which the progress names all; of more, it names those under way."""


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


class StageRunner:
    """The actor that runs whole stages.

    Args:
        board: the board for progress reports.
        folder: the driver's working folder.
        identity: the driver's identity.
        log_settings: how the driver logs.
    """

    def __init__(self, board: ProgressBoard, folder: Path, identity: Mapping[str, str], log_settings: LogSettings) -> None:
        os.chdir(folder)
        logs.follow(log_settings)
        self._board, self._identity = board, identity

    def run(self, job: Job[Any, Any, Any], config: Any, path: Path) -> ShardFailure | None:
        """Run a stage and return its error, which the driver reports.

        Args:
            job: the stage's job.
            config: its configuration here.
            path: the folder of its run.
        """
        reporter = StageReporter(partial(self._board.put, path.name), _REPORT_S)
        try:
            require(self._identity)
            job.run(config, path, reporter)
        except (Exception, SystemExit) as error:
            if isinstance(error, ParleyError):
                reporter.say(f"it ends with an error: {error.what}")
            return failure(error)
        return None


class StageReporter:
    """The reporter of one stage among several: it publishes the progress and the newest messages, as JSON.

    Args:
        publish: takes a report.
        every_s: seconds between two reports of progress; a message is published at once.
    """

    def __init__(self, publish: Callable[[str], None], every_s: float = 0.0) -> None:
        self._publish, self._every_s, self._published_at = publish, every_s, -math.inf
        self._share, self._part, self._total = 0.0, "", 0
        self._messages: list[str] = []

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begin a part; after the first part the number of parts is unknown. A part without units does not count."""
        if total:
            self._share, self._part, self._total = 0.0, title if self._total else "", total

    def advance(self, done: float, note: str = "") -> None:
        """Publish the progress, if it is time."""
        self._share = done / max(self._total, 1)
        if time.monotonic() >= self._published_at + self._every_s:
            self._put()

    def say(self, text: str) -> None:
        """Publish a message at once."""
        self._messages.append(text)
        self._put()

    def _put(self) -> None:
        self._published_at = time.monotonic()
        messages = {"num": len(self._messages), "said": self._messages[-_MAX_MESSAGES:]}
        self._publish(json.dumps({"share": self._share, "part": self._part, **messages}))


class JointProgress:
    """Progress of several stages as one, with stages as units."""

    def __init__(self, reporter: Reporter, names: Sequence[str], title: str = "") -> None:
        self._reporter, self._lock = reporter, RLock()
        self._progress = dict.fromkeys(names, (0.0, ""))
        self._num = Counter[str]()
        shown = ", ".join(names) if len(names) <= _MAX_NAMED else f"{len(names)} stages"
        reporter.stage(title or f"{shown} side by side", len(names), "stages")

    def of(self, name: str) -> Reporter:
        """Return the reporter of a stage in this process."""
        return StageReporter(partial(self.take, name))

    def take(self, name: str, report: str, is_done: bool = False) -> None:
        """Report the new messages and the progress of a stage; a part of several parts is shown and not counted.

        Args:
            name: the stage.
            report: its newest report; empty before the first.
            is_done: whether it is finished.
        """
        with self._lock:
            known: dict[str, Any] = json.loads(report) if report else {"share": 0.0, "part": "", "num": 0, "said": []}
            # A process that replaces a dead one starts with an empty list.
            num_new = known["num"] - min(self._num[name], known["num"])
            self._num[name] = known["num"]
            for text in known["said"][-num_new:] if num_new else []:
                self._reporter.say(f"{name}: {text}")
            # A stage with several parts reaches the end of one before it is finished.
            progress = (1.0, "") if is_done else (min(known["share"], _UNFINISHED), known["part"])
            if progress == self._progress[name]:
                return
            self._progress[name] = progress
            under_way = [
                " ".join(filter(None, (stage, part, f"{share:.0%}")))
                for stage, (share, part) in self._progress.items()
                if 0 < share < 1
            ]
            num_done = sum(share for share, part in self._progress.values() if not part)
            self._reporter.advance(num_done, ", ".join(under_way))
