"""Generator against discriminator: who learns when, from what, and that nothing depends on who did the work."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.generation.rl.replies import ReplyEnvRunner, ReplyMinMax, controlled
from parley.engine.generation.rl.reply_modules import CRITIC, DISCRIMINATOR, GENERATOR
from parley.engine.generation.settings import ReplyLearning, released
from parley.envs.core.errors import ConfigError
from parley.envs.corpora.pairs.turns import Example, turn_of
from parley.policies.core.fitting.loop import Fit
from parley.policies.core.settings import FitConfig
from parley.policies.generation.discriminator.batches import TrainedReplyJudge
from parley.policies.seq2seq.model import PairExamples
from parley.policies.seq2seq.scoring import load_seq2seq
from tests.engine.generation.rl.replies import LEARNING, SIZES, make_world, pairs, save_models, settings

pytestmark = pytest.mark.ray
RELEASED = vars(replace(released(), num_rollouts=2, max_words=SIZES.max_reply - 1))
ALL = (GENERATOR, DISCRIMINATOR, CRITIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    save_models(path)
    return path


@pytest.fixture
def build(folder: Path, ray_session: object) -> Iterator[Any]:
    """Builds algorithms, and stops them."""
    built: list[ReplyMinMax] = []

    def make(*arguments: Any, **changes: Any) -> ReplyMinMax:
        built.append(settings(folder, *arguments, **changes).build_algo())
        return built[-1]

    yield make
    for algorithm in built:
        algorithm.stop()


def weights(algorithm: ReplyMinMax) -> dict[str, dict[str, torch.Tensor]]:
    return {role: state.learned_weights(algorithm, role) for role in algorithm.roles}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(value.equal(second[name]) for name, value in first.items())


def test_a_phase_is_a_function_of_the_update() -> None:
    assert LEARNING.cycle == ("discriminator", "discriminator", "generator", "teacher")
    assert [LEARNING.phase(number) for number in range(5)] == [*LEARNING.cycle, "discriminator"]
    assert LEARNING.updates == 12
    frozen = replace(LEARNING, discriminator_steps=0, teacher_steps=2)
    assert frozen.cycle == ("generator", "teacher", "teacher")
    with pytest.raises(ConfigError, match="a round has no step"):
        ReplyLearning(discriminator_steps=0, generator_steps=0, teacher_steps=0)


def test_each_phase_moves_its_own_networks(build: Any) -> None:
    algorithm = build()
    assert algorithm.roles == ALL
    moved = []
    for _ in range(8):
        before = weights(algorithm)
        algorithm.train()
        after = weights(algorithm)
        moved.append((algorithm.last["phase"], {role for role in ALL if not same(before[role], after[role])}))
        # The runner works with what was learned.
        runner = algorithm.env_runner.module
        assert all(same(after[role], dict(runner[role].net.state_dict())) for role in ALL)
    own = {"discriminator": {DISCRIMINATOR}, "generator": {GENERATOR, CRITIC}, "teacher": {GENERATOR}}
    assert moved == [(LEARNING.phase(number), own[LEARNING.phase(number)]) for number in range(8)]


def test_it_says_what_each_phase_found(build: Any) -> None:
    algorithm = build()
    told: dict[str, dict[str, Any]] = {}
    for _ in range(4):
        algorithm.train()
        told[algorithm.last["phase"]] = algorithm.last
    assert 0 <= told["discriminator"]["discriminator_accuracy"] <= 1
    generated = told["generator"]
    said = {"reply_words", "distinct_1", "distinct_2", "commonest_share", "generator_nats"}
    assert {"reward", "advantage", "human", *said} <= set(generated)
    assert generated["advantage"] > 0
    assert 0 < generated["reward"] < 1
    assert 0 < generated["reply_words"] <= SIZES.max_reply - 1
    assert 0 < generated["commonest_share"] <= 1
    assert told["teacher"]["forced"] == 1.0
    assert told["teacher"]["teacher_nats"] > 0


@pytest.mark.parametrize(
    "changes", [{"method": "reinforce"}, {"method": "regs-mc"}, {"method": "regs-partial"}, {"critic": "linear"}, RELEASED]
)
def test_it_goes_on_exactly_from_any_update(build: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    whole, parts = build(**changes), build(**changes)
    for number in range(9):
        whole.train()
        if number == 5:
            state.save(whole, tmp_path / "state")
    parts.train()
    assert state.restore(parts, tmp_path / "state") == 6
    for _ in range(3):
        parts.train()
    for role in ALL:
        assert same(weights(whole)[role], weights(parts)[role])
    assert parts.mean == whole.mean


def test_teacher_forcing_is_a_step_of_supervised_training(build: Any, folder: Path, tmp_path: Path) -> None:
    only = replace(LEARNING, discriminator_steps=0, generator_steps=0, clip=5.0)
    algorithm = build(only, baseline="mean", weighted=False)
    assert algorithm.roles == (GENERATOR, DISCRIMINATOR)
    algorithm.train()
    model, world = load_seq2seq(folder / "generator"), make_world()
    examples = PairExamples(pairs(), SIZES)
    config = FitConfig(learning_rate=only.generator_rate, batch_size=only.examples_per_step, max_epochs=1, precision="float32")
    fit = Fit(model, examples, examples, config, 1, tmp_path / "state", fresh=False)
    model.train()
    chosen = [world.pair(algorithm.config.master_seed, index) for index in range(only.examples_per_step)]
    rows = {tuple(source): row for row, source in enumerate(pairs().utterances[row].tolist() for row in range(37))}
    fit.step(np.array([rows[tuple(source.tolist())] for source, _ in chosen]))
    for name, value in state.learned_weights(algorithm).items():
        assert torch.allclose(value, model.state_dict()[name], atol=1e-5), name


def test_what_an_example_brings_does_not_depend_on_the_others_of_its_shard(folder: Path) -> None:
    runner = ReplyEnvRunner(config=settings(folder))
    both = runner.sample(dealt=[(3, "generator", [4, 30]), (5, "teacher", [4])])
    assert both["index"] == [3, 5]
    for place, index in enumerate((4, 30)):
        alone = runner.sample(dealt=[(0, "generator", [index])])["found"][0]
        together = {name: values[place] for name, values in both["found"][3].items()}
        assert alone["replies"][0] == together["replies"]
        assert np.allclose(alone["rewards"][0], together["rewards"], atol=1e-5)
        assert np.allclose(alone["expected"][0], together["expected"], atol=1e-5)
    # `</s>` is an action unless the limit ended the reply.
    for said, earned in zip(both["found"][3]["replies"], both["found"][3]["rewards"], strict=True):
        assert len(earned) == len(said) + 1
        assert (earned[-1] == 0) == (len(said) == SIZES.max_reply - 1)
    assert runner.sample(dealt=[(0, "discriminator", [4])])["found"][0] == {"replies": both["found"][3]["replies"][:1]}


def test_a_trained_judge_rewards_replies_as_the_runner_does(folder: Path) -> None:
    config = settings(folder, method="reinforce")
    world, indices = make_world(), list(range(12))
    found = ReplyEnvRunner(config=config).sample(dealt=[(0, "generator", indices)])["found"][0]
    turns = [[turn_of(world.vocabulary.decode(ids)) for ids in world.pair(config.master_seed, index)] for index in indices]
    rows = [row for row, said in enumerate(found["replies"]) if said]
    asked = [Example(str(row), (turns[row][0],), turns[row][1]) for row in rows]
    said = [turn_of(world.vocabulary.decode(found["replies"][row])) for row in rows]
    judged = TrainedReplyJudge(folder / "discriminator").judge_replies(asked, said)
    assert len(rows) > 6
    assert np.allclose(judged, [found["rewards"][row][0] for row in rows], atol=1e-6)
    assert np.allclose(judged, [found["human"][row] for row in rows], atol=1e-6)


def test_what_is_said_is_as_long_as_it_may_be_in_every_phase(folder: Path) -> None:
    runner = ReplyEnvRunner(config=settings(folder))
    runner.env = replace(make_world(), max_words=2)
    for phase in ("discriminator", "generator"):
        said = runner.sample(dealt=[(0, phase, range(20))])["found"][0]["replies"]
        assert max(map(len, said)) == 2


def test_rewards_that_equal_the_baseline_are_seen(build: Any) -> None:
    algorithm = build(replace(LEARNING, discriminator_steps=0, teacher_steps=0), reward="constant", baseline="mean")
    sizes = []
    for _ in range(3):
        algorithm.train()
        sizes.append(algorithm.last["advantage"])
    assert sizes == pytest.approx([1.0, 0.0, 0.0])


def test_forcing_takes_the_contexts_of_the_last_step_that_was_no_teacher_forcing_or_new_ones(build: Any) -> None:
    size = LEARNING.examples_per_step

    def batches(learning: ReplyLearning, num: int, **changes: Any) -> list[int]:
        algorithm = build(learning, **changes)
        indices = [algorithm._indices(number) for number in range(num)]
        assert all(each == list(range(each[0], each[0] + size)) for each in indices)
        return [each[0] // size for each in indices]

    twice = replace(LEARNING, discriminator_steps=1, teacher_steps=2)
    assert batches(twice, 8) == [0, 1, 1, 1, 4, 5, 5, 5], "figure 1: G learns (X, Y) of the X that it has answered"
    assert batches(twice, 8, forced_batch="fresh") == list(range(8))
    only = replace(LEARNING, discriminator_steps=0, generator_steps=0)
    assert batches(only, 4) == list(range(4)), "there is no other step"


def test_a_linear_critic_learns_what_contexts_are_worth_and_leaves_the_generator_alone(build: Any) -> None:
    algorithm = build(replace(LEARNING, discriminator_steps=0, teacher_steps=0), critic="linear")
    first = weights(algorithm)
    assert {name: float(value.abs().sum()) for name, value in first[CRITIC].items()} == {"output.weight": 0, "output.bias": 0}
    plain = build(replace(LEARNING, discriminator_steps=0, teacher_steps=0), baseline="none")
    for each in (algorithm, plain):
        each.train()
    # A critic that expects nothing changes nothing.
    assert same(weights(algorithm)[GENERATOR], weights(plain)[GENERATOR])
    errors = []
    for _ in range(30):
        algorithm.train()
        found = algorithm.env_runner.sample(dealt=[(0, "generator", range(20))])["found"][0]
        assert {len(each) for each in found["expected"]} == {1}
        misses = [np.mean(earned) - told[0] for earned, told in zip(found["rewards"], found["expected"], strict=True)]
        errors.append(np.mean(np.square(misses)))
    assert errors[-1] < errors[0]
    with pytest.raises(ConfigError, match="reads no words of a reply"):
        settings(Path(), critic="linear", baseline="prefix")


def test_controls_take_the_place_of_rewards() -> None:
    rewards = [np.array([0.1, 0.2, 0.3], dtype=np.float32), np.array([0.9], dtype=np.float32)]
    rng = np.random.default_rng(3)
    assert [each.tolist() for each in controlled("constant", rewards, 4, rng)] == [[1, 1, 1], [1]]
    assert [each.tolist() for each in controlled("length", rewards, 4, rng)] == [[0.5, 0.5, 0.5], [0.0]]
    assert [each.tolist() for each in controlled("discriminator", rewards, 4, rng)] == [each.tolist() for each in rewards]
    shuffled = {tuple(np.round(each.tolist(), 1)) for _ in range(9) for each in controlled("shuffled", rewards, 4, rng)}
    assert shuffled == {(0.1, 0.2, 0.3), (0.9,), (0.9, 0.9, 0.9), (0.1,)}


def test_a_runner_that_dies_with_its_share_changes_no_weight(build: Any) -> None:
    alone, spread = build(), build(env_runners=2)
    actors = spread.env_runner_group._worker_manager.actors()
    for number in range(len(LEARNING.cycle)):
        if LEARNING.phase(number) == "generator":
            actors[1].apply.remote(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        alone.train()
        spread.train()
        assert all(same(weights(alone)[role], weights(spread)[role]) for role in ALL), number
    assert spread.mean == alone.mean


def test_a_gradient_that_is_no_number_ends_it(build: Any) -> None:
    algorithm = build(replace(LEARNING, discriminator_steps=0), baseline="none")
    algorithm.learner_group.foreach_learner(lambda learner: setattr(learner.config, "num_words", float("nan")))
    with pytest.raises(DivergenceError, match="not finite") as caught:
        algorithm.training_step()
    assert "smaller learning.generator_rate (now 0.01)" in str(caught.value.fix)


@pytest.mark.slow
@pytest.mark.parametrize("env_runners", [1, 2])
def test_the_number_of_runners_changes_nothing(build: Any, env_runners: int) -> None:
    here, there = build(), build(env_runners=env_runners)
    for _ in range(8):
        here.train()
        there.train()
        told = {name: value for name, value in here.last.items() if not name.startswith("seconds")}
        assert {name: there.last[name] for name in told} == told
    assert there.env_runner_group.num_healthy_remote_workers() == env_runners
    for role in ALL:
        assert same(weights(here)[role], weights(there)[role])
