#!/usr/bin/env bash
# gymnasium: a reset of some sub-environments makes the recorded returns of all others begin anew.
#
# Guess before the first run: vector.RecordEpisodeStatistics gives the same returns and lengths in the three autoreset modes; in mode
#   DISABLED a reset with reset_mask touches those of the mask alone.
# Seen with gymnasium 1.4.0: two games of two and three steps that pay 1 a step, side by side. NEXT_STEP and SAME_STEP record returns of
#   2 and 3. DISABLED records 2 and 1 for the first, and 1 and 2 for the second: each masked reset sets the sums and lengths of all to
#   nothing. The wrapper looks for the mask in `options` after the environment, which takes it out of the same dictionary. The
#   observations are right, and nothing is said. SyncVectorEnv does so, and AsyncVectorEnv.
# Why it matters: dialogues are of unequal lengths and are begun again one by one; whoever watches returns of a training, or chooses a
#   checkpoint by them, sees those of pieces. With the wrapper around each sub-environment they are right.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "gymnasium==1.4.0" "numpy==2.4.6" 2> /dev/null
cat > "$folder/look.py" <<'PYTHON'
import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordAll


class Talk(gym.Env):
    """A game of some steps that pays 1 in each."""

    observation_space, action_space = gym.spaces.Box(0, 9, (1,), np.float32), gym.spaces.Discrete(2)

    def __init__(self, length):
        self.length, self.turn = length, 0

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.turn += 1
        return np.full(1, self.turn, np.float32), 1.0, self.turn == self.length, False, {}


def recorded(kind, mode, inner=False):
    """The sets of returns that are recorded for each game in 24 steps."""
    wrap = RecordEpisodeStatistics if inner else (lambda game: game)
    games = kind([lambda length=length: wrap(Talk(length)) for length in (2, 3)], autoreset_mode=mode)
    env = games if inner else RecordAll(games)
    env.reset()
    found = [set(), set()]
    for _ in range(24):
        _, _, ended, cut, info = env.step(np.zeros(2, int))
        info = info if "episode" in info else info.get("final_info", {})
        for game in np.flatnonzero(info.get("_episode", [])):
            found[game].add(float(info["episode"]["r"][game]))
        if mode is AutoresetMode.DISABLED and (ended | cut).any():
            env.reset(options={"reset_mask": ended | cut})
    env.close()
    print(kind.__name__, mode.name, "wrapped inside" if inner else "", *found)
    return found


if __name__ == "__main__":
    print("gymnasium", gym.__version__)
    for kind in (SyncVectorEnv, AsyncVectorEnv):
        assert recorded(kind, AutoresetMode.NEXT_STEP) == recorded(kind, AutoresetMode.SAME_STEP) == [{2.0}, {3.0}]
        assert recorded(kind, AutoresetMode.DISABLED) == [{1.0, 2.0}, {1.0, 2.0}]
    assert recorded(SyncVectorEnv, AutoresetMode.DISABLED, inner=True) == [{2.0}, {3.0}]
    print("as seen")
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/look.py"
