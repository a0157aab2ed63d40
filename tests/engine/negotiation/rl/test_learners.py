"""Several learners, and play that overlaps with learning: the updates that they make, whoever makes them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.distributed_rollouts import LearnerLostError, shared_batches
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.generation.rl.replies import ReplyMinMax
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.env import ADVERSARY
from parley.envs.core.errors import ConfigError
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.settings import KIND
from parley.policies.negotiator.speaker import load_model
from tests.engine.generation.rl import replies
from tests.engine.negotiation.rl.trainings import GUARDED, SIZES, SMALL, Built, Recording, World, equal_weights

RULE = replace(GUARDED, optimiser="sgd", learning_rate=0.5, dialogues_per_update=13, supervised_batch=5)
"""Sizes that two learners cannot share evenly."""
Build = Callable[..., Recording]


@pytest.fixture
def build(world: World, built: Built) -> Build:
    """Builds algorithms and stops them after the test."""

    def make(rule: ReinforceConfig = RULE, num_learners: int = 0, kind: type[Recording] = Recording, **rest: Any) -> Recording:
        settings = world.settings(rule, kind=kind, **rest)
        settings.learners(num_learners=num_learners)
        return built(settings)

    return make


@pytest.fixture(scope="module")
def undropped(world: World) -> str:
    """A learner without dropout, whose draws are of each learner's own."""
    sizes = replace(SIZES, dropout=0.0)
    weights = load_model(world.folder / ADVERSARY).state_dict()
    Checkpoint(KIND, dict(vars(sizes)), {}, world.vocabulary, weights).save(world.folder / "undropped")
    return str(world.folder / "undropped")


def trained(algorithm: Recording, updates: int) -> dict[str, torch.Tensor]:
    for _ in range(updates):
        algorithm.train()
    return state.learned_weights(algorithm)


@pytest.mark.ray
def test_two_learners_make_the_update_of_one_and_hold_the_same_weights(build: Build, undropped: str, world: World) -> None:
    alone, both = build(learner=undropped), build(num_learners=2, learner=undropped)
    one, two = trained(alone, 2), trained(both, 2)
    moved = {name: value - load_model(Path(undropped)).state_dict()[name] for name, value in one.items()}
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-2 * float(moved[name].abs().max()) + 1e-6, rtol=1e-4)
    sums = both.learner_group.foreach_learner(
        lambda learner: sum(float(value.double().abs().sum()) for value in learner.module[ADVERSARY].net.state_dict().values())
    )
    first, second = (answer.get() for answer in sums)
    assert first == second


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("rule", [replace(RULE, supervised_weight=0.0), replace(RULE, supervised_batch=1), GUARDED])
def test_two_learners_need_no_corpus_rows_each(build: Build, rule: ReinforceConfig) -> None:
    algorithm = build(rule, num_learners=2)
    start = {name: value.clone() for name, value in state.learned_weights(algorithm).items()}
    assert not equal_weights(trained(algorithm, 2), start)


class Ruined(Recording):
    """A reward that is not a number in one dialogue, of which one learner alone hears."""

    def rewards(self, played: dict[str, Any]) -> np.ndarray:
        return super().rewards(played) * np.where(played["index"] == 1, np.nan, 1.0)

    def _centered(self, opponents: list[str], rewards_N: np.ndarray) -> np.ndarray:
        return rewards_N


@pytest.mark.ray
@pytest.mark.slow
def test_a_gradient_that_is_no_number_ends_all_learners_before_their_step(build: Build) -> None:
    algorithm = build(num_learners=2, kind=Ruined)
    start = state.learned_weights(algorithm)
    with pytest.raises(DivergenceError, match="not finite"):
        algorithm.train()
    # RLlib asks nobody any more who has raised an error.
    for number in (0, 1):
        algorithm.learner_group._worker_manager.set_actor_state(number, healthy=True)
    assert equal_weights(state.learned_weights(algorithm), start)


@pytest.mark.ray
@pytest.mark.slow
def test_the_death_of_one_of_two_learners_is_told(build: Build) -> None:
    algorithm = build(num_learners=2)
    algorithm.train()
    algorithm.learner_group._workers[1].apply.remote(lambda _: time.sleep(1) or os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(LearnerLostError, match="the learner is gone"):
        algorithm.train()


def test_learners_share_what_was_played_and_the_corpus_rows() -> None:
    rows = SampleBatch({"supervised": np.arange(18) >= 13, "index": np.arange(18)})
    shares = [batch["adversary"] for batch in shared_batches(MultiAgentBatch({"adversary": rows}, 70), 4)]
    assert sorted(np.concatenate([share["index"] for share in shares])) == list(range(18))
    assert {int(share["supervised"].sum()) for share in shares} == {1, 2}
    assert {len(share["index"]) for share in shares} == {4, 5}


def test_an_algorithm_of_one_learner_refuses_two(tmp_path: Path) -> None:
    settings = replies.settings(tmp_path)
    settings.learners(num_learners=2)
    with pytest.raises(ConfigError, match="ReplyMinMax has one learner"):
        ReplyMinMax.setup(object.__new__(ReplyMinMax), settings)


OVERLAPPING = replace(SMALL, overlap=True, dialogues=5 * SMALL.dialogues_per_update)


@pytest.mark.ray
def test_dialogues_that_overlap_are_spoken_with_weights_one_update_older(build: Build, tmp_path: Path) -> None:
    plain, here, there, resumed = build(SMALL), build(OVERLAPPING), build(OVERLAPPING, env_runners=1), build(OVERLAPPING)
    trained(plain, 2)
    learned = [trained(algorithm, 3) for algorithm in (here, there)]
    assert equal_weights(*learned), "an env runner in an actor plays what this process plays"
    for first, second in zip(here.played, there.played, strict=True):
        np.testing.assert_array_equal(first["tokens"], second["tokens"])
    # The second update's dialogues are those of the start's weights, as the first one's; the plain ones' have moved on.
    assert np.array_equal(here.played[0]["tokens"], plain.played[0]["tokens"])
    assert not np.array_equal(here.played[1]["tokens"], plain.played[1]["tokens"])
    # What was played ahead is saved, for the weights that it was played with are gone.
    state.save(there, tmp_path / "state")
    assert state.restore(resumed, tmp_path / "state") == 3
    assert equal_weights(trained(here, 2), trained(resumed, 2))
    assert equal_weights(state.learned_weights(here), trained(there, 2))
    np.testing.assert_array_equal(resumed.played[0]["tokens"], here.played[3]["tokens"])


@pytest.mark.ray
def test_what_was_played_ahead_is_kept_by_a_state_that_is_saved_or_evaluated_at_once(build: Build, tmp_path: Path) -> None:
    here, resumed = build(OVERLAPPING), build(OVERLAPPING)
    trained(here, 2)
    checkpoint = here.save_to_path(str(tmp_path / "checkpoint"))
    resumed.restore_from_path(checkpoint)
    again = resumed.get_state()
    np.testing.assert_array_equal(again["ahead"]["tokens"], here.get_state()["ahead"]["tokens"])
    resumed.evaluate()
    assert equal_weights(trained(here, 2), trained(resumed, 2))
    np.testing.assert_array_equal(resumed.played[-1]["tokens"], here.played[-1]["tokens"])
    # Back to where it has been before.
    resumed.set_state(again)
    np.testing.assert_array_equal(resumed.get_state()["ahead"]["index"], again["ahead"]["index"])
