"""The page's matches, populations and reproductions, with their figures and sentences.

A population has its payoff matrix as a heat map, its ratings as dots, and the values of its mixtures. A reproduction has
measured beside published advantages. Figures follow the style of `parley.engine.core.page.plots`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from parley.engine.core.page import plots
from parley.engine.core.page.content import Curve, Figure, Run, ShownRun
from parley.engine.core.page.page import POINTS, caveat, listed, number
from parley.engine.core.page.plots import DULL, GOOD, INK, MUTED, PAPER, TINT, svg
from parley.engine.core.stats.known import EXPLOITABILITY, Round
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Points, Row
from parley.engine.core.tables.table import EstimateTable, figure
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS
from parley.engine.negotiation.metrics.campaign import SINGLE, VALUE
from parley.engine.negotiation.metrics.dialogues import DEFENCE_METRICS
from parley.engine.negotiation.metrics.reproduction import (
    ATTACKED,
    NO,
    OPEN,
    PARTS,
    SIGN,
    YES,
    Reproduction,
    compared,
)
from parley.engine.negotiation.verbs.population import (
    AGENTS,
    EVALUATE_POPULATION,
    PAYOFF,
    RATINGS,
    ROLES,
    estimates_of,
    shown_tables,
)
from parley.engine.negotiation.verbs.reproduction import REPRODUCE_CHENG2019
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Domain, domain_of, domain_recorded

if TYPE_CHECKING:
    from parley.engine.negotiation.page.dialogues import TacticRun


@dataclass(frozen=True, kw_only=True)
class PayoffMatrix(ShownRun):
    """A payoff matrix; its items are dialogues, its summary holds names, payoffs, mixtures and ratings."""

    unit = "dialogues"
    summary: Mapping[str, Any]

    @property
    def tables(self) -> dict[str, EstimateTable]:
        """The payoffs, and the ratings and mixtures of both sides."""
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
            f"{name} ({side})": rating
            for role, side in zip(ROLES, axis_labels, strict=True)
            for name, rating in zip(names[role], estimates_of(self.summary[RATINGS][role]), strict=True)
        }
        ladder = sorted(ratings, key=lambda label: -ratings[label].value)
        dots = plots.dots_svg(f"{self.name}, Elo", "Elo rating", ladder, {"rating": ratings})
        caption = "advantage of the adversary of the line over the target of the column, in points"
        return [
            Figure("Payoff matrix", caption, Markup(matrix)),
            Figure("Elo ratings", "400 more are odds of ten to one to earn more points; bars: 95 % intervals", Markup(dots)),
        ]

    @property
    def sentence(self) -> str:
        """The values of the mixtures in words."""
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
        """The estimates beside the sentence."""
        labels = {VALUE: "equilibrium", SINGLE: "best target alone", EXPLOITABILITY: "best adversary, mixture"}
        return {label: self.metrics[name] for name, label in labels.items() if name in self.metrics}


def populations(runs: Sequence[Run]) -> list[PayoffMatrix]:
    """Return the finished matrices of some runs."""
    matrices = (run for run in runs if run.shown and run.job == EVALUATE_POPULATION.name and PAYOFF in run.summary)
    return [PayoffMatrix.of(run, summary=run.summary) for run in matrices]


_MARKED = ("rl", "ra-pa-da")
"""Attacks whose advantages are drawn beside the verdict: the one that learns, and the strongest that searches."""


def reproduction_figures(results: Reproduction) -> list[Figure]:
    """Draw the advantages of each table beside the published ones."""
    figures = []
    for part, paper_table in PARTS.items():
        measured = {
            title: estimate
            for row, title in paper_table.rows.items()
            if (estimate := _compared_advantage(results, part, row)) is not None
        }
        published = {
            title: Estimate(attack.advantage, attack.advantage, attack.advantage, 1)
            for row, title in paper_table.rows.items()
            if title in measured and (attack := paper_table.attack(row)) is not None
        }
        if measured:
            series = {"measured": measured, "published": published}
            drawn = plots.dots_svg(paper_table.heading, "adversary's points ahead", list(measured), series)
            caption = "forced where the attack searches for an end; bars: 95 % intervals over trainings and dialogues"
            figures.append(Figure(paper_table.heading, caption, Markup(drawn)))
    return figures


def reproduction_sentence(results: Reproduction) -> str:
    """Return the number of reproduced advantages, and the paper's conclusions that hold."""
    figures, conclusions = results.figures(), results.conclusions()
    if not figures.rows:
        return ""
    verdicts = Counter(row[-1] for row in figures.rows)
    meanings = {
        YES: "within the interval measured here",
        SIGN: "on the same side of 0",
        NO: "not reproduced",
        OPEN: "open, the interval being wide",
    }
    counts = ", ".join(f"{verdicts[word]} {meaning}" for word, meaning in meanings.items() if verdicts[word])
    sentence = f"Of {len(figures.rows)} published advantages: {counts}."
    num = len(conclusions.rows)
    for holds, how in ((YES, "hold"), (NO, "do not hold")):
        if titles := [row[0] for row in conclusions.rows if row[-1] == holds]:
            sentence += f" Of {num} differences looked at {len(titles)} certainly {how}: {listed(titles)}."
    return f"{sentence} {results.lost()}".rstrip()


def reproduction_marks(results: Reproduction) -> dict[str, Estimate]:
    """Return the estimates beside the sentence."""
    return {
        f"{PARTS[part].rows[row]}: {target}": estimate
        for row in _MARKED
        for part, target in ATTACKED.items()
        if (estimate := _compared_advantage(results, part, row)) is not None
    }


def _compared_advantage(results: Reproduction, part: str, row: str) -> Estimate | None:
    """Return the advantage that is comparable to the published one; None if the row was not measured."""
    if f"{part}.{row}" not in results.rows:
        return None
    metrics = results.over(f"{part}.{row}")
    return metrics.get(compared(metrics))


def reproductions(runs: Sequence[Run]) -> list[Reproduction]:
    """Return the reproductions among some runs, finished or not."""
    return [REPRODUCE_CHENG2019.results(run.folder) for run in runs if run.job == REPRODUCE_CHENG2019.name]


PLAIN = "selfplay"
"""The job of matches without an attack."""


def domain_of_row(row: Row) -> Domain:
    """Return the domain of a finished dialogue."""
    return domain_recorded(row["counts"], (row["values_adversary"], row["values_target"]))


@dataclass(frozen=True, kw_only=True)
class Match(ShownRun):
    """One match, or one attack; its items are dialogues.

    Args:
        job: the job of the run.
        stepless: True if its rows show no budget: only searches that succeeded, or no steps.
    """

    unit = "dialogues"
    legend: Mapping[str, Metric] = field(default_factory=lambda: ATTACK_METRICS | DEFENCE_METRICS)
    job: str = PLAIN
    stepless: bool = False

    @property
    def kinds(self) -> set[str]:
        """Return the kinds of the attack sentences in its dialogues."""
        return {attempt["kind"] for row in self.done for attempt in row.get("attempts", ())}

    @property
    def advantage(self) -> Estimate:
        """Points that the adversary is ahead; `NOTHING` if they were not measured."""
        return self.metrics.get("advantage", NOTHING)

    @property
    def is_attack(self) -> bool:
        """Return True if it is an attack with a measured gain."""
        return self.job != PLAIN and math.isfinite(self.advantage.value)

    @property
    def defended(self) -> bool:
        """Return True if its target had a defence."""
        return any(row.get(name) is not None for row in self.done for name in ("stopped", "refused"))

    @property
    def changed_words(self) -> bool:
        """Return True if an attack that edits sentences changed any word; True for other matches."""
        edited = [(row, attempt) for row in self.done for attempt in row.get("attempts", ())]
        if not any("attempts" in row for row in self.done):
            return True
        return any(row["turns"][attempt["turn"]]["words"] != attempt["base"] for row, attempt in edited)

    @property
    def best(self) -> int:
        """Points of the best deal of its game for a side; of Deal or No Deal if there is no dialogue."""
        return (domain_of_row(self.done[0]) if self.done else domain_of(DEAL_OR_NO_DEAL)).best

    @property
    def points(self) -> tuple[tuple[str, int, int], ...]:
        """Return the points of both sides, dialogue by dialogue."""
        return tuple(sorted((str(row["item_key"]), row["points_adversary"], row["points_target"]) for row in self.done))


@dataclass(frozen=True, kw_only=True)
class Hardening:
    """A campaign of adversarial training: its metrics and its rounds so far."""

    name: str
    metrics: Mapping[str, Estimate]
    rounds: Sequence[Round]


@dataclass(frozen=True, kw_only=True)
class Negotiation:
    """All negotiations of a page."""

    matches: Sequence[Match] = ()
    campaigns: Sequence[Hardening] = ()
    tables: Sequence[tuple[str, EstimateTable]] = ()
    curves: Sequence[Curve] = ()
    budgets: Mapping[str, Points] = field(default_factory=dict)
    populations: Sequence[PayoffMatrix] = ()
    tactics: Sequence[TacticRun] = ()
    reproductions: Sequence[Reproduction] = ()


_LARGEST_BUBBLE = 900.0


def scatter_svg(name: str, rows: Sequence[Row]) -> str:
    """Draw the points of both sides in every dialogue of a match, as SVG text (see `draw_scatter`)."""
    return svg((4.2, 4.2), f"Points of both sides, {name}", lambda axes: draw_scatter(axes, rows))


def draw_scatter(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw one bubble per outcome, its area the number of dialogues, its core the Pareto optimal deals.

    Points are integers, so single dots would hide each other; the mean of all dialogues is a cross.

    Args:
        axes: the axes to draw on.
        rows: finished dialogues, at least one.
    """
    points = [(int(row["points_adversary"]), int(row["points_target"])) for row in rows]
    layers = {
        TINT: Counter(point for point, row in zip(points, rows, strict=True) if row["agreed"]),
        GOOD: Counter(point for point, row in zip(points, rows, strict=True) if row["pareto"]),
        DULL: Counter(point for point, row in zip(points, rows, strict=True) if not row["agreed"]),
    }
    best = domain_of_row(rows[0]).best
    scale = _LARGEST_BUBBLE / max(count for counts in layers.values() for count in counts.values())
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.plot([0, best], [0, best], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for order, (colour, counts) in enumerate(layers.items(), start=2):
        cells = sorted(counts)
        if cells:
            x, y = np.array(cells).T
            sizes = [scale * counts[cell] for cell in cells]
            axes.scatter(x, y, s=sizes, color=colour, edgecolors=PAPER, linewidths=0.8, zorder=order)
    mean_x, mean_y = np.mean(points, axis=0)
    for colour, width, size in ((PAPER, 4.5, 13), (INK, 2.0, 11)):
        axes.plot(mean_x, mean_y, marker="+", markersize=size, markeredgewidth=width, color=colour, zorder=5)
    limits, ticks = (-1, best + 1), range(0, best + 1, best // 5)
    axes.set(xlim=limits, ylim=limits, xticks=ticks, yticks=ticks, aspect="equal")
    axes.set(xlabel="points of the adversary", ylabel="points of the target")
