"""Drawings of an adversarial evaluation: AdverSuc by judge, and how far scores are probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes

from engine.metrics.generation.adversarial import JudgedScores
from engine.metrics.generation.scenarios import ADVERSUC, RANDOM
from engine.metrics.generation.tables import AskedJudges
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
