"""The Ray Tune side of a sweep: it places trials on the cluster, and ASHA ends those that fall behind.

Ray Tune's own files go into a temporary folder that ends with the session. What it would restore from them (`Tuner.restore`)
would be lost with the machine, and is pickled, so reading a foreign run could run its code; a sweep goes on from
its rows instead (`parley.tune.trial`). ASHA gets the values of the trials that have rows, so it treats the next ones
as it would have done without the interruption.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import tempfile
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune as ray_tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from parley.engine.core.ray import logs
from parley.engine.core.ray.ray_internals import ProgressBoard
from parley.engine.core.ray.record import WORK
from parley.engine.core.ray.session import TIMEOUT_VARIABLE
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Reporter
from parley.envs.core.errors import ClusterError, RefusedModelError
from parley.tune.config import SweepConfig
from parley.tune.trial import (
    BUDGET,
    ENDS,
    EVERY_S,
    HIGH,
    LOW,
    NUM,
    NUMBER,
    OBJECTIVE,
    PARAMETERS,
    REASON,
    Ledger,
    Setup,
    Study,
    run_trial,
    values_of,
)

LIVES = 3
"""Times that a trial may lose its process, to a machine that went or to want of memory, before it counts as failed."""
LOSS_S = 60.0
"""Seconds in which losses of a trial count as one: Ray offers a lost machine's room again until it hears of the loss."""
SHOWN = 4
"""Running trials whose lines are shown."""
_CHATTY = ("optuna", "ray.tune")
logger = logging.getLogger(__name__)


def run_trials(config: SweepConfig, setup: Setup, folder: RunFolder, reporter: Reporter, wait_s: float) -> None:
    """Run the trials that are left, and store each as it ends.

    Args:
        config: the sweep.
        setup: what all trials have in common.
        folder: the sweep's run, opened for writing.
        wait_s: seconds without a running trial after which the sweep ends.
        reporter: hears of every trial that ends, and how the others stand.

    Raises:
        ClusterError: no trial has run for `wait_s`.
        RefusedModelError: a trial met it.
        RunError: the disk refuses, or all trials fail for one reason.
        KeyboardInterrupt: the sweep was stopped.
    """
    plan = setup.plan
    # Rows say what went wrong; the table of settings is printed at any verbosity.
    with logs.quiet(_CHATTY, logging.CRITICAL), contextlib.redirect_stdout(io.StringIO()):
        study = Study(plan.space, plan.direction, setup.seed)
        ledger = Ledger(folder, setup, study, config.num_trials, reporter)
        at_once = config.concurrent or max(1, int(ray.cluster_resources()["CPU"]) // (1 + config.trial_workers))
        actors = min(at_once, ledger.num_left) * (1 + config.trial_workers)
        metadata = {"objective": plan.objective, "direction": plan.direction}
        folder.event(WORK, items=config.num_trials, left=ledger.num_left, workers=actors, **metadata)
        if ledger.num_left:
            _tune(config, setup, ledger, wait_s)
    if not ledger.complete:
        # Ray Tune takes Ctrl-C for itself and returns.
        raise KeyboardInterrupt


def _tune(config: SweepConfig, setup: Setup, ledger: Ledger, wait_s: float) -> None:
    """Let Ray Tune run the trials that are left."""
    actor = {"CPU": 1.0, **({"GPU": config.gpus_per_worker} if config.gpus_per_worker else {})}
    room = ray_tune.PlacementGroupFactory([{"CPU": 1.0}, *([actor] * config.trial_workers)])
    searcher, board = _Proposals(ledger), ProgressBoard()
    with tempfile.TemporaryDirectory(prefix="parley-sweep-") as scratch:
        tuner = ray_tune.Tuner(
            ray_tune.with_resources(ray_tune.with_parameters(run_trial, setup=setup, board=board), room),
            tune_config=ray_tune.TuneConfig(
                search_alg=searcher,
                scheduler=_scheduler(config, setup, ledger),
                # The proposals say when there are no more: a trial that lost its process is one again.
                num_samples=-1,
                max_concurrent_trials=config.concurrent or None,
                # A trial ends between runs, when nothing of it is left; the next one need not load everything again.
                reuse_actors=True,
            ),
            run_config=ray_tune.RunConfig(
                name="sweep", storage_path=scratch, callbacks=[_Results(ledger, searcher.numbers, wait_s, board)], verbose=0
            ),
        )
        # Failed trials are rows by now, and need no exception.
        tuner.fit()


def _scheduler(config: SweepConfig, setup: Setup, ledger: Ledger) -> TrialScheduler:
    """Return ASHA for several budgets, with the values of earlier sessions."""
    if len(setup.budgets) == 1:
        return FIFOScheduler()
    halving = ASHAScheduler(
        time_attr=BUDGET,
        metric=OBJECTIVE,
        mode=setup.plan.direction,
        max_t=setup.budgets[-1],
        grace_period=setup.budgets[0],
        reduction_factor=config.reduction,
    )
    for row in ledger.rows:
        trial = SimpleNamespace(trial_id=row["item_key"])
        halving.on_trial_add(None, trial)
        for budget, value in values_of(row).items():
            result = {BUDGET: budget, OBJECTIVE: value}
            halving.on_trial_result(None, trial, result)
        halving.on_trial_complete(None, trial, result)
    return halving


class _Proposals(Searcher):
    """A searcher that gives each trial the settings of the ledger.

    Attributes:
        numbers: of the trials, by Ray Tune's names for them.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(metric=OBJECTIVE, mode=None)
        self._ledger = ledger
        self.numbers: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next trial; none at the end, or while a running trial may have to be tried again."""
        if not self._ledger.num_left:
            return Searcher.FINISHED if self._ledger.complete else None
        self.numbers[trial_id], parameters = self._ledger.next_trial()
        return {NUMBER: self.numbers[trial_id], PARAMETERS: parameters}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing; `_Results` sees more."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Do nothing; the run folder has it all."""


class _Results(ray_tune.Callback):
    """A callback that gives the ledger the values of trials after each step of Ray Tune, where errors are not swallowed."""

    def __init__(self, ledger: Ledger, numbers: dict[str, int], wait_s: float, board: ProgressBoard) -> None:
        self._ledger, self._numbers, self._wait_s, self._board = ledger, numbers, wait_s, board
        self._began = self._up_at = time.monotonic()
        self._shown_at = -math.inf
        # By budget: a trial that lost its process reports its values again.
        self._values: dict[int, dict[int, Estimate]] = {}
        self._ended: list[int] = []
        self._failed: dict[int, str] = {}
        self._ends: RefusedModelError | None = None
        self._losses: dict[int, list[float]] = {}

    def on_trial_result(self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        """Note the value of a trial at a budget, or the reason why it has none."""
        number = self._numbers[trial.trial_id]
        if REASON in result:
            self._failed[number] = result[REASON]
            self._ends = result.get(ENDS, self._ends)
        else:
            estimate = Estimate(result[OBJECTIVE], result[LOW], result[HIGH], result[NUM])
            self._values.setdefault(number, {})[result[BUDGET]] = estimate

    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Note that a trial has ended."""
        self._ended.append(self._numbers[trial.trial_id])

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Try a trial that lost its process again, at most LIVES - 1 times; errors of its job come as results."""
        number, now = self._numbers[trial.trial_id], time.monotonic()
        losses = self._losses.setdefault(number, [])
        if not losses or now > losses[-1] + LOSS_S:
            losses.append(now)
        if len(losses) < LIVES:
            logger.warning("trial %d lost its process: it is tried again", number)
            self._ledger.take_back(number)
            return
        self._failed[number] = f"its process was lost {LIVES} times: the machine went, or had too little memory"
        self._ended.append(number)

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        """Hand over the trials that have ended.

        Raises:
            ClusterError: no trial has run for too long.
            RefusedModelError: a trial met it.
        """
        if self._ends:
            raise self._ends
        if any(trial.status == Trial.RUNNING for trial in trials):
            self._up_at = time.monotonic()
        elif time.monotonic() > self._up_at + self._wait_s:
            fix = f"add machines, then the same command goes on; {TIMEOUT_VARIABLE} sets the seconds to wait"
            room = ray.cluster_resources()
            got = f"{room.get('CPU', 0):g} CPUs and {room.get('GPU', 0):g} GPUs in all"
            raise ClusterError(f"no trial has run for {self._wait_s:g} s", got=got, fix=fix)
        while self._ended:
            number = self._ended.pop(0)
            if number in self._failed:
                self._ledger.fail(number, self._failed[number])
            else:
                self._ledger.end(number, self._values[number])
            self._board.clear(number)
        if time.monotonic() >= self._shown_at + EVERY_S:
            self._shown_at = time.monotonic()
            self._ledger.hear(self._news([self._numbers[trial.trial_id] for trial in trials if trial.status == Trial.RUNNING]))

    def _news(self, running: Sequence[int]) -> str:
        """Return the number of running trials, the time so far, and the lines of the first trials."""
        lines = [f"trial {number}: {self._line(number)}" for number in running[:SHOWN]]
        more = [f"and {len(running) - SHOWN} more"] if len(running) > SHOWN else []
        minutes, seconds = divmod(round(time.monotonic() - self._began), 60)
        # Before a trial has ended the screen says it.
        so_far = f"{minutes}:{seconds:02d} so far, " if self._ledger.num_ended else ""
        return so_far + ("; ".join([f"{len(running)} running", *lines, *more]) if running else "no trial has begun")

    def _line(self, number: int) -> str:
        *_, worth = [None, *self._values.get(number, {}).items()]
        value = f"{worth[1].value:.4g} at {worth[0]:,}" if worth else ""
        return ", ".join(filter(None, (value, self._board.line(number)))) or "starting"
