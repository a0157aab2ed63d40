"""Learning through RLlib: what an update does, that it learns what depends on the context, and that it goes on exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.env import ADVERSARY, TARGET
from parley.engine.negotiation.rl.learner import CHECKED_TOKENS
from parley.envs.core.play import Utterances
from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.corpora.catalogue import load_corpus
from parley.envs.negotiation.dealornodeal_rules import MAX_SELECTIONS
from parley.envs.negotiation.domain import SELECTION_ID
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.speaker import NegotiatorAgent, load_agent, load_model
from tests.engine.negotiation.rl.trainings import CORPUS, NAMES, SEED, SMALL, Built, GameOfNames, Recording, World, best_items

pytestmark = pytest.mark.ray

ALONE = replace(SMALL, supervised_weight=0.0)
Build = Callable[..., Recording]


@pytest.fixture
def build(world: World, built: Built) -> Build:
    """Builds algorithms, each with the keyword arguments of `World.settings`."""

    def make(rule: ReinforceConfig = SMALL, *, kind: type[Recording] = Recording, **options: Any) -> Recording:
        return built(world.settings(rule, kind=kind, **options))

    return make


def start(world: World) -> dict[str, Tensor]:
    return dict(load_model(world.folder / ADVERSARY).state_dict())


def distance(first: dict[str, Tensor], second: dict[str, Tensor], prefix: str = "") -> float:
    """Largest difference between two networks' parameters of names with that prefix."""
    return max(float((value - second[name]).abs().max()) for name, value in first.items() if name.startswith(prefix))


def train(algorithm: Recording, updates: int) -> list[float]:
    """Mean reward of each update."""
    rewards = []
    for _ in range(updates):
        algorithm.train()
        rewards.append(algorithm.last["reward"])
    return rewards


def test_one_process_hands_weights_on_without_rays_store(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = build(ALONE)
    monkeypatch.delattr(type(algorithm.env_runner_group), "sync_weights")
    algorithm.train()
    speaking = algorithm.env_runner.module[ADVERSARY].net.state_dict()
    assert distance(speaking, state.learned_weights(algorithm)) == 0
    assert algorithm.env_runner.weights_seq_no() == 1


def test_the_weights_of_an_update_are_tried_on_few_tokens(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, forward = [], Negotiator.forward

    def noted(net: Negotiator, contexts_B6: Tensor, tokens_BT: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        tried.append((tuple(tokens_BT.shape), lengths_B.tolist()))
        return forward(net, contexts_B6, tokens_BT, lengths_B)

    monkeypatch.setattr(Negotiator, "forward", noted)
    algorithm = build(ALONE)
    algorithm.train()
    assert algorithm.played[0]["lengths"][0] > CHECKED_TOKENS
    assert tried == [((1, CHECKED_TOKENS), [CHECKED_TOKENS])]


def test_it_learns_to_name_what_it_values(build: Build) -> None:
    """The best word depends on the context, so no policy that is blind to it earns more than its commonest answer does.

    Slow, for it learns in earnest: from the 78th update on the last ten are good enough.
    """
    rule = replace(ALONE, learning_rate=5e-3, dialogues_per_update=128, max_turns=2, gamma=0.5)
    algorithm = build(rule, kind=GameOfNames)
    rewards = train(algorithm, 100)
    best = np.concatenate([best_items(played) for played in algorithm.played])
    blind = np.bincount(best).max() / len(best)
    assert 0.3 < blind < 0.45
    assert np.mean(rewards[:5]) < blind
    assert np.mean(rewards[-10:]) > blind + 0.3


def test_an_update_moves_the_learner_alone_and_reaches_the_runner(world: World, build: Build) -> None:
    algorithm = build()
    before = start(world)
    for number in (1, 2, 3):
        algorithm.train()
        learned = state.learned_weights(algorithm)
        runner = algorithm.env_runner.module
        for name, value in learned.items():
            assert value.equal(runner[ADVERSARY].net.state_dict()[name]), name
        assert distance(learned, before) > 1e-3
        before = learned
        assert algorithm.env_runner.weights_seq_no() == number
    frozen = load_model(world.folder / TARGET).state_dict()
    learner = algorithm.learner_group._learner.module[TARGET].unwrapped().net.state_dict()
    for name, value in frozen.items():
        assert value.equal(runner[TARGET].net.state_dict()[name]), name
        assert value.equal(learner[name]), name


def test_a_remote_runner_plays_the_dialogues_of_this_process(build: Build) -> None:
    here, there = build(), build(env_runners=1)
    for algorithm in (here, there):
        algorithm.train()
    assert there.env_runner_group.num_healthy_remote_workers() == 1
    (sequence,) = there.env_runner_group.foreach_env_runner(lambda runner: runner.weights_seq_no(), local_env_runner=False)
    assert sequence == 1, "it got the weights of the update"
    for name in ("index", "contexts", "tokens", "points", "agreed"):
        np.testing.assert_array_equal(there.played[0][name], here.played[0][name], err_msg=name)
    learned = state.learned_weights(there)
    assert all(value.equal(learned[name]) for name, value in state.learned_weights(here).items())


def test_an_update_is_clipped_and_made_with_the_released_momentum(
    world: World, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate, clip = 1.0, 0.1
    monkeypatch.setattr(ReinforceConfig, "clip", clip)
    algorithm = build(replace(SMALL, optimiser="sgd", learning_rate=rate))
    algorithm.train()
    learned = state.learned_weights(algorithm)
    moved = torch.cat([(learned[name] - value).flatten() for name, value in start(world).items()])
    # Nesterov's first step with momentum 0.1 is 1.1 gradients long.
    assert float(moved.norm()) == pytest.approx(rate * clip * 1.1, rel=1e-3)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_rllibs_schedule_of_rates_acts(world: World, built: Built, optimiser: Any) -> None:
    settings = world.settings(replace(SMALL, optimiser=optimiser))
    algorithm = built(settings.training(lr=[[0, 0.1], [SMALL.dialogues_per_update, 0.0]]))
    algorithm.train()
    learned = state.learned_weights(algorithm)
    assert distance(learned, start(world)) > 0
    algorithm.train()
    assert distance(state.learned_weights(algorithm), learned) == 0, "the rate is 0 by now"


def test_the_next_dialogues_are_spoken_with_the_new_weights(world: World, build: Build) -> None:
    algorithm = build()
    algorithm.train()
    model = load_model(world.folder / ADVERSARY)
    model.load_state_dict(state.learned_weights(algorithm))
    algorithm.train()
    played = algorithm.played[1]
    for agent, spoken in ((model, True), (load_model(world.folder / ADVERSARY), False)):
        game = game_of(algorithm, played["index"].tolist())
        play(game, (NegotiatorAgent(agent, "again", SMALL.temperature), load_agent(world.folder / TARGET, temperature=1.0)))
        assert np.array_equal(game.tokens[0, :, : played["tokens"].shape[1]], played["tokens"]) == spoken


def game_of(algorithm: Recording, indices: list[int]) -> NegotiationGame:
    """The dialogues of those indices, not yet played."""
    seeds = [derive_seed(SEED, "training dialogue", index) for index in indices]
    rules = Rules(max_turns=SMALL.max_turns, complementary=SMALL.complementary)
    scenarios = [algorithm._scenario(index) for index in indices]
    return NegotiationGame(scenarios, seeds, algorithm.config.env_config["vocabulary"], rules)


def test_no_two_updates_play_the_same_dialogue(build: Build) -> None:
    algorithm = build()
    train(algorithm, 3)
    indices = [index for played in algorithm.played for index in played["index"].tolist()]
    assert indices == list(range(3 * SMALL.dialogues_per_update))
    scenarios = [tuple(algorithm._scenario(index).key for index in range(k, k + 100)) for k in (0, 100)]
    assert len(set(scenarios[0] + scenarios[1])) > 190, "drawn from some five thousand"


def test_selfplay_scenarios_come_in_passes_each_in_its_own_order(world: World, build: Build) -> None:
    algorithm = build(replace(SMALL, scenarios="selfplay"))
    fixed = load_corpus(CORPUS, world.folder / "data").selfplay
    passes = [[algorithm._scenario(k * len(fixed) + i) for i in range(len(fixed))] for k in range(12)]
    assert all(sorted(once) == sorted(fixed) for once in passes)
    assert len({tuple(once) for once in passes}) > 1
    # Asked again out of order, as after a runner's death.
    assert algorithm._scenario(1) == passes[0][1]


def test_supervised_rows_move_the_choice_and_played_rows_do_not(world: World, build: Build) -> None:
    guarded, alone = build(), build(ALONE)
    for algorithm in (guarded, alone):
        train(algorithm, 2)
    for prefix in ("selection", "attention"):
        assert distance(state.learned_weights(alone), start(world), prefix) == 0
        assert distance(state.learned_weights(guarded), start(world), prefix) > 1e-3


def test_the_supervised_weight_scales_its_part_of_the_gradient(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReinforceConfig, "clip", 1e9)
    heads = "net.selection_heads.weight"
    found = []
    for weight in (0.5, 1.0):
        algorithm = build(replace(SMALL, supervised_weight=weight, optimiser="sgd"))
        before = state.learned_weights(algorithm)[heads.removeprefix("net.")]
        algorithm.train()
        found.append(state.learned_weights(algorithm)[heads.removeprefix("net.")] - before)
    assert found[0].abs().max() > 0
    torch.testing.assert_close(2 * found[0], found[1], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("weight", [0.625, 2.0])
def test_parts_that_are_clipped_apart_have_the_guard_as_strong_as_its_weight_says(
    world: World, build: Build, monkeypatch: pytest.MonkeyPatch, weight: float
) -> None:
    """Rewards of a thousand points drown a guard in the whole gradient, and not beside it."""

    class Rich(Recording):
        def rewards(self, played: dict[str, Any]) -> np.ndarray:
            return 1000 * (super().rewards(played) + np.arange(len(played["index"])))

    clip, parts = 1e-2, {}
    monkeypatch.setattr(ReinforceConfig, "clip", clip)
    rule = replace(SMALL, optimiser="sgd", learning_rate=1.0, supervised_weight=weight, clipping="parts")
    for name, changed in {"both": rule, "alone": replace(rule, supervised_weight=0.0)}.items():
        algorithm = build(changed, kind=Rich)
        algorithm.train()
        learned = state.learned_weights(algorithm)
        parts[name] = torch.cat([(learned[key] - value).flatten() for key, value in start(world).items()])
    # Nesterov's first step with momentum 0.1 is 1.1 gradients long.
    assert float(parts["alone"].norm()) == pytest.approx(1.1 * clip, rel=0.02)
    assert float((parts["both"] - parts["alone"]).norm()) == pytest.approx(1.1 * clip * weight, rel=0.02)


def drift(world: World, algorithm: Recording) -> float:
    """KL(learner || start) in nats a word, on the words of the last update."""
    played = algorithm.played[-1]
    batch = {name: torch.from_numpy(played[name]) for name in ("contexts", "tokens", "lengths", "own")}
    batch["supervised"] = torch.zeros(len(played["index"]), dtype=torch.bool)
    module = algorithm.env_runner.module[ADVERSARY]
    with torch.no_grad():
        learner, first = (module.word_log_probs(net, batch) for net in (module.net, load_model(world.folder / ADVERSARY)))
    allowed = learner.isfinite()
    return float((learner[allowed].exp() * (learner[allowed] - first[allowed])).sum() / len(learner))


def test_the_kl_guard_keeps_the_learner_near_its_start(world: World, build: Build) -> None:
    distances = []
    for weight in (0.0, 20.0):
        algorithm = build(replace(ALONE, kl_weight=weight, max_turns=2), kind=GameOfNames)
        train(algorithm, 12)
        distances.append(drift(world, algorithm))
    assert distances[0] > 0.1
    assert distances[1] < distances[0] / 10


RULES = {
    "adam": SMALL,
    "other": replace(
        replace(SMALL, optimiser="sgd", learning_rate=0.1, kl_weight=0.5, scaling="deviation"),
        scenarios="selfplay",
        reward="points",
        complementary=False,
    ),
}


@pytest.mark.parametrize(("name", "saved_after"), [("adam", 0), *((name, 3) for name in RULES)])
def test_a_resumed_training_goes_on_as_if_never_interrupted(name: str, saved_after: int, build: Build, tmp_path: Path) -> None:
    whole, first, second = (build(RULES[name]) for _ in range(3))
    train(whole, 5)
    train(first, saved_after)
    state.save(first, tmp_path / "state")
    assert state.restore(second, tmp_path / "state") == saved_after
    assert second.training_iteration == saved_after
    train(second, 5 - saved_after)
    for played, expected in zip(second.played, whole.played[saved_after:], strict=True):
        for column in ("index", "contexts", "tokens", "points"):
            np.testing.assert_array_equal(played[column], expected[column], err_msg=column)
    for parameter, value in state.learned_weights(whole).items():
        assert value.equal(state.learned_weights(second)[parameter]), parameter
    assert second.baselines == whole.baselines
    for algorithm in (whole, second):
        state.save(algorithm, tmp_path / f"end of {id(algorithm)}")
    ends = [state.load_state(tmp_path / f"end of {id(algorithm)}") for algorithm in (whole, second)]
    assert ends[0][1] == ends[1][1]
    assert ends[0][0].keys() == ends[1][0].keys()
    assert all(value.equal(ends[1][0][key]) for key, value in ends[0][0].items())


def test_a_state_can_be_put_back_into_a_training_that_went_on(build: Build, tmp_path: Path) -> None:
    algorithm = build()
    train(algorithm, 2)
    state.save(algorithm, tmp_path / "state")
    train(algorithm, 2)
    once, learned = algorithm.played[2:], state.learned_weights(algorithm)
    state.restore(algorithm, tmp_path / "state")
    train(algorithm, 2)
    for played, again in zip(once, algorithm.played[4:], strict=True):
        np.testing.assert_array_equal(played["tokens"], again["tokens"])
    assert distance(state.learned_weights(algorithm), learned) == 0


class Ruined(Recording):
    """A reward that is not a number, from the third update on."""

    def rewards(self, played: dict[str, Any]) -> np.ndarray:
        return super().rewards(played) * (np.nan if self.training_iteration >= 2 else 1.0)


def test_a_reward_that_is_no_number_ends_the_training_and_leaves_the_weights(build: Build) -> None:
    algorithm = build(kind=Ruined)
    train(algorithm, 2)
    before = state.learned_weights(algorithm)
    with pytest.raises(DivergenceError, match="not finite"):
        algorithm.train()
    assert distance(state.learned_weights(algorithm), before) == 0


def test_divergence_under_a_schedule_names_the_rate_of_the_update(world: World, built: Built) -> None:
    settings = world.settings(kind=Ruined).training(lr=[[0, 0.1], [SMALL.dialogues_per_update, 0.02]])
    algorithm = built(settings)
    train(algorithm, 2)
    with pytest.raises(DivergenceError, match=r"learning_rate \(now 0\.02\)"):
        algorithm.train()


def test_weights_that_are_no_numbers_end_the_training(world: World, build: Build) -> None:
    algorithm = build()
    # No checkpoint with such weights is loaded, so they are put into the learner itself.
    algorithm.learner_group.foreach_learner(
        lambda learner: learner.module[ADVERSARY].net.selection_heads.bias.data.fill_(torch.nan)
    )
    with pytest.raises(DivergenceError, match="learning_rate"):
        algorithm.train()


class Silencer:
    """A partner that ends every dialogue at once."""

    name = "silencer"

    def __init__(self, world: World) -> None:
        self.vocabulary = world.vocabulary

    def join(self, view: Any) -> Silencer:
        return self

    def speak(self, rows: np.ndarray) -> Utterances:
        return Utterances(np.full((len(rows), 1), SELECTION_ID, dtype=np.int64), np.ones(len(rows), dtype=np.int64))

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return np.full(len(rows), MAX_SELECTIONS - 1, dtype=np.int64)


def test_an_update_without_a_word_of_the_learners_changes_nothing(
    world: World, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = build(replace(ALONE, kl_weight=1.0, dialogues_per_update=4))
    monkeypatch.setattr(algorithm.env_runner.module[TARGET], "agent", lambda name: Silencer(world))

    def target_first(scenarios: Any, seeds: Any, vocabulary: Any, rules: Any) -> NegotiationGame:
        return NegotiationGame(scenarios, seeds, vocabulary, rules, first_speakers=[1] * len(scenarios))

    monkeypatch.setattr("parley.engine.negotiation.rl.runner.NegotiationGame", target_first)
    algorithm.train()
    assert not algorithm.played[0]["own"].any()
    assert distance(state.learned_weights(algorithm), start(world)) == 0


def test_figures_of_an_update_are_of_its_own_dialogues(build: Build) -> None:
    algorithm = build(ALONE)
    train(algorithm, 2)
    points = algorithm.played[1]["points"]
    assert algorithm.last["score_adversary"] == points[:, 0].mean()
    assert algorithm.last["reward"] == algorithm.last["advantage"] == (points[:, 0] - points[:, 1]).mean()
    assert algorithm.last["dialogues"] == SMALL.dialogues_per_update
    parts = ("seconds_sampling", "seconds_learning", "seconds_syncing")
    assert sum(algorithm.last[part] for part in parts) == pytest.approx(algorithm.last["seconds"], rel=0.01)
    assert algorithm.last["seconds_networks_speaking"] < algorithm.last["seconds_sampling"]


def test_the_names_of_the_game_are_words_of_the_corpus(world: World) -> None:
    assert set(NAMES) <= set(world.vocabulary.words)
