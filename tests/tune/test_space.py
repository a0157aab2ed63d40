"""Spaces are checked against the job before anything starts; every sweep that ships fits its job."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from parley.engine.triggers.methods.settings import SearchSettings
from parley.envs.core.config import put, with_values
from parley.envs.core.errors import ConfigError
from parley.tune.config import SweepConfig
from parley.tune.plan import check_space, find_plan, sweeps
from parley.tune.sweep import SWEEP
from tests.tune import plans


@pytest.mark.parametrize("preset", SWEEP.presets)
def test_every_shipped_sweep_fits_its_job(preset: str) -> None:
    config = SWEEP.presets[preset]()
    plan = find_plan(config.sweep)
    base = plan.base(config.base, 0)
    assert type(base) is plan.load().config
    assert with_values(base, {plan.fidelity: config.budgets(plan.budget)[0]}, "test") != base or config.rungs == 1


def test_only_what_the_job_can_measure_is_an_objective() -> None:
    with pytest.raises(ConfigError, match="measures no 'advantag', did you mean 'advantage'"):
        plans.UNMEASURED.base("", 0)


@pytest.mark.parametrize(
    ("settings", "metric"),
    [("hit=o-greedy", "hit_rate.io-sample-min-k1"), ("lm=runs/lm", "hit_rate.io-sample-min-k5"), ("lm=runs/lm", "hits")],
)
def test_hit_rates_are_those_that_the_search_reads(settings: str, metric: str) -> None:
    plan = replace(find_plan("gibbs-enum"), metrics=(metric,), space={})
    with pytest.raises(ConfigError, match="measures no"):
        plan.base(settings, 0)


def test_change_rates_are_those_of_the_strategies_asked_for() -> None:
    plan = find_plan("perturbation")
    with pytest.raises(ConfigError, match=r"measures no 'change_rate\.base\.data-paraphrase'"):
        plan.base("strategies=antonym", 0)
    # Of a strategy of a user's own only the run can tell the name.
    plan.base("strategies=mine.py:Mine", 0)


def test_a_minus_turns_a_metric_round() -> None:
    plan = plans.TURNED_ROUND
    assert plan.terms(plan.base("", 0)) == {"advantage": 1, "turns": -1}
    assert plan.objective == "mean of advantage, -turns"


def test_a_metric_may_be_named_by_what_is_turned_and_have_a_weight() -> None:
    plan = find_plan("ranking")
    config = with_values(plan.base("", 0), {"method": "random", "budget": 73}, "trial")
    assert plan.terms(config) == {"success@73.tfidf.random": 1.0, "queries_asked.tfidf.random": -0.001}


@pytest.mark.parametrize("metric", ["score.{side}", "heavy*score", "score.{budget"])
def test_a_metric_that_cannot_be_read_is_an_error(metric: str) -> None:
    with pytest.raises(ConfigError, match="this is no metric of a sweep"):
        replace(plans.SMALL, metrics=(metric,)).base("", 0)


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_noise_pays_no_generator(noise: float) -> None:
    """A share of replies that are people's to other sources is .5 in both figures, to judges that read replies."""
    plan = find_plan("replies")
    terms = plan.terms(plan.base("", 0))

    def objective(adversuc: float, random: float) -> float:
        figures = {"validation_adversuc": adversuc, "validation_random": random, "validation_nll": 3.0}
        return sum(weight * figures[name] for name, weight in terms.items())

    def noisy(value: float) -> float:
        return (1 - noise) * value + noise * 0.5

    trained = 0.098, 0.952
    assert objective(*trained) > objective(*map(noisy, trained)), "Li et al. 2017, table 3: Adver-REGS"
    assert noisy(trained[0]) > trained[0], "by AdverSuc alone it would pay"


def test_presets_are_the_registered_sweeps() -> None:
    assert set(SWEEP.presets) == set(sweeps)


def test_unknown_field_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'max_turns'"):
        plans.UNKNOWN.base("", 0)


def test_bound_that_is_not_allowed_is_told() -> None:
    with pytest.raises(ConfigError, match="max_turns is out of range"):
        plans.FORBIDDEN.base("", 0)


def test_a_setting_is_no_section() -> None:
    with pytest.raises(ConfigError, match="is a setting and not a section"):
        with_values(SearchSettings(), {"candidates.of": 1}, "test")


def test_what_is_swept_cannot_be_set() -> None:
    with pytest.raises(ConfigError, match="decides"):
        plans.SMALL.base("max_turns=5", 0)


@pytest.mark.parametrize("settings", ["temperature", "temperatur=1", "temperature.of=1", "temperature=["])
def test_mistakes_in_the_base_name_its_flag(settings: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--base {settings}")):
        plans.SMALL.base(settings, 0)


def test_base_and_workers_reach_the_job() -> None:
    config = plans.SMALL.base("temperature=0.25 target=scripted-tough", 2)
    assert (config.temperature, config.target, config.workers, config.dialogues) == (0.25, "scripted-tough", 2, 8)


def test_gpus_reach_the_job_or_are_refused() -> None:
    assert plans.SMALL.base("", 1, 0.5).gpus_per_worker == 0.5
    attack = find_plan("rl-attack").base("", 1, 0.5)
    assert (attack.runner_gpus, attack.gpus_per_worker) == (0.5, 0), "its actors are env runners"
    with pytest.raises(ConfigError, match="unknown key 'runner_gpus'"):
        find_plan("replies").base("", 1, 0.5)


def test_jobs_without_actors_say_so() -> None:
    with pytest.raises(ConfigError, match="no workers"):
        find_plan("adversarial-training").base("", 1)


def test_unknown_sweep_is_told_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'gibbs-enum'"):
        find_plan("gibs-enum")


@pytest.mark.parametrize(
    ("rungs", "whole", "expected"),
    [(1, 90, (90,)), (3, 90, (10, 30, 90)), (3, 100, (11, 33, 100)), (3, 2, (1, 2)), (4, 1, (1,))],
)
def test_budgets_rise_to_the_whole(rungs: int, whole: int, expected: tuple[int, ...]) -> None:
    assert SweepConfig(sweep="demo", rungs=rungs).budgets(whole) == expected


def test_dotted_keys_are_sections_within_sections() -> None:
    document: dict[str, Any] = {}
    for key, value in {"a.b": 1, "a.c": 2, "d": 3}.items():
        put(document, key, value)
    assert document == {"a": {"b": 1, "c": 2}, "d": 3}


def test_check_space_takes_corners_of_choices() -> None:
    check_space(plans.SMALL.load().presets["scripted"](), plans.SMALL.space, "test")
