"""The secret game under RLlib's contract."""

from __future__ import annotations

import pytest

from parley.engine.secret.rl import SecretMultiAgentEnv
from parley.envs.core.errors import ConfigError, ScenarioError


def test_agents_take_turns_both_end_and_seeds_repeat_no_dialogue() -> None:
    env = SecretMultiAgentEnv({"seed": 3})
    texts, kinds = set(), set()
    for _ in range(8):
        observations, _ = env.reset(seed=42)
        texts.add(next(iter(observations.values())))
        over = False
        while not over:
            (agent,) = observations
            observations, rewards, ended, _, infos = env.step({agent: "hello"})
            over = ended["__all__"]
        assert set(observations) == set(infos) == {"attacker", "defender"}
        kinds.add(infos["defender"]["attack"])
        assert rewards == {"attacker": 0.0, "defender": float(infos["defender"]["attack"])}
    assert len(texts) == 8
    assert kinds == {True, False}
    again = SecretMultiAgentEnv({"seed": 3})
    assert next(iter(again.reset(seed=42)[0].values())) in texts


def test_wrong_keys_and_actions_are_named() -> None:
    with pytest.raises(ConfigError, match="harmless"):
        SecretMultiAgentEnv({"harmles": 1})
    with pytest.raises(ScenarioError, match="call reset"):
        SecretMultiAgentEnv({}).step({"attacker": "hello"})


def test_rllib_takes_its_episodes() -> None:
    from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

    for harmless in (0.0, 1.0):
        env = SecretMultiAgentEnv({"harmless": harmless})
        episode = MultiAgentEpisode(agent_to_module_mapping_fn=lambda agent, episode, **names: agent)
        observations, infos = env.reset()
        episode.add_env_reset(observations=observations, infos=infos)
        while not episode.is_done:
            actions = dict.fromkeys(observations, "hello")
            observations, rewards, terminated, truncated, infos = env.step(actions)
            episode.add_env_step(observations, actions, rewards, infos, terminateds=terminated, truncateds=truncated)
        assert episode.get_return() == 1 - harmless
