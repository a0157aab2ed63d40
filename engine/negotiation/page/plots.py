"""Figures of negotiations, in the style of the others (`parley.engine.core.page.plots`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from parley.engine.core.page.plots import DULL, GOOD, INK, MUTED, PAPER, TINT, svg
from parley.engine.core.stats.rows import Row
from parley.engine.negotiation.page.sections import domain_of_row

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
