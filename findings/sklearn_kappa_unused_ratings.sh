#!/usr/bin/env bash
# scikit-learn: quadratic kappa takes the ratings 1, 2 and 5 for three neighbours, if no judge gave a 3 or a 4.
#
# Guess before the first run: cohen_kappa_score(weights="quadratic") weighs by the squared difference of two ratings, so a level of the
#   scale that nobody used changes nothing, and ratings times ten give the same kappa.
# Seen with scikit-learn 1.9.1, numpy 2.4.6: it weighs by the squared difference of positions among the labels that occur. Two judges
#   whose ratings are 1, 2 and 5 have a kappa of .769; by the differences of the ratings it is .655, which is what labels=[1, 2, 3, 4, 5]
#   and nltk give. A further reply that both rate 3 lowers it to .708, where .655 rises to .657. The words low, medium and high stand in
#   the order of the alphabet (high, low, medium), so low for high costs no more than low for medium: .5 and .5 instead of -.455 and
#   .636. weights="linear" does the same. The documentation does not say by what it weighs, and nothing warns.
# Why it matters: judges often leave out the middle of a scale. Kappas of two judges, or of two samples of one pair, are then by
#   different weights, and a bootstrap mixes them. Give `labels`, all of them and in order.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "nltk==3.10.4" "scikit-learn==1.9.1" "numpy==2.4.6" 2> /dev/null
  python=$folder/venv/bin/python
fi
"$python" -W error - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from nltk.metrics import interval_distance
from nltk.metrics.agreement import AnnotationTask
from sklearn.metrics import cohen_kappa_score

print(*(f"{name} {version(name)}" for name in ("scikit-learn", "nltk", "numpy")))
FIRST = [1, 2, 5, 5, 1, 2, 1, 5, 2, 1]
SECOND = [1, 2, 5, 2, 1, 5, 2, 5, 2, 1]
SCALE = [1, 2, 3, 4, 5]


def by_formula(first, second):
    """Quadratic kappa by the differences of ratings."""
    first, second = np.array(first), np.array(second)
    return 1 - float(np.mean((first - second) ** 2) / np.mean((first[:, None] - second[None]) ** 2))


def by_nltk(first, second):
    rows = [(judge, reply, rating) for judge, ratings in (("a", first), ("b", second)) for reply, rating in enumerate(ratings)]
    return AnnotationTask(rows, distance=interval_distance).weighted_kappa()


def compared(name, first, second):
    """The kappa of scikit-learn without labels, and the true one, which it has with all labels."""
    own, told = cohen_kappa_score(first, second, weights="quadratic"), cohen_kappa_score(first, second, weights="quadratic", labels=SCALE)
    truth = by_formula(first, second)
    print(f"{name}: {own:.3f}, with all labels {told:.3f}, by the ratings {truth:.3f}, nltk {by_nltk(first, second):.3f}")
    assert abs(told - truth) < 1e-9 and abs(by_nltk(first, second) - truth) < 1e-9
    return round(own, 3), round(truth, 3)


assert compared("ratings 1, 2, 5", FIRST, SECOND) == (0.769, 0.655)
assert compared("and one reply with 3 and 3", [*FIRST, 3], [*SECOND, 3]) == (0.708, 0.657)
assert abs(compared("all levels", [*FIRST, 3, 4], [*SECOND, 3, 4])[0] - by_formula([*FIRST, 3, 4], [*SECOND, 3, 4])) < 1e-3
words = {"low": 1, "medium": 2, "high": 3}
first, near, far = ["low", "medium", "high", "low"], ["medium", "low", "high", "low"], ["high", "medium", "low", "low"]
order = list(words)
for weights in ("quadratic", "linear"):
    own = [cohen_kappa_score(first, other, weights=weights) for other in (near, far)]
    true = [cohen_kappa_score(first, other, weights=weights, labels=order) for other in (near, far)]
    print(f"words, {weights}: low and medium exchanged {own[0]:.3f} (in order {true[0]:.3f}), low and high {own[1]:.3f} ({true[1]:.3f})")
    assert true[0] > 0.4 and true[1] < 0 and own[0] == own[1] > 0.3
print("as seen")
PYTHON
