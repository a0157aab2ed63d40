#!/usr/bin/env bash
# gymnasium: five runs with the seeds 0 to 4 in eight environments play 12 different games, not 40.
#
# Guess before the first run: reset(seed=0) and reset(seed=1) of a vector of environments give independent games, as numpy's SeedSequence
#   makes them: runs with neighbouring seeds share nothing.
# Seen with gymnasium 1.4.0: sub-environment i is reset by seed + i, so run 1 has seven of the eight games of run 0, one place to the left.
#   Each sub-environment goes on with the draws of its first seed, so the second and third games are the same ones, too. The mean over
#   one game in each environment varies over five neighbouring seeds with a standard deviation of .052, in 400 such experiments. That
#   of seeds which are 1,000 apart is .102, which is what independent games have. SyncVectorEnv and AsyncVectorEnv do so, and nothing is
#   said. Stable-Baselines3 2.9.2 has the same sum (VecEnv.seed; read, not run).
# Why it matters: agents are reported as "mean and interval over five seeds", and the seeds are 0 to 4. These evaluations share most of
#   their scenarios, so intervals are half as wide as they should be. Take seeds that are further apart than there are environments.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "gymnasium==1.4.0" "numpy==2.4.6" 2> /dev/null
cd "$folder"
cat > overlap.py <<'PYTHON'
import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

ENVIRONMENTS, RUNS, GAMES = 8, 5, 3


class Scenario(gym.Env):
    """A game of one step whose scenario is a number that is drawn."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (1,), np.float64), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(1), {}

    def step(self, action):
        return np.zeros(1), 0.0, True, False, {}


def games(vector, seed):
    """The scenarios of the first games of each sub-environment, a row for each game."""
    rows = [vector.reset(seed=seed)[0][:, 0].copy()]
    while len(rows) < GAMES:
        vector.step(np.zeros(ENVIRONMENTS, int))
        rows.append(vector.step(np.zeros(ENVIRONMENTS, int))[0][:, 0].copy())
    return np.array(rows)


def deviation(gap):
    """The standard deviation over runs whose seeds are so far apart of the mean of one game in each environment."""
    vector = SyncVectorEnv([Scenario] * ENVIRONMENTS)
    starts = range(10_000_000, 14_000_000, 10_000)
    means = [[vector.reset(seed=start + gap * run)[0].mean() for run in range(RUNS)] for start in starts]
    return float(np.sqrt(np.mean(np.var(means, axis=1, ddof=1))))


if __name__ == "__main__":
    print("gymnasium", gym.__version__)
    for kind in (SyncVectorEnv, AsyncVectorEnv):
        vector = kind([Scenario] * ENVIRONMENTS)
        runs = [games(vector, seed) for seed in range(RUNS)]
        apart = [games(vector, 1000 * seed) for seed in range(RUNS)]
        vector.close()
        counts = [len({number for run in group for number in run[game]}) for group in (runs, apart) for game in range(GAMES)]
        print(f"{kind.__name__}: different scenarios in game 1, 2, 3: {counts[:3]} with seeds 0 to 4, {counts[3:]} with 0, 1000, ...")
        assert counts == [ENVIRONMENTS + RUNS - 1] * GAMES + [ENVIRONMENTS * RUNS] * GAMES
        assert all(np.array_equal(one[:, 1:], other[:, :-1]) for one, other in zip(runs, runs[1:]))
    near, far, independent = deviation(1), deviation(1000), (1 / 12 / ENVIRONMENTS) ** 0.5
    print(f"standard deviation over five seeds: {near:.3f} side by side, {far:.3f} apart, {independent:.3f} of independent games")
    assert near < 0.6 * independent and abs(far / independent - 1) < 0.1
    print("as seen")
PYTHON
"$folder/venv/bin/python" -W ignore overlap.py
