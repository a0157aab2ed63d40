"""Trainings that are made several times, each from a seed of its own: `--seeds N`.

One training is one draw. Each of several is a run of its own below the run's folder and resumes by itself; the figures are the
means over them, with intervals over trainings and dialogues, and the run's checkpoint is that of the best, so that the run can
be named wherever one training can. The first has the master seed itself: it is the training that one seed makes.
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
from parley.engine.core.stats.tables import TRAININGS, over_runs, spread_of, spread_table
from parley.engine.core.verbs.composite import BackgroundStages, Stage
from parley.engine.core.verbs.job import FoundT, Job, PreparedT, Reporter, Result, Silent, Summary
from parley.envs.core.config import Configuration, NonNegativeInt, NumSeeds, to_dict, with_values
from parley.envs.core.errors import ParleyError, RefusedModelError
from parley.envs.core.seeds import derive_seed

TRAINING = "training"
"""What the folder of a training is called, before its number."""


@dataclass(frozen=True, kw_only=True)
class RepeatedConfig(Configuration):
    """How often something is trained."""

    seeds: NumSeeds = 1
    """Trainings, each from a seed of its own; with several, figures are means over them and intervals are over them too."""
    trainers: NonNegativeInt = 0
    """Ray actors that make trainings side by side, each with learner and env runners of its own, as many as there is room for;
    0 makes one after another in this process."""


RepeatedT = TypeVar("RepeatedT", bound=RepeatedConfig)


def nth_seed(seed: int, number: int, stream: str = TRAINING) -> int:
    """The seed of a training: the master seed of the first, numbered from 1."""
    return seed if number == 1 else derive_seed(seed, stream, number)


def nth_name(name: str, number: int) -> str:
    """What a stage of a training is called: that of the first has no number."""
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
    """Does what is left of some stages, chains of them side by side where there is room for two; one that fails ends no other.

    Args:
        stages: by the names of their folders, in the order in which one process does them.
        chains: names of stages that need nothing of another chain's.
        path: the folder that theirs lie in.
        num_workers: actors that do chains, at most; with less than 2, or a single chain, all is done here.
        reporter: who looks on.
        title: what it is shown while actors work.
        address: of a Ray cluster.

    Raises:
        RefusedModelError: a stage met it, which ends all of them.
        ParleyError: what the first that failed says, with its name.
    """
    planned = [{name: stages[name] for name in chain} for chain in chains]
    with BackgroundStages(planned, path, num_workers, address=address, least=2) as beside:
        if beside.num_actors < beside.num_asked:
            reporter.say(f"{max(1, beside.num_actors)} of {len(chains)} at a time: there is no room for more")
        beside.wait(reporter, title)
    # What was shown as it was done need not be told to be finished.
    told: Reporter = Silent() if beside.has_done_all else reporter
    chain_of = {name: number for number, chain in enumerate(chains) for name in chain}
    failed: dict[object, ParleyError] = {}
    for number, (name, (job, config)) in enumerate(stages.items(), start=1):
        if (chain := chain_of.get(name, name)) in failed:
            continue
        told.say(f"stage {number} of {len(stages)}: {name}")
        try:
            job.run(config, path / name, told)
        except RefusedModelError:
            raise
        except ParleyError as error:
            told.say(f"{name} ends with an error: {error.what}")
            where = name if error.where is None else f"{name}: {error.where}"
            named = type(error)(error.what, where=where, got=error.got, fix=error.fix)
            failed[chain] = named.with_traceback(error.__traceback__)
    for found in failed.values():
        raise found


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
        chains, address = [[name] for name in planned], getattr(prepared, "address", "")
        run_beside(planned, chains, run.path, prepared.trainers, reporter, "trainings", address)
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
    return over_runs(values, metric)
