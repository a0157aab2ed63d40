"""The env runner: plays every dialogue it is dealt, each with its own seed, and says truly who drew which word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import parley.engine.negotiation.rl.runner
from parley.engine.negotiation.attacks.opponents import OpponentConfig
from parley.engine.negotiation.rl.algorithm import DialogueReinforceConfig
from parley.engine.negotiation.rl.env import ADVERSARY, AGENTS, TARGET
from parley.engine.negotiation.rl.runner import DialogueEnvRunner
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, Scenario
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.policies.negotiator.speaker import load_agent, load_model
from tests.engine.negotiation.rl.trainings import PARTNER, SEED, SMALL, World

LONG = replace(SMALL, max_turns=20, temperature=0.8)


def deal(count: int, first: int = 0) -> list[tuple[int, Scenario, str]]:
    return [(index, random_scenario(stream(1, index)), TARGET) for index in range(first, first + count)]


def same_seeds_game(world: World, dealt: list[tuple[int, Scenario, str]], rules: Rules) -> NegotiationGame:
    """The dialogues of those indices, from the published naming of their seeds and not through the runner."""
    seeds = [derive_seed(SEED, "training dialogue", index) for index, _, _ in dealt]
    return NegotiationGame([scenario for _, scenario, _ in dealt], seeds, world.vocabulary, rules)


def rules_of(settings: DialogueReinforceConfig) -> Rules:
    return Rules(max_turns=settings.reinforce.max_turns, complementary=settings.reinforce.complementary)


def never_ending(world: World) -> str:
    """The adversary's checkpoint, its words for an end made all but impossible."""
    model = load_model(world.folder / ADVERSARY)
    ends = model.word_embedding.weight.data[[EOS_ID, SELECTION_ID]]
    model.decoder.bias.data = -20 * torch.linalg.pinv(ends).sum(1)
    world.save(model, "never_ending")
    return str(world.folder / "never_ending")


def test_every_dialogue_is_played_as_if_alone(world: World) -> None:
    settings = world.settings(LONG)
    dealt = deal(60)
    batch = DialogueEnvRunner(config=settings).sample(dealt=dealt)
    agents = [load_agent(world.folder / role, temperature=LONG.temperature) for role in AGENTS]
    assert batch["index"].tolist() == list(range(60))
    for row, case in enumerate(dealt):
        game = play(same_seeds_game(world, [case], rules_of(settings)), (agents[0], agents[1]))
        length = game.num_tokens[0]
        assert batch["lengths"][row] == length
        np.testing.assert_array_equal(batch["tokens"][row, :length], game.tokens[0, 0, :length])
        np.testing.assert_array_equal(batch["own"][row, :length], game.authors[0, :length] == 0)
        np.testing.assert_array_equal(batch["contexts"][row], game.contexts[0, 0])
        assert batch["points"][row].tolist() == game.points[0].tolist()
        assert batch["turns"][row] == game.num_turns[0]
        assert batch["agreed"][row] == game.agreed[0]
        assert batch["forced"][row] == game.forced[0]
    # A sampler that stops at the first finished dialogues would have lost these.
    assert batch["turns"].min() < 5
    assert batch["forced"].any()


def test_a_target_sees_its_dialogues_from_its_own_side_and_each_opponent_by_its_own_rules(world: World) -> None:
    roster = world.hardening(OpponentConfig(sampling="uniform", partner_share=0.25))
    met = [PARTNER, "second", "first"]
    # Opponents by turns, so that their dialogues do not lie together.
    dealt = [(index, scenario, met[index % 3]) for index, scenario, _ in deal(36)]
    batch = DialogueEnvRunner(config=world.settings(SMALL, roster=roster)).sample(dealt=dealt)
    target = load_agent(world.folder / TARGET, temperature=SMALL.temperature)
    checkpoints = {opponent.name: Path(opponent.checkpoint) for opponent in roster.opponents}
    others = {name: load_agent(checkpoints[name], temperature=SMALL.temperature) for name in met}
    assert batch["index"].tolist() == list(range(36))
    for row, case in enumerate(dealt):
        rules = Rules(max_turns=SMALL.max_turns, complementary=case[2] != PARTNER)
        game = play(same_seeds_game(world, [case], rules), (others[case[2]], target))
        length = game.num_tokens[0]
        assert batch["lengths"][row] == length
        np.testing.assert_array_equal(batch["tokens"][row, :length], game.tokens[1, 0, :length])
        np.testing.assert_array_equal(batch["own"][row, :length], game.authors[0, :length] == 1)
        assert not batch["own"][row, length:].any()
        np.testing.assert_array_equal(batch["contexts"][row], game.contexts[1, 0])
        assert batch["points"][row].tolist() == game.points[0, ::-1].tolist()
        for name, column in (("turns", game.num_turns), ("agreed", game.agreed), ("forced", game.forced)):
            assert batch[name][row] == column[0]
    assert (batch["points"][:, 0] != batch["points"][:, 1]).any()
    marked = batch["tokens"] == world.vocabulary.you_id
    assert batch["own"][:, 1:][marked[:, :-1]].any(), "what stands behind YOU: is the target's"


@pytest.mark.parametrize("seed", [None, 0], ids=["unseeded", "seeded"])
def test_rllibs_seed_changes_nothing_and_no_dialogue_comes_twice(
    world: World, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[int] = []

    def game(scenarios: list[Scenario], seeds: list[int], *rest: Any) -> NegotiationGame:
        played.extend(seeds)
        return NegotiationGame(scenarios, seeds, *rest)

    plain = DialogueEnvRunner(config=world.settings()).sample(dealt=deal(20))
    monkeypatch.setattr(parley.engine.negotiation.rl.runner, "NegotiationGame", game)
    settings = world.settings()
    settings.debugging(seed=seed)
    runner = DialogueEnvRunner(config=settings)
    batches = [runner.sample(dealt=deal(20, 20 * turn)) for turn in range(3)]
    assert len(set(played)) == 60
    np.testing.assert_array_equal(batches[0]["tokens"], plain["tokens"])


def test_a_runners_number_changes_nothing(world: World) -> None:
    first, second = (DialogueEnvRunner(config=world.settings(), worker_index=index) for index in (1, 2))
    dealt = deal(24)
    whole = first.sample(dealt=dealt)
    part = second.sample(dealt=dealt[1::2])
    width = part["tokens"].shape[1]
    np.testing.assert_array_equal(part["tokens"], whole["tokens"][1::2, :width])
    np.testing.assert_array_equal(part["index"], whole["index"][1::2])


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("speaker", ["random", "never ending"])
def test_the_learner_scores_the_very_distribution_that_spoke(world: World, speaker: str, temperature: float) -> None:
    rule = replace(SMALL, temperature=temperature, max_turns=4)
    learner = never_ending(world) if speaker == "never ending" else None
    settings = world.settings(rule, learner=learner)
    runner = DialogueEnvRunner(config=settings)
    dealt = deal(30)
    played = runner.sample(dealt=dealt)
    own = played["own"]
    batch = {name: torch.from_numpy(played[name]) for name in ("contexts", "tokens", "lengths", "own")}
    batch["supervised"] = torch.zeros(len(own), dtype=torch.bool)
    module = runner.module[ADVERSARY]
    with torch.no_grad():
        probabilities_MV = module.word_log_probs(module.net, batch).exp().double().numpy()
    # A word was drawn because a uniform number fell into its share of the distribution.
    uniforms_M = same_seeds_game(world, dealt, rules_of(settings)).uniforms[:, : own.shape[1]][own]
    words_M = played["tokens"][own]
    upper_MV = probabilities_MV.cumsum(1)
    rows = np.arange(len(words_M))
    assert len(words_M) > 100
    assert (upper_MV[rows, words_M] - probabilities_MV[rows, words_M] <= uniforms_M + 1e-5).all()
    assert (uniforms_M <= upper_MV[rows, words_M] + 1e-5).all()


def test_words_that_nobody_drew_are_not_the_learners(world: World) -> None:
    runner = DialogueEnvRunner(config=world.settings(replace(SMALL, max_turns=3), learner=never_ending(world)))
    played = runner.sample(dealt=deal(10))
    limit = Rules().max_words
    cut = [(row, run) for row in range(10) for run in utterances(played["own"][row]) if len(run) >= limit]
    assert len(cut) >= 10, "the speaker was meant to run into the limit"
    for row, run in cut:
        assert len(run) == limit
        following = run[-1] + 1
        assert played["tokens"][row, following] == EOS_ID
    markers = np.isin(played["tokens"], (world.vocabulary.you_id, world.vocabulary.them_id))
    assert not (markers & played["own"]).any()
    last = played["tokens"][np.arange(10), played["lengths"] - 1]
    assert (last == SELECTION_ID).all()
    assert not played["own"][np.arange(10), played["lengths"] - 1][played["forced"]].any()


def utterances(own_T: np.ndarray) -> list[np.ndarray]:
    """Positions of each unbroken run of own words."""
    positions = np.flatnonzero(own_T)
    return np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1) if positions.size else []


def test_only_newer_weights_are_taken_and_number_zero_forces(world: World) -> None:
    runner = DialogueEnvRunner(config=world.settings())
    dealt = deal(10)
    before = runner.sample(dealt=dealt)
    zeros = {name: np.zeros_like(value) for name, value in runner.get_state()["rl_module"][ADVERSARY].items()}

    def put(weights: dict[str, np.ndarray], number: int) -> None:
        runner.set_state({"rl_module": {ADVERSARY: weights}, "weights_seq_no": number})

    start = {name: value.copy() for name, value in runner.get_state()["rl_module"][ADVERSARY].items()}
    put(zeros, 3)
    assert runner.sample(dealt=dealt)["weights"] == 3
    assert not np.array_equal(runner.sample(dealt=dealt)["lengths"], before["lengths"])
    for stale in (2, 3):
        put(start, stale)
        assert runner.weights_seq_no() == 3
        assert not np.array_equal(runner.sample(dealt=dealt)["lengths"], before["lengths"])
    put(start, 0)
    np.testing.assert_array_equal(runner.sample(dealt=dealt)["tokens"], before["tokens"])
    put(zeros, 3)
    np.testing.assert_array_equal(runner.sample(dealt=dealt)["tokens"], before["tokens"])
