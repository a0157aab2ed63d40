"""Trainings that are made several times, each from a seed of its own: `--seeds N`.

One training is one draw. Each of several is a run of its own below the run's folder and resumes by itself; the figures are the
means over them, with intervals over trainings and dialogues, and the run's checkpoint is that of the best, so that the run can
be named wherever one training can. The first has the master seed itself: it is the training that one seed makes.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from engine.jobs.composite import Beside, Stage, run_stages
from engine.jobs.job import FoundT, Job, PreparedT, Reporter, Result, Silent, Summary
from engine.metrics.repeats import TRAININGS, bounded, over_runs, spread_of, spread_table
from engine.metrics.statistics import Estimate, Metric, count
from engine.store.run_folder import RunFolder
from envs.core.config import to_dict, with_values
from envs.core.ranges import Configuration, NonNegativeInt, NumSeeds
from envs.core.seeds import derive_seed

TRAINING = "training"
"""What the folder of a training is called, before its number."""
_ALONE = {"trainers": 0, "workers": 0, "address": ""}
"""Settings of a training that is made beside others, in one process."""
_ACTORS = ("env_runners", "num_learner_actors", "learner_gpus", "gpus_per_worker")
"""Settings that ask for actors or devices of a training's own, with which it is not made beside others."""


@dataclass(frozen=True, kw_only=True)
class RepeatedConfig(Configuration):
    """How often something is trained."""

    seeds: NumSeeds = 1
    """Trainings, each from a seed of its own; with several, figures are means over them and intervals are over them too."""
    trainers: NonNegativeInt = 0
    """Ray actors on this machine that make trainings side by side; 0 makes one after another in this process."""


RepeatedT = TypeVar("RepeatedT", bound=RepeatedConfig)


def nth_seed(seed: int, number: int, stream: str = TRAINING) -> int:
    """The seed of a training: the master seed of the first, numbered from 1."""
    return seed if number == 1 else derive_seed(seed, stream, number)


def nth_name(name: str, number: int) -> str:
    """What a stage of a training is called: that of the first has no number."""
    return name if number == 1 else f"{name}-{number}"


def in_one_process(config: Any) -> Any | None:
    """A training's settings as it is made beside others; None where it asks for actors or devices of its own."""
    if any(getattr(config, name, 0) for name in _ACTORS):
        return None
    return replace(config, **{name: value for name, value in _ALONE.items() if hasattr(config, name)})


def at_once(num_workers: int, num_chains: int) -> int:
    """How many of the actors that are asked for have a training and a processor each; two are made on any machine."""
    return min(num_workers, num_chains, max(2, os.cpu_count() or 1)) if num_chains > 1 else 0


def run_beside(
    stages: Mapping[str, Stage], chains: Sequence[Sequence[str]], path: Path, num_workers: int, reporter: Reporter, title: str
) -> None:
    """Does what is left of some stages, chains of them side by side.

    Args:
        stages: by the names of their folders, in the order in which one process does them.
        chains: names of stages that need nothing of another chain's.
        path: the folder that theirs lie in.
        num_workers: actors on this machine that do chains, at most; with 0, or a single chain, all is done here.
        reporter: who looks on.
        title: what it is shown while actors work.
    """
    alone = [{name: (stages[name][0], in_one_process(stages[name][1])) for name in chain} for chain in chains]
    ready = [chain for chain in alone if all(config is not None for _, config in chain.values())]
    num_actors = at_once(num_workers, len(ready))
    if num_actors < min(num_workers, len(ready)):
        reporter.say(f"{num_actors} of {len(ready)} at a time: this machine has {os.cpu_count()} processors")
    with Beside(ready, path, num_actors) as beside:
        beside.wait(reporter, title)
    # What was shown as it was done need not be told to be finished.
    run_stages(stages, path, Silent() if beside.has_done_all else reporter)


class RepeatedJob(Job[RepeatedT, PreparedT, FoundT]):
    """A job that trains, once or several times."""

    @abstractmethod
    def loss(self, run: RunFolder) -> float:
        """By what the best of several finished trainings is told, which has the least."""

    @abstractmethod
    def keep(self, best: Path, run: RunFolder) -> None:
        """Stores what the best training left, as its own run did."""

    def run(self, config: RepeatedT, path: Path, reporter: Reporter) -> Result:
        """As any job; several trainings as stages."""
        return super().run(config, path, reporter) if config.seeds == 1 else _Trainings(self).run(config, path, reporter)

    def present(self, result: Result, run: RunFolder) -> Result:
        """Of several trainings with what each came to."""
        values = spread_of(run.summary() or {})
        return replace(result, tables={"": spread_table(values, result.metrics, self.legend)}) if values else result


class _Trainings(Job[RepeatedT, RepeatedT, RepeatedT]):
    """Several trainings of a job, as a run of that job.

    Args:
        job: whose facts it has.
    """

    def __init__(self, job: RepeatedJob[RepeatedT, Any, Any]) -> None:
        self.job = job
        for fact in ("words", "run_name", "config", "presets", "argument", "repeatable", "legend", "files", "resume_safe"):
            setattr(self, fact, getattr(job, fact))

    def stages(self, config: RepeatedT, path: Path) -> dict[str, Stage]:
        """The trainings."""
        seed = to_dict(config)["seed"]
        return {
            f"{TRAINING}-{number}": (self.job, with_values(config, {"seeds": 1, "seed": nth_seed(seed, number)}, self.name))
            for number in range(1, config.seeds + 1)
        }

    def models(self, config: RepeatedT) -> Mapping[str, str]:
        return self.job.models(config)

    def prepare(self, config: RepeatedT, path: Path, reporter: Reporter) -> RepeatedT:
        """Finds and checks what a training needs."""
        self.job.prepare(config, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: RepeatedT, reporter: Reporter) -> RepeatedT:
        """Makes what is left of the trainings, and stores what the best of them left."""
        planned = self.stages(prepared, run.path)
        run_beside(planned, [[name] for name in planned], run.path, prepared.trainers, reporter, "trainings")
        self.job.keep(run.path / self._best(prepared, run), run)
        return prepared

    def measure(self, run: RunFolder, found: RepeatedT) -> Summary:
        """The means over trainings, and what each came to."""
        runs = [RunFolder.load(run.path / name) for name in self.stages(found, run.path)]
        each = [one.metrics() for one in runs]
        values = {name: [metrics[name].value if name in metrics else math.nan for metrics in each] for name in each[0]}
        means = {name: _over(several, self.legend.get(name)) for name, several in values.items()}
        best = self._best(found, run)
        return Summary(
            (runs[0].summary() or {}).get("title", ""),
            f"{len(runs)} trainings, each from a seed of its own; the checkpoint is that of {best}, the figures are of all.",
            means,
            {TRAININGS: {name: [count(value, 1).to_json()["value"] for value in several] for name, several in values.items()}},
        )

    def present(self, result: Result, run: RunFolder) -> Result:
        return self.job.present(result, run)

    def next_commands(self, config: RepeatedT, path: Path) -> tuple[str, ...]:
        return self.job.next_commands(config, path)

    def _best(self, config: RepeatedT, run: RunFolder) -> str:
        names = list(self.stages(config, run.path))
        return min(names, key=lambda name: self.job.loss(RunFolder.load(run.path / name)))


def _over(values: Sequence[float], metric: Metric | None) -> Estimate:
    """The figure over trainings; what is counted alike in all of them has no interval."""
    if metric is not None and metric.form == "count" and len(set(values)) == 1:
        return count(values[0], len(values))
    return bounded(over_runs(values), metric)
