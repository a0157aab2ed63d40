"""A drawing as the page shows it, and the curves that one may draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption."""

    name: str
    caption: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Some series over the same steps of training.

    Args:
        title: what is shown.
        x_label: the step, such as "epoch".
        y_label: the quantity and its unit.
        series: (step, value) points by name, each in the order of its steps.
        smoothed: draws a moving average in front of the single points, for quantities that jump from step to step.
        bands: (step, low, high) 95 % intervals of some series, by name.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    smoothed: bool = False
    bands: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)


def told_apart(names: Sequence[str]) -> list[str]:
    """The names, numbered where some are equal, so that each can name a series of its own."""
    return [f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name for place, name in enumerate(names)]
