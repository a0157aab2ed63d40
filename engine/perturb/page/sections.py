"""What the chapter of perturbations reads: evaluations and audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parley.engine.core.page.content import Item, ShownRun
from parley.engine.core.stats.tables import TextTable


@dataclass(frozen=True, kw_only=True)
class ShownEvaluation(ShownRun):
    """One evaluation under perturbations; its items are examples.

    Args:
        tables: what was measured, in the layout of the paper, by heading.
        strategies: what a good model does with the contexts of each strategy, "should-not-change" or "should-change".
        unscored: why activities and entities were not scored; empty if they were.
        beside: what the model is called that answers the same contexts; empty where there is none.
    """

    unit = "examples"
    tables: Mapping[str, TextTable] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    unscored: str = ""
    beside: str = ""


@dataclass(frozen=True, kw_only=True)
class ShownAudit(ShownRun):
    """One audit; its items are contexts.

    Args:
        tables: what was measured, by heading; none before that.
        note: whose labels there are.
        lines: those that were drawn, for the viewer.
    """

    unit = "contexts"
    tables: Mapping[str, TextTable] = field(default_factory=dict)
    note: str = ""
    lines: Sequence[Item] = ()


@dataclass(frozen=True, kw_only=True)
class ShownPerturbations:
    """All evaluations and audits of a page."""

    evaluations: Sequence[ShownEvaluation] = ()
    audits: Sequence[ShownAudit] = ()
