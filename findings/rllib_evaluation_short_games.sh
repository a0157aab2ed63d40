#!/usr/bin/env bash
# RLlib: an evaluation of n games in n environments measures the short games alone, and one of 400 games reports the mean of the last 100.
#
# Guess before the first run: evaluation_duration=32 in episodes with 32 environments plays one game in each of them, and
#   episode_return_mean estimates the mean of all games; with evaluation_duration=400 it is the mean of these 400.
# Seen with ray 2.60.0: half of the games end after 1 step and pay 0, the others after 20 steps and pay 1, by a coin, so the mean is .5. With
#   32 environments and 32 episodes the runner, of which `evaluate` asks its games, reports 0.0. It takes the first 32 games that end; a
#   short game makes room for the next one, and the long ones that were begun are thrown away. With 400 episodes in one environment
#   num_episodes is 400, and the reported mean is that of the last 100 of them (metrics_num_episodes_for_smoothing), .48 where that of
#   all games is .46. `Algorithm.evaluate` gave .03 with 32 and 32, and the mean of the last 100, too. Nothing is said.
# Why it matters: dialogues that fail early are short, and deals long, or the other way round. A checkpoint is chosen by the speed of its
#   games, and an interval with n=400 is too narrow by half. Play one environment for each runner, or many more games than environments,
#   and set metrics_num_episodes_for_smoothing to the duration.
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
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

LONG = 20


class Talk(gym.Env):
    """A game of 1 step that pays 0, or of 20 steps that pays 1 at its end, by a coin."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.length = 0, LONG if self.np_random.random() < 0.5 else 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.turn += 1
        over = self.turn == self.length
        return np.zeros(1, np.float32), float(over and self.length == LONG), over, False, {}


def evaluated(environments, games, **settings):
    """What the metrics of a runner say after so many games, and the returns of all these games."""
    config = PPOConfig().environment(Talk).rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=0)
    runner = SingleAgentEnvRunner(config=config.env_runners(num_env_runners=0, num_envs_per_env_runner=environments).reporting(**settings))
    returns = [float(episode.get_return()) for episode in runner.sample(num_episodes=games) if episode.is_done]
    metrics = runner.get_metrics()
    mean, length, count = (float(metrics[name].peek()) for name in ("episode_return_mean", "episode_len_mean", "num_episodes"))
    print(f"{games} games in {environments} environments, {settings}: mean {mean:.3f}, length {length:.1f}, num_episodes {count:.0f};", end=" ")
    print(f"mean of all {len(returns)} games {np.mean(returns):.3f}, of the last 100 {np.mean(returns[-100:]):.3f}")
    assert len(returns) == count == games
    return mean, returns


logging.disable(logging.WARNING)
print("ray", ray.__version__)
assert max(evaluated(32, 32)[0], evaluated(8, 8)[0]) < 0.1
mean, returns = evaluated(1, 400)
assert 0.4 < np.mean(returns) < 0.6 and abs(mean - np.mean(returns[-100:])) < 1e-6 and abs(mean - np.mean(returns)) > 0.005
mean, returns = evaluated(1, 400, metrics_num_episodes_for_smoothing=400)
assert abs(mean - np.mean(returns)) < 1e-6
print("as seen")
PYTHON
