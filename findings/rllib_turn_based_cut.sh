#!/usr/bin/env bash
# RLlib's stock multi-agent runner loses the last action and reward of a turn-based episode that a fragment cuts before its last turn.
#
# Guess before the first run: the runner cuts episodes into fragments that are gone on with, so the fragment's length decides
#   nothing of what an episode earned. Episode returns are 104 at every length.
# Seen with ray 2.60.0: four turns that pay 1, 1, 2 and 100 to whoever acts. Where only one agent gets the final observation,
#   fragments of one step give episode_return_mean 4 and 3 of 4 steps; fragments of three, 70.7. Fragments of 2 and 4, which
#   do not cut there, give 104. Where both agents get the final observation, every length gives 104.
# Why it matters: rollout_fragment_length is 1 by default in DQN and SAC; the reward of a whole dialogue is its last.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0"
"$folder/venv/bin/pip" install --quiet "ray[rllib]==2.60.0"
cat > "$folder/turns.py" <<'PYTHON'
import logging

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule

REWARDS = (1.0, 1.0, 2.0, 100.0)


class RandomTorch(RandomRLModule):
    framework = "torch"


class Turns(MultiAgentEnv):
    """Agents "a" and "b" act by turns; the next one to act is observed, and at the end one or both."""

    def __init__(self, config):
        super().__init__()
        self.both = config["both"]
        self.possible_agents = self.agents = ["a", "b"]
        self.observation_spaces = {agent: gym.spaces.Box(0.0, 9.0, (1,), np.float32) for agent in "ab"}
        self.action_spaces = {agent: gym.spaces.Discrete(2) for agent in "ab"}

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return {"a": np.zeros(1, np.float32)}, {}

    def step(self, actions):
        (actor,) = actions
        reward, self.turn = REWARDS[self.turn], self.turn + 1
        over = self.turn == len(REWARDS)
        seen = "ab" if over and self.both else "ab"[self.turn % 2]
        observations = {agent: np.full(1, self.turn, np.float32) for agent in seen}
        rewards = {agent: reward if agent == actor else 0.0 for agent in "ab"}
        return observations, rewards, dict.fromkeys(("a", "b", "__all__"), over), {"__all__": False}, {}


def sampled(both, fragment):
    """Return episode_return_mean, and the steps in the chunks of an episode."""
    config = (
        PPOConfig()
        .environment(Turns, env_config={"both": both})
        .multi_agent(policies=["a", "b"], policy_mapping_fn=lambda agent, *_, **__: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={p: RLModuleSpec(module_class=RandomTorch) for p in "ab"}))
        .env_runners(num_env_runners=0, rollout_fragment_length=fragment)
    )
    runner = MultiAgentEnvRunner(config=config)
    chunks = [chunk for _ in range(12) for chunk in runner.sample(num_timesteps=fragment)]
    whole = sum(chunk.is_done for chunk in chunks)
    steps = sum(len(single) for chunk in chunks for single in chunk.agent_episodes.values())
    return round(float(runner.get_metrics()["episode_return_mean"].peek()), 1), steps / whole


logging.disable(logging.WARNING)
results = {(both, fragment): sampled(both, fragment) for both in (False, True) for fragment in (1, 2, 3, 4)}
print("ray", ray.__version__)
for (both, fragment), (mean, steps) in results.items():
    print(f"final observation of {'both' if both else 'one '}, fragments of {fragment}: return {mean}, {steps:.2f} steps an episode")
assert results[False, 1] == (4.0, 3.0), results[False, 1]
assert results[False, 3][0] == 70.7, results[False, 3]
assert all(results[key][0] == 104.0 for key in results if key not in ((False, 1), (False, 3)))
print("as seen")
PYTHON
cd "$folder"
PYTHONWARNINGS=ignore "$folder/venv/bin/python" turns.py 2> "$folder/errors" || { cat "$folder/errors"; exit 1; }
