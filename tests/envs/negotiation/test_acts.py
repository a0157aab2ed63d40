"""Negotiation by dialogue acts: masks, what acts say, what is chosen, and what is seen."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import parley  # noqa: F401  # registers the environments
from parley.envs.core.errors import ConfigError, DataError, ScenarioError
from parley.envs.negotiation.acts import NegotiationActsEnv
from parley.envs.negotiation.domain import Domain, Scenario, domain_of, domains
from parley.envs.negotiation.game import Rules
from parley.envs.negotiation.interview import bargainers as interview
from parley.envs.negotiation.scripted.bargainers import NUM_ALLOCATIONS, OTHER_ACTS, DivisionActs, worth
from parley.envs.negotiation.scripted.wording import Act
from tests.envs.negotiation.agents import VOCABULARY, Reader

ACCEPT, ASK, PART, END = range(NUM_ALLOCATIONS, NUM_ALLOCATIONS + len(OTHER_ACTS))
SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))


ID = "parley/NegotiationActs-v1"


def make(game: str = "dealornodeal", **arguments: Any) -> NegotiationActsEnv:
    words = domain_of(game).vocabulary()
    env = gymnasium.make(ID, vocabulary=words, **{"observations": "masked", **arguments}).unwrapped
    assert isinstance(env, NegotiationActsEnv)
    return env


def division(env: NegotiationActsEnv) -> DivisionActs:
    assert isinstance(env.acts, DivisionActs)
    return env.acts


def played(env: NegotiationActsEnv, seed: int, choose: Any) -> tuple[list[dict[str, np.ndarray]], float, dict[str, Any]]:
    """A dialogue: all that was seen, the reward and how it ended."""
    seen, info = env.reset(seed=seed)
    seens, over, reward = [seen], False, 0.0
    while not over:
        seen, reward, over, _, info = env.step(choose(seen))
        assert seen in env.observation_space
        seens.append(seen)
    return seens, reward, info


def results(dialogue: tuple[list[dict[str, np.ndarray]], float, dict[str, Any]]) -> tuple[float, tuple[int, int], Any]:
    return dialogue[1], dialogue[2]["points"], dialogue[2]["transcript"]


def at_random(seed: int) -> Any:
    draws = np.random.default_rng(seed)
    return lambda seen: np.int64(draws.choice(np.flatnonzero(seen["action_mask"])))


@pytest.mark.parametrize("rules", [Rules(), Rules(complementary=True)])
@pytest.mark.parametrize("side", [0, 1])
def test_a_partner_that_will_not_talk_leaves_one_act_that_collects_the_reward(side: int, rules: Rules) -> None:
    silent = Reader(lines=(), vocabulary=domain_of("dealornodeal").vocabulary())
    env = make(partner=silent, side=side, rules=rules)
    begun = []
    for seed in range(8):
        _, info = env.reset(seed=seed)
        assert "points" not in info, "nothing is over before the first act"
        _, reward, over, _, info = env.step(np.int64(END))
        assert over
        assert reward == info["points"][side]
        begun.append(info["transcript"][0][0])
    assert set(begun) == {0, 1}, "either has begun"


@pytest.mark.parametrize("game", list(domains))
def test_random_legal_acts_end_every_dialogue_within_the_spaces(game: str) -> None:
    env = make(game)
    rewards = [played(env, seed, at_random(seed))[1] for seed in range(60)]
    assert len(set(rewards)) > 5
    again = gymnasium.make(env.spec)
    assert results(played(again.unwrapped, 3, at_random(1))) == results(played(env, 3, at_random(1)))  # type: ignore[arg-type]


@pytest.mark.parametrize("game", list(domains))
def test_one_seed_gives_one_dialogue(game: str) -> None:
    first, second = (played(make(game), 3, at_random(1)) for _ in range(2))
    assert results(first) == results(second)
    assert all(np.array_equal(a["observations"], b["observations"]) for a, b in zip(first[0], second[0], strict=True))


def test_proposals_are_in_order_of_ones_own_points() -> None:
    env = make()
    env.reset(seed=1, options={"scenario": SCENARIO})
    values = SCENARIO.values[0]
    points = [worth(share, values) for share in division(env).shares]
    assert points == sorted(points, reverse=True)
    assert len(points) == 2 * 3 * 4
    assert env.name(0) == "proposes (1, 2, 3) of (1, 2, 3) for itself, worth 10"
    mask = env.action_masks()
    assert mask[: len(points)].all()
    assert not mask[len(points) : NUM_ALLOCATIONS].any()
    assert env.name(END) == Act.END.value


def test_a_proposal_is_heard_and_a_deal_is_chosen() -> None:
    env = make()
    deals = 0
    for seed in range(40):
        seen, _ = env.reset(seed=seed)
        over, info = False, {}
        while not over:
            acts = division(env)
            talks = acts.talks
            action = END if talks.agreed else ACCEPT if seen["action_mask"][ACCEPT] else min(8, len(acts.shares) - 1)
            seen, reward, over, _, info = env.step(np.int64(action))
            if not over and action < NUM_ALLOCATIONS and talks.my_last:
                assert talks.my_last == acts.shares[action], "said in words, and read back from them"
            if over and talks.agreed:
                assert reward == worth(talks.agreed, acts.values)
                deals += 1
        assert info["num_illegal"] == (0, 0)
    assert deals > 30


def test_acts_that_make_no_sense_are_masked() -> None:
    env = make()
    opened = False
    for seed in range(20):
        seen, _ = env.reset(seed=seed, options={"scenario": SCENARIO})
        talks = division(env).talks
        offered = talks.table is not None and not talks.table_is_mine
        assert bool(seen["action_mask"][ACCEPT]) == offered
        opened |= offered
        seen, _, over, *_ = env.step(np.int64(PART))
        assert over or not seen["action_mask"][PART]
    assert opened


def test_a_vocabulary_without_the_words_is_refused() -> None:
    with pytest.raises(DataError, match="lacks words"):
        NegotiationActsEnv(vocabulary=VOCABULARY, partner=Reader())


def test_interviews_are_proposed_accepted_and_settled() -> None:
    env, deals, accepted = make("interview"), 0, 0
    acts = env.acts
    assert isinstance(acts, interview.InterviewActs)
    for seed in range(40):
        seen, _ = env.reset(seed=seed)
        assert acts.gains.tolist() == sorted(acts.gains.tolist(), reverse=True)
        assert acts.gains[0] == 15
        standing, over, reward = acts.standing, False, 0.0
        while not over:
            offered = standing.table is not None and not standing.table_is_mine and not standing.agreed
            assert bool(seen["action_mask"][interview.ACCEPTS]) == offered
            action = interview.ENDS if standing.agreed else interview.ACCEPTS if offered and seed % 2 else 20
            seen, reward, over, _, info = env.step(np.int64(action))
            accepted += action == interview.ACCEPTS
            if not over and action == 20:
                assert standing.my_last == acts.proposal(20), "said in words, and read back from them"
        if standing.agreed:
            assert reward == sum(acts.values[list(standing.agreed)])
            deals += 1
        assert info["num_illegal"] == (0, 0)
    assert deals > 30
    assert accepted > 5
    assert env.name(0).startswith("proposes salary")
    assert env.name(0).endswith("worth 15")


def test_an_interview_that_is_broken_off_pays_nothing() -> None:
    env = make("interview")
    env.reset(seed=1)
    seen, reward, over, *_ = env.step(np.int64(interview.BREAKS_OFF))
    if not over:
        assert not seen["action_mask"][interview.BREAKS_OFF]
        _, reward, over, *_ = env.step(np.int64(interview.ENDS))
    assert (over, reward) == (True, 0)


def test_a_game_without_acts_says_so() -> None:
    with pytest.raises(ConfigError, match="'interview' has no dialogue acts"):
        Domain.acts(domain_of("interview"), domain_of("interview").vocabulary())


@pytest.mark.parametrize("observations", ["flat", "masked"])
@pytest.mark.parametrize("game", list(domains))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasium_accepts_both_forms(game: str, observations: str) -> None:
    check_env(make(game, observations=observations))


def test_flat_observations_are_the_features_and_then_the_mask() -> None:
    flat, masked = make(observations="flat"), make()
    for seed in range(5):
        (seen, info), (parts, _) = flat.reset(seed=seed), masked.reset(seed=seed)
        over = False
        while not over:
            assert seen.tolist() == [*parts["observations"].tolist(), *parts["action_mask"].tolist()]
            assert info["action_mask"].tolist() == parts["action_mask"].tolist() == flat.action_masks().tolist()
            act = np.int64(np.flatnonzero(info["action_mask"])[-1])
            (seen, _, over, _, info), (parts, *_) = flat.step(act), masked.step(act)


def test_the_first_legal_act_is_said_for_an_illegal_one_without_a_mask_and_counted() -> None:
    env, legal = make(observations="flat"), make(observations="flat")
    scenario = {"scenario": SCENARIO}
    env.reset(seed=0, options=scenario), legal.reset(seed=0, options=scenario)
    illegal = np.int64(NUM_ALLOCATIONS - 1)
    assert not env.action_masks()[illegal]
    (seen, *_, info), (same, *_) = env.step(illegal), legal.step(np.int64(0))
    assert seen.tolist() == same.tolist()
    assert info["num_illegal_acts"] == 1
    assert env.reset(seed=1)[1]["num_illegal_acts"] == 0


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'flat'"):
        NegotiationActsEnv(observations="flatt")
    env = make(observations="flat")
    env.reset(seed=0)
    for act in (-1, 40):
        with pytest.raises(ScenarioError, match="outside the action space"):
            env.step(np.int64(act))


def test_trainings_of_the_example_with_neighbouring_seeds_share_no_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    train = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "learn_dialogue_acts.py"))["plain_loop"]
    seeds, reset = [], NegotiationActsEnv.reset

    def recorded(env: NegotiationActsEnv, *, seed: int | None = None, options: Any = None) -> Any:
        seeds.append(seed)
        return reset(env, seed=seed, options=options)

    monkeypatch.setattr(NegotiationActsEnv, "reset", recorded)
    for seed in range(3):
        train(0, seed, envs=4)
    assert len(seeds) == len({seed for seed in seeds if seed is not None}) == 12
