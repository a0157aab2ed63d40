"""What the chapter of perturbations reads: evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.metrics.tables import TextTable
from engine.report.content import ShownRun


@dataclass(frozen=True, kw_only=True)
class ShownEvaluation(ShownRun):
    """One evaluation under perturbations; its items are examples.

    Args:
        tables: what was measured, in the layout of the paper, by heading.
        strategies: what a good model does with the contexts of each strategy, "should-not-change" or "should-change".
        unscored: why activities and entities were not scored; empty if they were.
    """

    unit = "examples"
    tables: Mapping[str, TextTable] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    unscored: str = ""
