"""Curves of events: which fields of which events make one, and how it is read from a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from parley.engine.core.page.figure import Curve, Figure
from parley.engine.core.page.runs import Run

STEP = "number"
"""The field of an event that says which epoch or iteration it was."""

Steps = Mapping[float, Mapping[str, Any]]
"""Events by step; a step that a resumed run did twice counts as it was done last."""


@dataclass(frozen=True)
class CurveSource:
    """Which fields of which events make a curve.

    Args:
        kind: the kind of event, which is also the name of the step.
        title: what is shown.
        y_label: the quantity and its unit.
        fields: fields of the event by name of the series.
        smoothed: as in `Curve`.
    """

    kind: str
    title: str
    y_label: str
    fields: Mapping[str, str]
    smoothed: bool = False

    def read(self, heading: str, events: Sequence[Mapping[str, Any]]) -> Curve | None:
        """The curve of a run of that heading; None where it has no such event."""
        steps = {event[STEP]: event for event in events if event["kind"] == self.kind}
        series = {label: points for label, name in self.fields.items() if (points := _series(steps, name))}
        if not series:
            return None
        return Curve(
            title=f"{heading}: {self.title}",
            x_label=self.kind,
            y_label=self.y_label,
            series=series,
            smoothed=self.smoothed,
            bands={label: band for label, name in self.fields.items() if (band := _band(steps, name))},
        )


def read_curves(sources: Sequence[CurveSource], runs: Sequence[Run]) -> list[Curve]:
    """The curves of some runs, run by run."""
    needs = {source.kind: {STEP: float} for source in sources}
    logs = [(run.heading, run.folder.events(needs)) for run in runs]
    return [curve for heading, events in logs for source in sources if (curve := source.read(heading, events))]


def curve_figure(curve: Curve) -> Figure:
    """A curve as the page shows it."""
    # matplotlib costs a second, which readers of curves need not pay.
    from parley.engine.core.page import plots

    smoothed = ", moving average in front of the single values" if curve.smoothed else ""
    return Figure(curve.title, f"{curve.y_label} per {curve.x_label}{smoothed}", Markup(plots.curve_svg(curve)))


def _series(steps: Steps, name: str) -> list[tuple[float, float]]:
    points = [(float(step), event[name]) for step, event in sorted(steps.items()) if name in event]
    return [(step, math.nan if value is None else float(value)) for step, value in points]


def _band(steps: Steps, name: str) -> list[tuple[float, float, float]]:
    """The intervals of one field, where events hold estimates."""
    found = [(step, event.get("estimates", {}).get(name)) for step, event in sorted(steps.items())]
    return [(float(step), parts["low"], parts["high"]) for step, parts in found if parts and parts["low"] is not None]
