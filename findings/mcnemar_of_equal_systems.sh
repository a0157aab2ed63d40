#!/usr/bin/env bash
# mlxtend, statsmodels: McNemar's test calls two systems that answer everything alike different, with p = 0.
#
# Guess before the first run: two systems that are right and wrong on the same prompts have p = 1, or NaN, or an error, as there is no prompt
#   to tell them apart by.
# Seen with mlxtend 0.25.0, statsmodels 0.15.0, pingouin 0.7.0, 50 prompts of which both systems miss the same 20: mcnemar of mlxtend as it
#   comes has a statistic of inf and p = 0.0. So has mcnemar(exact=False) of statsmodels; its default, exact=True, has 1. Without the
#   correction both give NaN, and pingouin raises. numpy warns once of a division. Two systems that each miss 1% of 30 prompts,
#   independently: 552 of 1,000 comparisons by mlxtend have p < .05, all of these p = 0; by its exact=True none has.
# Why it matters: a defence that changes no outcome, or two guards that stop everything, is reported as highly significant; p = 0 passes every
#   correction for many tests. This happens with few prompts and high or low rates, thus in tables of attacks. Use the exact test.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "mlxtend==0.25.0" "statsmodels==0.15.0" "pingouin==0.7.0" 2> /dev/null
  python=$folder/venv/bin/python
fi
cd "$folder"
"$python" -W ignore - 2> "$folder/errors" <<'PYTHON' || { cat "$folder/errors"; exit 1; }
import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
import pingouin
from mlxtend.evaluate import mcnemar, mcnemar_table
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_of_statsmodels

print(*(f"{name} {version(name)}" for name in ("mlxtend", "statsmodels", "pingouin")))
truth = np.zeros(50, int)
answers = np.repeat([1, 0], [20, 30])
table = mcnemar_table(y_target=truth, y_model1=answers, y_model2=answers.copy())
print("both right, one right, both wrong:", table.tolist())
assert table.tolist() == [[30, 0], [0, 20]]

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("default")
    seen = {
        "mlxtend": mcnemar(table)[1],
        "mlxtend, corrected=False": mcnemar(table, corrected=False)[1],
        "mlxtend, exact=True": mcnemar(table, exact=True)[1],
        "statsmodels": mcnemar_of_statsmodels(table).pvalue,
        "statsmodels, exact=False": mcnemar_of_statsmodels(table, exact=False).pvalue,
        "statsmodels, exact=False, correction=False": mcnemar_of_statsmodels(table, exact=False, correction=False).pvalue,
    }
for name, value in seen.items():
    print(f"{name}: p = {value}")
print("warnings:", sorted({str(warning.message) for warning in said}))
assert all("in scalar divide" in str(warning.message) or "in divide" in str(warning.message) for warning in said)
assert seen["mlxtend"] == seen["statsmodels, exact=False"] == 0
assert seen["mlxtend, exact=True"] == seen["statsmodels"] == 1
assert np.isnan(seen["mlxtend, corrected=False"]) and np.isnan(seen["statsmodels, exact=False, correction=False"])
try:
    pingouin.chi2_mcnemar(pd.DataFrame({"one": answers, "other": answers}), "one", "other")
except ValueError as error:
    print("pingouin:", error)
else:
    raise AssertionError("pingouin gives a result")

misses = np.random.default_rng(0).random((1_000, 2, 30)) < 0.01
plain, exact = [], []
for one, other in misses.astype(int):
    table = mcnemar_table(y_target=np.zeros(30, int), y_model1=one, y_model2=other)
    plain.append(mcnemar(table)[1])
    exact.append(mcnemar(table, exact=True)[1])
plain, exact = np.array(plain), np.array(exact)
print(f"of 1,000 comparisons of equal systems {(plain < 0.05).sum()} have p < .05, {(plain == 0).sum()} of them p = 0; exact: {(exact < 0.05).sum()}")
assert 500 < (plain < 0.05).sum() == (plain == 0).sum() < 620 and not (exact < 0.05).any()
print("as seen")
PYTHON
