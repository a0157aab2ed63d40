#!/usr/bin/env bash
# evalica: one player who never lost makes the Bradley-Terry scores of all players equal, and nothing says so.
#
# Guess before the first run: a player without a loss has no finite Bradley-Terry score, so evalica ends with infinity, an error or a
#   warning, as choix does; the scores of the others are not touched.
# Seen with evalica 0.4.2 and choix 0.4.1: "strong" wins all 18 games, and b beats c by 6 to 3. `bradley_terry` gives all three the same
#   score, 1e-06, which is the tolerance of the search (1e-12 gives 1e-12); so every chance to win is one half, between b and c too.
#   A player without a win does the same. `newman`, a second search for the same model, fails in the first case and not in the
#   second. With a single loss of "strong", or a draw in each pair, the scores are right. choix ends with an error in the first
#   case, and numpy warns in the second.
# Why it matters: in a small tournament of agents, or in a resample of it, somebody often wins or loses every game. The ranking then
#   has the order of the file, and whoever is best may stand last. Count the wins first, or add a draw to each pair.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "evalica==0.4.2" "choix==0.4.1" "numpy==2.4.6" 2> /dev/null
"$folder/venv/bin/python" -W error - <<'PYTHON'
from importlib.metadata import version

import choix
import evalica

print("evalica", version("evalica"), "choix", version("choix"))
ORDER = "b", "c", "strong"
between = [("b", "c")] * 6 + [("c", "b")] * 3
undefeated = between + [("strong", "b")] * 9 + [("strong", "c")] * 9
winless = [(loser, winner) for winner, loser in undefeated]
once = [*undefeated, ("c", "strong")]
pairs = [("b", "c"), ("b", "strong"), ("c", "strong")]


def scores(games, method=evalica.bradley_terry, tolerance=1e-6, draws=()):
    """The scores of all players, and the chance that evalica gives b against c."""
    first, second = zip(*games, *draws, strict=True)
    outcomes = [evalica.Winner.X] * len(games) + [evalica.Winner.Draw] * len(draws)
    outcome = method(list(first), list(second), outcomes, tolerance=tolerance)
    chances = evalica.pairwise_frame(outcome.scores)
    found = {player: float(outcome.scores[player]) for player in ORDER}
    print(f"  {method.__name__}: {found}, b against c {chances.loc['b', 'c']:.3f}, order {list(outcome.scores.index)}")
    return found, float(chances.loc["b", "c"])


def complains(games):
    """Whether choix ends with an error, or numpy warns in it."""
    numbers = [(ORDER.index(winner), ORDER.index(loser)) for winner, loser in games]
    try:
        choix.mm_pairwise(len(ORDER), numbers)
    except (RuntimeError, RuntimeWarning) as told:
        print(f"  choix: {type(told).__name__}: {told}")
        return True
    return False


print("strong has never lost:")
assert scores(undefeated) == ({"b": 1e-6, "c": 1e-6, "strong": 1e-6}, 0.5)
assert scores(undefeated, tolerance=1e-12) == ({"b": 1e-12, "c": 1e-12, "strong": 1e-12}, 0.5)
assert scores(undefeated, evalica.newman) == ({"b": 1e-6, "c": 1e-6, "strong": 1e-6}, 0.5)
assert complains(undefeated)
print("the same, turned round, so that strong has never won:")
assert scores(winless) == ({"b": 1e-6, "c": 1e-6, "strong": 1e-6}, 0.5)
found, chance = scores(winless, evalica.newman)
assert found["c"] > found["b"] > 1 and chance < 0.4, "the second search finds the others' scores"
assert complains(winless)
print("strong has lost once:")
found, chance = scores(once)
assert found["strong"] > 10 * found["b"] and 0.55 < chance < 0.7 and not complains(once)
print("a draw in each pair more:")
found, chance = scores(undefeated, draws=pairs)
assert found["strong"] > 10 * found["b"] and 0.55 < chance < 0.7
print("as seen")
PYTHON
