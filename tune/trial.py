"""One trial of a sweep: the job, run at rising budgets from several seeds, each in a run folder of its own.

A budget is a run of its own rather than more rows in the last one: runs of another size draw other items, and a run's
configuration never changes. A trial that is done again after a kill finds its finished runs and goes on with the others.

Running trials report a line each, which the driver shows, and to Ray Tune at the end of a budget, which may take hours.

Optuna's tree-structured Parzen estimator proposes settings (Bergstra et al. 2011, "Algorithms for hyper-parameter
optimization", section 4).

A trial that was stopped early counts as pruned at the budget that it reached, so its value is never set against one of the
whole budget. What a trial is given is drawn from a stream of its own number: it depends on the seed and on what was known when
it was asked for, and not on how often the sweep was interrupted before.

Nothing of Ray Tune's own state is kept, which it stores in a format that can run code when it is read. The settings of a trial
are an event before it starts, its values a row when it ends; the folder holds all that the killed process knew.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna.samplers import TPESampler
from optuna.trial import Trial, TrialState

from parley.engine.core.ray.ray_internals import ProgressBoard
from parley.engine.core.runs.parts import OK, error_row, ok_row
from parley.engine.core.runs.remote_sync import STALE_S, keeper_of
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.trainings import over_runs
from parley.engine.core.verbs.job import FAILURE, Reporter, Result
from parley.envs.core.config import with_values
from parley.envs.core.errors import RefusedModelError, RunError
from parley.envs.core.registry import nearest, require_trust_in
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.uris import local_copy
from parley.tune.plan import Plan, Space, distribution

EVERY_S = 2.0
"""Seconds between two lines of a trial."""


class TrialReporter:
    """A reporter that gives the progress of a trial in one line.

    Args:
        put: takes the line.
        about: begins the line: which run of the trial this is.
        clock: seconds, never going back.
    """

    def __init__(self, put: Callable[[str], None], about: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._put, self._about, self._clock = put, about, clock
        self._told = -EVERY_S
        self._of = ""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Report a new stage at once."""
        self._of = f"/{total:,} {unit}" if total else f" {unit}"
        self._tell(title)

    def advance(self, done: float, note: str = "") -> None:
        """Report the progress if the last line is some seconds old."""
        if self._clock() - self._told >= EVERY_S:
            self._tell(f"{int(done):,}{self._of}" + (f", {note}" if note else ""))

    def say(self, text: str) -> None:
        """Do nothing: each trial would repeat the same comments."""

    def _tell(self, text: str) -> None:
        self._told = self._clock()
        self._put(f"{self._about}: {text}")


class Study:
    """The study of a sweep's trials, by their numbers, which rise from trial to trial.

    Args:
        space: which settings, by dotted key.
        direction: which way is better.
        seed: the sweep's.
    """

    def __init__(self, space: Space, direction: Literal["max", "min"], seed: int) -> None:
        self._study = optuna.create_study(direction="maximize" if direction == "max" else "minimize")
        self._distributions = {key: distribution(domain) for key, domain in space.items()}
        self._seed = seed
        self._running: dict[int, Trial] = {}

    def propose(self, number: int) -> dict[str, Any]:
        """Propose settings for a new trial, by dotted key."""
        self._study.sampler = TPESampler(seed=derive_seed(self._seed, "optuna", number) % 2**32)
        return self._ask(number)

    def recall(self, number: int, parameters: Mapping[str, Any]) -> None:
        """Note a trial that already has its settings."""
        self._study.enqueue_trial(dict(parameters))
        self._ask(number)

    def tell(self, number: int, values: Mapping[int, float], *, whole: bool) -> None:
        """Note the values of a trial that has ended.

        Args:
            number: of the trial.
            values: by rising budget, at least one.
            whole: whether the last budget is the whole one.
        """
        trial = self._running.pop(number)
        for budget, value in values.items():
            trial.report(value, budget)
        if whole:
            self._study.tell(trial, value)
        else:
            self._study.tell(trial, state=TrialState.PRUNED)

    def fail(self, number: int) -> None:
        """Note that a trial ended without a value."""
        self._study.tell(self._running.pop(number), state=TrialState.FAIL)

    def _ask(self, number: int) -> dict[str, Any]:
        trial = self._running[number] = self._study.ask(self._distributions)
        return trial.params


logger = logging.getLogger(__name__)

TRIALS = "trials"
"""Folder of a sweep's run in which those of its trials lie."""
NUMBER, PARAMETERS = "number", "parameters"
"""Entries of a trial's configuration: its number, and its settings by dotted key."""
OBJECTIVE, LOW, HIGH, NUM, BUDGET, REASON, ENDS = "objective", "low", "high", "n", "budget", "reason", "ends"
"""Entries of a trial's report after each budget; after a failure, budget 0, the reason, and an error that ends the sweep."""
PATIENCE_S = 30.0
"""Seconds beyond a lease that a trial waits for an older trial of its number that outlived its sweep."""


@dataclass(frozen=True)
class Setup:
    """The setup that all trials of a sweep share.

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
    """Return the folder of a trial's runs, relative to the sweep's run."""
    return f"{TRIALS}/{trial_name(number)}"


def trial_name(number: int) -> str:
    """Return the name of a trial's row and folder."""
    return f"{number:05d}"


def run_trial(proposal: Mapping[str, Any], setup: Setup, board: ProgressBoard) -> None:
    """Run a trial inside Ray Tune, which may end it after any budget.

    What the job raises is reported and not raised, so that Ray Tune starts a trial again when its process is lost and not when
    its settings are wrong.

    Args:
        proposal: its `NUMBER` and `PARAMETERS`.
        setup: everything else.
        board: takes lines on its progress.
    """
    from ray import tune as ray_tune

    # Ray would repeat on the screen, for each trial, what runs comment on; what they leave out they count in their metrics.
    logging.disable(logging.WARNING)
    # Ray Tune puts a trial into a folder of its own, where models named by relative paths would not be found.
    if setup.folder.is_dir():
        os.chdir(setup.folder)
    runs = local_copy(setup.run) / trial_folder(proposal[NUMBER])
    for budget in setup.budgets:
        try:
            estimate = measure(proposal[PARAMETERS], setup, budget, runs / str(budget), partial(board.put, proposal[NUMBER]))
        except Exception as error:
            logger.debug("trial %d failed", proposal[NUMBER], exc_info=True)
            ends = {ENDS: error} if isinstance(error, RefusedModelError) else {}
            return ray_tune.report({OBJECTIVE: math.nan, BUDGET: 0, REASON: f"{type(error).__name__}: {error}", **ends})
        ray_tune.report({OBJECTIVE: estimate.value, LOW: estimate.low, HIGH: estimate.high, NUM: estimate.n, BUDGET: budget})


def measure(
    parameters: Mapping[str, Any],
    setup: Setup,
    budget: int,
    path: Path,
    tell: Callable[[str], None] = lambda line: None,
    stream: str = "repeat",
) -> Estimate:
    """Measure a trial at one budget.

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
    """Wait while another process writes the run: a worker of a killed sweep may live on for some seconds.

    The lease of one whose machine was lost has to run out.
    """
    deadline = time.monotonic() + STALE_S + PATIENCE_S
    while keeper_of(run) and time.monotonic() < deadline:
        time.sleep(1)


def _measured(terms: Mapping[str, float], result: Result) -> Estimate:
    if failure := result.chat_usage.get(FAILURE):
        raise RunError("the answers of a trial are too few replies", where=result.run, got=failure)
    estimates = []
    for name, weight in terms.items():
        estimate = result.metrics.get(name, NOTHING)
        if not np.isfinite(estimate.value):
            what = f"a trial has measured no {name!r}{nearest(name, result.metrics)}"
            raise RunError(what, where=result.run, got=", ".join(result.metrics))
        low, high = sorted((weight * estimate.low, weight * estimate.high))
        estimates.append(Estimate(weight * estimate.value, low, high, estimate.n))
    if len(estimates) == 1:
        return estimates[0]
    # Of different quantities: their spread is no interval.
    return Estimate(
        float(np.mean([estimate.value for estimate in estimates])),
        math.nan,
        math.nan,
        min(estimate.n for estimate in estimates),
    )


PROPOSED = "trial"
"""Kind of the event with the settings of a trial; written before it starts."""
HOPELESS = 3
"""Failures for one reason, and no success, after which a sweep gives up."""

Row = Mapping[str, Any]


class Ledger:
    """The trials of a sweep: which are left, what the next one is given, and what each was worth.

    Args:
        folder: the sweep's run, opened for writing.
        setup: what all trials have in common.
        study: proposes settings; knows nothing yet.
        num_trials: all of them.
        reporter: hears of every trial that ends, and how the others stand.
    """

    def __init__(self, folder: RunFolder, setup: Setup, study: Study, num_trials: int, reporter: Reporter) -> None:
        self._folder, self._setup, self._num_trials, self._reporter = folder, setup, num_trials, reporter
        self._study = study
        self._rows = {int(row["item_key"]): row for row in folder.rows() if row["status"] == OK}
        proposed = [
            event for event in folder.events({PROPOSED: {"number": int, "parameters": dict}}) if event["kind"] == PROPOSED
        ]
        self._known = {event["number"]: event["parameters"] for event in proposed}
        self._known |= {number: json.loads(row["parameters"]) for number, row in self._rows.items()}
        require_trust_in(self._known)
        self._reasons: list[str] = []
        self._news = ""
        for number, parameters in sorted(self._known.items()):
            self._study.recall(number, parameters)
            if number in self._rows:
                self._study.tell(number, values_of(self._rows[number]), whole=self._rows[number]["whole"])
        # A trial that was interrupted, or failed, goes first and is given what it was given before.
        self._left = deque(number for number in range(num_trials) if number not in self._rows)

    def __getstate__(self) -> dict[str, Any]:
        # Ray Tune pickles its searcher and callbacks for a restart that is not ours; locks and screens cannot be.
        return {}

    @property
    def num_left(self) -> int:
        """Return the number of trials that have not been handed out."""
        return len(self._left)

    @property
    def num_ended(self) -> int:
        """Return the number of trials that have ended, failed ones included."""
        return len(self._rows) + len(self._reasons)

    @property
    def complete(self) -> bool:
        """Return True if every trial has ended."""
        return self.num_ended == self._num_trials

    @property
    def rows(self) -> list[Row]:
        """Return the rows of trials that worked, in the order of their numbers."""
        return [row for _, row in sorted(self._rows.items())]

    def next_trial(self) -> tuple[int, dict[str, Any]]:
        """Return number and settings of the trial to start now; a trial must be left.

        Raises:
            RunError: the disk refuses.
        """
        number = self._left.popleft()
        if number in self._known:
            return number, dict(self._known[number])
        parameters = self._study.propose(number)
        self._folder.event(PROPOSED, number=number, parameters=parameters)
        self._known[number] = parameters
        return number, parameters

    def hear(self, news: str) -> None:
        """Give the reporter a line on the running trials."""
        self._news = news
        self._tell()

    def take_back(self, number: int) -> None:
        """Put a trial that lost its process before the trials that have not begun."""
        self._left.appendleft(number)

    def end(self, number: int, values: Mapping[int, Estimate]) -> None:
        """Store the values of a trial.

        Args:
            number: of the trial.
            values: by rising budget, at least one.

        Raises:
            RunError: the disk refuses.
        """
        *_, (largest, last) = values.items()
        whole = largest == self._setup.budgets[-1]
        row = {
            **ok_row("", self._setup.seed),
            **last.to_json(),
            "budget": largest,
            "whole": whole,
            "by_budget": [{"budget": budget, "value": value.value} for budget, value in values.items()],
            **self._common(number),
        }
        self._write(number, row)
        self._rows[number] = row
        self._study.tell(number, values_of(row), whole=whole)
        self._tell()

    def fail(self, number: int, reason: str) -> None:
        """Store that a trial failed.

        Args:
            number: of the trial.
            reason: why, in one line or some.

        Raises:
            RunError: the disk refuses; or all trials fail, for one reason.
        """
        self._write(number, error_row("", self._setup.seed, reason) | self._common(number))
        self._study.fail(number)
        self._reasons.append(reason)
        self._tell()
        if not self._rows and self._reasons[-HOPELESS:] == [reason] * HOPELESS:
            raise nothing_worked(self._folder, reason)

    def _common(self, number: int) -> dict[str, Any]:
        name = trial_name(number)
        return {"item_key": name, "parameters": json.dumps(self._known[number], sort_keys=True), "runs": trial_folder(number)}

    def _write(self, number: int, row: Row) -> None:
        self._folder.write_shard(trial_name(number), [row])

    def _tell(self) -> None:
        early = sum(not row["whole"] for row in self._rows.values())
        best = best_row(self.rows, self._setup.plan.direction)
        parts = (
            f"best {best['value']:.4g} (trial {int(best['item_key'])})" if best else "",
            f"{early} stopped early" if early else "",
            f"{len(self._reasons)} failed" if self._reasons else "",
            self._news,
        )
        self._reporter.advance(self.num_ended, ", ".join(filter(None, parts)))


def values_of(row: Row) -> dict[int, float]:
    """Return the values of a trial, by rising budget."""
    return {entry["budget"]: entry["value"] for entry in row["by_budget"]}


def best_row(rows: Sequence[Row], direction: str) -> Row | None:
    """Return the best of the trials with the whole budget, the earlier of two equal ones; None if there is none.

    Args:
        rows: in the order of the trials' numbers.
        direction: "max" or "min".
    """
    complete = [row for row in rows if row["status"] == OK and row["whole"]]
    sign = 1 if direction == "max" else -1
    return max(complete, key=lambda row: sign * row["value"], default=None)


def nothing_worked(folder: RunFolder, reason: str | None) -> RunError:
    """Return the error of a sweep without any result."""
    fix = "mend what it says, then the same command tries the trials again"
    return RunError("no trial of the sweep came to its end", where=folder.path, got=reason, fix=fix)
