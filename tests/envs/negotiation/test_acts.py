"""Negotiation by dialogue acts: masks, what acts say, what is chosen, and what is seen."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import envs
from envs.core.errors import DataError, ScenarioError
from envs.negotiation.acts import NUM_ALLOCATIONS, OTHER_ACTS, DialogueActs
from envs.negotiation.env import NegotiationEnv
from envs.negotiation.scenario import Scenario
from envs.negotiation.scripted.bargainers import worth
from envs.negotiation.scripted.phrasing import Act
from tests.envs.negotiation.agents import VOCABULARY, Reader

ACCEPT, ASK, PART, END = range(NUM_ALLOCATIONS, NUM_ALLOCATIONS + len(OTHER_ACTS))
SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))


def make() -> DialogueActs:
    return DialogueActs(gymnasium.make(envs.IDS[0]))


def played(env: DialogueActs, seed: int, choose: Any) -> tuple[list[dict[str, np.ndarray]], float, dict[str, Any]]:
    """A dialogue: all that was seen, the reward and how it ended."""
    seen, info = env.reset(seed=seed)
    seens, over, reward = [seen], False, 0.0
    while not over:
        seen, reward, over, _, info = env.step(choose(seen))
        assert seen in env.observation_space
        seens.append(seen)
    return seens, reward, info


def at_random(seed: int) -> Any:
    draws = np.random.default_rng(seed)
    return lambda seen: np.int64(draws.choice(np.flatnonzero(seen["action_mask"])))


def test_random_legal_acts_end_every_dialogue_within_the_spaces() -> None:
    env = make()
    rewards = [played(env, seed, at_random(seed))[1] for seed in range(60)]
    assert len(set(rewards)) > 5
    again = gymnasium.make(env.spec)
    assert played(again, 3, at_random(1))[1:] == played(env, 3, at_random(1))[1:]


def test_one_seed_gives_one_dialogue() -> None:
    first, second = (played(make(), 3, at_random(1)) for _ in range(2))
    assert first[1:] == second[1:]
    assert all(np.array_equal(a["observations"], b["observations"]) for a, b in zip(first[0], second[0], strict=True))


def test_proposals_are_in_order_of_ones_own_points() -> None:
    env = make()
    env.reset(seed=1, options={"scenario": SCENARIO})
    values = SCENARIO.values[0]
    points = [worth(share, values) for share in env._shares]
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
            talks = env._talks
            action = END if talks.agreed else ACCEPT if seen["action_mask"][ACCEPT] else min(8, len(env._shares) - 1)
            seen, reward, over, _, info = env.step(np.int64(action))
            if not over and action < NUM_ALLOCATIONS and talks.my_last:
                assert talks.my_last == env._shares[action], "said in words, and read back from them"
            if over and talks.agreed:
                assert reward == worth(talks.agreed, env._values)
                deals += 1
        assert info["num_illegal"] == (0, 0)
    assert deals > 30


def test_acts_that_make_no_sense_are_masked_and_refused() -> None:
    env = make()
    opened = False
    for seed in range(20):
        seen, _ = env.reset(seed=seed, options={"scenario": SCENARIO})
        offered = env._talks.table is not None and not env._talks.table_is_mine
        assert bool(seen["action_mask"][ACCEPT]) == offered
        opened |= offered
        seen, _, over, *_ = env.step(np.int64(PART))
        if not over:
            assert not seen["action_mask"][PART]
            with pytest.raises(ScenarioError, match="walks away"):
                env.step(np.int64(PART))
    assert opened


def test_a_vocabulary_without_the_words_is_refused() -> None:
    with pytest.raises(DataError, match="lacks words"):
        DialogueActs(NegotiationEnv(vocabulary=VOCABULARY, partner=Reader()))
