"""A learner in an actor of its own: the same updates as in this process, and how its death is told."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.exceptions import RayError

from parley.engine.core.ray.identity import CODE, own_identity
from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.distributed_rollouts import LearnerLostError
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.env import TARGET
from parley.engine.negotiation.rl.learner import DialogueLearner
from parley.envs.core.errors import CheckpointError, ClusterError
from tests.engine.negotiation.rl.trainings import GUARDED, Built, Recording, World, equal_weights, kill_learner

pytestmark = pytest.mark.ray


Build = Callable[..., Recording]


@pytest.fixture
def build(world: World, built: Built) -> Build:
    """Builds algorithms that harden a target, their learner in this process or in its own."""

    def make(remote: bool = True, rule: ReinforceConfig = GUARDED, learner: type = DialogueLearner) -> Recording:
        settings = world.settings(rule, kind=Recording, roster=world.hardening())
        settings.learners(num_learners=int(remote))
        settings.training(learner_class=learner)
        return built(settings)

    return make


@pytest.mark.slow
def test_a_learner_of_its_own_makes_the_same_weights(build: Build, tmp_path: Path) -> None:
    here, there, resumed = build(remote=False), build(), build()
    for _ in range(3):
        here.train()
        there.train()
        learned = state.learned_weights(there)
        assert equal_weights(state.learned_weights(here), learned)
        assert equal_weights(dict(there.env_runner.module[TARGET].net.state_dict()), learned)
    # What one of them saved, the other goes on from.
    state.save(here, tmp_path / "state")
    assert state.restore(resumed, tmp_path / "state") == 3
    for algorithm in (here, resumed):
        algorithm.train()
        algorithm.train()
    assert equal_weights(state.learned_weights(here), state.learned_weights(resumed))
    assert not equal_weights(state.learned_weights(here), learned)


@pytest.mark.slow
def test_a_dead_learner_is_told_wherever_it_is_called(build: Build, tmp_path: Path) -> None:
    algorithm = build()
    algorithm.train()
    state.save(algorithm, tmp_path / "state")
    kill_learner(algorithm)
    calls: dict[str, Callable[[], Any]] = {
        "train": algorithm.train,
        "weights to the runners": algorithm.send_weights,
        "learned weights": lambda: state.learned_weights(algorithm),
        "save": lambda: state.save(algorithm, tmp_path / "other"),
        "set state": lambda: algorithm.learner_group.set_state({"learner": {}}),
        "restore": lambda: state.restore(algorithm, tmp_path / "state"),
    }
    for name, call in calls.items():
        # RLlib still takes it for healthy, and finds out.
        algorithm.learner_group._worker_manager.set_actor_state(0, healthy=True)
        with pytest.raises(LearnerLostError, match="the learner is gone") as found:
            call()
        assert isinstance(found.value.__cause__, RayError), name
        # RLlib knows, and would call nobody.
        with pytest.raises(LearnerLostError, match="did not answer an earlier call"):
            call()
    assert not (tmp_path / "other").exists()
    assert algorithm.training_iteration == 1


@pytest.mark.slow
def test_a_learner_that_dies_at_work_is_told(build: Build) -> None:
    algorithm = build()
    algorithm.train()
    (actor,) = algorithm.learner_group._workers
    # It dies with the update in its queue.
    actor.apply.remote(lambda _: time.sleep(1) or os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(LearnerLostError, match="died"):
        algorithm.train()
    assert algorithm.training_iteration == 1


class Stillborn(DialogueLearner):
    """Is killed while it is built."""

    def build(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Unbuildable(DialogueLearner):
    """Cannot be built."""

    def build(self) -> None:
        raise CheckpointError("the checkpoint is damaged", where="weights", fix="train again")


@pytest.mark.slow
def test_a_learner_that_dies_before_it_is_ready_is_told_and_its_errors_are_its_own(build: Build) -> None:
    with pytest.raises(LearnerLostError, match="the learner is gone"):
        build(learner=Stillborn)
    with pytest.raises(CheckpointError, match="damaged") as found:
        build(learner=Unbuildable)
    assert type(found.value) is CheckpointError
    assert found.value.where == "weights"


@pytest.mark.slow
def test_a_learner_of_other_code_is_refused(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.engine.negotiation.rl.algorithm.own_identity", lambda: own_identity() | {CODE: "another"})
    with pytest.raises(ClusterError, match=r"other code than this process(.|\n)*instead of another"):
        build()


def test_a_divergence_reads_the_same_from_a_learner_of_its_own(build: Build) -> None:
    told = []
    for remote in (False, True):
        algorithm = build(remote)
        algorithm.train()
        algorithm._centered = lambda names, rewards: np.full(len(rewards), np.nan)  # type: ignore[method-assign]  # a stub
        with pytest.raises(DivergenceError) as found:
            algorithm.train()
        told.append((type(found.value), str(found.value), found.value.got))
    assert told[0] == told[1]
