"""Stages that actors do whole: their settings there and what they reserve, alone on a machine and on a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from parley.engine.core.ray.shares import Share
from parley.engine.core.verbs.job import Job
from parley.engine.core.verbs.stage_progress import settings_of, share_of
from parley.engine.negotiation.verbs.campaign import MinMaxConfig
from parley.engine.negotiation.verbs.exploitability import EVALUATE_EXPLOITABILITY
from parley.engine.negotiation.verbs.minmax import MINMAX
from parley.engine.negotiation.verbs.negotiator import TrainNegotiatorConfig
from parley.engine.negotiation.verbs.table import ATTACK_TABLE
from parley.engine.negotiation.verbs.training import TRAIN_ADVERSARY, TrainReinforceConfig
from parley.engine.negotiation.verbs.whitebox import ATTACK_RL, AttackConfig

CPU = (1.0, 0.0)
training, attack = partial(TrainReinforceConfig, target="t"), partial(AttackConfig, speaker="s", target="t")


def changed(config: Any, machine: str) -> dict[str, Any]:
    """The settings that are others there."""
    found = settings_of(config, machine)
    return {name: value for name, value in vars(found).items() if value != getattr(config, name)}


def test_on_one_machine_a_training_is_as_it_was_asked_for_and_reserves_all_of_it() -> None:
    plain = training(seeds=1, trainers=3, address="there")
    assert changed(plain, "") == {"trainers": 0, "address": ""}
    assert share_of([plain], "") == Share(CPU)
    assert share_of([training(env_runners=2, runner_gpus=0.5)], "") == Share(CPU, ((1.0, 0.5), (1.0, 0.5)))
    several = training(learners=2, threads=4, learner_gpus=0.5)
    assert share_of([several], "") == Share(CPU, ((4.0, 0.5), (4.0, 0.5)))
    assert share_of([training(learner_gpus=0.5)], "") == Share((1.0, 0.5))
    assert share_of([plain, attack(workers=8, gpus_per_worker=0.25)], "") == Share((1.0, 0.25)), "a match in its process"


def test_on_a_cluster_it_learns_and_plays_wherever_there_is_room() -> None:
    config = training(trainers=2, address="there")
    apart = {"trainers": 0, "address": "", "remote_learner": True, "env_runners": 1}
    assert changed(config, "here") == apart
    assert share_of([config], "here") == Share((0.0, 0.0), (CPU, CPU), "here"), "learner and env runner"
    assert changed(training(env_runners=3), "here") == {"remote_learner": True}
    # Its matches are played by a worker where the env runner was.
    assert changed(attack(), "here") == {"workers": 1}
    assert share_of([config, attack(gpus_per_worker=0.5)], "here") == Share((0.0, 0.0), ((1.0, 0.5), CPU), "here")
    assert changed(MinMaxConfig(), "here") == {"workers": 1, "remote_learner": True, "env_runners": 1}


def test_a_fit_is_one_process_on_the_drivers_machine() -> None:
    fit = TrainNegotiatorConfig()
    assert changed(fit, "here") == {}
    assert share_of([fit], "here") == Share(CPU, (), "here")
    # Beside trainings, whose machine may have no CPUs for work, it reserves none.
    assert share_of([fit, training()], "here") == Share((0.0, 0.0), (CPU, CPU), "here")


@pytest.mark.parametrize(
    "job", [TRAIN_ADVERSARY, MINMAX, EVALUATE_EXPLOITABILITY, ATTACK_RL, ATTACK_TABLE], ids=lambda job: job.name
)
def test_settings_that_change_there_change_no_row(job: Job[Any, Any, Any]) -> None:
    config = next(iter(job.presets.values()))()
    assert {*changed(config, ""), *changed(config, "here")} <= {*job.resume_safe}
