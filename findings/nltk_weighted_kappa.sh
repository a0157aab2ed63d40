#!/usr/bin/env bash
# nltk: weighted_kappa divides the expected disagreement by max_distance, and the observed one not, so two good judges get a kappa below 0.
#
# Guess before the first run: `AnnotationTask.weighted_kappa(max_distance=16)` is told that squared distances of ratings from 1 to 5 go up
#   to 16. That is a unit, which cancels out, so the value is the quadratic kappa of scikit-learn, as with max_distance=1.
# Seen with nltk 3.10.4, scikit-learn 1.9.1: two judges of 200 replies who are at most one point apart have a quadratic kappa of .878, by
#   scikit-learn, by the formula and by nltk without max_distance. With max_distance=16 nltk gives -.946: it calls Do_Kw_pairwise without
#   the number. With distances that are scaled to 1, as it wants them, both parts need no division. `Do_Kw(max_distance=16)` alone does
#   divide. `alpha` is not touched. Nothing is said.
# Why it matters: agreement decides whether judges, people or models, may be used at all. Whoever fills in the argument reads that theirs
#   disagree more than by chance, and the larger the scale the worse. Leave the argument out.
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

print(*(f"{name} {version(name)}" for name in ("nltk", "scikit-learn")))
draws = np.random.default_rng(0)
first = draws.integers(1, 6, 200)
second = np.clip(first + draws.integers(-1, 2, 200), 1, 5)
squares = (first[:, None] - second[None]) ** 2
truth = 1 - float(np.mean((first - second) ** 2) / squares.mean())
rows = [(judge, reply, int(rating)) for judge, ratings in (("a", first), ("b", second)) for reply, rating in enumerate(ratings)]


def scaled_distance(one, other):
    return interval_distance(one, other) / 16


def kappas(distance, largest):
    task = AnnotationTask(rows, distance=distance)
    pair = task.weighted_kappa(), task.weighted_kappa(max_distance=largest)
    print(f"{distance.__name__}: kappa {pair[0]:.3f}, with max_distance={largest} {pair[1]:.3f}, alpha {task.alpha():.3f}")
    return pair


by_sklearn = cohen_kappa_score(first, second, weights="quadratic")
print(f"by the formula {truth:.3f}, by scikit-learn {by_sklearn:.3f}")
assert abs(by_sklearn - truth) < 1e-9 and 0.87 < truth < 0.89
plain, divided = kappas(interval_distance, 16)
assert abs(plain - truth) < 1e-9 and abs(divided - (1 - 16 * (1 - truth))) < 1e-9 and divided < -0.9
assert all(abs(value - truth) < 1e-9 for value in kappas(scaled_distance, 1.0))
task = AnnotationTask(rows, distance=interval_distance)
assert abs(task.Do_Kw(max_distance=16) - task.Do_Kw() / 16) < 1e-9
print("as seen")
PYTHON
