"""From the run folders of sweeps to what their report shows."""

from __future__ import annotations

import json

from engine.metrics.statistics import Estimate
from engine.report.content import SweepSection, SweepTrial
from engine.runtime.record import WORK
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK

SWEEP = "sweep"
"""The job whose runs are shown by this module alone; it lives in a room that this one does not know."""


def sweep_section(heading: str, run: RunFolder) -> SweepSection | None:
    """The section of a run, which may still be at work; None for one that is no sweep, or has no trial that worked yet.

    Args:
        heading: what the run is called.
        run: any run.
    """
    if run.job != SWEEP:
        return None
    rows = run.read_rows().to_pylist()
    worked = [row for row in rows if row["status"] == OK]
    if not worked:
        return None
    begun = [event for event in run.events() if event["kind"] == WORK][-1]
    return SweepSection(
        name=heading,
        objective=begun["objective"],
        direction=begun["direction"],
        trials=[
            SweepTrial(
                int(row["item_key"]),
                json.loads(row["parameters"]),
                Estimate.from_json(row),
                row["whole"],
                {entry["budget"]: entry["value"] for entry in row["by_budget"]},
            )
            for row in worked
        ],
        failures=len(rows) - len(worked),
    )
