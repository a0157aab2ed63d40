"""Populations on the page: the payoff matrix as a heat table, ratings as dots, and what the mixtures come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from parley.engine.core.page import plots
from parley.engine.core.page.content import ShownRun
from parley.engine.core.page.figure import Figure
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import POINTS, caveat, number
from parley.engine.core.stats.exploitability import EXPLOITABILITY
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.stats.tables import TextTable, figure
from parley.engine.negotiation.metrics.population import SINGLE, VALUE
from parley.engine.negotiation.verbs.population import (
    AGENTS,
    EVALUATE_POPULATION,
    PAYOFF,
    RATINGS,
    ROLES,
    estimates_of,
    shown_tables,
)


@dataclass(frozen=True, kw_only=True)
class ShownPopulation(ShownRun):
    """A payoff matrix; its items are dialogues, its summary holds names, payoffs, mixtures and ratings."""

    unit = "dialogues"
    summary: Mapping[str, Any]

    @property
    def tables(self) -> dict[str, TextTable]:
        """Payoffs, and both sides' ratings and mixtures."""
        return shown_tables(self.summary)

    @property
    def figures(self) -> list[Figure]:
        """The matrix and the ratings."""
        names: Mapping[str, Sequence[str]] = self.summary[AGENTS]
        cells_TA = [estimates_of(line) for line in self.summary[PAYOFF]]
        values = [cell.value for line in cells_TA for cell in line]
        least, span = min(values), max(max(values) - min(values), 1e-9)
        tinted = [[((cell.value - least) / span, figure(cell.value)) for cell in line] for line in zip(*cells_TA, strict=True)]
        axis_labels = ("target", "adversary")
        matrix = plots.heat_svg(f"{self.name}, payoffs", names["adversaries"], names["targets"], tinted, axis_labels)
        ratings = {
            f"{name} ({one})": rating
            for role, one in zip(ROLES, axis_labels, strict=True)
            for name, rating in zip(names[role], estimates_of(self.summary[RATINGS][role]), strict=True)
        }
        ladder = sorted(ratings, key=lambda label: -ratings[label].value)
        dots = plots.dots_svg(f"{self.name}, Elo", "Elo rating", ladder, {"rating": ratings})
        told = "advantage of the adversary of the line over the target of the column, in points"
        return [
            Figure("Payoff matrix", told, Markup(matrix)),
            Figure("Elo ratings", "400 more are odds of ten to one to earn more points; bars: 95 % intervals", Markup(dots)),
        ]

    @property
    def sentence(self) -> str:
        """What the mixtures come to."""
        value, single, fresh = (self.metrics.get(name) for name in (VALUE, SINGLE, EXPLOITABILITY))
        if value is None or single is None:
            return ""
        text = (
            f"{self.name}: at the equilibrium of the matrix the adversaries are {number(POINTS, value.value)} points ahead; "
            f"the best target alone gives {number(POINTS, single.value)} to the worst adversary for it."
        )
        if fresh is not None:
            text += f" The best adversary against the mixture is {number(POINTS, fresh.value)} points ahead."
        return text + caveat(value, unit="dialogues")

    @property
    def marks(self) -> dict[str, Estimate]:
        """The estimates behind the sentence."""
        labels = {VALUE: "equilibrium", SINGLE: "best target alone", EXPLOITABILITY: "best adversary, mixture"}
        return {label: self.metrics[name] for name, label in labels.items() if name in self.metrics}


def populations(runs: Sequence[Run]) -> list[ShownPopulation]:
    """The finished matrices of some runs."""
    found = (run for run in runs if run.shown and run.job == EVALUATE_POPULATION.name and PAYOFF in run.summary)
    return [ShownPopulation.of(run, summary=run.summary) for run in found]
