#!/usr/bin/env bash
# pyarrow cuts the fraction off a Python float that goes into an integer column, and says nothing.
#
# Guess before the first run: pa.array and Table.from_pylist are safe by default, as their documentation says of `safe`
#   ("check for overflows or other unsafe conversions"). 3.5 for int64 raises "Float value 3.5 was truncated".
# Seen with pyarrow 26.0.1: pa.array([3.5], pa.int64()) is [3], alone, in lists and structs, and in Table.from_pylist under a
#   schema; a numpy scalar is cut too. The same number in a numpy array raises the error of the guess. True, "3" and NaN raise.
# Why it matters: rows with half points are stored as whole ones, and read back wrong.
# Fails (rc 1) where this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pyarrow==26.0.1" "numpy==2.4.6" 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import pyarrow as pa

print("pyarrow", pa.__version__)
whole = pa.schema([("points", pa.int64()), ("each", pa.list_(pa.int64())), ("both", pa.struct([("a", pa.int32())]))])
rows = [{"points": 3.5, "each": [2.5, 1], "both": {"a": -1.9}}]
stored = pa.Table.from_pylist(rows, schema=whole).to_pylist()
print("rows:", rows, "stored as:", stored)
assert stored == [{"points": 3, "each": [2, 1], "both": {"a": -1}}], stored
assert pa.array([3.5], pa.int64(), safe=True).to_pylist() == [3]
assert pa.array([np.float64(3.5)], pa.int64()).to_pylist() == [3]
for refused in (np.array([3.5]), [True], ["3"], [float("nan")]):
    try:
        print("not refused:", pa.array(refused, pa.int64()))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        print(f"{refused!r}: {type(error).__name__}: {error}")
    else:
        raise SystemExit(1)
print("as seen")
PYTHON
