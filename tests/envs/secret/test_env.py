"""The secret game under Gymnasium's and PettingZoo's contracts."""

from __future__ import annotations

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import seed_test

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.secret.env import SecretTask
from parley.envs.secret.game import SecretRules
from parley.envs.secret.pettingzoo_env import SecretAEC

SHORT = SecretRules(max_messages=2)


@pytest.mark.parametrize("side", [0, 1])
def test_gymnasium_accepts_it(side: int) -> None:
    check_env(gymnasium.make("parley/Secret-v1", side=side, rules=SHORT).unwrapped, skip_render_check=True)


def test_a_defender_meets_both_kinds_of_dialogues_and_an_attacker_attacks_alone() -> None:
    kinds = {}
    for side in (0, 1):
        env = gymnasium.make("parley/Secret-v1", side=side, rules=SHORT)
        kinds[side] = set()
        for seed in range(12):
            env.reset(seed=seed)
            over = False
            while not over:
                _, reward, over, _, info = env.step("nothing")
            kinds[side].add((info["attack"], reward))
    assert kinds == {0: {(True, 0.0)}, 1: {(True, 1.0), (False, 0.0)}}


def test_wrong_arguments_are_named() -> None:
    for arguments in ({"side": 2}, {"partner": "nobody"}, {"scenarios": []}, {"side": 1, "harmless": 2.0}):
        with pytest.raises(ConfigError):
            gymnasium.make("parley/Secret-v1", **arguments)
    env = gymnasium.make("parley/Secret-v1").unwrapped
    with pytest.raises(ScenarioError, match="call reset"):
        env.step("hello")
    env.reset(seed=1)
    with pytest.raises(ScenarioError, match="an action is a text"):
        env.step(3)
    with pytest.raises(ConfigError, match="wrong option"):
        env.reset(options={"word": "hello"})


@pytest.mark.filterwarnings("ignore")
def test_equal_seeds_are_equal_games_in_pettingzoo() -> None:
    # Its `api_test` asks texts for their dtype.
    seed_test(lambda: SecretAEC(rules=SHORT), num_cycles=20)


@pytest.mark.parametrize("harmless", [0.0, 1.0])
def test_agents_take_turns_and_a_harmless_user_asks_by_itself(harmless: float) -> None:
    env = SecretAEC(harmless=harmless, rules=SHORT)
    env.reset(seed=1)
    acted = []
    for agent in env.agent_iter():
        seen, reward, over, _, info = env.last()
        assert env.observation_space(agent).contains(seen)
        if over:
            assert info["attack"] is (harmless == 0)
            assert reward == float(agent == "defender" and harmless == 0)
            env.step(None)
        else:
            acted.append(agent)
            env.step("hello")
    assert acted == (["defender"] * 2 if harmless else ["attacker", "defender"] * 2)
    with pytest.raises(ConfigError, match="unknown render mode"):
        SecretAEC(render_mode="pixels")
    assert SecretTask().rules == SecretRules()
