"""What a sweep is about: a job, where it starts, which settings are turned, what is measured, and what a budget is.

`sweeps` is the list of them; one's own is `path/file.py:NAME` of a `Plan`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import Any, Literal

from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import Job
from parley.envs.core.config import assign, with_values
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, nearest
from parley.tune.space import Space, check_space

sweeps = Registry("sweep", "parley.sweeps")
for _name, _summary, _attribute in (
    ("gibbs-enum", "trigger search: list size, restarts, sweeps, weight of the language model, k of the hits", "GIBBS_ENUM"),
    ("rl-attack", "the RL attack: rate, discount, guards", "RL_ATTACK"),
    ("min-max", "adversarial training: both rates, discount, guard, length of a phase", "MIN_MAX"),
    ("white-box", "the reactive attack: margin, replaced words, proposals", "WHITE_BOX"),
    ("perturbation", "how hard perturbations must be to change replies", "PERTURBATION"),
    ("adversarial-training", "training against perturbations: weight, margin, rate", "ADVERSARIAL_TRAINING"),
    ("ranking", "attacks on TF-IDF: method, edits, budget, moves, beams, tags", "RANKING"),
    ("ranking-training", "training of matching models against rules: share of adversaries, rate", "RANKING_TRAINING"),
    ("replies", "adversarial training of a generator: rates, rollouts, teacher forcing, discriminator steps", "REPLIES"),
    ("demo", "two scripted bargainers, in seconds", "DEMO"),
):
    sweeps.register(_name, _summary, f"parley.tune.plans:{_attribute}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One sweep.

    Args:
        job: whose settings are turned, by the name that run folders carry.
        preset: where they start.
        space: which settings, by dotted key.
        metrics: what is measured, by the names of the job's metrics; of several, their mean. A minus before a name turns it
            round, for a metric whose better direction is the other one; a number and a star are its weight. Settings in
            braces are those of the trial: "success@{budget}.tfidf.{method}".
        direction: which way is better.
        fidelity: the setting that says how large a trial is, such as targets or dialogues.
        budget: its value in a whole trial.
        workers: the setting that says how many Ray actors a trial has; empty for a job that has none.
    """

    job: str
    preset: str
    space: Space
    metrics: tuple[str, ...]
    direction: Literal["max", "min"]
    fidelity: str
    budget: int
    workers: str = "workers"

    @property
    def objective(self) -> str:
        """What is measured, in words."""
        return self.metrics[0] if len(self.metrics) == 1 else f"mean of {', '.join(self.metrics)}"

    def terms(self, config: Any) -> dict[str, float]:
        """The weights of the metrics of a trial, below 0 for those that are to fall, by their names.

        Raises:
            ConfigError: braces hold no setting, or no number stands before a star.
        """
        settings = {setting.name: getattr(config, setting.name) for setting in fields(config)}
        found = {}
        for metric in self.metrics:
            weight, star, name = metric.removeprefix("-").rpartition("*")
            try:
                sized = float(weight) if star else 1.0
                found[name.format_map(settings)] = -sized if metric.startswith("-") else sized
            except (AttributeError, KeyError, ValueError) as error:
                fix = 'such as "-0.001*queries.{method}", a setting of the job in braces'
                what = "this is no metric of a sweep"
                raise ConfigError(what, where=f"sweep of {self.job}", got=repr(metric), fix=fix) from error
        return found

    def load(self) -> Job[Any, Any, Any]:
        """Imports the job."""
        return find(self.job).load()

    def base(self, settings: str, num_workers: int, gpus_per_worker: float = 0.0) -> Any:
        """What every trial has in common.

        Args:
            settings: KEY=VALUE words laid over the preset.
            num_workers: Ray actors of a trial.
            gpus_per_worker: GPUs of each; a job whose actors take none does not know the setting.

        Raises:
            ConfigError: a setting or a key of the space is not there (with the nearest name) or not allowed, or turned and
                set at once; or the job does not measure what is wanted.
        """
        where = f"sweep of {self.job}"
        assigned = shlex.split(settings)
        fixed = {setting.partition("=")[0] for setting in assigned}
        if taken := sorted(fixed & {*self.space, self.fidelity, self.workers, "seed"}):
            fix = "leave it out; --budget, --trial-workers and --seed say the others"
            raise ConfigError(
                "a setting that the sweep itself decides cannot be set", where=where, got=", ".join(taken), fix=fix
            )
        if num_workers and not self.workers:
            raise ConfigError("a trial of this job has no workers", where=where, got=num_workers, fix="--trial-workers 0")
        job = self.load()
        config = assign(job.presets[self.preset](), assigned, "--base")
        check_space(config, self.space, where)
        actors: dict[str, float] = {self.workers: num_workers} if self.workers else {}
        if gpus_per_worker:
            actors["runner_gpus" if self.workers == "env_runners" else "gpus_per_worker"] = gpus_per_worker
        config = with_values(config, {self.fidelity: self.budget, **actors}, where)
        self._check_metrics(config, where)
        return config

    def check_budget(self, base: Any, budget: int) -> None:
        """Finds out whether there is enough to work on, which may read models and data.

        Args:
            base: what every trial has in common.
            budget: of a whole trial.

        Raises:
            ConfigError: there is less.
            ParleyError: what the job itself says of models or data that it cannot read.
        """
        where = f"sweep of {self.job}"
        there = self.load().num_items(with_values(base, {self.fidelity: budget}, where))
        if there is not None and there < budget:
            raise ConfigError(
                "the budget is larger than the data",
                where=where,
                got=f"{budget:,} wanted, {there:,} there",
                fix=f"--budget {there}",
            )

    def _check_metrics(self, config: Any, where: str) -> None:
        known = self.load().metrics_of(config)
        if known is None:
            return
        for name in self.terms(config):
            if name not in known:
                what = f"the job measures no {name!r}{nearest(name, known)}"
                raise ConfigError(what, where=where, fix=f"metrics: {', '.join(sorted(known))}")


def find_plan(name: str) -> Plan:
    """The plan of that name.

    Raises:
        ConfigError: there is none (with the nearest name), or its preset is none of the job's.
    """
    plan = sweeps.get(name)
    if not isinstance(plan, Plan):
        raise ConfigError("a sweep is told by a parley.tune.plan.Plan", where=name, got=type(plan).__name__)
    presets = plan.load().presets
    if plan.preset not in presets:
        what = f"no preset of {plan.job} is called {plan.preset!r}{nearest(plan.preset, presets)}"
        raise ConfigError(what, where=name, fix=f"presets: {', '.join(presets)}")
    return plan
