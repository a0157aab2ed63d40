"""The target as the learner through RLlib: who learns and who stays, what is paid, and that a training goes on exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from parley.engine.core.rllib import reproducible as state
from parley.engine.core.rllib.reproducible import RunningBaseline
from parley.engine.negotiation.attacks.opponents import MEMORY, Opponent, OpponentConfig, TrainingRoster
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.env import ADVERSARY, TARGET
from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.policies.negotiator.speaker import load_agent, load_model
from tests.engine.negotiation.rl.trainings import ADVERSARIES, PARTNER, SEED, SMALL, Built, Recording, World, equal_weights

pytestmark = pytest.mark.ray

RULE = replace(SMALL, stalling_penalty=2.0)
NUM_ORDINARY = SMALL.dialogues_per_update // 4
COLUMNS = ("index", "contexts", "tokens", "lengths", "own", "points", "agreed", "turns", "forced")
Build = Callable[..., Recording]


@pytest.fixture
def build(world: World, built: Built) -> Build:
    """Builds algorithms that harden the target, unless others are cast."""

    def make(rule: ReinforceConfig = RULE, roster: TrainingRoster | None = None, **options: Any) -> Recording:
        cast = roster or world.hardening()
        return built(world.settings(rule, kind=Recording, roster=cast, **options))

    return make


def train(algorithm: Recording, updates: int) -> Recording:
    for _ in range(updates):
        algorithm.train()
    return algorithm


def weights(folder: Path) -> dict[str, Tensor]:
    return dict(load_model(folder).state_dict())


def module_weights(algorithm: Recording, name: str) -> list[dict[str, Tensor]]:
    """A module's weights in the learner and in the runner."""
    places = (algorithm.learner_group._learner.module, algorithm.env_runner.module)
    return [dict(place[name].unwrapped().net.state_dict()) for place in places]


def assert_frozen(algorithm: Recording) -> None:
    """All opponents are their checkpoints, bit by bit."""
    for opponent in algorithm.roster.drawable:
        for found in module_weights(algorithm, opponent.name):
            assert equal_weights(found, weights(Path(opponent.checkpoint))), opponent.name


def assert_same_training(first: Recording, second: Recording) -> None:
    """The last updates of both, as many as the second one made, are the same, and so are the weights after them."""
    for played, expected in zip(second.played, first.played[-len(second.played) :], strict=True):
        assert played["opponent"] == expected["opponent"]
        for column in COLUMNS:
            np.testing.assert_array_equal(played[column], expected[column], err_msg=column)
    assert equal_weights(state.learned_weights(first), state.learned_weights(second))


def replayed(world: World, algorithm: Recording, name: str, complementary: bool) -> tuple[np.ndarray, NegotiationGame]:
    """The first update's dialogues with an opponent, played again without RLlib by the agents of the checkpoints."""
    rows = np.flatnonzero(np.array(algorithm.played[0]["opponent"]) == name)
    folder = world.folder / (ADVERSARY if name == PARTNER else name)
    agents = (load_agent(folder, temperature=RULE.temperature), load_agent(world.folder / TARGET, temperature=RULE.temperature))
    seeds = [derive_seed(SEED, "training dialogue", int(row)) for row in rows]
    scenarios = [algorithm._scenario(int(row)) for row in rows]
    rules = Rules(max_turns=RULE.max_turns, complementary=complementary)
    return rows, play(NegotiationGame(scenarios, seeds, world.vocabulary, rules), agents)


def test_the_target_alone_moves(world: World, build: Build) -> None:
    algorithm = build()
    before = weights(world.folder / TARGET)
    for _ in range(4):
        algorithm.train()
        learned = state.learned_weights(algorithm)
        assert not equal_weights(learned, before)
        assert all(equal_weights(found, learned) for found in module_weights(algorithm, TARGET))
        assert_frozen(algorithm)
        before = learned
    met = {name for played in algorithm.played for name in played["opponent"]}
    assert len(met) >= 3, "it was meant to meet the partner and several adversaries"


def test_a_target_is_paid_its_lead_over_adversaries_and_its_own_points_in_ordinary_play(world: World, build: Build) -> None:
    # Many, because negotiators with random weights hardly ever agree when both choose.
    algorithm = train(build(replace(RULE, dialogues_per_update=400)), 1)
    paid, played = algorithm.paid[0], algorithm.played[0]
    drawn = played["opponent"][-1]
    assert Counter(played["opponent"]) == {PARTNER: 100, drawn: 300}
    for name in (PARTNER, drawn):
        rows, game = replayed(world, algorithm, name, complementary=name != PARTNER)
        np.testing.assert_array_equal(played["points"][rows], game.points[:, [1, 0]])
        earned = game.points[:, 1] if name == PARTNER else game.points[:, 1] - game.points[:, 0]
        np.testing.assert_array_equal(paid[rows], earned - RULE.stalling_penalty * game.forced)
        assert (game.points[:, 0] != game.points[:, 1]).any()
        # Under the other rule it is another game.
        _, other = replayed(world, algorithm, name, complementary=name == PARTNER)
        assert (other.points != game.points).any()


def test_a_forced_end_costs_exactly_the_penalty(build: Build) -> None:
    free, fined = (train(build(replace(RULE, stalling_penalty=fine)), 1) for fine in (0.0, 2.5))
    forced = fined.played[0]["forced"]
    np.testing.assert_array_equal(free.played[0]["tokens"], fined.played[0]["tokens"])
    np.testing.assert_array_equal(free.paid[0] - fined.paid[0], 2.5 * forced)
    assert 0 < forced.sum() < len(forced)


def test_every_opponent_has_a_baseline_of_its_own(build: Build) -> None:
    algorithm = train(build(), 5)
    alone = {name: RunningBaseline() for name in (PARTNER, *ADVERSARIES)}
    for played, paid in zip(algorithm.played, algorithm.paid, strict=True):
        names = np.array(played["opponent"])
        for name in set(played["opponent"]):
            alone[name].center(paid[names == name], "none")
    assert algorithm.baselines == alone
    assert alone[PARTNER].count == 5 * NUM_ORDINARY
    algorithm.baselines = {name: RunningBaseline() for name in alone}
    assert algorithm._centered(["first", PARTNER, "first"], np.array([1.0, 10.0, 3.0])).tolist() == [-1.0, 0.0, 1.0]


def test_figures_tell_the_adversaries_dialogues_from_ordinary_ones(build: Build) -> None:
    algorithm = train(build(), 2)
    played, last = algorithm.played[1], algorithm.last
    own, other = played["points"].T
    ordinary = np.array(played["opponent"]) == PARTNER
    assert ordinary.sum() == NUM_ORDINARY
    assert last["score_target"] == own[~ordinary].mean()
    assert last["score_adversary"] == other[~ordinary].mean()
    assert last["advantage"] == pytest.approx((other - own)[~ordinary].mean())
    assert last["agreement"] == played["agreed"][~ordinary].mean()
    assert last["plain_score"] == own[ordinary].mean()
    assert last["plain_agreement"] == played["agreed"][ordinary].mean()
    assert last["reward"] == algorithm.paid[1].mean()


def test_records_are_of_the_dialogues_that_were_played(build: Build) -> None:
    algorithm = train(build(), 5)
    wins: dict[str, float] = {}
    for played in algorithm.played:
        name = played["opponent"][-1]
        own, other = played["points"][np.array(played["opponent"]) == name].T
        won = float(((other > own) + (other == own) / 2).mean())
        wins[name] = MEMORY * wins[name] + (1 - MEMORY) * won if name in wins else won
    assert algorithm.draw.wins == pytest.approx(wins)
    assert len(wins) >= 2


@pytest.mark.parametrize(
    ("drawing", "names"),
    [
        (OpponentConfig(sampling="latest", partner_share=0.25), {TARGET, PARTNER, "third"}),
        (OpponentConfig(sampling="uniform", pool=2), {TARGET, "second", "third"}),
    ],
    ids=["latest", "pool of two"],
)
def test_nobody_is_loaded_who_is_never_met(world: World, build: Build, drawing: OpponentConfig, names: set[str]) -> None:
    algorithm = train(build(roster=world.hardening(drawing)), 1)
    for place in (algorithm.learner_group._learner.module, algorithm.env_runner.module):
        assert set(place.keys()) == names


def test_a_resumed_training_goes_on_as_if_never_interrupted(build: Build, tmp_path: Path) -> None:
    rule = replace(RULE, kl_weight=0.1)
    whole, first, second = (build(rule) for _ in range(3))
    train(whole, 8)
    state.save(train(first, 4), tmp_path / "state")
    assert state.restore(second, tmp_path / "state") == 4
    assert second.draw.wins == first.draw.wins
    assert second.baselines == first.baselines
    assert_same_training(whole, train(second, 4))
    assert second.draw.wins == whole.draw.wins
    assert second.baselines == whole.baselines
    assert_frozen(second)


def test_one_seed_makes_one_target_and_another_seed_another(build: Build) -> None:
    first, again, other = (train(build(seed=seed), 4) for seed in (SEED, SEED, SEED + 1))
    assert_same_training(first, again)
    assert not equal_weights(state.learned_weights(first), state.learned_weights(other))


def test_the_kl_guard_compares_with_the_reference(world: World, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that starts at its reference is not pulled, one that starts elsewhere is."""
    monkeypatch.setattr(ReinforceConfig, "clip", 1e9)
    only_guard = replace(RULE, supervised_weight=0.0, kl_weight=1.0, learning_rate=0.1, optimiser="sgd")
    start = weights(world.folder / TARGET)
    moved = {}
    for reference in (TARGET, "second"):
        algorithm = build(only_guard, world.hardening(reference=reference))
        algorithm._centered = lambda names, rewards: np.zeros(len(rewards))  # type: ignore[method-assign]  # a stub
        learned = state.learned_weights(train(algorithm, 1))
        moved[reference] = max(float((learned[name] - value).abs().max()) for name, value in start.items())
    assert moved[TARGET] < 1e-6 < 1e-3 < moved["second"]


def test_both_sides_take_turns_and_each_stands_still_while_the_other_learns(world: World, build: Build) -> None:
    """An adversary learns from the target, the target from it, and the adversary from the hardened target."""
    names = {ADVERSARY: "adversary", TARGET: "target"}
    for number, role in enumerate((ADVERSARY, TARGET, ADVERSARY)):
        other = TARGET if role == ADVERSARY else ADVERSARY
        start, frozen = world.folder / names[role], world.folder / names[other]
        before = weights(start), weights(frozen)
        opponent = Opponent(name=other, checkpoint=str(frozen), reward="advantage", complementary=True)
        cast = TrainingRoster(role=role, learner=str(start), reference=str(start), opponents=(opponent,))
        algorithm = train(build(roster=cast), 3)
        assert_frozen(algorithm)
        assert equal_weights(module_weights(algorithm, other)[0], before[1])
        learned = state.learned_weights(algorithm)
        assert not equal_weights(learned, before[0])
        lead = (algorithm.played[0]["points"] * [1, -1]).sum(1) - RULE.stalling_penalty * algorithm.played[0]["forced"]
        np.testing.assert_array_equal(algorithm.paid[0], lead)
        model = load_model(start)
        model.load_state_dict(learned)
        names[role] = f"{role} of turn {number}"
        world.save(model, names[role])


def test_a_chat_model_that_is_met_answers_at_the_temperature_of_the_rule(world: World, built: Built, tmp_path: Path) -> None:
    told = tmp_path / "told"
    (tmp_path / "mine.py").write_text(
        f"""class Mine:
    def answer(self, chats, *, decoding, seeds=()):
        open({str(told)!r}, "a").write(f"{{decoding.temperature}}\\n")
        return ["<selection>"] * len(chats)
"""
    )
    met = Opponent(name=TARGET, agent=f"{tmp_path}/mine.py:Mine", reward="advantage", complementary=True)
    start = str(world.folder / ADVERSARY)
    roster = TrainingRoster(role="adversary", learner=start, reference=start, opponents=(met,))
    built(world.settings(replace(SMALL, temperature=0.8), roster=roster)).train()
    assert set(told.read_text().split()) == {"0.8"}
