"""Drawings of a report: one style, the drawings that several chapters use, and the verdicts as one picture.

Every figure is drawn once, in the colours of the light page. Its SVG form then replaces each colour by a variable of the page's
style sheet, so the same drawing follows a reader's dark mode. `write_picture` makes a picture for a slide or a README.
"""

from __future__ import annotations

import html
import io
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator

from parley.engine.core.page.content import Chapter, Curve, Figure, Report, verdicts
from parley.engine.core.stats.statistics import Estimate
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible

INK, MUTED, GRID, PAPER = "#1c2430", "#5c6878", "#d8dee6", "#fefefe"
SERIES = ("#b8460e", "#1f5fbf", "#0f7b6c", "#8a3ffc")
"""Colours of series in order; wherever both are shown, the adversary takes the first and the target the second."""
TINT, GOOD, DULL = "#9db4d6", "#0f7b6d", "#b9a6a0"
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PAPER: "--card",
    **{colour: f"--series-{i}" for i, colour in enumerate(SERIES)},
    TINT: "--tint",
    GOOD: "--good",
    DULL: "--dull",
}

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
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
_LONGEST_LABEL = 36
_MANY, _MOST_TICKS = 32, 9
_MANY_LINES = 6
_LINES = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))
"""Lines and marks, which multiply the number of series that the colours keep apart."""
_WIDE = 24
"""Characters of a name from which on a legend has one column."""


def curve(shown: Curve) -> Figure:
    """Return a training curve with every series, and its 95 % interval as a band if it has one.

    A smoothed series is drawn as faint points with its moving average in front. A value that is not finite leaves a gap.
    """

    def draw(axes: Axes) -> None:
        axes.grid(True, axis="y")
        for (name, points), colour in zip(shown.series.items(), itertools.cycle(SERIES)):
            steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
            marker = "o" if len(steps) <= 40 and not shown.smoothed else None
            if shown.smoothed:
                axes.plot(steps, values, color=colour, alpha=0.28, linewidth=1.0)
                values = moving_average(values)
            axes.plot(steps, values, color=colour, linewidth=1.9, marker=marker, markersize=3.2, label=short(name))
            if name in shown.bands:
                at, low, high = np.array(shown.bands[name], dtype=np.float64).reshape(-1, 3).T
                axes.fill_between(at, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.set(xlabel=short(shown.x_label), ylabel=short(shown.y_label))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.02)
        if len(shown.series) > 1:
            axes.legend()

    smoothed = ", moving average in front of the single values" if shown.smoothed else ""
    return Figure(shown.title, f"{shown.y_label} per {shown.x_label}{smoothed}", draw=draw)


def budget(
    title: str,
    caption: str,
    x_label: str,
    series: Mapping[str, Sequence[tuple[float, Estimate]]],
    y_label: str = "adversary's points ahead",
) -> Figure:
    """Return means within a budget with their 95 % intervals, as bands, or as lines where there are many series.

    Budgets in the hundreds have a logarithmic axis. A series over fewer units than `FEW` has a mark in its name.

    Args:
        title: title of the figure.
        caption: its caption.
        x_label: the budget.
        series: points by name, each in the order of its budgets.
        y_label: the quantity.
    """

    def draw(axes: Axes) -> None:
        axes.grid(True, axis="y")
        few = False
        for (name, points), ((line, mark), colour) in zip(series.items(), itertools.cycle(itertools.product(_LINES, SERIES))):
            budgets = [budget for budget, _ in points]
            low, value, high = np.array([[estimate.low, estimate.value, estimate.high] for _, estimate in points]).T
            thin = points[0][1].flagged
            few |= thin
            label = short(name) + (f" (few: n = {points[0][1].n})" if thin else "")
            if len(series) <= len(SERIES):
                axes.fill_between(budgets, low, high, color=colour, alpha=0.16, linewidth=0)
            else:
                axes.vlines(budgets, low, high, color=colour, alpha=0.3, linewidth=0.9)
            axes.plot(budgets, value, color=colour, linestyle=line, linewidth=1.9, marker=mark, markersize=3.6, label=label)
        ticks = sorted({budget for points in series.values() for budget, _ in points})
        if ticks[-1] >= _MANY and ticks[0] > 0:
            axes.set_xscale("log", base=2)
        axes.set_xticks(ticks[:: math.ceil(len(ticks) / _MOST_TICKS)], minor=False)
        axes.xaxis.set_major_formatter(lambda budget, _: f"{budget:,.0f}" if budget >= _MANY else f"{budget:.3g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set(xlabel=short(x_label), ylabel=short(y_label))
        axes.margins(x=0.04)
        if len(series) > len(SERIES):
            _legend_above(axes, series)
        elif len(series) > 1 or few:
            axes.legend()

    return Figure(title, caption, size=(5.4, 3.2 + _legend_height(series) * (len(series) > len(SERIES))), draw=draw)


def _legend_above(axes: Axes, names: Iterable[str]) -> None:
    axes.figure.legend(loc="outside upper left", ncols=_legend_columns(names), handletextpad=0.3, columnspacing=1.4)


def _legend_columns(names: Iterable[str]) -> int:
    return 1 if max(len(short(name)) for name in names) > _WIDE else 2


def _legend_height(names: Collection[str]) -> float:
    return 0.2 * math.ceil(len(names) / _legend_columns(names))


def dots(
    title: str,
    caption: str,
    x_label: str,
    names: Sequence[str],
    series: Mapping[str, Mapping[str, Estimate]],
    unit: float = 1.0,
) -> Figure:
    """Return estimates by row and series (see `draw_dots`)."""
    size = 5.4, 0.8 + 0.2 * len(names) * (1 + len(series)) + _legend_height(series)
    return Figure(title, caption, size=size, draw=lambda axes: draw_dots(axes, x_label, names, series, unit))


def draw_dots(
    axes: Axes, x_label: str, names: Sequence[str], series: Mapping[str, Mapping[str, Estimate]], unit: float = 1.0
) -> None:
    """Draw estimates as dots with their 95 % intervals: one row per strategy or attack, one lane per series.

    Args:
        axes: where to draw.
        x_label: the quantity.
        names: the rows, from top to bottom.
        series: an estimate by row, by the name of the series; an empty series keeps its colour free.
        unit: factor of the figures; 100 for shares in percent.
    """
    axes.grid(True, axis="x")
    drawn = [label for label, points in series.items() if points]
    lanes = dict(zip(drawn, np.linspace(-0.3, 0.3, len(drawn)) if len(drawn) > 1 else [0.0], strict=True))
    for (label, points), ((line, mark), colour) in zip(series.items(), itertools.cycle(itertools.product(_LINES, SERIES))):
        if not points:
            continue
        lane = lanes[label]
        heights = [names.index(name) + lane for name in points]
        low, value, high = unit * np.array([[estimate.low, estimate.value, estimate.high] for estimate in points.values()]).T
        axes.hlines(heights, low, high, color=colour, linewidth=1.9, linestyle=line)
        axes.plot(value, heights, color=colour, marker=mark, linestyle="", markersize=4.2, label=short(label))
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set(xlabel=x_label)
    if len(drawn) > 1:
        _legend_above(axes, drawn)


def heat(
    title: str,
    caption: str,
    lines: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[tuple[float, str] | None]],
    axis_labels: tuple[str, str],
) -> Figure:
    """Return a table of tinted cells with their figures.

    Args:
        title: title of the figure.
        caption: its caption.
        lines: names of the lines, from top to bottom.
        columns: names of the columns.
        cells: a tint from 0 to 1 and the figure, by line and column; None for an empty cell.
        axis_labels: labels of the columns and of the lines.
    """

    def draw(axes: Axes) -> None:
        for row, line in enumerate(cells):
            for column, cell in enumerate(line):
                tint, text = (0.08 + 0.72 * cell[0], cell[1]) if cell else (0.0, "\N{EN DASH}")
                axes.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, color=TINT, alpha=tint, linewidth=0))
                axes.text(column, row, text, ha="center", va="center", color=INK, fontsize=9)
        across, down = ([short(name) for name in names] for names in (columns, lines))
        axes.set_xlim(-0.5, len(across) - 0.5)
        axes.set_ylim(len(down) - 0.5, -0.5)
        axes.set_xticks(range(len(across)), across, rotation=30 if max(map(len, across)) > 9 else 0)
        axes.set_yticks(range(len(down)), down)
        axes.tick_params(length=0)
        axes.set(xlabel=axis_labels[0], ylabel=axis_labels[1])

    size = 2.2 + 0.9 * len(columns), 1.4 + (0.9 if len(lines) < _MANY_LINES else 0.42) * len(lines)
    return Figure(title, caption, size=size, draw=draw)


def drawn(figure: Figure, title: str = "", brief: Callable[[str], str] = str) -> Figure:
    """Return a figure with its drawing as SVG text, and with the name of its run in the caption.

    Args:
        figure: the figure.
        title: title of the page; a run of that name is not named.
        brief: drops the page's title from texts.
    """
    label = ", ".join(filter(None, (figure.run, figure.name)))
    name = brief(figure.name)
    drawing = Markup(svg(figure.size, label, figure.draw)) if figure.draw else Markup("")
    caption = figure.caption
    if figure.run not in ("", title):
        caption = Markup("{}; {}").format(brief(figure.run), caption)
    return replace(figure, name=name[:1].upper() + name[1:], caption=caption, svg=drawing)


def moving_average(values: np.ndarray) -> np.ndarray:
    """Return a centred mean over about a tenth of the steps, over fewer near the ends.

    Args:
        values: (n,) float; values that are not finite are left out of the means.

    Returns:
        (n,) float64; NaN where no value of the window is finite.
    """
    half = max(1, round(len(values) * 0.1 / 2))
    is_finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(is_finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(is_finite)])
    start = np.maximum(np.arange(len(values)) - half, 0)
    stop = np.minimum(np.arange(len(values)) + half + 1, len(values))
    with np.errstate(invalid="ignore"):
        return (sums[stop] - sums[start]) / (counts[stop] - counts[start])


def short(label: str) -> str:
    """Return a label that fits axes and legends: visible, and without its middle if long, because ends tell runs apart."""
    label = visible(label)
    # A longer one would leave no room for the axes.
    half = _LONGEST_LABEL // 2
    return label if len(label) <= _LONGEST_LABEL else f"{label[: half - 1]}\N{HORIZONTAL ELLIPSIS}{label[-half:]}"


def svg(size: tuple[float, float], label: str, draw: Callable[[Axes], None]) -> str:
    """Return a drawing as SVG text in the colours of the page.

    Args:
        size: width and height in inches.
        label: description for readers who cannot see it.
        draw: draws it on axes.
    """
    label = visible(label)
    # The salt names clip paths and markers: different figures on one page must not share those names.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": label}):
        figure = Canvas(figsize=size, layout="constrained", facecolor="none", edgecolor="none")
        axes = figure.subplots()
        axes.patch.set(facecolor="none", edgecolor="none")
        draw(axes)
        buffer = io.StringIO()
        # `savefig` would draw everything twice: the layout is made while a figure is drawn, too.
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    view = text.split('viewBox="', 1)[1].split('"', 1)[0]
    # The first <defs> is a style rule for the whole page, and names of groups would repeat from figure to figure.
    body = text.split("</defs>", 1)[1].replace("xlink:href=", "href=")
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    return f'<svg role="img" aria-label="{html.escape(label)}" viewBox="{view}">{body.strip()}'


SUFFIXES = (".png", ".svg", ".pdf")
_WIDTH, _HEIGHT_OF_LINE, _HEIGHT_OF_MARK = 8.4, 0.19, 0.24
_CHARACTERS = 96


def require_suffix(path: str | Path) -> None:
    """Raise an error unless a picture of this name can be drawn; called before any work.

    Raises:
        ConfigError: the name has none of `SUFFIXES`.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        fix = f"name a file that ends in {', '.join(SUFFIXES)}"
        raise ConfigError("a picture of that kind cannot be drawn", where="--picture", got=suffix or path, fix=fix)


def write_picture(report: Report, chapters: Sequence[Chapter], path: Path) -> Path:
    """Write the verdicts of a report, each with its estimates, in the format of the file's suffix.

    Args:
        report: a report with at least one verdict.
        chapters: the chapters that have collected it.
        path: the file to write.

    Returns:
        The written path.

    Raises:
        ConfigError: the file has none of `SUFFIXES`.
        RunError: the report holds no verdict, or the file cannot be written.
    """
    require_suffix(path)
    shown = [verdict for _, verdict in verdicts(report, chapters)]
    if not shown:
        raise RunError("there is nothing to draw", where=report.title, fix="draw a run that has measured something")
    texts = [textwrap.wrap(visible(verdict.sentence), _CHARACTERS) for verdict in shown]
    heights = [
        _HEIGHT_OF_LINE * len(text) + _HEIGHT_OF_MARK * len(verdict.marks) + 0.75
        for text, verdict in zip(texts, shown, strict=True)
    ]
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": report.title}):
        figure = Canvas(figsize=(_WIDTH, sum(heights)), layout="constrained", facecolor=PAPER)
        parts = figure.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, text, verdict in zip(parts, texts, shown, strict=True):
            part.suptitle("\n".join(text), x=0.01, horizontalalignment="left", fontsize=9.5, fontweight="bold", color=INK)
            axes, kind = part.subplots(), verdict.metric.title.lower()
            kind, unit = (f"{kind} in %", 100.0) if verdict.metric.form == "share" else (kind, 1.0)
            draw_dots(axes, kind, list(verdict.marks), {"": verdict.marks}, unit)
            labels = [f"{visible(name)} (n = {mark.n:,}{', few' * mark.flagged})" for name, mark in verdict.marks.items()]
            axes.set_yticks(range(len(labels)), labels)
            axes.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
        # Without the usual marks of software and date, the same run gives the same bytes.
        kind = path.suffix.lower().removeprefix(".")
        no_metadata: dict[str, Any] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}.get(kind, {"Date": None})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, format=kind, metadata=no_metadata)
        except OSError as error:
            fix = "name a file that can be written"
            raise RunError("the picture cannot be written", where=display_path(path), got=error.strerror, fix=fix) from None
    return path
