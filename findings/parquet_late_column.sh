#!/usr/bin/env bash
# pyarrow, pandas, duckdb: a column that the first file of a folder lacks is gone from the whole table, and duckdb rounds 3.5 to 4.
#
# Guess before the first run: a folder of Parquet files whose later files have one column more is read with that column, empty in the
#   earlier rows, or ends in an error. The order of the files decides nothing.
# Seen with pyarrow 26.0.1, pandas 3.1.1, duckdb 2.0.1, polars 2.1.0: part-0 has the column "id", part-1 has "id" and "judge".
#   pyarrow.parquet.read_table, pandas.read_parquet and duckdb give the ids of all rows, and no "judge", without a word. If the second
#   file stands first, pyarrow and pandas give both columns, and duckdb ends in an error. A field of a struct that the first file
#   lacks is gone in the same way. Where part-0 has the scores 1 and 2 as integers and part-1 has 3.5, duckdb gives 4; pyarrow and
#   pandas raise an error. polars raises in every one of these cases.
# Why it matters: runs write a file for each shard, and a column such as an error, a refusal or a judge's score is often written by the
#   shards alone that have one. Its rows then count as if there were none. Give one schema: pyarrow's `schema=`, duckdb's
#   union_by_name=true, which keeps the column and 3.5.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pyarrow==26.0.1" "pandas==3.1.1" "duckdb==2.0.1" "polars==2.1.0" 2> /dev/null
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import os
import shutil
from importlib.metadata import version

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

print(*(f"{name} {version(name)}" for name in ("pyarrow", "pandas", "duckdb", "polars")))


def by_duckdb(options=""):
    relation = duckdb.sql(f"from read_parquet('shards/*.parquet'{options})")
    return relation.columns, relation.fetchall()


READERS = {
    "pyarrow": lambda: (lambda table: (table.column_names, [tuple(row.values()) for row in table.to_pylist()]))(pq.read_table("shards")),
    "pandas": lambda: (lambda frame: (list(frame.columns), [*frame.itertuples(index=False, name=None)]))(pd.read_parquet("shards")),
    "duckdb": by_duckdb,
    "duckdb by name": lambda: by_duckdb(", union_by_name=true"),
    "polars": lambda: (lambda frame: (frame.columns, frame.rows()))(pl.read_parquet("shards/*.parquet")),
}


def read(title, *shards):
    """What each reader gives for a folder of these shards; an error's name where it raises."""
    shutil.rmtree("shards", ignore_errors=True)
    os.makedirs("shards")
    for number, rows in enumerate(shards):
        pq.write_table(pa.Table.from_pylist(rows), f"shards/part-{number}.parquet")
    seen = {}
    for name, reader in READERS.items():
        try:
            seen[name] = reader()
        except Exception as error:
            seen[name] = type(error).__name__
        print(f"{title}, {name}: {seen[name]}")
    return seen


FEW, MORE = [{"id": 1}, {"id": 2}], [{"id": 3, "judge": "unsafe"}]
seen = read("late column", FEW, MORE)
for name in ("pyarrow", "pandas", "duckdb"):
    assert list(seen[name][0]) == ["id"] and [row[0] for row in seen[name][1]] == [1, 2, 3]
assert list(seen["duckdb by name"][0]) == ["id", "judge"] and isinstance(seen["polars"], str)
seen = read("early column", MORE, FEW)
assert list(seen["pyarrow"][0]) == list(seen["pandas"][0]) == ["id", "judge"] and isinstance(seen["duckdb"], str)
seen = read("late field", [{"row": {"id": 1}}], [{"row": {"id": 2, "judge": "unsafe"}}])
assert all("unsafe" not in str(seen[name]) and not isinstance(seen[name], str) for name in ("pyarrow", "pandas", "duckdb"))
seen = read("half a point", [{"score": 1}, {"score": 2}], [{"score": 3.5}])
assert seen["duckdb"][1] == [(1,), (2,), (4,)] and seen["duckdb by name"][1] == [(1,), (2,), (3.5,)]
assert all(isinstance(seen[name], str) for name in ("pyarrow", "pandas", "polars"))
print("as seen")
PYTHON
