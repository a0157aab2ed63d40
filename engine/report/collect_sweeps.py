"""From the run folders of sweeps to what their report shows."""

from __future__ import annotations

import json

from engine.report.content import SweepSection, SweepTrial
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK

SWEEP = "sweep"
"""The job whose runs are shown by this module alone; it lives in a room that this one does not know."""


def sweep_section(heading: str, run: RunFolder) -> SweepSection | None:
    """The section of a run; None for one that is no sweep, or has not come to its end.

    Args:
        heading: what the run is called.
        run: any run.
    """
    summary = run.summary()
    if run.job != SWEEP or summary is None:
        return None
    rows = run.read_rows().to_pylist()
    worked = [row for row in rows if row["status"] == OK]
    return SweepSection(
        name=heading,
        objective=summary["objective"],
        direction=summary["direction"],
        trials=[SweepTrial(json.loads(row["parameters"]), row["value"], row["whole"]) for row in worked],
        failures=len(rows) - len(worked),
        best={key: _told(value) for key, value in summary["parameters"].items()},
    )


def _told(value: str | float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
