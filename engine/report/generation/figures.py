"""Drawings of judges (AdverSuc, and how far scores are probabilities), and of trainings by quality and diversity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from markupsafe import Markup
from matplotlib.axes import Axes

from engine.metrics.generation.adversarial import JudgedScores
from engine.metrics.generation.scenarios import ADVERSUC, RANDOM
from engine.metrics.generation.tables import AskedJudges
from engine.metrics.generation.trained import (
    AT,
    LESS,
    METHODS,
    OVERLAP,
    PEOPLE,
    PERPLEXITY,
    QUALITY,
    SAMPLED,
    SELF_BLEU,
)
from engine.metrics.generation.variety import DISTINCT_2
from engine.metrics.statistics import Estimate
from engine.report import plots
from engine.report.figure import Figure
from envs.core.visible import visible

_LARGEST = 160.0
"""Area of a dot that stands for all pairs, in square points."""


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
            caption = f"{y_title} by {x_title}; the line is the start, sampled at rising temperatures"
            found.append(Figure("Quality and diversity", caption, Markup(svg)))
    return found


def _draw_quality(points: Mapping[str, tuple[float, float]], x_title: str, y_title: str, axes: Axes) -> None:
    axes.grid(True)
    axes.set_axisbelow(True)
    warmth = {row: 1.0 if row == "sample" else float(row.removeprefix(AT)) for row in points if row.startswith(("sample", AT))}
    line = [points[row] for row in sorted(warmth, key=lambda row: warmth[row])]
    if line:
        axes.plot(*zip(*line, strict=True), color="0.6", linewidth=1.4, marker=".", zorder=1)
    for row, (x, y) in points.items():
        kind = "people" if row == PEOPLE else "trained" if row.removesuffix(SAMPLED) in METHODS else "other"
        colour = plots.SERIES[("other", "trained", "people").index(kind)]
        axes.plot([x], [y], color=colour, marker="o", markersize=5, linestyle="", zorder=2)
        axes.annotate(visible(row), (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
    axes.set(xlabel=x_title, ylabel=y_title)
    axes.margins(0.12)


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
