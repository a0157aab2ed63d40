#!/usr/bin/env bash
# PettingZoo games that SuperSuit hands to Stable-Baselines3 end for the learner where they are only cut; a seed is refused.
#
# Guess before the first run: PPO sees a cut (truncation) of a parallel environment as it sees one of Gymnasium: it adds the
#   discounted value of the last observation to the reward. PPO(..., seed=0) seeds the environments.
#   The code that joins the flags had been read before this script was run; the seed had failed in a training.
# Seen with SuperSuit 3.11.0, Stable-Baselines3 2.9.2 and PettingZoo 1.27.0: a game that pays 1 a step and is cut after five.
#   By Gymnasium the reward of each fifth step is 1 plus gamma times a value, and its information says TimeLimit.truncated.
#   By SuperSuit it is 1, without that key: the learner takes the cut for an end. PPO(..., seed=0) is an AttributeError.
# Why it matters: values of games that are cut are learnt as if nothing followed, and trainings cannot be repeated by a seed.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0"
"$folder/venv/bin/pip" install --quiet "stable-baselines3==2.9.2" "pettingzoo==1.27.0" "supersuit==3.11.0"
cat > "$folder/cuts.py" <<'PYTHON'
from importlib.metadata import version

import gymnasium as gym
import numpy as np
import supersuit
import torch
from pettingzoo import ParallelEnv
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

SEEN, ACTS, LAST = gym.spaces.Box(0.0, 1.0, (1,), np.float32), gym.spaces.Discrete(2), 5


class Alone(gym.Env):
    observation_space, action_space = SEEN, ACTS

    def reset(self, *, seed=None, options=None):
        self.step_number = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        return np.ones(1, np.float32), 1.0, False, self.step_number == LAST, {}


class Both(ParallelEnv):
    metadata = {"name": "both"}
    render_mode = None
    possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return SEEN

    def action_space(self, agent):
        return ACTS

    def reset(self, seed=None, options=None):
        self.agents, self.step_number = self.possible_agents[:], 0
        return {agent: np.ones(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.step_number += 1
        cut, agents = self.step_number == LAST, self.agents
        self.agents = [] if cut else agents
        return (
            {agent: np.ones(1, np.float32) for agent in agents},
            dict.fromkeys(agents, 1.0),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, cut),
            {agent: {} for agent in agents},
        )


class Keys(BaseCallback):
    names = frozenset()

    def _on_step(self):
        self.names |= {name for info in self.locals["infos"] for name in info}
        return True


def rewards(env):
    """Return the rewards that PPO learns from in steps 1 to 5, and the names in the information of all steps."""
    model, keys = PPO("MlpPolicy", env, n_steps=20, batch_size=20, n_epochs=1, device="cpu"), Keys()
    model.learn(20, callback=keys)
    return model.rollout_buffer.rewards[:LAST, 0].round(3).tolist(), "TimeLimit.truncated" in keys.names


def joined():
    env = supersuit.pettingzoo_env_to_vec_env_v1(Both())
    return supersuit.concat_vec_envs_v1(env, 1, num_cpus=1, base_class="stable_baselines3")


torch.set_num_threads(1)
by_gymnasium, by_supersuit = rewards(DummyVecEnv([Alone])), rewards(joined())
print("supersuit", version("supersuit"), "stable-baselines3", version("stable-baselines3"))
print("by Gymnasium:", by_gymnasium)
print("by SuperSuit:", by_supersuit)
try:
    PPO("MlpPolicy", joined(), seed=0, device="cpu")
    refused = None
except AttributeError as error:
    refused = str(error)
print("with a seed:", refused)
assert by_gymnasium[0][:4] == [1.0] * 4
assert by_gymnasium[0][4] != 1.0
assert by_gymnasium[1]
assert by_supersuit == ([1.0] * 5, False)
assert refused is not None and "seed" in refused
print("as seen")
PYTHON
cd "$folder"
PYTHONWARNINGS=ignore "$folder/venv/bin/python" cuts.py 2> "$folder/errors" || { cat "$folder/errors"; exit 1; }
