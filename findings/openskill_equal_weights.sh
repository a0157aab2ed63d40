#!/usr/bin/env bash
# openskill: weights that are all 1 double the step of whoever wins and halve that of whoever loses, so the ratings of equal players rise without end.
#
# Guess before the first run: weights say who counts for how much, as in TrueSkill. Weights of 1 are those of a call without weights, and
#   a weight of 5 moves a rating further than one of 1.
# Seen with openskill 6.2.0, three models. Two new players with mu 25, one game: without weights they have 27.635 and 22.365. With weights of
#   1 for both, of 5, of .1, or of 1 and 5, they have 30.271 and 23.682. A team's weights are stretched to the range of 1 to 2, and those of a
#   team of one are 2; a weight multiplies the step up and divides the step down. In teams of two or three equal weights change nothing.
#   Eight players who toss coins, 1,000 games: the mean rating stays 25 without weights, and rises to 119, or 108 by Thurstone and Mosteller, with
#   weights of 1. After 100 of these a new player, who tosses as well, is given a chance of .001 against one of them by predict_win.
#   weight_bounds=None, which shall switch this off, is a TypeError in the compiled package; (1.0, 1.0) ignores all weights. An issue has the range for
#   teams; the documentation lets raw scores pass as weights. Nothing is said.
# Why it matters: an arena of agents, or attackers against defenders, plays one against one. Who passes turns or a judge's confidence as
#   weights gets ratings that count games: a checkpoint that enters late loses against all, and ratings of two runs differ by their lengths.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --no-deps "openskill==6.2.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
"$python" -W ignore - <<'PYTHON'
import random
from importlib.metadata import version

from openskill.models import BradleyTerryFull, PlackettLuce, ThurstoneMostellerFull

print("openskill", version("openskill"))


def rated(model, players, weights):
    """The means of both teams after a game that the first one wins."""
    teams = [[model.rating() for _ in range(players)] for _ in range(2)]
    rows = None if weights is None else [[weight] * players for weight in weights]
    return tuple(round(team[0].mu, 3) for team in model.rate(teams, weights=rows))


def tossed(model, weights, often):
    """The ratings of eight players after so many games that are tossed."""
    draws = random.Random(0)
    ratings = [model.rating() for _ in range(8)]
    for _ in range(often):
        first, second = draws.sample(range(8), 2)
        (ratings[first],), (ratings[second],) = model.rate([[ratings[first]], [ratings[second]]], weights=weights)
    return ratings


for kind in (PlackettLuce, BradleyTerryFull, ThurstoneMostellerFull):
    model = kind()
    plain, *weighted = [rated(model, 1, weights) for weights in (None, (1, 1), (5, 5), (0.1, 0.1), (1, 5))]
    print(f"{kind.__name__}: 25 and 25 become {plain}, with weights", *weighted)
    assert len(set(weighted)) == 1 and abs(plain[0] + plain[1] - 50) < 1e-6
    assert abs(weighted[0][0] - 25 - 2 * (plain[0] - 25)) < 2e-3 and abs(weighted[0][1] - 25 - (plain[1] - 25) / 2) < 2e-3
    assert all(rated(model, players, None) == rated(model, players, (1, 1)) for players in (2, 3))
    assert rated(kind(weight_bounds=(1.0, 1.0)), 1, (1, 5)) == plain
    try:
        kind(weight_bounds=None)
    except TypeError as error:
        print("  weight_bounds=None:", error)
    else:
        raise AssertionError("weight_bounds=None is taken")
    means, chances = {}, {}
    for weights in (None, [[1], [1]]):
        for often in (100, 1_000):
            ratings = tossed(model, weights, often)
            mean = sum(rating.mu for rating in ratings) / 8
            chance = model.predict_win([[model.rating()], [ratings[0]]])[0]
            print(f"  {often} coins, weights {weights}: the mean is {mean:.1f}, a new player's chance {chance:.3f}")
            means[weights is None, often], chances[weights is None, often] = mean, chance
    assert all(abs(means[True, often] - 25) < 0.5 and chances[True, often] > 0.45 for often in (100, 1_000))
    assert 50 < means[False, 100] < 70 and means[False, 1_000] > 100 and max(chances[False, 100], chances[False, 1_000]) < 0.005
print("as seen")
PYTHON
