"""The page's views of populations, reproductions and matches, and the figures of negotiations.

Populations: the payoff matrix as a heat map, ratings as dots, and the values of the mixtures. Reproductions: measured beside
published advantages. Figures follow the style of `parley.engine.core.page.plots`.
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
    from parley.engine.negotiation.page.dialogues import ShownTactics


@dataclass(frozen=True, kw_only=True)
class ShownPopulation(ShownRun):
    """A payoff matrix; its items are dialogues, its summary holds names, payoffs, mixtures and ratings."""

    unit = "dialogues"
    summary: Mapping[str, Any]

    @property
    def tables(self) -> dict[str, EstimateTable]:
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


_MARKED = ("rl", "ra-pa-da")
"""Attacks whose advantages stand beside the verdict: the one that learns, and the strongest that searches."""


@dataclass(frozen=True, kw_only=True)
class ShownReproduction:
    """The results of all finished trainings."""

    found: Reproduction

    @property
    def tables(self) -> list[tuple[str, EstimateTable]]:
        """All that there are, by heading."""
        return list(self.found.tables().items())

    @property
    def figures(self) -> list[Figure]:
        """Each table's advantages beside those that were published of it."""
        found = []
        for part, of in PARTS.items():
            measured = {title: estimate for row, title in of.rows.items() if (estimate := self._gained(part, row)) is not None}
            published = {
                title: Estimate(known.advantage, known.advantage, known.advantage, 1)
                for row, title in of.rows.items()
                if title in measured and (known := of.known(row)) is not None
            }
            if measured:
                series = {"measured": measured, "published": published}
                drawn = plots.dots_svg(of.heading, "adversary's points ahead", list(measured), series)
                told = "forced where the attack searches for an end; bars: 95 % intervals over trainings and dialogues"
                found.append(Figure(of.heading, told, Markup(drawn)))
        return found

    @property
    def sentence(self) -> str:
        """Return the number of reproduced advantages, and the paper's conclusions that hold."""
        figures, conclusions = self.found.figures(), self.found.conclusions()
        if not figures.rows:
            return ""
        told = Counter(row[-1] for row in figures.rows)
        words = {
            YES: "within the interval measured here",
            SIGN: "on the same side of 0",
            NO: "not reproduced",
            OPEN: "open, the interval being wide",
        }
        counts = ", ".join(f"{told[word]} {said}" for word, said in words.items() if told[word])
        said = f"Of {len(figures.rows)} published advantages: {counts}."
        num = len(conclusions.rows)
        for holds, how in ((YES, "hold"), (NO, "do not hold")):
            if titles := [row[0] for row in conclusions.rows if row[-1] == holds]:
                said += f" Of {num} differences looked at {len(titles)} certainly {how}: {listed(titles)}."
        return f"{said} {self.found.lost()}".rstrip()

    @property
    def marks(self) -> dict[str, Estimate]:
        """The estimates behind the sentence."""
        return {
            f"{PARTS[part].rows[row]}: {target}": estimate
            for row in _MARKED
            for part, target in ATTACKED.items()
            if (estimate := self._gained(part, row)) is not None
        }

    def _gained(self, part: str, row: str) -> Estimate | None:
        """The advantage in the paper's protocol."""
        name = f"{part}.{row}"
        if name not in self.found.rows:
            return None
        metrics = self.found.over(name)
        return metrics.get(compared(metrics))


def reproductions(runs: Sequence[Run]) -> list[ShownReproduction]:
    """Return the reproductions among some runs, finished or not."""
    found = (REPRODUCE_CHENG2019.found(run.folder) for run in runs if run.job == REPRODUCE_CHENG2019.name)
    return [ShownReproduction(found=each) for each in found]


PLAIN = "selfplay"
"""The job of matches without an attack."""


def domain_of_row(row: Row) -> Domain:
    """Return the domain of a finished dialogue."""
    return domain_recorded(row["counts"], (row["values_adversary"], row["values_target"]))


@dataclass(frozen=True, kw_only=True)
class Match(ShownRun):
    """One match, or one attack; its items are dialogues.

    Args:
        job: what was run.
        stepless: whether what is on record says nothing of a budget: searches that succeeded alone, or no steps between.
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
        """Points that the adversary is ahead; `NOTHING` where that was not measured."""
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
        """Points that the best deal of its game is worth to a side; of Deal or No Deal where no dialogue tells the game."""
        return (domain_of_row(self.done[0]) if self.done else domain_of(DEAL_OR_NO_DEAL)).best

    @property
    def points(self) -> tuple[tuple[str, int, int], ...]:
        """Return the points of both sides, dialogue by dialogue."""
        return tuple(sorted((str(row["item_key"]), row["points_adversary"], row["points_target"]) for row in self.done))


@dataclass(frozen=True, kw_only=True)
class Hardening:
    """A campaign of adversarial training: what it came to, and its rounds so far."""

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
    populations: Sequence[ShownPopulation] = ()
    tactics: Sequence[ShownTactics] = ()
    reproductions: Sequence[ShownReproduction] = ()


_LARGEST_BUBBLE = 900.0


def scatter_svg(name: str, rows: Sequence[Row]) -> str:
    """The points of both sides in every dialogue of a match, as SVG text (see `draw_scatter`)."""
    return svg((4.2, 4.2), f"Points of both sides, {name}", lambda axes: draw_scatter(axes, rows))


def draw_scatter(axes: Axes, rows: Sequence[Row]) -> None:
    """Draws one bubble per outcome, its area the number of dialogues, the Pareto optimal deals as the core of the bubble.

    Points are whole numbers, so single dots would hide each other; the mean of all dialogues is a cross.

    Args:
        axes: where to draw.
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
