"""Sweeps: `parley sweep`. Ray Tune runs trials of a job, Optuna proposes them, ASHA stops those that fall behind.

    config.json, rows, summary.json, ...   the sweep's own run: one row per trial, failed ones with the reason
    best.yaml                              the best settings, for --config of the job's verb
    trials/TRIAL/BUDGET/REPEAT             the runs of the trials
    tune                                   Ray Tune's own state, in its own format, from which the same command goes on

Each trial reserves a CPU for itself and one for every actor of its own, in one placement group that its actors are put into:
two trials never wait for each other's actors.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from engine.jobs.catalogue import find
from engine.jobs.command import command_line, flat
from engine.jobs.job import SUMMARY, Job, Result, Watcher
from engine.metrics.statistics import Estimate, Metric, count
from engine.runtime.session import connect
from engine.store.documents import write_whole
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK, SCHEMA_VERSION, SWEEP_TRIALS, error_row
from envs.core.config import to_dict
from envs.core.errors import ClusterError, RunError
from envs.core.seeds import derive_seed
from tune.config import UNCHECKED, SweepConfig
from tune.plan import Plan, find_plan
from tune.space import nested
from tune.trial import BUDGET, HIGH, LOW, NUM, OBJECTIVE, Setup, run_trial

BEST, TRIALS, STATE = "best.yaml", "trials", "tune"
_CHATTY = ("optuna", "ray.tune")
LEGEND = {
    "best": Metric("best value", "as the sweep says", "of the trials that were given the whole budget", main=True),
    "trials": Metric("trials", "neither", "that were started", "count", main=True),
    "whole": Metric("whole trials", "neither", "that were given the whole budget", "count"),
    "failed": Metric("failed trials", "lower: better", "that ended in an error; their rows say which", "count"),
}


def run(config: SweepConfig, path: Path, watcher: Watcher) -> Result:
    """Runs what is left of the trials and stores the best settings.

    Raises:
        ConfigError: no such sweep, or a setting that its job does not have, before anything starts.
        ClusterError: Ray cannot be reached, or has too little room for one trial.
        RunError: no trial came to its end, or the disk refuses.
    """
    if earlier := SWEEP.finished(config, path, watcher):
        return earlier
    plan = find_plan(config.sweep)
    setup = Setup(
        plan=plan,
        base=plan.base(config.base, config.trial_workers, config.gpus_per_worker),
        budgets=config.budgets(plan.budget),
        repeats=config.repeats,
        seed=config.seed,
        runs=(path / TRIALS).resolve(),
        folder=Path.cwd(),
    )
    num_cpus = max(1 + config.trial_workers, os.cpu_count() or 1)
    with (
        RunFolder.open(path, config, job=SWEEP.name, schema=SWEEP_TRIALS, unchecked=UNCHECKED) as folder,
        connect(config.address or None, num_cpus=None if config.address else num_cpus),
    ):
        _check_room(config)
        watcher.stage(f"sweeping {plan.job}", config.samples, "trials")
        rows = [_row(number, trial, setup) for number, trial in enumerate(_run_trials(config, setup, path))]
        for row in rows:
            folder.write_shard(row["item_key"], [row])
        watcher.advance(len(rows))
        best = _best(rows, plan, path)
        parameters = json.loads(best["parameters"])
        _write_best(path / BEST, config, plan, parameters)
        told = ", ".join(f"{key}={value}" for key, value in parameters.items())
        watcher.say(f"best: {told}")
        about = {
            "title": f"sweep of {plan.job}: {config.sweep}",
            "description": f"{len(rows)} trials of up to {setup.budgets[-1]:,} ({plan.fidelity}), {config.repeats} runs each; "
            f"{' and '.join(plan.metrics)}, {plan.direction}imum is best; seed {config.seed}.",
            "command": command_line(SWEEP, config, path),
            "direction": plan.direction,
            "objective": " and ".join(plan.metrics),
            "parameters": parameters,
        }
        folder.write_summary(_metrics(rows, best), about)
    return SWEEP.result(config, path)


def _check_room(config: SweepConfig) -> None:
    """Finds out whether one trial has room; a cluster that is given by its address may still grow."""
    import ray

    room = ray.cluster_resources()
    wanted = {"CPU": 1 + config.trial_workers, "GPU": config.trial_workers * config.gpus_per_worker}
    lacking = [name for name, number in wanted.items() if number > room.get(name, 0)]
    if lacking and not config.address:
        raise ClusterError(
            "there is too little room for one trial",
            got=", ".join(f"{wanted[name]:g} {name}s wanted, {room.get(name, 0):g} there" for name in lacking),
            fix="give fewer --trial-workers, or the --address of a cluster",
        )


def _run_trials(config: SweepConfig, setup: Setup, path: Path) -> Sequence[Any]:
    """Ray Tune's results of all trials, in the order in which they were started; goes on with what is there."""
    import ray
    from ray import tune as ray_tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    actor = {"CPU": 1.0, **({"GPU": config.gpus_per_worker} if config.gpus_per_worker else {})}
    room = ray_tune.PlacementGroupFactory([{"CPU": 1.0}, *([actor] * config.trial_workers)])
    trainable = ray_tune.with_resources(ray_tune.with_parameters(run_trial, setup=setup), room)
    state = (path / STATE).resolve()
    if ray_tune.Tuner.can_restore(str(state)):
        # A failed trial is tried again, as a failed item of any run is.
        return _finish(ray_tune.Tuner.restore(str(state), trainable=trainable, restart_errored=True))
    mode = setup.plan.direction
    searcher = OptunaSearch(metric=OBJECTIVE, mode=mode, seed=derive_seed(config.seed, "optuna") % 2**32)
    whole, halving = setup.budgets[-1], None
    if len(setup.budgets) > 1:
        halving = ASHAScheduler(
            time_attr=BUDGET,
            metric=OBJECTIVE,
            mode=mode,
            max_t=whole,
            grace_period=setup.budgets[0],
            reduction_factor=config.reduction,
        )
    concurrent = config.concurrent or max(1, int(ray.cluster_resources()["CPU"]) // (1 + config.trial_workers))
    # The metric and its mode stand in searcher and scheduler, which refuse to be told twice.
    tuner = ray_tune.Tuner(
        trainable,
        param_space={key: domain.domain() for key, domain in setup.plan.space.items()},
        tune_config=ray_tune.TuneConfig(
            search_alg=searcher, scheduler=halving, num_samples=config.samples, max_concurrent_trials=concurrent
        ),
        run_config=ray_tune.RunConfig(name=STATE, storage_path=str(state.parent), verbose=0),
    )
    return _finish(tuner)


def _finish(tuner: Any) -> Sequence[Any]:
    """Runs what is left, without Ray Tune's own screens and tracebacks: rows say what went wrong."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        # Its table of settings is printed at any verbosity.
        with contextlib.redirect_stdout(io.StringIO()):
            return list(tuner.fit())
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _row(number: int, trial: Any, setup: Setup) -> dict[str, Any]:
    """The row of a trial as Ray Tune tells of it."""
    figures = trial.metrics or {}
    name = figures.get("trial_id")
    common = {
        "trial_id": name,
        "parameters": json.dumps(trial.config, sort_keys=True),
        "budget": figures.get(BUDGET),
        "runs": f"{TRIALS}/{name}" if name else None,
    }
    key = f"{number:05d}"
    if trial.error is not None:
        # What the job raised; a trial whose process died has no cause but Ray's own error.
        cause = getattr(trial.error, "cause", None) or trial.error
        return error_row(key, setup.seed, f"{type(cause).__name__}: {cause}") | common
    value, low, high = (_finite(figures[part]) for part in (OBJECTIVE, LOW, HIGH))
    return {
        "item_key": key,
        "status": OK,
        "error": None,
        "seed": setup.seed,
        "schema_version": SCHEMA_VERSION,
        "value": value,
        "low": low,
        "high": high,
        "n": figures[NUM],
        "whole": figures[BUDGET] == setup.budgets[-1],
        **common,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _best(rows: Sequence[Mapping[str, Any]], plan: Plan, path: Path) -> Mapping[str, Any]:
    """The best of the trials that were given the whole budget, the earlier one of two alike."""
    whole = [row for row in rows if row["status"] == OK and row["whole"]]
    if not whole:
        reasons = [row["error"] for row in rows if row["status"] != OK]
        fix = "mend what the trials say, then the same command tries them again"
        raise RunError("no trial of the sweep came to its end", where=path, got=reasons[0] if reasons else None, fix=fix)
    choose: Callable[..., Mapping[str, Any]] = max if plan.direction == "max" else min
    return choose(whole, key=lambda row: row["value"])


def _metrics(rows: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> dict[str, Estimate]:
    return {
        "best": Estimate.from_json(best),
        "trials": count(len(rows), len(rows)),
        "whole": count(sum(bool(row.get("whole")) for row in rows), len(rows)),
        "failed": count(sum(row["status"] != OK for row in rows), len(rows)),
    }


def _write_best(path: Path, config: SweepConfig, plan: Plan, parameters: Mapping[str, Any]) -> None:
    """Writes the sweep's settings and the best ones as a YAML file for `--config`.

    Raises:
        RunError: the disk refuses.
    """
    values = flat(to_dict(plan.base(config.base, config.trial_workers, config.gpus_per_worker)))
    fixed = {key: values[key] for key in (setting.partition("=")[0] for setting in shlex.split(config.base))}
    words = find(plan.job).words
    head = f"# The best of a sweep: parley {' '.join(words)} {plan.preset} --config {path}\n"
    try:
        write_whole(path, (head + yaml.safe_dump(nested({**fixed, **parameters}), sort_keys=True)).encode())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the best settings cannot be written", where=path, got=error.strerror, fix=fix) from None


def _next_commands(config: SweepConfig, path: Path) -> tuple[str, ...]:
    plan = find_plan(config.sweep)
    again = ["parley", *find(plan.job).words, plan.preset, "--config", str(path / BEST)]
    return (shlex.join(["parley", "report", str(path)]), shlex.join(again))


def _of(name: str, **changes: Any) -> SweepConfig:
    return SweepConfig(sweep=name, **changes)


def gibbs_enum() -> SweepConfig:
    """Trigger search: list size, restarts, sweeps, lambda, k; hit rate (He & Glass 2018)."""
    return _of("gibbs-enum")


def rl_attack() -> SweepConfig:
    """The RL attack: rate, discount, guards; advantage over three seeds (Cheng et al. 2019)."""
    return _of("rl-attack", repeats=3)


def min_max() -> SweepConfig:
    """Adversarial training: rates, discount, guard, length of a phase; exploitability (Cheng et al. 2019)."""
    return _of("min-max", repeats=2)


def white_box() -> SweepConfig:
    """The reactive attack: kappa, replaced words, proposals; advantage, end forced (Cheng et al. 2019)."""
    return _of("white-box")


def perturbation() -> SweepConfig:
    """How hard contexts are perturbed; share of changed replies (Niu & Bansal 2018)."""
    strategies = "strategies=data-paraphrase,grammar-errors,random-swap"
    return _of("perturbation", base=strategies)


def adversarial_training() -> SweepConfig:
    """Training against perturbations: alpha, margin, rate; loss on clean contexts (Niu & Bansal 2018)."""
    return _of("adversarial-training")


def demo() -> SweepConfig:
    """Seconds, without a model: which scripted bargainer gains most, and how long a talk should be."""
    return _of("demo", samples=6, rungs=2)


_PRESETS = (gibbs_enum, rl_attack, min_max, white_box, perturbation, adversarial_training, demo)
SWEEP = Job(
    "sweep",
    SweepConfig,
    {preset.__name__.replace("_", "-"): preset for preset in _PRESETS},
    run,
    LEGEND,
    (SUMMARY, BEST, "rows"),
    _next_commands,
    UNCHECKED,
    num_rows=attrgetter("samples"),
)
