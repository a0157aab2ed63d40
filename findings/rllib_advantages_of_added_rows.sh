#!/usr/bin/env bash
# RLlib: PPO standardises advantages over rows that it adds and never trains, so in a game of one turn each action is a bad one.
#
# Guess before the first run: advantages of the rows that are trained have mean 0 and deviation 1. The row that is added behind each episode
#   for a bootstrap is masked in the loss, and so in all else.
# Seen with ray 2.60.0, PPO's own learner and a critic that is exact. Each turn pays 9 for one action and 11 for the other, and the final
#   observation is worth 0. In games of one turn all advantages of the 200 rows that are trained are negative: -1.2 for the bad action and
#   -.8 for the good one. Their deviation is .2 in place of 1, in games of 20 turns .06. The added row counts in mean and deviation. It
#   is not marked as an end, so its advantage is the value of the next episode's first observation, plus that one's advantage, minus its
#   own value: 10 for each game here, 200 where turns are 20. Where each turn pays -1 or 1, or where the critic gives the final observation
#   the value of the first, all is as guessed to .1. Nothing is said; an open issue of the project asks about the mask.
# Why it matters: dialogues are short, and rewards of judges are seldom 0 on average. An advantage of a fifth leaves entropy_coeff, kl_coeff
#   and the critic's loss five times as strong beside it, a constant that is added to all rewards changes the training, and a curve
#   over lengths of dialogues compares other settings. Pay rewards whose mean is 0, let the last observation be worth what the first is,
#   or put a connector behind GAE that standardises by loss_mask.
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
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

SPACES = gym.spaces.Box(-1000, 1000, (1,), np.float32), gym.spaces.Discrete(2)
ROWS = 200
SEEN = []


class Watching(PPOTorchLearner):
    """Keeps what the loss reads."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        SEEN.append([batch[column].detach().numpy().copy() for column in ("loss_mask", "advantages", "actions")])
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


class Exact(DefaultPPOTorchRLModule):
    """A critic that knows the value of each observation, since the observation is its value."""

    def compute_values(self, batch, embeddings=None):
        return batch["obs"][:, 0]


def game(turns, pay, final, draws):
    """A game that has ended, in which each turn pays `pay` plus or minus 1."""
    actions = draws.integers(0, 2, turns)
    values = [pay * (turns - turn) for turn in range(turns)] + [final]
    outputs = {"action_logp": [np.log(0.5)] * turns, "action_dist_inputs": [np.zeros(2, np.float32)] * turns}
    return SingleAgentEpisode(
        observations=[np.array([value], np.float32) for value in values],
        actions=list(actions),
        rewards=list(pay + 2.0 * actions - 1),
        terminated=True,
        observation_space=SPACES[0],
        action_space=SPACES[1],
        extra_model_outputs=outputs,
        len_lookback_buffer=0,
    )


def advantages(turns, pay, final=0.0):
    """Advantages in PPO's loss, of bad and good actions and of the rows that were added."""
    config = PPOConfig().environment(observation_space=SPACES[0], action_space=SPACES[1]).learners(num_learners=0)
    config.training(gamma=1.0, lambda_=0.95, learner_class=Watching).rl_module(rl_module_spec=RLModuleSpec(module_class=Exact))
    learner = config.build_learner(spaces={"default_policy": SPACES, "__env__": SPACES})
    SEEN.clear()
    draws = np.random.default_rng(0)
    episodes = [game(turns, pay, final, draws) for _ in range(ROWS // turns)]
    learner.update(episodes=episodes, timesteps={"num_env_steps_sampled_lifetime": 0}, num_epochs=1)
    mask, values, actions = (np.concatenate(column) for column in zip(*SEEN))
    bad, good, added = values[mask & (actions == 0)], values[mask & (actions == 1)], values[~mask]
    assert (len(bad) + len(good), len(added)) == (ROWS, ROWS // turns)
    trained = values[mask]
    print(f"{turns} turns of {pay:g} +- 1, a final value of {final:g}: trained rows have mean {trained.mean():.2f} and deviation", end=" ")
    print(f"{trained.std():.2f}; bad {bad.mean():.2f}, good {good.mean():.2f}, added {added.mean():.2f}")
    return trained, bad, good


logging.disable(logging.WARNING)
print("ray", ray.__version__)
for turns in (1, 2, 20):
    trained, bad, good = advantages(turns, pay=0.0)
    assert abs(trained.mean()) < 0.1 and abs(trained.std() - 1) < 0.1
trained, bad, good = advantages(1, pay=10.0)
assert trained.max() < 0 and bad.mean() < good.mean() < -0.7 and trained.std() < 0.25
trained, bad, good = advantages(2, pay=10.0)
assert trained.max() < 0 and trained.std() < 0.2
trained, bad, good = advantages(20, pay=10.0)
assert trained.max() < 0 and trained.std() < 0.1
trained, bad, good = advantages(1, pay=10.0, final=10.0)
assert abs(trained.mean()) < 0.1 and abs(trained.std() - 1) < 0.2
print("as seen")
PYTHON
