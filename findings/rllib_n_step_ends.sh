#!/usr/bin/env bash
# RLlib: with n_step above 1 the last actions of an episode are no rows of the replay buffer, or rows of an episode that goes on.
#
# Guess before the first run: each row that a replay buffer gives for n_step 3 is a true transition. One that begins one or two actions
#   before the end holds the rewards until there, and says that the episode has ended, so nothing is added for what follows.
# Seen with ray 2.60.0: rows of the buffers Prioritized, MultiAgent and MultiAgentPrioritized never begin at the last two actions.
#   EpisodeReplayBuffer has such rows, and they say "not ended" and "three steps" of a sum of one or two rewards. In a game of four
#   turns that pays 1 for accepting at the last one, DQN with n_step 1 learns the values 0 and 1 of that turn. With n_step 3 and its
#   usual, prioritized buffer the last turn is never trained: both actions are worth the same. With EpisodeReplayBuffer all values
#   go beyond 1, the most that can be won. Nothing is said of it.
# Why it matters: in a negotiation the last action, to accept or not, decides the reward; DQN and SAC with n_step above 1 never learn
#   it. Keep n_step 1 for short dialogues, or let the episode go on for n_step - 1 idle turns.
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
from collections import defaultdict

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.multi_agent_episode_buffer import MultiAgentEpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.multi_agent_prioritized_episode_buffer import MultiAgentPrioritizedEpisodeReplayBuffer

print("ray", ray.__version__)
TURNS = 4
SEEN, ACTIONS = gym.spaces.Box(0.0, 1.0, (TURNS + 1,), np.float32), gym.spaces.Discrete(2)
TURN = np.eye(TURNS + 1, dtype=np.float32)


class Deal(gym.Env):
    """Four turns that show their number; accepting (1) at the last one pays 1."""

    observation_space, action_space = SEEN, ACTIONS

    def __init__(self, config=None):
        self.turn = 0

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return TURN[0], {}

    def step(self, action):
        self.turn += 1
        over = self.turn == TURNS
        return TURN[self.turn], float(over and action == 1), over, False, {}


def one_agent():
    """An episode of four turns that pay 1 each."""
    episode = SingleAgentEpisode(observation_space=SEEN, action_space=ACTIONS)
    episode.add_env_reset(TURN[0])
    for turn in range(1, TURNS + 1):
        episode.add_env_step(TURN[turn], 1, 1.0, terminated=turn == TURNS)
    return episode.to_numpy()


def agent_of_many():
    """The same for an agent of a game."""
    spaces = {"observation_space": gym.spaces.Dict(a=SEEN), "action_space": gym.spaces.Dict(a=ACTIONS)}
    episode = MultiAgentEpisode(**spaces, agent_module_ids={"a": "policy"})
    episode.add_env_reset(observations={"a": TURN[0]}, infos={"a": {}})
    for turn in range(1, TURNS + 1):
        ended = dict.fromkeys(("a", "__all__"), turn == TURNS)
        episode.add_env_step({"a": TURN[turn]}, {"a": 1}, {"a": 1.0}, {"a": {}}, terminateds=ended)
    return episode.to_numpy()


def rows(kind, make, n_step):
    """Of the rows that begin at each turn: the sum of rewards, the number of steps and the end that they tell."""
    buffer, found = kind(capacity=1000), defaultdict(set)
    for _ in range(20):
        buffer.add([make()])
    for _ in range(40):
        for row in buffer.sample(num_items=16, n_step=n_step, gamma=1.0, sample_episodes=True):
            told = float(row.get_rewards(0)), int(row.get_extra_model_outputs("n_step", 0)), bool(row.is_terminated)
            found[int(row.get_observations(0).argmax())].add(told)
    print(f"{kind.__name__}, n_step {n_step}: {dict(sorted(found.items()))}")
    return found


def last_values(buffer, n_step):
    """The values that DQN learns for the two actions of the last turn, and the highest of all turns."""
    config = DQNConfig().environment(Deal).env_runners(num_env_runners=0, rollout_fragment_length=n_step).debugging(seed=0)
    options = {"alpha": 0.6, "beta": 0.4} if buffer.startswith("Prioritized") else {}
    config.training(
        n_step=n_step, gamma=0.99, lr=1e-3, train_batch_size=32, target_network_update_freq=100,
        num_steps_sampled_before_learning_starts=100, replay_buffer_config={"type": buffer, "capacity": 5000, **options},
    )
    algorithm = config.build_algo()
    algorithm.train()
    values = algorithm.get_module().compute_q_values({"obs": torch.eye(TURNS + 1)})["qf_preds"].detach()[:TURNS]
    algorithm.stop()
    print(f"DQN, {buffer}, n_step {n_step}: last turn {values[-1].numpy().round(2)}, highest value {values.max():.2f}", flush=True)
    return *values[-1].tolist(), float(values.max())


one = {turn: {(1.0, 1, turn == 3)} for turn in range(TURNS)}
whole = {0: {(3.0, 3, False)}, 1: {(3.0, 3, True)}}
for kind in (EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer):
    assert rows(kind, one_agent, 1) == one
    assert rows(kind, one_agent, 3) == whole | ({2: {(2.0, 3, False)}, 3: {(1.0, 3, False)}} if kind is EpisodeReplayBuffer else {})
for kind in (MultiAgentEpisodeReplayBuffer, MultiAgentPrioritizedEpisodeReplayBuffer):
    assert rows(kind, agent_of_many, 1) == one and rows(kind, agent_of_many, 3) == whole
ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
no, yes, highest = last_values("PrioritizedEpisodeReplayBuffer", 1)
assert abs(no) < 0.1 and abs(yes - 1) < 0.1 and highest < 1.1
no, yes, highest = last_values("PrioritizedEpisodeReplayBuffer", 3)
assert abs(no - yes) < 0.3 and yes < 0.8, "never trained"
no, yes, highest = last_values("EpisodeReplayBuffer", 3)
assert highest > 1.3, "more than can be won"
print("as seen")
PYTHON
