#!/usr/bin/env bash
# RLlib: what an agent is paid before its first observation is in no row and in no return, so a zero-sum game of turns pays 1 in sum.
#
# Guess before the first run: every reward of a MultiAgentEnv reaches its agent: one that comes before the agent's first turn is kept
#   ("hanging") and added to its first row. episode_return_mean is the mean of what was paid, and agent_episode_returns_mean that of each
#   agent, over all games.
# Seen with ray 2.60.0, the stock runner and three games. Two take turns, and the first move pays 1 to "a" and -1 to "b": the returns are 1
#   and 0, the sum is 1. A second speaker enters after two turns, and all four turns pay 1 to both: 4 and 2, where 4 and 4 were paid.
#   The reward that comes with the first observation is lost, too. The hanging rewards are collected, and nothing adds them to a row.
#   In the third game "a" ends half of the games before "b" has spoken: these cost b 10, the others pay 1 to b. The mean of b is reported
#   as 1.0, over the games in which it acted; paid was -4.5. Where both observe, and act, from the reset on, all is as guessed. Nothing
#   is said.
# Why it matters: the one who answers is paid for an opening that it could not change, yet its returns look better than they are, and a duel
#   or a stopping rule that reads them is unfair. A league that reads the sum of a zero-sum game sees a gift. Pay an agent behind
#   its first turn, let it observe at the reset with an act that does nothing, or sum the rewards in the environment.
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
from math import isclose

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

BOX, LAST = gym.spaces.Box(0.0, 10.0, (1,), np.float32), 4
PAID = []


class Game(MultiAgentEnv):
    """A game of at most four steps; PAID keeps what each game that has ended has paid to each agent."""

    def __init__(self, config):
        super().__init__()
        self.kind, self.at_reset, self.games = config["kind"], config["at_reset"], 0
        self.possible_agents = self.agents = ["a", "b"]
        self.observation_spaces = dict.fromkeys(self.agents, BOX)
        self.action_spaces = dict.fromkeys(self.agents, gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.turn, self.games, self.paid = 0, self.games + 1, {"a": 0.0, "b": 0.0}
        return dict.fromkeys("ab" if self.at_reset else "a", np.zeros(1, np.float32)), {}

    def step(self, actions):
        self.turn += 1
        over = self.turn == LAST
        if self.kind == "zero-sum turns":
            agents, rewards = "ab"[self.turn % 2], {"a": float(self.turn == 1), "b": -float(self.turn == 1)}
        elif self.kind == "late speaker":
            agents, rewards = "a" if self.turn < 2 else "ab", {"a": 1.0, "b": 1.0}
        else:
            short = self.games % 2 == 0
            over = over or short
            agents, rewards = "ab"[self.turn % 2], {"a": 0.0, "b": (-10.0 if short else 1.0) * over}
        for agent, reward in rewards.items():
            self.paid[agent] += reward
        if over:
            PAID.append(self.paid)
        seen = dict.fromkeys("ab" if over or self.at_reset else agents, np.full(1, self.turn, np.float32))
        return seen, rewards, {"__all__": over}, {"__all__": False}, {}


def reported(kind, at_reset=False):
    """The means that the runner reports over 20 games, and those of what was paid."""
    PAID.clear()
    config = PPOConfig().environment(Game, env_config={"kind": kind, "at_reset": at_reset}).env_runners(num_env_runners=0)
    config.multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda agent, *_, **__: agent).rl_module(model_config={"fcnet_hiddens": [4]})
    runner = MultiAgentEnvRunner(config=config)
    episodes = runner.sample(num_episodes=20)
    metrics = runner.get_metrics()
    means = {agent: float(mean.peek()) for agent, mean in metrics["agent_episode_returns_mean"].items()} | {
        "all": float(metrics["episode_return_mean"].peek())
    }
    paid = {agent: float(np.mean([game[agent] for game in PAID[-20:]])) for agent in "ab"}
    rows = {agent: float(np.sum([sum(e.agent_episodes[agent].rewards) for e in episodes if agent in e.agent_episodes])) / 20 for agent in "ab"}
    print(f"{kind}{', all observe at the reset' * at_reset}: paid {paid}, reported {means}, in the rows {rows}")
    return paid, means, rows


logging.disable(logging.WARNING)
print("ray", ray.__version__)
paid, means, rows = reported("zero-sum turns")
assert paid == {"a": 1, "b": -1} and means == {"a": 1, "b": 0, "all": 1} and rows == {"a": 1, "b": 0}
paid, means, rows = reported("late speaker")
assert paid == {"a": 4, "b": 4} and means == {"a": 4, "b": 2, "all": 6} and rows == {"a": 4, "b": 2}
paid, means, rows = reported("early end")
assert isclose(paid["b"], -4.5) and isclose(means["b"], 1.0) and isclose(rows["b"], 0.5)
for kind in ("zero-sum turns", "late speaker", "early end"):
    paid, means, rows = reported(kind, at_reset=True)
    assert isclose(means["b"], paid["b"]) and isclose(rows["b"], paid["b"]) and isclose(means["all"], paid["a"] + paid["b"])
print("as seen")
PYTHON
