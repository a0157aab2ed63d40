#!/usr/bin/env bash
# gymnasium: NormalizeReward carries the reward of an episode's last step into the next episode, and drops what came before it.
#
# Guess before the first run: in a game of four steps that pays 1 at its end the running return is 0, 0, 0, 1 in every episode, so the
#   last reward is divided by .433 and becomes 2.3, whether the game ends by itself or is cut there.
# Seen with gymnasium 1.4.0: the return is multiplied by (1 - terminated) before the last reward is added, and not after. So the
#   episode's own return is lost at its last step, and the next episode begins with .99, .98, .97. These hardly vary: after 2,000
#   episodes the reward of 1 is handed on as 45. If the same game is cut (truncated), the return is never set back and grows to 25,
#   and the same reward becomes 0.5. With a win in half of the games it is 2.0 and 0.44, where the returns that begin anew give 3.0.
#   The vector wrapper does the same. The documentation promises "an approximately fixed variance".
# Why it matters: dialogues pay at their last turn. Whoever trains on them with this wrapper trains on rewards whose scale depends on
#   how an episode ends, so a learning rate or a clip that was tuned in one game is wrong by a factor of 90 in the other.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "gymnasium==1.4.0" "numpy==2.4.6" 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnasium as gym
import numpy as np

print("gymnasium", gym.__version__)
TURNS, GAMES, GAMMA = 4, 2000, 0.99


class Deal(gym.Env):
    """Four turns; the last one pays 1 with a chance, and ends the game or cuts it."""

    observation_space, action_space = gym.spaces.Discrete(TURNS + 1), gym.spaces.Discrete(2)

    def __init__(self, cut, chance):
        self.cut, self.chance, self.turn, self.draws = cut, chance, 0, np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self.turn = 0
        return 0, {}

    def step(self, action):
        self.turn += 1
        over = self.turn == TURNS
        won = float(over and self.draws.random() < self.chance)
        return self.turn, won, over and not self.cut, over and self.cut, {}


def by_definition(chance):
    """The reward of 1 divided by the deviation of the returns, which begin anew in each game."""
    draws = np.random.default_rng(0)
    returns = [return_ for _ in range(GAMES) for return_ in (*[0.0] * (TURNS - 1), float(draws.random() < chance))]
    return 1 / np.std(returns)


def alone(cut, chance):
    """The last reward of 1 that the wrapper hands on."""
    env, last = gym.wrappers.NormalizeReward(Deal(cut, chance), gamma=GAMMA), 0.0
    for _ in range(GAMES):
        env.reset()
        for _ in range(TURNS):
            reward = float(env.step(0)[1])
            last = reward or last
    return last


def together(cut, chance):
    """The same by the vector wrapper with one game, whose resets are steps of their own."""
    games = gym.vector.SyncVectorEnv([lambda: Deal(cut, chance)])
    env, last = gym.wrappers.vector.NormalizeReward(games, gamma=GAMMA), 0.0
    env.reset()
    for _ in range(GAMES * (TURNS + 1)):
        reward = float(env.step(np.zeros(1, int))[1][0])
        last = reward or last
    return last


seen = {}
for chance in (1.0, 0.5):
    right = by_definition(chance)
    seen[chance] = [measure(cut, chance) for measure in (alone, together) for cut in (False, True)]
    print(f"win in {chance:.0%} of the games: by definition {right:.2f}; ended, cut, and by the vector wrapper:", np.round(seen[chance], 2))
    assert 2.2 < right < 3.1
ended, cut, ended_together, cut_together = seen[1.0]
assert ended > 30 and ended_together > 10 and cut < 0.6 and cut_together < 0.6
ended, cut, ended_together, cut_together = seen[0.5]
assert ended < 2.5 and ended_together < 2.5 and cut < 0.5 and cut_together < 0.5
print("as seen")
PYTHON
