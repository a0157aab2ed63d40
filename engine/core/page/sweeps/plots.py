"""Figures of sweeps, in the style of the others (`plots.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from parley.engine.core.page.plots import GRID, INK, MUTED, SERIES, short, svg
from parley.engine.core.page.sweeps.sections import ShownSweep

Value = str | float


def best_svg(title: str, y_label: str, points: Sequence[tuple[int, float, float]]) -> str:
    """Values of trials as dots, the best so far as steps, as SVG text."""

    def draw(axes: Axes) -> None:
        axes.grid(True, axis="y")
        axes.set_axisbelow(True)
        numbers, values, best = np.array(points, dtype=np.float64).reshape(-1, 3).T
        axes.plot(numbers, values, color=MUTED, marker="o", markersize=3.6, linestyle="")
        axes.step(numbers, best, color=SERIES[0], linewidth=1.9, where="post")
        axes.set(xlabel="trial", ylabel=short(y_label))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return svg((5.4, 3.2), title, draw)


def parallel_svg(title: str, section: ShownSweep) -> str:
    """Trials as lines through their settings and their value, as SVG text; each axis goes from its least to its largest."""
    keys = list(section.trials[0].parameters)
    # Drawn from the last to the best.
    trials = section.ranked()[::-1]
    columns: list[list[Value]] = [[trial.parameters[key] for trial in trials] for key in keys]
    columns.append([trial.value.value for trial in trials])
    places = [_places(column) for column in columns]

    def draw(axes: Axes) -> None:
        for i, trial in enumerate(trials):
            best, whole = i == len(trials) - 1, trial.whole
            colour = SERIES[0] if best else SERIES[1]
            line = [column[i] for column in places]
            axes.plot(line, color=colour, linewidth=2.2 if best else 1.2, alpha=1.0 if best else 0.6 if whole else 0.2)
        for at, (column, place) in enumerate(zip(columns, places, strict=True)):
            axes.axvline(at, color=GRID, linewidth=1.0, zorder=0)
            ends = {p: value for value, p in zip(column, place, strict=True)}
            shown = ends if isinstance(column[0], str) else {p: ends[p] for p in (min(ends), max(ends))}
            for height, value in shown.items():
                text = short(value) if isinstance(value, str) else f"{value:.3g}"
                axes.annotate(text, (at, height), color=INK, fontsize=8, xytext=(3, 3), textcoords="offset points")
        names = [short(key.rpartition(".")[2]) for key in keys]
        axes.set_xticks(range(len(columns)), [*names, "value"], rotation=20, ha="right")
        axes.set_yticks([])
        axes.margins(x=0.08, y=0.08)

    return svg((7.2, 3.6), title, draw)


def importance_svg(title: str, shares: Mapping[str, float]) -> str:
    """How much each setting matters as bars from 0, as SVG text; negative ones lower what is measured."""

    def draw(axes: Axes) -> None:
        axes.grid(True, axis="x")
        axes.set_axisbelow(True)
        bars = axes.barh(range(len(shares)), list(shares.values()), color=SERIES[1], height=0.5)
        axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize="small")
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_yticks(range(len(shares)), [short(key) for key in shares])
        axes.set(xlim=(-1.25, 1.25), ylim=(len(shares) - 0.5, -0.5), xlabel="rank correlation")

    return svg((5.4, 1.2 + 0.3 * len(shares)), title, draw)


def _places(values: Sequence[Value]) -> list[float]:
    """Where values stand on an axis from 0 to 1; words in the order of the alphabet, a single value in the middle."""
    numbers = [sorted(set(map(str, values))).index(str(value)) if isinstance(value, str) else value for value in values]
    low, high = min(numbers), max(numbers)
    return [0.5 if low == high else (number - low) / (high - low) for number in numbers]
