"""Reads the rows of a run with pyarrow: a run is a folder of Parquet files and JSON.

`parley rows RUN FILE` makes one flat file of them, a line for the smallest thing.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

import parley

with tempfile.TemporaryDirectory() as folder:
    result = parley.run_verb("selfplay", "scripted", run=Path(folder) / "run", dialogues=200)
    print(f"agreement as the run's summary has it: {result.metrics['agreement'].value:.3f}")

    rows = pq.read_table(result.run / "rows")
    print(f"{rows.num_rows} rows, columns: {', '.join(rows.schema.names[:9])}, ...")
    agreed = rows.column("agreed").to_pylist()
    print(f"agreement from the rows: {sum(agreed) / len(agreed):.3f}")

    turns = Counter(rows.column("num_turns").to_pylist())
    print("utterances in a dialogue:", ", ".join(f"{number}: {times}" for number, times in sorted(turns.items())))
    first = rows.slice(0, 1).to_pylist()[0]
    for turn in first["turns"]:
        print(f"    {'adversary' if turn['side'] == 0 else 'target'}: {turn['words']}")
