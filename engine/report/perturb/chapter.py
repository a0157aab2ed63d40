"""From the run folders of evaluations under perturbations to what their report shows."""

from __future__ import annotations

from engine.jobs.perturb.robustness import EVALUATE_ROBUSTNESS, STRATEGIES, UNSCORED
from engine.report.content import RobustnessSection
from engine.store.run_folder import RunFolder


def robustness_section(heading: str, run: RunFolder, described: bool) -> RobustnessSection | None:
    """The section of a run; None for one that is no such evaluation, or has asked nothing yet.

    Args:
        heading: what the run is called.
        run: any run.
        described: whether its description is wanted.
    """
    if run.job != EVALUATE_ROBUSTNESS.name:
        return None
    rows = run.read_rows().to_pylist()
    if not rows:
        return None
    summary = run.summary() or {}
    return RobustnessSection(
        name=heading,
        description=summary.get("description", "") if described else "",
        metrics=run.metrics(),
        rows=rows,
        tables=EVALUATE_ROBUSTNESS.tables(run),
        strategies=summary.get(STRATEGIES, {}),
        unscored=summary.get(UNSCORED, ""),
    )
