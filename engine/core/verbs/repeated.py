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
from parley.engine.core.verbs.composite import BackgroundStages, Stage
from parley.engine.core.verbs.job import FoundT, Job, PreparedT, Reporter, Result, Silent, Summary
from parley.envs.core.config import Configuration, NonNegativeInt, NumSeeds, to_dict, with_values
from parley.envs.core.errors import ParleyError, RefusedModelError
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


def run_beside(
    stages: Mapping[str, Stage],
    chains: Sequence[Sequence[str]],
    path: Path,
    num_workers: int,
    reporter: Reporter,
    title: str,
    address: str = "",
) -> None:
    """Run the rest of some stages, chains of them side by side if two fit; a failed stage ends no other chain.

    Args:
        stages: stages by the names of their folders, in the order in which one process runs them.
        chains: names of stages that need nothing of another chain.
        path: the folder that holds their folders.
        num_workers: the largest number of actors for chains; with fewer than 2, or a single chain, all run here.
        reporter: receives messages and progress.
        title: title of the progress while actors work.
        address: address of a Ray cluster.

    Raises:
        RefusedModelError: a stage met it; it ends all stages.
        ParleyError: the error of the first failed stage, with its name.
    """
    planned = [{name: stages[name] for name in chain} for chain in chains]
    with BackgroundStages(planned, path, num_workers, address=address, least=2) as background_stages:
        if background_stages.num_actors < background_stages.num_asked:
            reporter.say(f"{max(1, background_stages.num_actors)} of {len(chains)} at a time: there is no room for more")
        background_stages.wait(reporter, title)
    # A stage whose progress was shown need not be reported as finished.
    stage_reporter: Reporter = Silent() if background_stages.has_done_all else reporter
    chain_of = {name: number for number, chain in enumerate(chains) for name in chain}
    failed: dict[object, ParleyError] = {}
    for number, (name, (job, config)) in enumerate(stages.items(), start=1):
        if (chain := chain_of.get(name, name)) in failed:
            continue
        stage_reporter.say(f"stage {number} of {len(stages)}: {name}")
        try:
            job.run(config, path / name, stage_reporter)
        except RefusedModelError:
            raise
        except ParleyError as error:
            stage_reporter.say(f"{name} ends with an error: {error.what}")
            where = name if error.where is None else f"{name}: {error.where}"
            located = type(error)(error.what, where=where, got=error.got, fix=error.fix)
            failed[chain] = located.with_traceback(error.__traceback__)
    for failure in failed.values():
        raise failure


class RepeatedJob(Job[RepeatedT, PreparedT, FoundT]):
    """A job that trains, once or several times."""

    @abstractmethod
    def loss(self, run: RunFolder) -> float:
        """Return the loss of a finished training; the best of several has the smallest."""

    @abstractmethod
    def keep(self, best: Path, run: RunFolder) -> None:
        """Store the files of the best training, as its own run did."""

    def run(self, config: RepeatedT, path: Path, reporter: Reporter) -> Result:
        """Run as any job; several trainings run as stages."""
        return super().run(config, path, reporter) if config.seeds == 1 else _Trainings(self).run(config, path, reporter)

    def present(self, result: Result, run: RunFolder) -> Result:
        """Return the result; of several trainings with a table of each."""
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
        """Return the trainings."""
        seed = to_dict(config)["seed"]
        return {
            f"{TRAINING}-{number}": (self.job, with_values(config, {"seeds": 1, "seed": nth_seed(seed, number)}, self.name))
            for number in range(1, config.seeds + 1)
        }

    def models(self, config: RepeatedT) -> Mapping[str, str]:
        return self.job.models(config)

    def prepare(self, config: RepeatedT, path: Path, reporter: Reporter) -> RepeatedT:
        """Find and check what a training needs."""
        self.job.prepare(config, path, reporter)
        return config

    def work(self, run: RunFolder, prepared: RepeatedT, reporter: Reporter) -> RepeatedT:
        """Run the trainings that are left, and store the files of the best."""
        planned = self.stages(prepared, run.path)
        chains, address = [[name] for name in planned], getattr(prepared, "address", "")
        run_beside(planned, chains, run.path, prepared.trainers, reporter, "trainings", address)
        self.job.keep(run.path / self._best(prepared, run), run)
        return prepared

    def measure(self, run: RunFolder, found: RepeatedT) -> Summary:
        """Return the means over trainings, and the figures of each."""
        runs = [RunFolder.load(run.path / name) for name in self.stages(found, run.path)]
        metrics_of_runs = [training.metrics() for training in runs]
        values = {
            name: [metrics[name].value if name in metrics else math.nan for metrics in metrics_of_runs]
            for name in metrics_of_runs[0]
        }
        means = {name: _mean_over_runs(several, self.legend.get(name)) for name, several in values.items()}
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


def _mean_over_runs(values: Sequence[float], metric: Metric | None) -> Estimate:
    """Return the estimate over trainings; a count that is equal in all has no interval."""
    if metric is not None and metric.form == "count" and len(set(values)) == 1:
        return count(values[0], len(values))
    return over_runs(values, metric)
