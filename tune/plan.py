"""The plan of a sweep: its job, the preset to start from, the settings to tune, the metric, and the budget.

`sweeps` is the list of them; one's own is `path/file.py:NAME` of a `Plan`. A space is a mapping from dotted keys of the job's
configuration to typed bounds. It is checked against the configuration before anything starts. Bounds lie an order of magnitude
around what the papers or our presets use. Torch-free and Ray-free.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import Job
from parley.envs.core.config import assign, with_values
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry, nearest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


ConfigT = TypeVar("ConfigT")
Value = str | int | float | bool


@dataclass(frozen=True)
class Choice:
    """One of some values, in no order."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Integer:
    """A whole number from `low` to `high`, both included; `log` draws its magnitude evenly."""

    low: int
    high: int
    log: bool = False


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; `log` draws its magnitude evenly."""

    low: float
    high: float
    log: bool = False


Domain = Choice | Integer | Real
Space = Mapping[str, Domain]
"""The domain of each dotted key."""


def distribution(domain: Domain) -> BaseDistribution:
    """Return a domain as Optuna's distribution."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.values)
    kind = IntDistribution if isinstance(domain, Integer) else FloatDistribution
    return kind(domain.low, domain.high, log=domain.log)  # type: ignore[arg-type]  # a whole number's ends are whole


def corners(domain: Domain) -> tuple[Value, ...]:
    """Return values of a domain that must be allowed for all others to be allowed."""
    return domain.values if isinstance(domain, Choice) else (domain.low, domain.high)


def check_space(config: Any, space: Space, where: str) -> None:
    """Check that every setting of a space exists and may take its values.

    Args:
        config: what the sweep turns settings of.
        space: which ones.
        where: who asks, for messages.

    Raises:
        ConfigError: no such key (with the nearest name), or a corner of the space that is not allowed.
    """
    for key, domain in space.items():
        for corner in corners(domain):
            with_values(config, {key: corner}, where)


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
    sweeps.register(_name, _summary, f"parley.tune.plan:{_attribute}")


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
        fidelity: the setting for the size of a trial, such as targets or dialogues.
        budget: its value in a whole trial.
        workers: the setting for the Ray actors of a trial; empty for a job that has none.
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
        """Return the objective in words."""
        return self.metrics[0] if len(self.metrics) == 1 else f"mean of {', '.join(self.metrics)}"

    def terms(self, config: Any) -> dict[str, float]:
        """Return the weight of each metric of a trial, by name; below 0 for a metric that is to fall.

        Raises:
            ConfigError: braces hold no setting, or no number stands before a star.
        """
        settings = {setting.name: getattr(config, setting.name) for setting in fields(config)}
        weights = {}
        for metric in self.metrics:
            weight, star, name = metric.removeprefix("-").rpartition("*")
            try:
                sized = float(weight) if star else 1.0
                weights[name.format_map(settings)] = -sized if metric.startswith("-") else sized
            except (AttributeError, KeyError, ValueError) as error:
                fix = 'such as "-0.001*queries.{method}", a setting of the job in braces'
                what = "this is no metric of a sweep"
                raise ConfigError(what, where=f"sweep of {self.job}", got=repr(metric), fix=fix) from error
        return weights

    def load(self) -> Job[Any, Any, Any]:
        """Import the job."""
        return find(self.job).load()

    def base(self, settings: str, num_workers: int, gpus_per_worker: float = 0.0) -> Any:
        """Return the configuration that all trials share.

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
        """Check that the job has as many items as the budget; this may read models and data.

        Args:
            base: what every trial has in common.
            budget: of a whole trial.

        Raises:
            ConfigError: there is less.
            ParleyError: the job cannot read models or data.
        """
        where = f"sweep of {self.job}"
        num_items = self.load().num_items(with_values(base, {self.fidelity: budget}, where))
        if num_items is not None and num_items < budget:
            raise ConfigError(
                "the budget is larger than the data",
                where=where,
                got=f"{budget:,} wanted, {num_items:,} there",
                fix=f"--budget {num_items}",
            )

    def _check_metrics(self, config: Any, where: str) -> None:
        measurable = self.load().metrics_of(config)
        if measurable is None:
            return
        for name in self.terms(config):
            if name not in measurable:
                what = f"the job measures no {name!r}{nearest(name, measurable)}"
                raise ConfigError(what, where=where, fix=f"metrics: {', '.join(sorted(measurable))}")


def find_plan(name: str) -> Plan:
    """Return the plan of that name.

    Raises:
        ConfigError: there is none (with the nearest name), or its preset is none of the job's.
    """
    plan = sweeps.get(name)
    if not isinstance(plan, Plan):
        raise ConfigError("a sweep is a parley.tune.plan.Plan", where=name, got=type(plan).__name__)
    presets = plan.load().presets
    if plan.preset not in presets:
        what = f"no preset of {plan.job} is called {plan.preset!r}{nearest(plan.preset, presets)}"
        raise ConfigError(what, where=name, fix=f"presets: {', '.join(presets)}")
    return plan


GIBBS_ENUM = Plan(
    job="search",
    preset="quick",
    space={
        "search.candidates": Integer(10, 400, log=True),
        "search.restarts": Integer(1, 10),
        "search.max_sweeps": Integer(2, 50, log=True),
        "objective.lm_weight": Real(0.1, 10.0, log=True),
        # What is wanted changes what the search goes for; what is measured stays the same type. Only io types weigh the input.
        "hit": Choice(("io-sample-min-k1", "io-sample-min-k2", "io-sample-min-k3")),
    },
    metrics=("hit_rate.io-sample-min-k1",),
    direction="max",
    fidelity="limit",
    budget=90,
)
RL_ATTACK = Plan(
    job="evaluate-exploitability",
    preset="cheng2019",
    space={
        "reinforce.learning_rate": Real(3e-5, 3e-3, log=True),
        "reinforce.gamma": Real(0.8, 1.0),
        "reinforce.kl_weight": Real(0.01, 2.0, log=True),
        "reinforce.supervised_weight": Real(0.05, 2.0, log=True),
    },
    # In dialogues that it did not learn from, the target free to go on. Exploitability would count other adversaries too.
    metrics=("mean_fresh",),
    direction="max",
    fidelity="reinforce.dialogues",
    budget=64_000,
    workers="env_runners",
)
MIN_MAX = Plan(
    job="minmax",
    preset="cheng2019",
    space={
        "attack.learning_rate": Real(3e-5, 3e-3, log=True),
        "defence.learning_rate": Real(3e-5, 3e-3, log=True),
        "defence.gamma": Real(0.8, 1.0),
        "defence.kl_weight": Real(0.01, 2.0, log=True),
        "defence.dialogues": Integer(3_200, 51_200, log=True),
    },
    metrics=("exploitability",),
    direction="min",
    fidelity="rounds",
    budget=9,
)
WHITE_BOX = Plan(
    job="attack-reactive",
    preset="cheng2019",
    space={
        "search.kappa": Real(0.0, 5.0),
        "search.max_replacements": Integer(1, 6),
        "search.proposals": Choice(("pad-scan", "exhaustive", "gradient", "random")),
    },
    metrics=("advantage",),
    direction="max",
    fidelity="dialogues",
    budget=900,
)
PERTURBATION = Plan(
    job="evaluate-robustness",
    preset="quick",
    space={
        "perturb.paraphrase_rate": Real(0.1, 1.0),
        "perturb.grammar_rate": Real(0.1, 1.0),
        "perturb.swap_every": Integer(2, 12),
    },
    # Replies are to change though contexts hardly do; the most words change the most replies, which says nothing.
    metrics=tuple(
        f"{kind}.base.{strategy}"
        for kind in ("change_rate", "context_similarity")
        for strategy in ("data-paraphrase", "grammar-errors", "random-swap")
    ),
    direction="max",
    fidelity="limit",
    budget=900,
)
ADVERSARIAL_TRAINING = Plan(
    job="train-adversarial",
    preset="niu2018",
    space={
        "alpha": Real(0.1, 10.0, log=True),
        "margin": Real(0.01, 1.0, log=True),
        "fit.learning_rate": Real(2e-5, 2e-3, log=True),
    },
    # What replies lose by contexts that should change them, less what they lose on clean ones, both in nats per word.
    metrics=("margin", "-test_nll"),
    direction="max",
    fidelity="fit.max_epochs",
    budget=9,
    workers="",
)
RANKING = Plan(
    job="attack-ranking",
    preset="helpdesk",
    space={
        "method": Choice(("greedy", "beam", "random")),
        "edits": Integer(1, 6),
        "budget": Integer(10, 500, log=True),
        # Of the beam alone; one takes the best edit, one after the other.
        "attack.beams": Integer(1, 16, log=True),
        "moves": Choice(("context", "context,synonym", "context,insertion", "context,synonym,insertion,deletion,swap")),
        "attack.keep_tags": Choice((True, False)),
    },
    # A larger budget finds no less, so that queries have a price: a hundred of them that of a tenth of all successes.
    metrics=("success@{budget}.tfidf.{method}", "-0.001*queries_asked.tfidf.{method}"),
    direction="max",
    fidelity="limit",
    budget=90,
)
RANKING_TRAINING = Plan(
    job="train-matcher",
    preset="hardened",
    space={"adversary_share": Real(0.02, 1.0, log=True), "fit.learning_rate": Real(1e-4, 3e-3, log=True)},
    # Right replies first among candidates as they are, and as adversaries leave them: one is easily won by losing the other.
    metrics=("validation_r@1", "validation_r@1_attacked"),
    direction="max",
    fidelity="fit.max_epochs",
    budget=6,
    workers="",
)
REPLIES = Plan(
    job="minmax-replies",
    preset="helpdesk",
    space={
        "learning.generator_rate": Real(1e-5, 3e-3, log=True),
        "learning.discriminator_rate": Real(1e-4, 1e-2, log=True),
        "learning.discriminator_steps": Integer(0, 8),
        "learning.teacher_steps": Integer(0, 3),
        "num_rollouts": Integer(1, 8, log=True),
    },
    # Of the best round. AdverSuc never without machine-vs-random: their sum is 1 of random replies of people (.5 and .5), of
    # one reply to everybody and of none (0 and 1); with every share of noise it nears 1, so that noise pays nobody above that.
    # What replies lose on recorded ones has a price: a judge is deceived by much that nobody says.
    metrics=("validation_adversuc", "validation_random", "-0.1*validation_nll"),
    direction="max",
    fidelity="learning.rounds",
    budget=9,
    workers="env_runners",
)
DEMO = Plan(
    job="selfplay",
    preset="scripted",
    space={"adversary": Choice(("scripted", "scripted-tough")), "max_turns": Integer(4, 20)},
    metrics=("advantage",),
    direction="max",
    fidelity="dialogues",
    budget=180,
)
