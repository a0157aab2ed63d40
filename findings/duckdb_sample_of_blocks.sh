#!/usr/bin/env bash
# duckdb: a sample of 10% of 1,000 rows has 0 rows or all of them, and that of 100,000 rows between 0 and 20,000.
#
# Guess before the first run: USING SAMPLE 10% takes each row with probability .1, so some 100 of 1,000 rows, spread over the table. The
#   seed decides which ones.
# Seen with duckdb 2.0.1: a sample in percent takes or leaves blocks of 2,048 neighbouring rows. Of 200 samples of a table of 1,000 rows
#   all have 0 or 1,000 rows. The sizes of 200 samples of 100,000 rows have a standard deviation of some 4,300, where single rows give 93.
#   One such sample held rows of 3 of the 49 blocks. TABLESAMPLE 10% is the same. "10% (bernoulli)" is as guessed, and "100 ROWS" gives
#   100 rows. Nothing is said.
# Why it matters: rows of a run stand in the order of its shards, seeds and attacks. A tenth of it then holds a few of these alone, or
#   nothing, and rows that are taken for independent are neighbours. Write the method, or a number of rows.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "duckdb==2.0.1" 2> /dev/null
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from statistics import mean, stdev

import duckdb

print("duckdb", duckdb.__version__)
connection = duckdb.connect()
connection.execute("set threads = 1")
for rows in (1_000, 100_000):
    connection.execute(f"create table rows_{rows} as select range as number from range({rows})")
SAMPLES = 200


def sizes(rows, clause):
    """How many rows each of so many samples has."""
    query = f"select count(*) from (from rows_{rows} {clause})"
    return [connection.execute(query).fetchall()[0][0] for _ in range(SAMPLES)]


for clause in ("using sample 10%", "tablesample 10%"):
    seen = sizes(1_000, clause)
    print(f"{clause} of 1,000 rows: {seen.count(0)} times 0, {seen.count(1_000)} times 1,000")
    assert set(seen) == {0, 1_000}
spread = {}
for method in ("system", "bernoulli"):
    seen = sizes(100_000, f"using sample 10% ({method})")
    spread[method] = stdev(seen)
    print(f"10% ({method}) of 100,000 rows: {min(seen)} to {max(seen)}, mean {mean(seen):.0f}, standard deviation {spread[method]:.0f}")
    assert 8_000 < mean(seen) < 12_000
seen = sizes(100_000, "using sample 10%")
print(f"10% of 100,000 rows: {min(seen)} to {max(seen)}, standard deviation {stdev(seen):.0f}")
assert spread["bernoulli"] < 150 and min(spread["system"], stdev(seen)) > 2_000
blocks = {number // 2_048 for (number,) in connection.execute("select number from rows_100000 using sample 10%").fetchall()}
whole = {number // 2_048 for (number,) in connection.execute("select number from rows_100000 using sample 10% (bernoulli)").fetchall()}
print(f"blocks of 2,048 rows, of 49, in one sample: {len(blocks)}; by single rows {len(whole)}")
assert len(blocks) < 20 and len(whole) == 49
assert set(sizes(1_000, "using sample 100 rows")) == {100}
print("as seen")
PYTHON
