"""Trainings that are repeated, each from a seed of its own: `--seeds N`.

One training is one draw. Each of several trainings is a run of its own below the run's folder and resumes by itself. The
figures are means over trainings, with intervals over trainings and dialogues. The run's checkpoint is that of the best
training, so the run can be named wherever one training can. The first training has the master seed itself.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate, Metric, count
from parley.engine.core.stats.trainings import TRAININGS, over_runs, spread_of, spread_table
from parley.engine.core.verbs.composite import Stage, run_stages
from parley.engine.core.verbs.job import FoundT, Job, PreparedT, Reporter, Result, Summary
from parley.envs.core.config import Configuration, NonNegativeInt, NumSeeds, to_dict, with_values
from parley.envs.core.seeds import derive_seed

TRAINING = "training"
"""The name of a training's folder, before its number."""


@dataclass(frozen=True, kw_only=True)
class RepeatedConfig(Configuration):
    """Settings of repeated training."""

    seeds: NumSeeds = 1
    """Trainings, each from a seed of its own; with several, figures are means over them and intervals are over them too."""
    trainers: NonNegativeInt = 0
    """Ray actors that run trainings at the same time, each with its own learner and env runners, as many as there is room for;
    0 runs one after another in this process."""


RepeatedT = TypeVar("RepeatedT", bound=RepeatedConfig)


def nth_seed(seed: int, number: int, stream: str = TRAINING) -> int:
    """Return the seed of a training, numbered from 1; the first has the master seed."""
    return seed if number == 1 else derive_seed(seed, stream, number)


def nth_name(name: str, number: int) -> str:
    """Return the name of a stage of a training; that of the first has no number."""
    return name if number == 1 else f"{name}-{number}"


class RepeatedJob(Job[RepeatedT, PreparedT, FoundT]):
    """A job that trains, once or several times."""

    @abstractmethod
    def loss(self, run: RunFolder) -> float:
        """Return the loss of a finished training; the best of several has the smallest."""

    @abstractmethod
    def keep(self, best: Path, run: RunFolder) -> None:
        """Store the files of the best training, as its own run did."""

    def run(self, config: RepeatedT, path: Path, reporter: Reporter) -> Result:
        return super().run(config, path, reporter) if config.seeds == 1 else _Trainings(self).run(config, path, reporter)

    def present(self, result: Result, run: RunFolder) -> Result:
        values = spread_of(run.summary() or {})
        return replace(result, tables={"": spread_table(values, result.metrics, self.legend)}) if values else result


class _Trainings(Job[RepeatedT, RepeatedT, RepeatedT]):
    """Several trainings of a job, as one run of that job.

    Args:
        job: the job, whose facts this one copies.
    """

    def __init__(self, job: RepeatedJob[RepeatedT, Any, Any]) -> None:
        self.job = job
        for fact in ("words", "run_name", "config", "presets", "argument", "repeatable", "legend", "files", "resume_safe"):
            setattr(self, fact, getattr(job, fact))

    def stages(self, config: RepeatedT, path: Path) -> dict[str, Stage]:
        seed = to_dict(config)["seed"]
        return {
            f"{TRAINING}-{number}": (self.job, with_values(config, {"seeds": 1, "seed": nth_seed(seed, number)}, self.name))
            for number in range(1, config.seeds + 1)
        }

    def models(self, config: RepeatedT) -> Mapping[str, str]:
        return self.job.models(config)

    def prepare(self, config: RepeatedT, path: Path, reporter: Reporter) -> RepeatedT:
        self.job.prepare(config, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: RepeatedT, reporter: Reporter) -> RepeatedT:
        planned = self.stages(prepared, run.path)
        address = getattr(prepared, "address", "")
        run_stages(planned, run.path, reporter, needs={}, most=prepared.trainers, address=address, title="trainings")
        self.job.keep(run.path / self._best(prepared, run), run)
        return prepared

    def measure(self, run: RunFolder, result: RepeatedT) -> Summary:
        runs = [RunFolder.load(run.path / name) for name in self.stages(result, run.path)]
        metrics_of_runs = [training.metrics() for training in runs]
        values = {
            name: [metrics[name].value if name in metrics else math.nan for metrics in metrics_of_runs]
            for name in metrics_of_runs[0]
        }
        means = {name: _mean_over_runs(several, self.legend.get(name)) for name, several in values.items()}
        best = self._best(result, run)
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


def _mean_over_runs(values: Sequence[float], metric: Metric | None) -> Estimate:
    """Return the estimate over trainings; a count that is equal in all has no interval."""
    if metric is not None and metric.form == "count" and len(set(values)) == 1:
        return count(values[0], len(values))
    return over_runs(values, metric)
