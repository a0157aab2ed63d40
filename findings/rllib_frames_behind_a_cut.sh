#!/usr/bin/env bash
# RLlib: behind each cut of a fragment FrameStacking shows blank frames, and the learner trains on other frames than the policy acted on.
#
# Guess before the first run: FrameStacking(num_frames=4) shows the last four observations from the fourth turn of an episode on, wherever
#   fragments are cut. The learner's connector gives for each action what the runner's gave; otherwise something is said.
# Seen with ray 2.60.0, the stock runner, both connectors, and an episode of 60 turns. In one fragment all is as guessed. In fragments of 15
#   turns, at the first turn behind a cut the policy acts on frames 13, 14, 15 and 16, and the learner is given 0, 0, 15, 16. At the next
#   turn both have 0, 15, 16, 17. With fragments of 5 turns the learner has other frames for 11 of 60 rows, and the policy acts on a blank one
#   in 11; with fragments of one turn these are 58 and 57. With episode_lookback_horizon=3 all frames are right. That is 1 by default.
#   Its documentation tells of connectors of one's own that look back, and neither FrameStacking nor RLlib's example of it does.
# Why it matters: "auto" fragments are short where many environments play. The ratio of PPO then compares two different observations, and a
#   policy that needs the turn before last has forgotten it behind each cut, but not in an evaluation, which plays whole episodes. Set
#   episode_lookback_horizon to num_frames - 1 or more.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" 2> /dev/null
  "$folder/venv/bin/pip" install --quiet "ray[rllib]==2.60.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 RAY_USAGE_STATS_ENABLED=0 OMP_NUM_THREADS=1
"$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
import logging

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.common.frame_stacking import FrameStacking
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

TURNS, FRAMES = 60, 4
ACTED_ON = {}


class Game(gym.Env):
    """One long game, whose observations are the numbers of its turns, from 1 on; so a 0 is a blank frame."""

    observation_space = gym.spaces.Box(0.0, 100.0, (1, 1, 1), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.turn = 0

    def observe(self):
        self.turn += 1
        return np.full((1, 1, 1), self.turn, np.float32)

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return self.observe(), {}

    def step(self, action):
        return self.observe(), 0.0, self.turn > TURNS, False, {}


class Even(TorchRLModule):
    """A policy that draws both actions alike."""

    def setup(self):
        self.logits = torch.nn.Parameter(torch.zeros(2))

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.logits.expand(len(batch["obs"]), 2)}


def stacks(batch):
    """The frames of each row of a batch, by the newest of them."""
    rows = np.concatenate([np.asarray(part).reshape(-1, FRAMES) for parts in batch["obs"].values() for part in parts])
    return {int(row[-1]): tuple(row.astype(int).tolist()) for row in rows}


class Keep(ConnectorV2):
    """Keeps what the policy acts on."""

    def __call__(self, *, batch, **kwargs):
        ACTED_ON.update(stacks(batch))
        return batch


def frames(fragment, horizon=None):
    """What the policy acted on and what the learner is given, for each turn."""
    ACTED_ON.clear()
    config = PPOConfig().environment(Game).rl_module(rl_module_spec=RLModuleSpec(module_class=Even))
    assert config.episode_lookback_horizon == 1 and config.batch_mode == "truncate_episodes"
    config.env_runners(env_to_module_connector=lambda *args, **kwargs: [FrameStacking(num_frames=FRAMES), Keep()])
    config.env_runners(num_env_runners=0, **({} if horizon is None else {"episode_lookback_horizon": horizon}))
    runner = SingleAgentEnvRunner(config=config)
    episodes = [episode.to_numpy() for _ in range(TURNS // fragment) for episode in runner.sample(num_timesteps=fragment)]
    connector = FrameStacking(num_frames=FRAMES, as_learner_connector=True)
    learned = stacks(connector(rl_module=None, batch={}, episodes=episodes, shared_data={}))
    acted = {turn: ACTED_ON[turn] for turn in range(1, TURNS + 1)}
    assert sorted(learned) == sorted(acted)
    other = [turn for turn in acted if learned[turn] != acted[turn]]
    blank = [turn for turn in acted if turn >= FRAMES and 0 in acted[turn]]
    print(f"fragments of {fragment}, horizon {horizon or 1}: the learner has other frames in {len(other)} rows, the policy blank ones in {len(blank)}")
    return acted, learned, len(other), len(blank)


logging.disable(logging.WARNING)
print("ray", ray.__version__)
assert frames(60)[2:] == (0, 0)
acted, learned, other, blank = frames(15)
print("turns 16 and 17: the policy acted on", acted[16], acted[17], "and the learner is given", learned[16], learned[17])
assert (acted[16], learned[16]) == ((13, 14, 15, 16), (0, 0, 15, 16)) and acted[17] == learned[17] == (0, 15, 16, 17)
assert (other, blank) == (3, 3)
assert frames(5)[2:] == (11, 11)
assert frames(1)[2:] == (58, 57)
for fragment in (15, 5, 1):
    assert frames(fragment, horizon=FRAMES - 1)[2:] == (0, 0)
print("as seen")
PYTHON
