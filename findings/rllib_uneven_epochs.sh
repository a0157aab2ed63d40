#!/usr/bin/env bash
# RLlib: of two policies that are trained together, the one that acts less is trained on each of its rows many times more often.
#
# Guess before the first run: `num_epochs` is the number of passes over the batch, as its documentation says ("complete passes over the
#   entire train batch"); with four epochs each row of each policy is used four times, or three to five where minibatches do not divide.
# Seen with ray 2.60.0: PPO, two policies, one speaks 15 times in a dialogue and the other decides once at the end. The rows of the
#   speaker are used 4 times and those of the judge 32 times. A minibatch has `minibatch_size` rows of every policy, and the small
#   batch is gone through again and again until the large one is done. If the judge alone is trained (policies_to_train), its rows are
#   used 4 times. The class that does it says so in its own comment (MiniBatchCyclicIterator); the documentation of the settings
#   does not.
# Why it matters: PPO's clipping is meant for a few passes. In a game of unlike roles (attacker and guard, debaters and judge) the rare
#   role is trained on a few rows for dozens of passes, and its learning rate and num_epochs mean something else in each game.
# Needs a Python (PYTHON) for which torch 2.13.0 exists. Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "torch==2.13.0" "ray[rllib]==2.60.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 OMP_NUM_THREADS=1 "$python" -W ignore - 2> /dev/null <<'PYTHON'
from collections import Counter, defaultdict

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.env.multi_agent_env import MultiAgentEnv

print("ray", ray.__version__)
TURNS, EPOCHS, DIALOGUES = 15, 4, 32
USES = defaultdict(Counter)


class CountingLearner(PPOTorchLearner):
    """Counts how often the loss of a policy reads each of its rows, which show a number of their own."""

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        numbers = batch["obs"][:, 0].int()
        USES[module_id].update(numbers[batch["loss_mask"]].tolist() if "loss_mask" in batch else numbers.tolist())
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


class Dialogue(MultiAgentEnv):
    """The speaker speaks 15 times, and the judge decides once."""

    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["speaker", "judge"]
        self.observation_spaces = {agent: gym.spaces.Box(0.0, 1e6, (1,), np.float32) for agent in self.agents}
        self.action_spaces = {agent: gym.spaces.Discrete(2) for agent in self.agents}
        self.turn = self.number = 0

    def show(self, *agents):
        self.number += 1
        return {agent: np.array([self.number], np.float32) for agent in agents}

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return self.show("speaker"), {}

    def step(self, actions):
        self.turn += 1
        over = self.turn > TURNS
        seen = self.show("speaker", "judge") if over else self.show("judge" if self.turn == TURNS else "speaker")
        return seen, {agent: float(over) for agent in actions}, {"__all__": over}, {"__all__": False}, {}


def mean_uses(trained):
    """How often each policy that is trained uses a row of its own, on average."""
    USES.clear()
    config = PPOConfig().environment(Dialogue).env_runners(num_env_runners=0).learners(num_learners=0).debugging(seed=0)
    config.multi_agent(
        policies={"speaker", "judge"}, policy_mapping_fn=lambda agent, *rest, **more: agent, policies_to_train=trained
    )
    steps = (TURNS + 1) * DIALOGUES
    config.training(train_batch_size=steps, minibatch_size=64, num_epochs=EPOCHS, learner_class=CountingLearner)
    algorithm = config.build_algo()
    algorithm.train()
    algorithm.stop()
    means = {}
    for policy, uses in sorted(USES.items()):
        means[policy] = float(np.mean(list(uses.values())))
        print(f"{policy}: {len(uses)} rows, each used {min(uses.values())} to {max(uses.values())} times, mean {means[policy]:.1f}")
        assert len(uses) == {"judge": 1, "speaker": TURNS}[policy] * DIALOGUES
    return means


ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
print("trained together:")
both = mean_uses(["speaker", "judge"])
assert both["speaker"] <= EPOCHS + 1 and both["judge"] >= 6 * EPOCHS
print("the judge alone:")
assert abs(mean_uses(["judge"])["judge"] - EPOCHS) <= 1
print("as seen")
PYTHON
