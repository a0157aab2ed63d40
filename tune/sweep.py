"""Sweeps: `parley sweep`. Ray Tune runs trials of a job, Optuna proposes them, ASHA stops those that fall behind.

    config.json, rows, summary.json, ...   the sweep's own run: one row per trial as it ends, failed ones with the reason
    best.yaml                              the best settings, for --config of the job's verb
    trials/TRIAL/BUDGET/REPEAT             the runs of the trials
    again/TRIAL/RUN                        those of the best settings, from seeds that chose nothing

Each trial reserves a CPU for itself and one for every actor of its own, in one placement group that its actors are put into:
two trials never wait for each other's actors. A sweep that was killed goes on from its rows: see `parley.tune.trial`.

The rows of a sweep: a trial each.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from parley.engine.core.ray.session import RaySession
from parley.engine.core.runs.documents import SUMMARY, reading_summary, write_whole
from parley.engine.core.runs.parts import OK, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, count
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import Job, Reporter, Result, Summary, flat
from parley.engine.core.verbs.sharded import session
from parley.envs.core.config import put, to_dict
from parley.envs.core.errors import ClusterError, ParleyError, RefusedModelError, RunError
from parley.envs.core.storage.uris import display_path
from parley.tune.config import RESUME_SAFE, SweepConfig
from parley.tune.plan import Plan, find_plan
from parley.tune.trial import Setup, best_row, measure, nothing_worked

SWEEP_TRIALS = row_schema(
    {
        # Its settings by dotted key as JSON, and what it was measured by, as an estimate over its repeats at the largest budget
        # that it was given.
        "parameters": str,
        "value low high": float,
        "n budget": int,
        # What it was worth at each budget, rising.
        "by_budget": [{"budget": int, "value": float}],
        # Whether the largest was a whole trial's, and where the runs of the trial lie, below the sweep's folder.
        "whole": bool,
        "runs": str,
    }
)
"""One trial of a sweep per row, in the order in which they were started."""


BEST, PLAN, AGAIN = "best.yaml", "plan", "again"
LEGEND = {
    "best": Metric("best", "as the sweep says", "of the trials that were given the whole budget: the best of many is too good"),
    AGAIN: Metric("measured again", "as the sweep says", "the same settings from seeds that chose nothing", main=True),
    "trials": Metric("trials", "neither", "that were started", "count", main=True),
    "whole": Metric("whole trials", "neither", "that were given the whole budget", "count"),
    "failed": Metric("failed trials", "lower: better", "that ended in an error; their rows say which", "count"),
}


@dataclass(frozen=True)
class Swept:
    """A sweep that can be made.

    Args:
        config: what was asked for.
        setup: what all trials have in common.
        again: what the best settings are worth in runs that chose nothing, once that is known.
    """

    config: SweepConfig
    setup: Setup
    again: Estimate = NOTHING


def _check_room(config: SweepConfig, session: RaySession, reporter: Reporter) -> None:
    """Check that one trial has room; a cluster may still grow."""
    import ray

    room = ray.cluster_resources()
    needed = {"CPU": 1 + config.trial_workers, "GPU": config.trial_workers * config.gpus_per_worker}
    available = {name: room.get(name, 0) for name in needed}
    lacking = [
        f"{needed[name]:g} {name}s wanted, {available[name]:g} there" for name in needed if needed[name] > available[name]
    ]
    if lacking and session.is_local:
        fix = "give fewer --trial-workers, or the --address of a cluster"
        raise ClusterError("there is too little room for one trial", got=", ".join(lacking), fix=fix)
    if lacking:
        reporter.say(f"the cluster must grow before a trial has room: {', '.join(lacking)}")


def measured_again(best: Mapping[str, Any], prepared: Swept, path: Path, reporter: Reporter) -> Estimate:
    """Measure the best settings in runs that chose nothing; return `NOTHING` if one of these fails.

    Args:
        best: the row of the trial.
        prepared: the sweep.
        path: its run.
        reporter: who looks on.

    Raises:
        RefusedModelError: one met it.
    """
    # A trial that failed may be the best once it is tried again: each has runs of its own.
    runs, parameters = path / AGAIN / best["item_key"], json.loads(best["parameters"])
    setup = replace(prepared.setup, repeats=prepared.config.measured_again)
    reporter.stage("measuring the best again", setup.repeats, "runs")
    try:
        return measure(parameters, setup, setup.budgets[-1], runs, lambda line: reporter.advance(0, line), AGAIN)
    except RefusedModelError:
        raise
    except ParleyError as error:
        reporter.say(f"the best settings failed from another seed: {error}")
        return NOTHING


def _metrics(rows: Sequence[Mapping[str, Any]], best: Mapping[str, Any], again: Estimate) -> dict[str, Estimate]:
    return {
        "best": Estimate.from_json(best),
        AGAIN: again,
        "trials": count(len(rows), len(rows)),
        "whole": count(sum(bool(row["whole"]) for row in rows), len(rows)),
        "failed": count(sum(row["status"] != OK for row in rows), len(rows)),
    }


def _write_best(path: Path, config: SweepConfig, plan: Plan, parameters: Mapping[str, Any]) -> None:
    """Write the sweep's settings and the best ones as a YAML file for `--config`."""
    values = flat(to_dict(plan.base(config.base, config.trial_workers, config.gpus_per_worker)))
    fixed = {key: values[key] for key in (setting.partition("=")[0] for setting in shlex.split(config.base))}
    document: dict[str, Any] = {}
    for key, value in {**fixed, **parameters}.items():
        put(document, key, value)
    words = find(plan.job).words
    head = f"# The best of a sweep: parley {' '.join(words)} {plan.preset} --config {display_path(path)}\n"
    try:
        write_whole(path, (head + yaml.safe_dump(document, sort_keys=True)).encode())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the best settings cannot be written", where=path, got=error.strerror, fix=fix) from None


def _of(name: str, **changes: Any) -> SweepConfig:
    return SweepConfig(sweep=name, **changes)


def gibbs_enum() -> SweepConfig:
    """Trigger search: list size, restarts, sweeps, lambda, k; rate of io hits, with a language model (He & Glass 2018)."""
    return _of("gibbs-enum", base="lm=runs/lm")


def rl_attack() -> SweepConfig:
    """Tune the RL attack: rate, discount, guards; its gain in other dialogues, over three seeds (Cheng et al. 2019)."""
    return _of("rl-attack", repeats=3)


def min_max() -> SweepConfig:
    """Adversarial training: rates, discount, guard, length of a phase; exploitability (Cheng et al. 2019)."""
    return _of("min-max", repeats=2)


def white_box() -> SweepConfig:
    """Tune the reactive attack: kappa, replaced words, proposals; advantage, target free to go on (Cheng et al. 2019)."""
    return _of("white-box")


def perturbation() -> SweepConfig:
    """Tune the strength of perturbations: share of changed replies, and likeness of contexts (Niu & Bansal 2018)."""
    strategies = "strategies=data-paraphrase,grammar-errors,random-swap"
    return _of("perturbation", base=strategies)


def adversarial_training() -> SweepConfig:
    """Should-Change training: alpha, margin, rate; margin won less loss on clean contexts (Niu & Bansal 2018)."""
    return _of("adversarial-training", base="strategies=antonym")


def ranking() -> SweepConfig:
    """Tune attacks on TF-IDF on the help desk: method, edits, budget, moves; success, less a thousandth a query."""
    return _of("ranking")


def ranking_training() -> SweepConfig:
    """Training of a matching model against rules: share of adversaries, rate; R@1 as they are and attacked."""
    return _of("ranking-training")


def replies() -> SweepConfig:
    """Adversarial training of a generator: rates, rollouts, teacher forcing, D steps; AdverSuc, less a tenth of a nat lost."""
    return _of("replies")


def demo() -> SweepConfig:
    """Take seconds, without a model: the scripted bargainer that gains most, and the length of a talk."""
    return _of("demo", num_trials=6, rungs=2)


_PRESETS = (
    gibbs_enum,
    rl_attack,
    min_max,
    white_box,
    perturbation,
    adversarial_training,
    ranking,
    ranking_training,
    replies,
    demo,
)


class Sweep(Job[SweepConfig, Swept, Swept]):
    """`parley sweep`."""

    words = ("sweep",)
    run_name = "sweep"
    config = SweepConfig
    presets = {preset.__name__.replace("_", "-"): preset for preset in _PRESETS}
    schema = SWEEP_TRIALS
    legend = LEGEND
    files = (SUMMARY, BEST, "rows")
    resume_safe = RESUME_SAFE

    def prepare(self, config: SweepConfig, path: Path, reporter: Reporter) -> Swept:
        plan = find_plan(config.sweep)
        base = plan.base(config.base, config.trial_workers, config.gpus_per_worker)
        budgets = config.budgets(plan.budget)
        plan.check_budget(base, budgets[-1])
        setup = Setup(
            plan=plan,
            base=base,
            budgets=budgets,
            repeats=config.repeats,
            seed=config.seed,
            run=display_path(path.absolute()),
            folder=Path.cwd(),
        )
        return Swept(config, setup)

    def work(self, run: RunFolder, prepared: Swept, reporter: Reporter) -> Swept:
        from parley.tune.driver import run_trials

        config, plan = prepared.config, prepared.setup.plan
        reporter.stage(f"sweeping {plan.job}", config.num_trials, "trials")
        reporter.advance(run.num_done, "starting Ray")
        with session(1 + config.trial_workers, config.address) as here:
            _check_room(config, here, reporter)
            run_trials(config, prepared.setup, run, reporter, here.start_timeout_s)
            rows = run.rows()
            best = best_row(rows, plan.direction)
            if best is None:
                raise nothing_worked(run, next((row["error"] for row in rows if row["status"] != OK), None))
            parameters = json.loads(best["parameters"])
            _write_best(run.path / BEST, config, plan, parameters)
            again = measured_again(best, prepared, run.path, reporter)
        settings = ", ".join(f"{key}={value}" for key, value in parameters.items())
        reporter.say(f"best: {settings}; {Estimate.from_json(best)} among the trials, {again} measured again")
        return replace(prepared, again=again)

    def measure(self, run: RunFolder, sweep: Swept) -> Summary:
        config, plan, rows = sweep.config, sweep.setup.plan, run.rows()
        best = best_row(rows, plan.direction)
        assert best is not None, "work ends without one"
        better = "higher" if plan.direction == "max" else "lower"
        runs = "one run each" if config.repeats == 1 else f"{config.repeats} runs each from different seeds"
        return Summary(
            f"sweep of {plan.job}: {config.sweep}",
            f"{len(rows)} trials of up to {sweep.setup.budgets[-1]:,} ({plan.fidelity}), {runs}; {plan.objective}, "
            f"{plan.direction}imum is best; seed {config.seed}.",
            _metrics(rows, best, sweep.again),
            # The page of a finished sweep must not need the plan, which may be a Python file.
            {PLAN: {"verb": shlex.join([*find(plan.job).words, plan.preset]), "objective": plan.objective, "better": better}},
        )

    def num_rows(self, config: SweepConfig, path: Path) -> int:
        return config.num_trials

    def present(self, result: Result, run: RunFolder) -> Result:
        plan = (run.summary() or {}).get(PLAN)
        if plan is None:
            return result
        titles = {"best": f"best {plan['objective']}", AGAIN: "  measured again"}
        better = f"{plan['better']}: better"
        entries = {name: LEGEND[name]._replace(title=title, direction=better) for name, title in titles.items()}
        return replace(result, legend=LEGEND | entries)

    def next_commands(self, config: SweepConfig, path: Path) -> tuple[str, ...]:
        report = super().next_commands(config, path)
        with reading_summary(path) as summary:
            if PLAN not in summary:
                return report
            again = ["parley", *shlex.split(summary[PLAN]["verb"]), "--config", display_path(path / BEST)]
        return (*report, shlex.join(again))


SWEEP = Sweep()
