"""Drawings of judges (AdverSuc, and how far scores are probabilities), and of trainings by quality and diversity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from markupsafe import Markup
from matplotlib.axes import Axes

from parley.engine.core.page import plots
from parley.engine.core.page.figure import Figure
from parley.engine.core.stats.statistics import Estimate
from parley.engine.generation.metrics.adversarial import JudgedScores
from parley.engine.generation.metrics.scenarios import ADVERSUC, RANDOM
from parley.engine.generation.metrics.tables import AskedJudges
from parley.engine.generation.metrics.trained import (
    AT,
    BLIND,
    CONTROLS,
    LESS,
    METHODS,
    OVERLAP,
    PEOPLE,
    PERPLEXITY,
    QUALITY,
    SAMPLED,
    SELF_BLEU,
)
from parley.engine.generation.metrics.variety import DISTINCT_2
from parley.envs.core.visible import visible

_LARGEST = 160.0
"""Area of a dot that stands for all pairs, in square points."""
_LABEL = (70.0, 11.0)
"""Width and height that a row's name takes, in pixels."""


def figures_of(
    metrics: Mapping[str, Estimate], asked: AskedJudges, scored: Mapping[tuple[str, str], JudgedScores]
) -> list[Figure]:
    """AdverSuc beside machine-vs-random, and the calibration of each judge that was named, system by system."""
    found = []
    for system in asked.systems:
        series = {
            title: {
                visible(judge): estimate
                for judge in asked.all_judges
                if (estimate := metrics.get(f"{kind}.{judge}.{system}")) is not None and estimate.n
            }
            for title, kind in (("AdverSuc", ADVERSUC), ("machine-vs-random", RANDOM))
        }
        names = list(map(visible, asked.all_judges))
        drawn = plots.dots_svg(f"{visible(system)}, AdverSuc", "% of pairs", names, series, 100.0)
        caption = f"{visible(system)}: AdverSuc and machine-vs-random by judge; bars are 95 % intervals"
        found.append(Figure("AdverSuc by judge", caption, Markup(drawn)))
        known = {visible(judge): scored[key] for judge in asked.judges if (key := (f"{ADVERSUC}.{system}", judge)) in scored}
        if known:
            caption = f"{visible(system)}: share of people's replies by the told probability, 1 / (1 + exp(-score))"
            found.append(Figure("Calibration of the judges", caption, Markup(_calibration(visible(system), known))))
    return found


def quality_figures(metrics: Mapping[str, Estimate]) -> list[Figure]:
    """Rows of a table of trainings by diversity and quality, with the start at rising temperatures as a line."""
    found = []
    names = list(dict.fromkeys(name.rpartition(".")[0] for name in metrics if LESS not in name))
    for x_name, y_name in ((DISTINCT_2, PERPLEXITY), (SELF_BLEU, OVERLAP)):
        points = {
            row: (metrics[x].value, metrics[y].value)
            for row in names
            if (x := f"{row}.{x_name}") in metrics and (y := f"{row}.{y_name}") in metrics
        }
        if points:
            x_title, y_title = (QUALITY[name].title for name in (x_name, y_name))
            svg = plots.svg((5.4, 3.8), f"{y_title} by {x_title}", partial(_draw_quality, points, x_title, y_title))
            caption = (
                f"{y_title} by {x_title}; the line is the start, sampled at rising temperatures; named where there is room"
            )
            found.append(Figure("Quality and diversity", caption, Markup(svg)))
    return found


def _draw_quality(points: Mapping[str, tuple[float, float]], x_title: str, y_title: str, axes: Axes) -> None:
    axes.grid(True)
    axes.set_axisbelow(True)
    warmth = {row: 1.0 if row == "sample" else float(row.removeprefix(AT)) for row in points if row.startswith(("sample", AT))}
    line = [points[row] for row in sorted(warmth, key=lambda row: warmth[row])]
    if line:
        axes.plot(*zip(*line, strict=True), color="0.6", linewidth=1.4, marker=".", zorder=1)
    kinds: dict[str, list[str]] = {"the start": [*warmth], "controls": [], "trained": [], "people": []}
    for row in (row for row in points if row not in warmth):
        kinds[_kind(row)].append(row)
    for (kind, rows), colour in zip(kinds.items(), plots.SERIES, strict=False):
        if rows:
            axes.plot(*zip(*(points[row] for row in rows), strict=True), "o", color=colour, markersize=5, label=kind, zorder=2)
    axes.set(xlabel=x_title, ylabel=y_title)
    if y_title == QUALITY[PERPLEXITY].title:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.margins(0.12)
    axes.legend(fontsize=7)
    axes.autoscale_view()
    taken: list[tuple[float, float]] = []
    for row in (row for kind in ("the start", "people", "trained", "controls") for row in kinds[kind]):
        x, y = axes.transData.transform(points[row])
        # Rows that lie on each other would hide what they are; the table has all of them.
        if not any(abs(x - other_x) < _LABEL[0] and abs(y - other_y) < _LABEL[1] for other_x, other_y in taken):
            axes.annotate(visible(row), points[row], xytext=(4, 3), textcoords="offset points", fontsize=7)
            taken.append((x, y))


def _kind(row: str) -> str:
    """Of a row's dot, in words of the key."""
    known = row.removesuffix(SAMPLED)
    if known in METHODS:
        return "trained"
    if known in (*CONTROLS, BLIND):
        return "controls"
    return "people" if row == PEOPLE else "the start"


def _calibration(system: str, judged: Mapping[str, JudgedScores]) -> str:
    def draw(axes: Axes) -> None:
        axes.grid(True)
        axes.set_axisbelow(True)
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1.0)
        for judge, scored in judged.items():
            bins: Sequence[tuple[float, float, int]] = scored.calibration()
            told, share, sizes = zip(*bins, strict=True)
            areas = [10 + _LARGEST * size / len(scored.labels) for size in sizes]
            axes.scatter(told, share, s=areas, alpha=0.7, label=plots.short(judge))
        axes.set(xlabel="told probability of a person", ylabel="share of people's", xlim=(0, 1), ylim=(0, 1))
        axes.legend()

    return plots.svg((4.2, 3.6), f"{system}, calibration", draw)
