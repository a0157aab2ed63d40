"""Both sides of MutualFriends under RLlib's contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ray.rllib.env.env_context import EnvContext
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from parley.engine.mutual_friends.rl import SIDES, MutualFriendsMultiAgentEnv
from parley.envs.core.errors import ConfigError, ScenarioError
from tests.envs.mutual_friends.made_up import SCENARIO
from tests.envs.mutual_friends.test_env import TASK


def make(**config: Any) -> MutualFriendsMultiAgentEnv:
    return MutualFriendsMultiAgentEnv({**TASK, **config})


def test_a_chat_from_the_first_word_to_agreement() -> None:
    env = make()
    observations, infos = env.reset()
    (agent,) = observations
    assert infos == {agent: {}}
    first = SIDES.index(agent)
    for side in (first, 1 - first):
        agent, other = SIDES[side], SIDES[1 - side]
        assert observations[agent] in env.observation_spaces[agent]
        observations, rewards, ended, cut, infos = env.step({agent: env.task.spaces.say(["hi"])})
        assert (set(observations), rewards, infos) == ({other}, dict.fromkeys(SIDES, 0.0), {other: {}})
        assert not ended["__all__"]
    for side in (first, 1 - first):
        observations, rewards, ended, cut, infos = env.step({SIDES[side]: env.task.spaces.select(SCENARIO.shared[side])})
    assert set(observations) == set(SIDES)
    assert rewards == dict.fromkeys(SIDES, pytest.approx(0.96))
    assert ended == dict.fromkeys((*SIDES, "__all__"), True)
    assert not any(cut.values())
    assert infos[SIDES[0]]["agreed"]
    assert [row.any() for row in observations[SIDES[0]]["selected"]][:4] == [False, False, True, True]


def test_each_side_sees_its_own_table() -> None:
    env = make()
    seen: dict[str, Any] = {}
    observations, _ = env.reset()
    while set(seen) < set(SIDES):
        seen.update(observations)
        observations, *_ = env.step({agent: env.task.spaces.say(["hi"]) for agent in observations})
    assert not np.array_equal(seen[SIDES[0]]["table"], seen[SIDES[1]]["table"])


def test_no_two_environments_and_no_two_resets_are_one_chat() -> None:
    def chats(env: MutualFriendsMultiAgentEnv) -> list[int]:
        found = []
        for _ in range(8):
            env.reset(seed=42)
            found.append(env._game.seeds[0])
        return found

    context = EnvContext(dict(TASK), worker_index=1)
    first, second = chats(MutualFriendsMultiAgentEnv(context)), chats(MutualFriendsMultiAgentEnv(context))
    assert len({*first, *second}) == 16
    assert chats(make(seed=3)) == chats(make(seed=3)) != chats(make(seed=4))


def test_only_the_side_to_act_acts() -> None:
    env = make()
    said = env.task.spaces.say(["hi"])
    with pytest.raises(ScenarioError, match=r"call reset\(\) first"):
        env.step({SIDES[0]: said})
    (agent,), _ = env.reset()
    for wrong in ({}, dict.fromkeys(SIDES, said), {next(side for side in SIDES if side != agent): said}):
        with pytest.raises(ScenarioError, match=f"give an action of '{agent}' alone"):
            env.step(wrong)
    with pytest.raises(ScenarioError, match="outside the action space"):
        env.step({agent: {"selection": 99, "words": said["words"]}})


def test_a_wrong_configuration_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'rules'"):
        make(rule=3)
    with pytest.raises(ConfigError, match="event_cost"):
        make(event_cost=2.0)


def test_rllib_accepts_it() -> None:
    check_multiagent_environments(make())
