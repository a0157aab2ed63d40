"""What the chapter of perturbations reads: evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.metrics.statistics import Estimate, Row
from engine.metrics.tables import TextTable
from engine.store.schemas import OK


@dataclass(frozen=True, kw_only=True)
class ShownEvaluation:
    """One evaluation under perturbations.

    Args:
        name: a short heading.
        description: one sentence for a reader who does not know the run.
        metrics: estimates by metric name; `engine.metrics.perturb.robustness.describe` says what the names mean.
        rows: its examples, columns of `engine.jobs.perturb.rows.ROBUSTNESS`.
        tables: what was measured, in the layout of the paper, by heading.
        strategies: what a good model does with the contexts of each strategy, "should-not-change" or "should-change".
        unscored: why activities and entities were not scored; empty if they were.
    """

    name: str
    description: str = ""
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    rows: Sequence[Row] = ()
    tables: Mapping[str, TextTable] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    unscored: str = ""

    @property
    def examples(self) -> list[Row]:
        """The rows of examples that were answered."""
        return [row for row in self.rows if row["status"] == OK]

    @property
    def failures(self) -> list[Row]:
        """The rows of examples that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]
