#!/usr/bin/env bash
# scipy: barnard_exact misses the maximum it promises, so p is too small, and another one where successes are called failures.
#
# Guess before the first run: the p-value is the largest one over all rates that both groups may share, as documented, so it is the same
#   if the two rows change places (what is a success) or the two columns (who is first); a larger n makes it more exact.
# Seen with scipy 1.17.1: 10 of 15 attacks on one agent succeed and 10 of 10 on another. With successes in the first row p is .0484, with
#   failures in the first row .0509, which is the largest value on a grid of rates. Of the 89 tables of groups of 6 and 12 in which both
#   outcomes occur 11 miss the largest value, always downwards, by up to .025; of the 79 of groups of 8 and 8 none does. n=1024 in place
#   of 32 changes no digit of the five tables tried, though the documentation calls it the way to precision. boschloo_exact gives one p
#   for both orders of the rows. Nothing is said.
# Why it matters: this is the test for two rates of success in few dialogues. Whether a difference is significant depends on which
#   outcome stands first, and too often it is. Take the larger p of both orders, or maximise over a grid.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-}
if [ -z "$python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet "scipy==1.17.1" "numpy==2.4.6" 2> /dev/null
  python=$folder/venv/bin/python
fi
"$python" -W ignore - <<'PYTHON'
import numpy as np
import scipy
from scipy.stats import barnard_exact, binom, boschloo_exact

print("scipy", scipy.__version__)
RATES = np.linspace(0, 1, 2_001)[1:-1]


def statistic(first, second, sizes):
    """Wald's statistic with the pooled rate, for these counts of the first row."""
    pooled = (first + second) / sum(sizes)
    gap = first / sizes[0] - second / sizes[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap == 0, 0.0, gap / np.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1])))


def largest(table):
    """The largest p-value over the grid of rates."""
    sizes = np.sum(table, axis=0)
    first, second = np.arange(sizes[0] + 1), np.arange(sizes[1] + 1)
    values = np.abs(statistic(first[:, None], second[None], sizes))
    extreme = (values >= abs(statistic(*np.array(table[0]), sizes)) - 1e-12).astype(float)
    chances = [binom.pmf(counts[:, None], size, RATES) for counts, size in zip((first, second), sizes)]
    return float(np.einsum("ij,ir,jr->r", extreme, *chances).max())


def both(table, **options):
    """The p-values of both names of the outcome."""
    return float(barnard_exact(table, **options).pvalue), float(barnard_exact(table[::-1], **options).pvalue)


def missed(sizes):
    """The tables of groups of these sizes, and by how much the p-value of each is below the largest one."""
    tables = [
        [[first, second], [sizes[0] - first, sizes[1] - second]]
        for first in range(sizes[0] + 1)
        for second in range(sizes[1] + 1)
        if 0 < first + second < sum(sizes)
    ]
    return np.array([largest(table) - float(barnard_exact(table).pvalue) for table in tables])


table = [[10, 10], [5, 0]]
seen, truth = both(table), largest(table)
print(f"10 of 15 and 10 of 10: p = {seen[0]:.4f}, and {seen[1]:.4f} with failures in the first row; the largest is {truth:.4f}")
assert seen[0] < 0.0485 and seen[1] > 0.0509 and abs(seen[1] - truth) < 1e-5
other = [float(boschloo_exact(rows).pvalue) for rows in (table, table[::-1])]
print("boschloo_exact:", other)
assert abs(other[0] - other[1]) < 1e-9
for table in (table, [[6, 13], [14, 7]], [[8, 4], [2, 8]], [[7, 1], [3, 9]], [[7, 8], [8, 2]]):
    few, many = both(table), both(table, n=1024)
    print(f"{table}: {few[0]:.5f} and {few[1]:.5f}; n=1024: {many[0]:.5f} and {many[1]:.5f}")
    assert np.allclose(few, many, atol=1e-7) and abs(few[0] - few[1]) > 5e-4
for sizes, low, high in (((6, 12), 9, 13), ((8, 8), 0, 0)):
    gaps = missed(sizes)
    count = int((gaps > 1e-3).sum())
    print(f"groups of {sizes[0]} and {sizes[1]}: {count} of {len(gaps)} are too small, by up to {gaps.max():.3f}, none too large")
    assert low <= count <= high and gaps.min() > -1e-3 and (gaps.max() > 0.02) == (count > 0)
print("as seen")
PYTHON
