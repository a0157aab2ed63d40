#!/usr/bin/env bash
# RLlib: MeanStdFilter with remote runners takes the mean towards 0 and the deviation towards the size of the observations, round by round.
#
# Guess before the first run: the statistics that are merged after each round count every observation once, so mean and deviation are
#   those of all observations, however many runners there are; with one runner they are those that it has itself.
# Seen with ray 2.60.0, stock runners in one process that exchange states by the calls of EnvRunnerGroup, after each of 12 rounds.
#   Observations are 5 plus or minus 1. A runner that nobody merges has 4.97 and 1.0. Merged from one or two runners the first round is
#   right, the second has a mean of 2.5 and a deviation of 2.7, the twelfth of two runners .67 and 3.7: an observation of 5 is shown as
#   1.2, not 0, and half a unit as .14. The number of observations is right. The running mean is moved by each observation, and the sum of these moves
#   since the last merge is merged as if it were the mean of the new observations. That holds in the first round alone, as the mean begins
#   at 0. A PPO with one remote runner in a session of Ray, run by hand, has the same: 2.5, 1.9, 1.6. Merging is the default
#   of training (merge_env_runner_states="training_only"). Nothing is said.
# Why it matters: a run with num_env_runners=0 is right, so a test on a laptop passes, and the same configuration on a cluster trains on
#   observations that drift from round to round and are squeezed in the end. The checkpoint keeps those statistics. Scale observations in the
#   environment, by numbers of your own.
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
from ray.rllib.connectors.env_to_module.mean_std_filter import MeanStdFilter
from ray.rllib.core import COMPONENT_ENV_TO_MODULE_CONNECTOR as FILTERS
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

ROUNDS, STEPS, TRUE_MEAN = 12, 100, 5
SEEN = []


class Game(gym.Env):
    """Ten turns; each observation is drawn around 5, and kept."""

    observation_space = gym.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.draws, self.turn = np.random.default_rng(config.worker_index), 0

    def observe(self):
        SEEN.append(TRUE_MEAN + self.draws.normal())
        return np.array(SEEN[-1:], np.float32)

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return self.observe(), {}

    def step(self, action):
        self.turn += 1
        return self.observe(), 0.0, self.turn == 10, False, {}


def statistics(runner):
    """Number, mean and deviation of the observations by the filter of a runner."""
    stats = runner._env_to_module[MeanStdFilter][0]._filters[None].running_stats
    return stats.n, float(stats.mean[0]), float(stats.std[0])


def rounds(num_remote):
    """Statistics after each round; without remote runners the local one samples, and nothing is merged."""
    SEEN.clear()
    config = PPOConfig().environment(Game).rl_module(model_config={"fcnet_hiddens": [4]})
    config.env_runners(num_env_runners=0, env_to_module_connector=lambda *args, **kwargs: MeanStdFilter())
    local, *remote = [SingleAgentEnvRunner(config=config, worker_index=index) for index in range(num_remote + 1)]
    results = []
    for _ in range(ROUNDS):
        for runner in remote or [local]:
            runner.sample(num_timesteps=STEPS)
        if remote:
            states = [runner.get_state(components=[FILTERS])[FILTERS] for runner in remote]
            merged = local._env_to_module.merge_states(states)
            for runner in (local, *remote):
                runner.set_state({FILTERS: merged})
        results.append(statistics(local))
        assert all(statistics(runner) == results[-1] for runner in remote)
    print(f"{num_remote} remote runners: {len(SEEN)} observations of mean {np.mean(SEEN):.2f} and deviation {np.std(SEEN):.2f}; the filter:")
    print("  ", *(f"{mean:.2f}/{deviation:.2f}" for _, mean, deviation in results))
    return results


logging.disable(logging.WARNING)
print("ray", ray.__version__)
assert PPOConfig().merge_env_runner_states == "training_only" and PPOConfig().broadcast_env_runner_states
for num_remote in (0, 1, 2):
    results = rounds(num_remote)
    number, mean, deviation = results[-1]
    assert number == len(SEEN) and abs(np.mean(SEEN) - TRUE_MEAN) < 0.2
    assert all(abs(result[1] - TRUE_MEAN) < 0.4 for result in (results if num_remote == 0 else results[:1]))
    if num_remote == 0:
        assert abs(deviation - 1) < 0.1
    else:
        means, deviations = [result[1] for result in results], [result[2] for result in results]
        assert means == sorted(means, reverse=True) and mean < 1
        assert min(deviations[1:]) > 2 and deviation > 3
print("as seen")
PYTHON
