"""Sweeps, from run folders to what their report shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from parley.engine.core.page.content import Chapter, Section, Verdict
from parley.engine.core.page.runs import Run
from parley.engine.core.page.sweeps.sections import ShownSweep, Trial
from parley.engine.core.page.sweeps.trials import SHOWN, best_trials, figures_of, note_of, told
from parley.engine.core.page.verdicts import POINTS, caveat, number
from parley.engine.core.ray.record import WORK
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric

SWEEP = "sweep"
"""The job whose runs are shown here; it lives in a room that this one does not know."""


class Sweeps(Chapter[list[ShownSweep]]):
    """The chapter of sweeps, which may still be at work."""

    name, title = "sweeps", "Sweeps"
    jobs = (SWEEP,)
    terms: ClassVar = {
        r"rank correlation": ("Rank correlation", "1 or -1 where a setting orders the trials, 0 where it does not.")
    }

    def collect(self, runs: Sequence[Run]) -> list[ShownSweep] | None:
        return [_sweep(run) for run in runs if run.done] or None

    def verdict(self, found: list[ShownSweep]) -> Verdict | None:
        """The best trial of the first sweep, and what its settings are worth in runs that chose nothing."""
        first = found[0]
        ranked = first.ranked()
        best = ranked[0]
        metric = Metric(first.objective, f"{'higher' if first.direction == 'max' else 'lower'}: better", "of the best trials")
        if not best.whole:
            said = f"None of {len(ranked)} trials was given the whole budget yet; so far the best"
        else:
            said = f"The best of {sum(trial.whole for trial in ranked)} whole trials"
        settings = ", ".join(f"{key} = {told(value)}" for key, value in best.parameters.items())
        more = f" {len(found) - 1} more sweeps are below." if len(found) > 1 else ""
        return Verdict(
            sentence=f"{said} has {first.objective} = {number(POINTS, best.value.value)} with {settings}.{caveat(best.value)} "
            f"{_again(first)}{more}",
            metric=metric,
            marks=({"best, measured again": first.again} if first.again.n else {})
            | {f"trial {trial.number}": trial.value for trial in ranked[:SHOWN]},
        )

    def render(self, found: list[ShownSweep]) -> Section:
        return Section(
            notes=[note_of(sweep) for sweep in found],
            tables=[(f"Best trials, {sweep.name}", best_trials(sweep)) for sweep in found],
            figures=[figure for sweep in found for figure in figures_of(sweep)],
        )


def _again(sweep: ShownSweep) -> str:
    if not sweep.again.n:
        return "The best of many is too good on average: measure it again."
    return f"Measured again, from seeds that chose nothing, it has {number(POINTS, sweep.again.value)}.{caveat(sweep.again)}"


def _sweep(run: Run) -> ShownSweep:
    begun = [event for event in run.folder.events() if event["kind"] == WORK][-1]
    return ShownSweep(
        name=run.heading,
        objective=begun["objective"],
        direction=begun["direction"],
        trials=[
            Trial(
                int(row["item_key"]),
                json.loads(row["parameters"]),
                Estimate.from_json(row),
                row["whole"],
                {entry["budget"]: entry["value"] for entry in row["by_budget"]},
            )
            for row in run.done
        ],
        failures=len(run.failed),
        again=run.metrics.get("again", NOTHING),
    )
