#!/usr/bin/env bash
# statsmodels: aggregate_raters counts a rating that nobody gave (NaN) as a category, on which all agree who did not rate.
#
# Guess before the first run: NaN, the mark of a rating that was not given, is an error or left out, as krippendorff does and as fleiss_kappa,
#   which takes equally many ratings of each reply, would demand.
# Seen with statsmodels 0.15.0, krippendorff 0.9.0: three judges throw coins over 1,000 replies of which only the first 400 were handed out.
#   The kappa of fleiss_kappa(aggregate_raters(table)[0]) is .67; alpha is .08, and kappa over the rated replies alone .07. Three judges who
#   are each right in 92 of 100 cases have a kappa of .72. With a third of the ratings missing here and there it is .19, and alpha .67. The
#   categories that are returned beside the table are [0, 1, nan], and nothing else tells. None among texts is a TypeError, "" a category.
# Why it matters: ratings of crowds and of judge models are full of gaps. By gaps in the same places agreement rises to what counts as good,
#   by scattered ones it falls. Drop such rows, or take alpha.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "statsmodels==0.15.0" "krippendorff==0.9.0" "numpy==2.4.6" "scipy==1.17.1" 2> /dev/null
  python=$folder/venv/bin/python
fi
"$python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import krippendorff
import numpy as np
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

print(*(f"{name} {version(name)}" for name in ("statsmodels", "krippendorff")))
draws = np.random.default_rng(0)


def agreement(ratings):
    """The categories that are counted, Fleiss' kappa of them, and Krippendorff's alpha."""
    table, categories = aggregate_raters(ratings)
    return categories.tolist(), float(fleiss_kappa(table)), float(krippendorff.alpha(ratings.T, level_of_measurement="nominal"))


def show(name, ratings):
    categories, kappa, alpha = agreement(ratings)
    print(f"{name}: categories {categories}, kappa {kappa:.3f}, alpha {alpha:.3f}")
    return categories, kappa, alpha


coins = draws.integers(0, 2, (1000, 3)).astype(float)
_, kappa, alpha = show("coins, all rated", coins)
assert abs(kappa) < 0.1 and abs(kappa - alpha) < 0.01
coins[400:] = np.nan
categories, kappa, alpha = show("coins, 600 of 1,000 replies not handed out", coins)
_, rated, _ = show("the 400 that were", coins[:400])
assert len(categories) == 3 and np.isnan(categories[2]) and kappa > 0.55 and abs(alpha) < 0.1 and abs(rated - alpha) < 0.01
truth = draws.integers(0, 2, (200, 1))
judges = np.where(draws.random((200, 3)) < 0.92, truth, 1 - truth).astype(float)
_, kappa, full = show("judges, all rated", judges)
assert abs(kappa - full) < 0.01 and full > 0.6
judges[draws.random((200, 3)) < 0.33] = np.nan
_, kappa, alpha = show("judges, a third of the ratings missing", judges)
assert abs(alpha - full) < 0.1 and kappa < 0.35
words = np.where(draws.random((50, 2)) < 0.5, "safe", "unsafe").astype(object)
words[30:] = ""
assert aggregate_raters(words)[1].tolist() == ["", "safe", "unsafe"] and fleiss_kappa(aggregate_raters(words)[0]) > 0.3
words[30:] = None
try:
    aggregate_raters(words)
except TypeError:
    print('"" is a category, None a TypeError')
else:
    raise AssertionError("None is taken")
print("as seen")
PYTHON
