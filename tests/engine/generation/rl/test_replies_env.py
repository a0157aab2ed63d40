"""Both sides of the game of replies under RLlib's contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ray.rllib.env.env_context import EnvContext
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from parley.engine.generation.rl.reply_modules import DISCRIMINATOR, GENERATOR, ReplyMultiAgentEnv
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.generation.reply_env import reply_action, words_of
from tests.engine.generation.rl.playthrough_replies import PATH, record
from tests.envs.generation.made_up import EXAMPLES, RULES

WORDS = words_of(EXAMPLES)
SAID = reply_action(WORDS, RULES, ["it", "is", "full"])


def make(**config: Any) -> ReplyMultiAgentEnv:
    return ReplyMultiAgentEnv({"vocabulary": WORDS, "examples": EXAMPLES, "rules": RULES, **config})


def test_an_episode_from_the_context_to_who_was_right() -> None:
    env, met = make(), set()
    for _ in range(12):
        observations, infos = env.reset()
        assert (set(observations), infos) == ({GENERATOR}, {GENERATOR: {}})
        assert observations[GENERATOR] in env.observation_spaces[GENERATOR]
        observations, rewards, terminateds, _, _ = env.step({GENERATOR: SAID})
        assert (set(observations), rewards) == ({DISCRIMINATOR}, {GENERATOR: 0.0, DISCRIMINATOR: 0.0})
        assert not terminateds["__all__"]
        seen = observations[DISCRIMINATOR]
        assert seen in env.observation_spaces[DISCRIMINATOR]
        said = WORDS.decode(seen["reply"][: seen["reply_length"]])
        observations, rewards, terminateds, truncateds, infos = env.step({DISCRIMINATOR: np.int64(1)})
        recorded = infos[GENERATOR]["is_recorded"]
        assert recorded == (said != ["it", "is", "full"])
        assert rewards == {GENERATOR: float(not recorded), DISCRIMINATOR: float(recorded)}
        assert set(observations) == {GENERATOR, DISCRIMINATOR}
        assert terminateds == {GENERATOR: True, DISCRIMINATOR: True, "__all__": True}
        assert not any(truncateds.values())
        met.add((infos[GENERATOR]["key"], recorded))
    assert len(met) == 4


def test_the_episodes_are_the_recorded_ones() -> None:
    assert record() == PATH.read_text(), "if the change is intended: python -m tests.engine.generation.rl.playthrough_replies"


def test_no_two_environments_and_no_two_resets_are_one_episode() -> None:
    def episodes(env: ReplyMultiAgentEnv) -> list[tuple[str, bool]]:
        found = []
        for _ in range(8):
            env.reset(seed=42)
            assert env._game is not None
            found.append((env._game.examples[0].key, bool(env._game.is_recorded_B[0])))
        return found

    context = EnvContext({"vocabulary": WORDS, "examples": EXAMPLES, "rules": RULES}, worker_index=1)
    first, second = episodes(ReplyMultiAgentEnv(context)), episodes(ReplyMultiAgentEnv(context))
    assert first != second
    assert len(set(first)) > 1
    assert episodes(make(seed=5)) == episodes(make(seed=5))


def test_rllibs_own_checker_is_content() -> None:
    check_multiagent_environments(make())


def test_mistakes_are_named() -> None:
    env = make()
    with pytest.raises(ScenarioError, match="waits for"):
        env.step({GENERATOR: SAID})
    env.reset()
    with pytest.raises(ScenarioError, match="give an action of 'generator' alone"):
        env.step({DISCRIMINATOR: np.int64(1)})
    with pytest.raises(ScenarioError, match="outside the action space"):
        env.step({GENERATOR: np.full(5, len(WORDS))})
    with pytest.raises(ConfigError, match="unknown key 'example', did you mean 'examples'"):
        make(example=EXAMPLES)
    with pytest.raises(ConfigError, match="needs vocabulary"):
        ReplyMultiAgentEnv({"examples": EXAMPLES})
    with pytest.raises(ConfigError, match="no context"):
        make(examples=())
