"""One trial of a sweep: the job, run at rising budgets from several seeds, each in a run folder of its own.

A budget is a run of its own rather than more rows in the last one: runs of another size draw other items, and a run's
configuration never changes. A trial that is done again after a kill finds its finished runs and goes on with the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.jobs.job import Result, Silent
from engine.metrics.statistics import NOTHING, Estimate, mean
from envs.core.errors import RunError
from envs.core.registry import nearest
from envs.core.seeds import derive_seed
from tune.plan import Plan
from tune.space import with_values

OBJECTIVE, LOW, HIGH, NUM, BUDGET = "objective", "low", "high", "n", "budget"
"""What a trial reports after each budget."""


@dataclass(frozen=True)
class Setup:
    """What all trials of a sweep have in common.

    Args:
        plan: what is swept.
        base: the job's configuration before anything is turned.
        budgets: rising.
        repeats: runs at each budget.
        seed: the sweep's.
        runs: folder of the trials' folders.
        folder: which relative paths are relative to.
    """

    plan: Plan
    base: Any
    budgets: tuple[int, ...]
    repeats: int
    seed: int
    runs: Path
    folder: Path


def run_trial(parameters: Mapping[str, Any], setup: Setup) -> None:
    """Runs a trial inside Ray Tune, which may end it after any budget.

    Args:
        parameters: the settings that are turned, by dotted key.
        setup: everything else.
    """
    from ray import tune as ray_tune

    # Ray Tune puts a trial into a folder of its own, where models named by relative paths would not be found.
    os.chdir(setup.folder)
    name = ray_tune.get_context().get_trial_id()
    for budget in setup.budgets:
        found = measure(parameters, setup, budget, setup.runs / name / str(budget))
        ray_tune.report({OBJECTIVE: found.value, LOW: found.low, HIGH: found.high, NUM: found.n, BUDGET: budget})


def measure(parameters: Mapping[str, Any], setup: Setup, budget: int, path: Path) -> Estimate:
    """What a trial is worth at one budget.

    Args:
        parameters: the settings that are turned, by dotted key.
        setup: everything else.
        budget: how large.
        path: folder of the runs, one for each repeat.

    Returns:
        The estimate of the one run where it measures one metric; else the mean over runs, with an interval over them.

    Raises:
        ConfigError: the settings do not go together.
        RunError: the job does not measure what is wanted.
    """
    plan, job = setup.plan, setup.plan.load()
    results = []
    for repeat in range(setup.repeats):
        # The same seeds for every trial: what they differ in is what was turned.
        values = {**parameters, plan.fidelity: budget, "seed": derive_seed(setup.seed, "repeat", repeat)}
        config = with_values(setup.base, values, f"trial of {plan.job}")
        results.append(_measured(plan, job.run(config, path / str(repeat), Silent())))
    if len(results) == 1:
        return results[0]
    return mean([result.value for result in results], seed=setup.seed)


def _measured(plan: Plan, result: Result) -> Estimate:
    for name in plan.metrics:
        if not np.isfinite(result.metrics.get(name, NOTHING).value):
            what = f"a trial has measured no {name!r}{nearest(name, result.metrics)}"
            raise RunError(what, where=result.run, got=", ".join(result.metrics))
    return _mean_of([result.metrics[name] for name in plan.metrics])


def _mean_of(estimates: Sequence[Estimate]) -> Estimate:
    if len(estimates) == 1:
        return estimates[0]
    values = [estimate.value for estimate in estimates]
    # Of different quantities: their spread is no interval.
    return Estimate(float(np.mean(values)), np.nan, np.nan, min(estimate.n for estimate in estimates))
