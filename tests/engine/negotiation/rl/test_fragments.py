"""Stock runners cut episodes into fragments: no action and no reward of our two-sided environments is lost by that."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

import pytest
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule

from parley.engine.generation.rl.reply_modules import ReplyMultiAgentEnv
from parley.engine.mutual_friends.rl import MutualFriendsMultiAgentEnv
from parley.engine.negotiation.rl.env import NegotiationMultiAgentEnv
from parley.envs.generation.reply_env import words_of
from parley.envs.negotiation.game import Rules
from tests.envs.generation.made_up import EXAMPLES, RULES
from tests.envs.mutual_friends.test_env import TASK
from tests.envs.negotiation.agents import VOCABULARY

NUM_EPISODES = 4
LAST = 100.0


class RandomTorchModule(RandomRLModule):
    framework = "torch"


class Paying:
    """Pays the agent that acts 1, and for the last action of an episode `LAST`; notes what was paid in each episode."""

    paid: ClassVar[list[list[float]]] = []

    def reset(self, **options: Any) -> Any:
        self.paid.append([])
        return super().reset(**options)  # type: ignore[misc]

    def step(self, action_dict: dict[str, Any]) -> Any:
        observations, rewards, terminated, truncated, infos = super().step(action_dict)  # type: ignore[misc]
        reward = LAST if terminated["__all__"] else 1.0
        self.paid[-1].append(reward)
        return observations, {agent: reward * (agent in action_dict) for agent in rewards}, terminated, truncated, infos


class PayingNegotiation(Paying, NegotiationMultiAgentEnv):
    pass


class PayingFriends(Paying, MutualFriendsMultiAgentEnv):
    pass


class PayingReplies(Paying, ReplyMultiAgentEnv):
    pass


ENVIRONMENTS: dict[str, tuple[type[MultiAgentEnv], dict[str, Any]]] = {
    "negotiation": (PayingNegotiation, {"vocabulary": VOCABULARY, "rules": Rules(max_turns=4, max_words=4, max_tokens=32)}),
    "friends": (PayingFriends, TASK),
    "replies": (PayingReplies, {"vocabulary": words_of(EXAMPLES), "examples": EXAMPLES, "rules": RULES}),
}


def runner_of(kind: type[MultiAgentEnv], config: dict[str, Any], agents: list[str], fragment: int) -> MultiAgentEnvRunner:
    modules = {agent: RLModuleSpec(module_class=RandomTorchModule) for agent in agents}
    settings = (
        PPOConfig()
        .environment(kind, env_config=config, disable_env_checking=True)
        .env_runners(num_env_runners=0, rollout_fragment_length=fragment)
        .multi_agent(policies=agents, policy_mapping_fn=lambda agent, *_, **__: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=modules))
    )
    settings.normalize_actions = settings.clip_actions = False
    return MultiAgentEnvRunner(config=settings)


@pytest.mark.parametrize("fragment", [1, 3])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_fragments_hold_every_action_and_reward(name: str, fragment: int) -> None:
    kind, config = ENVIRONMENTS[name]
    runner = runner_of(kind, config, list(kind(config).possible_agents), fragment)
    Paying.paid.clear()
    rewards: dict[str, float] = defaultdict(float)
    steps: dict[str, int] = defaultdict(int)
    ended = []
    while len(ended) < NUM_EPISODES:
        for chunk in runner.sample(num_timesteps=fragment):
            for single in chunk.agent_episodes.values():
                rewards[chunk.id_] += sum(single.get_rewards())
                steps[chunk.id_] += len(single)
            if chunk.is_done:
                ended.append(chunk.id_)
    paid = [episode for episode in Paying.paid if LAST in episode]
    assert [rewards[episode] for episode in ended] == [sum(episode) for episode in paid]
    assert [steps[episode] for episode in ended] == [len(episode) for episode in paid]
    returned = runner.get_metrics()["episode_return_mean"].peek()
    assert returned == pytest.approx(sum(map(sum, paid)) / len(paid))
