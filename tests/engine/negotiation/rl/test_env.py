"""Both sides of the game under RLlib's contract: stepped by hand, by RLlib's checker and by its stock runner."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from parley.engine.negotiation.rl.env import AGENTS, NegotiationMultiAgentEnv
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.negotiation.dealornodeal_rules import complement, selection_index
from parley.envs.negotiation.domain import Scenario
from parley.envs.negotiation.env import choose_action, speak_action
from parley.envs.negotiation.game import OVER, SELECT, SPEAK, Rules
from tests.envs.negotiation.agents import VOCABULARY

SHORT = Rules(max_turns=6, max_words=8, max_tokens=64)
COMPLEMENTARY = Rules(max_turns=6, max_words=8, max_tokens=64, complementary=True)
SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))
FIRST = selection_index(SCENARIO.counts, (0, 2, 1))
CHOICES = {"adversary": FIRST, "target": complement(SCENARIO.counts, FIRST)}


def make(**config: Any) -> NegotiationMultiAgentEnv:
    return NegotiationMultiAgentEnv({"vocabulary": VOCABULARY, "rules": SHORT, **config})


def speak(*words: str) -> dict[str, Any]:
    return speak_action(VOCABULARY, SHORT, words)


def only(per_agent: dict[str, Any]) -> tuple[str, Any]:
    ((agent, value),) = per_agent.items()
    return agent, value


def random_steps(env: NegotiationMultiAgentEnv, rng: np.random.Generator) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """One dialogue of random actions: who acted, and what `step` returned."""
    observations, _ = env.reset()
    over = False
    while not over:
        agent, _ = only(observations)
        space = env.action_spaces[agent]
        space.seed(int(rng.integers(2**31)))
        result = env.step({agent: space.sample()})
        observations, over = result[0], result[2]["__all__"]
        yield agent, result


@pytest.mark.parametrize(("kind", "expected"), [("points", (7.0, 8.0)), ("advantage", (-1.0, 1.0))])
def test_a_dialogue_from_the_first_word_to_the_points(kind: str, expected: tuple[float, float]) -> None:
    env = make(scenarios=[SCENARIO], reward=kind)
    observations, infos = env.reset()
    opener, observation = only(observations)
    assert infos == {opener: {}}
    assert observation["phase"] == SPEAK

    observations, rewards, terminateds, truncateds, infos = env.step({opener: speak("deal", "<eos>")})
    answerer, observation = only(observations)
    assert answerer != opener
    assert VOCABULARY.decode(observation["tokens"][: observation["num_tokens"]]) == ["THEM:", "deal", "<eos>"]
    assert rewards == {"adversary": 0.0, "target": 0.0}
    assert terminateds == truncateds == {"adversary": False, "target": False, "__all__": False}

    observations, *_ = env.step({answerer: speak("<selection>")})
    for agent in AGENTS:
        acting, observation = only(observations)
        assert acting == agent
        assert observation["phase"] == SELECT
        observations, rewards, terminateds, truncateds, infos = env.step({agent: choose_action(SHORT, CHOICES[agent])})
    assert set(observations) == set(AGENTS)
    assert all(observation["phase"] == OVER for observation in observations.values())
    assert rewards == dict(zip(AGENTS, expected, strict=True))
    assert terminateds == {"adversary": True, "target": True, "__all__": True}
    assert not any(truncateds.values())
    assert infos["adversary"] == infos["target"]
    assert infos["adversary"]["points"] == (7, 8)
    assert infos["adversary"]["agreed"]


def test_under_the_complementary_rule_the_target_alone_chooses() -> None:
    env = make(scenarios=[SCENARIO], rules=COMPLEMENTARY)
    observations, _ = env.reset()
    opener, _ = only(observations)
    observations, *_ = env.step({opener: speak("<selection>")})
    assert set(observations) == {"target"}
    _, rewards, terminateds, _, _ = env.step({"target": choose_action(COMPLEMENTARY, CHOICES["target"])})
    assert terminateds["__all__"]
    assert rewards == {"adversary": 7.0, "target": 8.0}


@pytest.mark.parametrize("rules", [SHORT, COMPLEMENTARY], ids=["both choose", "complementary"])
def test_random_dialogues_keep_the_contract(rules: Rules) -> None:
    env = make(rules=rules)
    rng = np.random.default_rng(0)
    for _ in range(30):
        for actor, (observations, rewards, terminateds, truncateds, infos) in random_steps(env, rng):
            assert actor in rewards, "RLlib refuses an agent that acted and has no reward"
            assert set(rewards) == set(AGENTS)
            assert set(infos) <= set(observations)
            assert not any(truncateds.values())
            for agent, observation in observations.items():
                assert observation in env.observation_spaces[agent]
            assert len(observations) == (2 if terminateds["__all__"] else 1)


def opening(env: NegotiationMultiAgentEnv, seed: int | None = None) -> tuple[Any, ...]:
    """What tells two dialogues apart at their start: who opens, the scenario and the dialogue's seed."""
    observations, _ = env.reset(seed=seed)
    game = env._game
    assert game is not None
    return only(observations)[0], game.scenarios[0].key, game.seeds[0]


def openings(env: NegotiationMultiAgentEnv, *seeds: int | None) -> list[tuple[Any, ...]]:
    return [opening(env, seed) for seed in seeds]


def test_every_reset_is_another_dialogue_even_with_the_same_seed() -> None:
    assert len(set(openings(make(), *[None] * 50))) == 50
    assert len(set(openings(make(), *[42] * 50))) == 50


def test_equal_configurations_and_resets_give_equal_dialogues() -> None:
    seeds = (42, None, 7, None)
    assert openings(make(seed=3), *seeds) == openings(make(seed=3), *seeds)
    assert not set(openings(make(seed=3), *seeds)) & set(openings(make(seed=4), *seeds))
    assert not set(openings(make(seed=3), 1, 1)) & set(openings(make(seed=3), 2, 2))


def test_streams_differ_under_the_same_seed() -> None:
    first = openings(make(stream=(0, 0)), *[42] * 10)
    assert first == openings(make(stream=[0, 0]), *[42] * 10)
    for other in ((0, 1), (1, 0), ()):
        assert not set(first) & set(openings(make(stream=other), *[42] * 10))


def test_environments_of_one_rllib_context_take_different_streams() -> None:
    config = {"vocabulary": VOCABULARY, "rules": SHORT}
    first, second = EnvContext(config, worker_index=1), EnvContext(config, worker_index=2)
    made = [NegotiationMultiAgentEnv(context) for context in (first, first, first, second)]
    assert len({opening(env, 42) for env in made}) == 4
    # A worker that is started again makes the same environments again.
    again = NegotiationMultiAgentEnv(EnvContext(config, worker_index=1))
    assert opening(again, 42) == opening(NegotiationMultiAgentEnv(EnvContext(config, worker_index=1)), 42)


def test_rllibs_checker_accepts_it() -> None:
    for _ in range(5):
        check_multiagent_environments(make())


class RandomTorchModule(RandomRLModule):
    # RLlib's connectors turn observations into tensors and refuse a module of no framework.
    framework = "torch"


def runner(num_envs: int, seed: int | None = None, **config: Any) -> MultiAgentEnvRunner:
    """The stock runner with random actions; needs no Ray session."""
    modules = {agent: RLModuleSpec(module_class=RandomTorchModule) for agent in AGENTS}
    settings = (
        PPOConfig()
        .environment(NegotiationMultiAgentEnv, env_config={"vocabulary": VOCABULARY, "rules": SHORT, **config})
        .env_runners(num_envs_per_env_runner=num_envs, num_env_runners=0)
        .multi_agent(policies=set(AGENTS), policy_mapping_fn=lambda agent, *_, **__: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=modules))
        .debugging(seed=seed)
    )
    settings.normalize_actions = settings.clip_actions = False
    return MultiAgentEnvRunner(config=settings)


@pytest.mark.parametrize("rules", [SHORT, COMPLEMENTARY], ids=["both choose", "complementary"])
def test_the_stock_runner_samples_whole_dialogues(rules: Rules) -> None:
    episodes = runner(num_envs=1, rules=rules, reward="advantage").sample(num_episodes=30)
    assert len(episodes) == 30
    for episode in episodes:
        assert episode.is_terminated
        returns = episode.get_return()
        assert -10 <= returns <= 10
        steps = {agent: len(single) for agent, single in episode.agent_episodes.items()}
        assert sum(steps.values()) == episode.env_t, "one agent acts at each step"
        for single in episode.agent_episodes.values():
            rewards = np.asarray(single.get_rewards())
            assert not rewards[:-1].any(), "rewards come at the end alone"
        info = next(iter(episode.agent_episodes.values())).get_infos(-1)
        for side, agent in enumerate(AGENTS):
            if agent in episode.agent_episodes:
                own, other = info["points"][side], info["points"][1 - side]
                assert episode.agent_episodes[agent].get_return() == own - other


@pytest.mark.parametrize("seed", [None, 0], ids=["unseeded", "seeded"])
def test_the_stock_runner_never_repeats_a_dialogue(seed: int | None) -> None:
    sampler = runner(num_envs=8, seed=seed)
    dialogues = []
    for _ in range(3):
        sampler.sample(num_timesteps=0, force_reset=True)
        dialogues += [env.unwrapped._game.seeds[0] for env in sampler.env.envs]
    assert len(set(dialogues)) == 24


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"vocabulary": None}, "needs a vocabulary"),
    ({"rewards": "points"}, "did you mean 'reward'"),
    ({"reward": "advantge"}, "did you mean 'advantage'"),
    ({"scenarios": []}, "empty"),
]


@pytest.mark.parametrize(("config", "message"), WRONG, ids=[next(iter(config)) for config, _ in WRONG])
def test_wrong_configurations_are_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**config)


def test_actions_of_the_wrong_agent_are_refused() -> None:
    env = make()
    with pytest.raises(ScenarioError, match="reset"):
        env.step({"target": speak("no")})
    opener, _ = only(env.reset()[0])
    other = AGENTS[1 - AGENTS.index(opener)]
    for actions in ({}, {other: speak("no")}, {opener: speak("no"), other: speak("no")}):
        with pytest.raises(ScenarioError, match=f"{opener!r} alone"):
            env.step(actions)


def test_actions_outside_the_space_are_refused() -> None:
    env = make()
    opener, _ = only(env.reset()[0])
    action = speak("no")
    action["utterance"][0] = len(VOCABULARY)
    with pytest.raises(ScenarioError, match="outside the action space"):
        env.step({opener: action})


def test_a_copy_plays_on_alike() -> None:
    env = make()
    opener, _ = only(env.reset()[0])
    twin = copy.deepcopy(env)
    env.step({opener: speak("no", "<eos>")})
    assert twin.step({opener: speak("no", "<eos>")})[0].keys() != {opener}
    assert opening(env) == opening(twin)
