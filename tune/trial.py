"""One trial of a sweep: the job, run at rising budgets from several seeds, each in a run folder of its own.

A budget is a run of its own rather than more rows in the last one: runs of another size draw other items, and a run's
configuration never changes. A trial that is done again after a kill finds its finished runs and goes on with the others.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.ray.progress_board import Board
from parley.engine.core.runs.remote_lock import STALE_S, keeper_of
from parley.engine.core.stats.repeats import over_runs
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.verbs.job import FAILURE, Result
from parley.envs.core.config import with_values
from parley.envs.core.errors import RefusedModelError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import local_copy
from parley.tune.plan import Plan
from parley.tune.trial_progress import TrialReporter

logger = logging.getLogger(__name__)

TRIALS = "trials"
"""Folder of a sweep's run in which those of its trials lie."""
NUMBER, PARAMETERS = "number", "parameters"
"""What a trial is given: which one it is, and its settings by dotted key."""
OBJECTIVE, LOW, HIGH, NUM, BUDGET, REASON, ENDS = "objective", "low", "high", "n", "budget", "reason", "ends"
"""What a trial reports after each budget; after a failure, budget 0 and the reason, and an error that ends the sweep."""
PATIENCE_S = 30.0
"""How much longer than a lease lives a trial waits for one of the same number that outlived its sweep."""


@dataclass(frozen=True)
class Setup:
    """What all trials of a sweep have in common.

    Args:
        plan: what is swept.
        base: the job's configuration before anything is turned.
        budgets: rising.
        repeats: runs at each budget.
        seed: the sweep's.
        run: the sweep's, by a name that every machine finds: an absolute path or a URI.
        folder: which relative paths are relative to, where a machine has it.
    """

    plan: Plan
    base: Any
    budgets: tuple[int, ...]
    repeats: int
    seed: int
    run: str
    folder: Path


def trial_folder(number: int) -> str:
    """Where the runs of a trial lie, from the sweep's."""
    return f"{TRIALS}/{trial_name(number)}"


def trial_name(number: int) -> str:
    """What the row and the folder of a trial are called."""
    return f"{number:05d}"


def run_trial(given: Mapping[str, Any], setup: Setup, board: Board) -> None:
    """Runs a trial inside Ray Tune, which may end it after any budget.

    What the job raises is reported and not raised, so that Ray Tune starts a trial again when its process is lost and not when
    its settings are wrong.

    Args:
        given: its `NUMBER` and `PARAMETERS`.
        setup: everything else.
        board: where it says how far it is.
    """
    from ray import tune as ray_tune

    # Ray would repeat on the screen, for each trial, what runs comment on; what they leave out they count in their metrics.
    logging.disable(logging.WARNING)
    # Ray Tune puts a trial into a folder of its own, where models named by relative paths would not be found.
    if setup.folder.is_dir():
        os.chdir(setup.folder)
    runs = local_copy(setup.run) / trial_folder(given[NUMBER])
    for budget in setup.budgets:
        try:
            found = measure(given[PARAMETERS], setup, budget, runs / str(budget), partial(board.put, given[NUMBER]))
        except Exception as error:
            logger.debug("trial %d failed", given[NUMBER], exc_info=True)
            ends = {ENDS: error} if isinstance(error, RefusedModelError) else {}
            return ray_tune.report({OBJECTIVE: math.nan, BUDGET: 0, REASON: f"{type(error).__name__}: {error}", **ends})
        ray_tune.report({OBJECTIVE: found.value, LOW: found.low, HIGH: found.high, NUM: found.n, BUDGET: budget})


def measure(
    parameters: Mapping[str, Any],
    setup: Setup,
    budget: int,
    path: Path,
    tell: Callable[[str], None] = lambda line: None,
    stream: str = "repeat",
) -> Estimate:
    """What a trial is worth at one budget.

    Args:
        parameters: the settings that are turned, by dotted key.
        setup: everything else.
        budget: how large.
        path: folder of the runs, one for each repeat.
        tell: takes a line now and then about how far it is.
        stream: names the seeds.

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
        values = {**parameters, plan.fidelity: budget, "seed": derive_seed(setup.seed, stream, repeat)}
        config = with_values(setup.base, values, f"trial of {plan.job}")
        run = path / str(repeat)
        _await_writer(run)
        about = f"{plan.fidelity} {budget:,}" + (f", run {repeat + 1} of {setup.repeats}" if setup.repeats > 1 else "")
        results.append(_measured(plan.terms(config), job.run(config, run, TrialReporter(tell, about))))
    if len(results) == 1:
        return results[0]
    return over_runs([result.value for result in results])


def _await_writer(run: Path) -> None:
    """Waits while another process writes the run: a worker of a killed sweep may live on for some seconds.

    The lease of one whose machine was lost has to run out.
    """
    deadline = time.monotonic() + STALE_S + PATIENCE_S
    while keeper_of(run) and time.monotonic() < deadline:
        time.sleep(1)


def _measured(terms: Mapping[str, float], result: Result) -> Estimate:
    if failure := result.chat_usage.get(FAILURE):
        raise RunError("the answers of a trial are too few replies", where=result.run, got=failure)
    found = []
    for name, weight in terms.items():
        estimate = result.metrics.get(name, NOTHING)
        if not np.isfinite(estimate.value):
            what = f"a trial has measured no {name!r}{nearest(name, result.metrics)}"
            raise RunError(what, where=result.run, got=", ".join(result.metrics))
        low, high = sorted((weight * estimate.low, weight * estimate.high))
        found.append(Estimate(weight * estimate.value, low, high, estimate.n))
    if len(found) == 1:
        return found[0]
    # Of different quantities: their spread is no interval.
    return Estimate(float(np.mean([each.value for each in found])), math.nan, math.nan, min(each.n for each in found))
