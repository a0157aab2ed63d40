"""The rows of a sweep: a trial each."""

from __future__ import annotations

import pyarrow as pa

from parley.engine.core.runs.schemas import list_of, with_base

SWEEP_TRIALS = with_base(
    [
        # Its settings by dotted key as JSON, and what it was measured by, as an estimate over its repeats at the largest budget
        # that it was given.
        pa.field("parameters", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        pa.field("n", pa.int64()),
        pa.field("budget", pa.int64()),
        # What it was worth at each budget, rising.
        pa.field("by_budget", list_of(pa.struct([pa.field("budget", pa.int64()), pa.field("value", pa.float64())]))),
        # Whether the largest was a whole trial's, and where the runs of the trial lie, below the sweep's folder.
        pa.field("whole", pa.bool_()),
        pa.field("runs", pa.string()),
    ]
)
"""One trial of a sweep per row, in the order in which they were started."""
