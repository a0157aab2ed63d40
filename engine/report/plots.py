"""Figures of the report: who earned what, and how training went.

Every figure is drawn once, in the colours of the light page. The SVG form then exchanges each colour for a variable of
the page's style sheet, so that the same drawing follows a reader's dark mode.
"""

from __future__ import annotations

import html
import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from engine.metrics.statistics import Estimate, Points, Row
from engine.report.content import Curve, MatchSection, ReportData
from envs.core.errors import RunError
from envs.storage.places import display_path

INK, MUTED, GRID, PAPER = "#1c2430", "#5c6878", "#d8dee6", "#fefefe"
SERIES = ("#b8460e", "#1f5fbf", "#0f7b6c", "#8a3ffc")
"""Colours of series in order; the adversary takes the first and the target the second wherever both are shown."""
DEALS, PARETO, NO_DEAL = "#9db4d6", "#0f7b6d", "#b9a6a0"
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PAPER: "--card",
    **{colour: f"--series-{i}" for i, colour in enumerate(SERIES)},
    DEALS: "--deals",
    PARETO: "--pareto",
    NO_DEAL: "--no-deal",
}

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "figure.dpi": 160.0,
    "font.family": ["DejaVu Sans"],
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    # Names come from users and configuration files, where a dollar sign is a dollar sign.
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelsize": 9,
    "ytick.color": MUTED,
    "ytick.labelsize": 9,
}
_TOTAL = 10
_LARGEST_BUBBLE = 900.0
_LONGEST_LABEL = 36
_MANY, _MOST_TICKS = 32, 9
_LINES = ("-", "--")
"""Lines of series, so that twice as many can be told apart as there are colours."""


def scatter_svg(section: MatchSection) -> str:
    """The points of both sides in every dialogue of a match, as SVG text (see `draw_scatter`)."""
    return svg((4.2, 4.2), f"Points of both sides, {section.name}", lambda axes: draw_scatter(axes, section.dialogues))


def curve_svg(curve: Curve) -> str:
    """A training curve as SVG text."""
    return svg((5.4, 3.2), f"{curve.title}, {curve.y_label} per {curve.x_label}", lambda axes: draw_curve(axes, curve))


def budget_svg(title: str, x_label: str, series: Mapping[str, Points], y_label: str = "adversary's points ahead") -> str:
    """What attacks gain within a budget, as SVG text (see `draw_budget`)."""
    return svg((5.4, 3.2), title, lambda axes: draw_budget(axes, x_label, series, y_label))


def words_svg(title: str, words: Sequence[str], log_probabilities: Sequence[float], threshold: float | None) -> str:
    """How likely each word of a sentence is, as SVG text (see `draw_words`)."""
    return svg((5.4, 3.2), title, lambda axes: draw_words(axes, words, log_probabilities, threshold))


def strategies_svg(title: str, x_label: str, names: Sequence[str], series: Mapping[str, Mapping[str, Estimate]]) -> str:
    """Shares by strategy as SVG text (see `draw_dots`)."""
    height = 1.2 + 0.2 * len(names) * (1 + len(series))
    return svg((5.4, height), title, lambda axes: draw_dots(axes, x_label, names, series, 100.0))


def write_picture(data: ReportData, path: Path) -> Path:
    """Writes one PNG for a README or a slide: what each attack of a table gains, or the first two matches and the last curve.

    Args:
        data: a report with a table of attacks, or at least one match or curve.
        path: the file to write.

    Returns:
        The path written.

    Raises:
        RunError: the report holds neither dialogues nor curves, or the file cannot be written.
    """
    attacks = [section for section in data.sections if not section.large and "advantage" in section.metrics]
    if len(attacks) > 1:
        return _save(path, (6.2, 1.6 + 0.45 * len(attacks)), lambda figure: _draw_attacks(figure, attacks))
    matches = [section for section in data.sections if section.dialogues][:2]
    curves = list(data.curves)[-1:]
    if not matches and not curves:
        raise RunError("there is nothing to draw", where=data.title, fix="draw a run that holds dialogues or training events")
    widths = [3.7] * len(matches) + [4.9] * len(curves)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        for axes, section in zip(panels, matches, strict=False):
            draw_scatter(axes, section.dialogues)
            axes.set_title(short(section.name))
        for axes, curve in zip(panels[len(matches) :], curves, strict=True):
            draw_curve(axes, curve)
            axes.set_title(f"training: {curve.title.rpartition(': ')[2]}")
        if matches:
            figure.legend(handles=_legend(), loc="outside lower left", ncols=4, handletextpad=0.3, columnspacing=1.4)

    return _save(path, (sum(widths), 4.2), draw)


def _draw_attacks(figure: Figure, attacks: Sequence[MatchSection]) -> None:
    axes = figure.subplots()
    series = {
        label: {section.name: section.metrics[metric] for section in attacks if metric in section.metrics}
        for label, metric in (("live", "advantage"), ("end forced", "forced_advantage"))
    }
    draw_dots(axes, "points that the adversary is ahead", [section.name for section in attacks], series)
    axes.axvline(0, color=MUTED, linewidth=0.8, zorder=1)


def _save(path: Path, size: tuple[float, float], draw: Callable[[Figure], None]) -> Path:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained", facecolor=PAPER)
        draw(figure)
        # Without its usual mark of software and date, the same run gives the same bytes.
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, format="png", metadata={"Software": None})
        except OSError as error:
            raise RunError(
                "the picture cannot be written",
                where=display_path(path),
                got=error.strerror,
                fix="name a file that can be written",
            ) from None
    return path


def draw_scatter(axes: Axes, rows: Sequence[Row]) -> None:
    """Draws one bubble per outcome, its area the number of dialogues, the Pareto optimal deals as the core of the bubble.

    Points are whole numbers, so single dots would hide each other; the mean of all dialogues is a cross.

    Args:
        axes: where to draw.
        rows: finished dialogues, at least one.
    """
    points = [(int(row["points_adversary"]), int(row["points_target"])) for row in rows]
    layers = {
        DEALS: Counter(point for point, row in zip(points, rows, strict=True) if row["agreed"]),
        PARETO: Counter(point for point, row in zip(points, rows, strict=True) if row["pareto"]),
        NO_DEAL: Counter(point for point, row in zip(points, rows, strict=True) if not row["agreed"]),
    }
    scale = _LARGEST_BUBBLE / max(count for counts in layers.values() for count in counts.values())
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.plot([0, _TOTAL], [0, _TOTAL], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for order, (colour, counts) in enumerate(layers.items(), start=2):
        cells = sorted(counts)
        if cells:
            x, y = np.array(cells).T
            sizes = [scale * counts[cell] for cell in cells]
            axes.scatter(x, y, s=sizes, color=colour, edgecolors=PAPER, linewidths=0.8, zorder=order)
    mean_x, mean_y = np.mean(points, axis=0)
    for colour, width, size in ((PAPER, 4.5, 13), (INK, 2.0, 11)):
        axes.plot(mean_x, mean_y, marker="+", markersize=size, markeredgewidth=width, color=colour, zorder=5)
    axes.set(xlim=(-1, _TOTAL + 1), ylim=(-1, _TOTAL + 1), xticks=range(0, 11, 2), yticks=range(0, 11, 2), aspect="equal")
    axes.set(xlabel="points of the adversary", ylabel="points of the target")


def draw_curve(axes: Axes, curve: Curve) -> None:
    """Draws every series of a curve, its 95 % interval as a band where there is one.

    A smoothed one is drawn as faint points with its moving average in front.

    Args:
        axes: where to draw.
        curve: at least one series; a value that is not finite leaves a gap.
    """
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    for (name, points), colour in zip(curve.series.items(), itertools.cycle(SERIES)):
        steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
        marker = "o" if len(steps) <= 40 and not curve.smoothed else None
        if curve.smoothed:
            axes.plot(steps, values, color=colour, alpha=0.28, linewidth=1.0)
            values = moving_average(values)
        axes.plot(steps, values, color=colour, linewidth=1.9, marker=marker, markersize=3.2, label=short(name))
        if name in curve.bands:
            at, low, high = np.array(curve.bands[name], dtype=np.float64).reshape(-1, 3).T
            axes.fill_between(at, low, high, color=colour, alpha=0.16, linewidth=0)
    axes.set(xlabel=short(curve.x_label), ylabel=short(curve.y_label))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.02)
    if len(curve.series) > 1:
        axes.legend()


def draw_budget(axes: Axes, x_label: str, series: Mapping[str, Points], y_label: str) -> None:
    """Draws a mean against a budget with its 95 % interval as a band; budgets in the hundreds on a logarithmic axis.

    Args:
        axes: where to draw.
        x_label: the budget.
        series: points by name, each in the order of its budgets.
        y_label: the quantity.
    """
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    for (name, points), (line, colour) in zip(series.items(), itertools.cycle(itertools.product(_LINES, SERIES))):
        budgets = [budget for budget, _ in points]
        low, value, high = np.array([[each.low, each.value, each.high] for _, each in points]).T
        axes.fill_between(budgets, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(budgets, value, color=colour, linestyle=line, linewidth=1.9, marker="o", markersize=3.6, label=short(name))
    ticks = sorted({budget for points in series.values() for budget, _ in points})
    if ticks[-1] >= _MANY and ticks[0] > 0:
        axes.set_xscale("log", base=2)
    axes.set_xticks(ticks[:: math.ceil(len(ticks) / _MOST_TICKS)], minor=False)
    axes.xaxis.set_major_formatter(lambda budget, _: f"{budget:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=short(x_label), ylabel=short(y_label))
    axes.margins(x=0.04)
    if len(series) > 1:
        axes.legend()


def draw_words(axes: Axes, words: Sequence[str], log_probabilities: Sequence[float], threshold: float | None) -> None:
    """Draws the log-probability of each word of a sentence, and as a dashed line what a usual word has.

    Args:
        axes: where to draw.
        words: the sentence.
        log_probabilities: nats of each.
        threshold: nats of a usual word; None draws no line.
    """
    axes.grid(True, axis="y")
    axes.set_axisbelow(True)
    axes.plot(range(len(words)), log_probabilities, color=SERIES[0], linewidth=1.9, marker="o", markersize=3.6)
    if threshold is not None:
        axes.axhline(threshold, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xticks(range(len(words)), [short(word) for word in words], rotation=30, ha="right")
    axes.set(ylabel="log probability in nats")
    axes.margins(x=0.06)


def draw_dots(
    axes: Axes, x_label: str, names: Sequence[str], series: Mapping[str, Mapping[str, Estimate]], unit: float = 1.0
) -> None:
    """Draws estimates as dots with their 95 % intervals: one row per strategy or attack, the dots of its series in lanes.

    Args:
        axes: where to draw.
        x_label: the quantity.
        names: the rows, from top to bottom.
        series: an estimate by row, by the name of the series; an empty one keeps its colour from the others.
        unit: what figures are multiplied by; 100 for shares in percent.
    """
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    drawn = [label for label, points in series.items() if points]
    lanes = dict(zip(drawn, np.linspace(-0.3, 0.3, len(drawn)) if len(drawn) > 1 else [0.0], strict=True))
    for (label, points), (line, colour) in zip(series.items(), itertools.cycle(itertools.product(_LINES, SERIES))):
        if not points:
            continue
        lane = lanes[label]
        places = [names.index(name) + lane for name in points]
        low, value, high = unit * np.array([[each.low, each.value, each.high] for each in points.values()]).T
        axes.hlines(places, low, high, color=colour, linewidth=1.9, linestyle=line)
        axes.plot(value, places, color=colour, marker="o", linestyle="", markersize=4.2, label=short(label))
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set(xlabel=x_label)
    axes.figure.legend(loc="outside upper left", ncols=2, handletextpad=0.3, columnspacing=1.4)


def moving_average(values: np.ndarray, share: float = 0.1) -> np.ndarray:
    """A centred mean over about a tenth of the steps, over fewer near the ends.

    Args:
        values: (n,) float; values that are not finite are left out of the means.
        share: width of the window as a part of n, in (0, 1].

    Returns:
        (n,) float64; NaN where no value of the window is finite.
    """
    half = max(1, round(len(values) * share / 2))
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    start = np.maximum(np.arange(len(values)) - half, 0)
    stop = np.minimum(np.arange(len(values)) + half + 1, len(values))
    with np.errstate(invalid="ignore"):
        return (sums[stop] - sums[start]) / (counts[stop] - counts[start])


def short(label: str) -> str:
    """A label as axes and legends have room for: long ones without their middle, because what tells runs apart ends them."""
    # A longer one would leave no room for the axes.
    half = _LONGEST_LABEL // 2
    return label if len(label) <= _LONGEST_LABEL else f"{label[: half - 1]}\N{HORIZONTAL ELLIPSIS}{label[-half:]}"


def _legend() -> list[Line2D]:
    names = {DEALS: "deals", PARETO: "of them Pareto optimal", NO_DEAL: "no deal"}
    dots = [Line2D([], [], linestyle="", marker="o", markersize=8, color=colour, label=name) for colour, name in names.items()]
    return [*dots, Line2D([], [], linestyle="", marker="+", markersize=9, markeredgewidth=2, color=INK, label="mean")]


def svg(size: tuple[float, float], label: str, draw: Callable[[Axes], None]) -> str:
    """A drawing as SVG text in the colours of the page.

    Args:
        size: width and height in inches.
        label: what it shows, for those who cannot see it.
        draw: draws it.
    """
    # The salt names clip paths and markers: different figures on one page must not share those names.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": label}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    view = text.split('viewBox="', 1)[1].split('"', 1)[0]
    # The first <defs> is a style rule for everything on the page; names of groups would repeat from figure to figure.
    body = text.split("</defs>", 1)[1].replace("xlink:href=", "href=")
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    return f'<svg role="img" aria-label="{html.escape(label)}" viewBox="{view}">{body.strip()}'
