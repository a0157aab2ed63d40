"""Drawings of attacks on rankers: success against queries, and transfer between rankers as a heat table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from engine.metrics.retrieval.searched import SUCCESS, TRANSFER, points_of
from engine.metrics.statistics import Estimate
from engine.report import plots
from engine.report.figure import Figure
from engine.report.retrieval.searches import ShownSearches
from envs.core.visible import visible

_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Numbers of queries at which a curve is drawn."""


def search_figures(run: ShownSearches) -> list[Figure]:
    """All drawings of a run: a curve for each ranker, and a heat table for each method where there are several rankers."""
    models = run.searched.models
    methods = list(dict.fromkeys(method for _, method in run.searched.searches))
    found = [_curves(run, model) for model in models]
    return found + ([_heat(run, method, models) for method in methods] if len(models) > 1 else [])


def _curves(run: ShownSearches, model: str) -> Figure:
    steps = sorted({*points_of(run.budget), *(step for step in _STEPS if step < run.budget)})
    # Those that all rankers meet come first, so that a method has one colour in all drawings.
    met = Counter(method for _, method in run.searched.searches)
    methods = sorted((method for of, method in run.searched.searches if of == model), key=lambda method: -met[method])
    curves = {visible(method): run.searched.curve(model, method, steps) for method in methods}
    series = {label: points for label, points in curves.items() if points[0][1].n}
    title = f"{run.name}, {visible(model)}"
    caption = f"{run.name}: {run.goal}; share of the attacked contexts; bands are 95 % intervals; a rule makes one query"
    drawn = plots.budget_svg(f"{title}, success", "queries at most", series, "goal reached") if series else ""
    return Figure(f"Success against queries, {visible(model)}", caption, Markup(drawn))


def _heat(run: ShownSearches, method: str, models: Sequence[str]) -> Figure:
    cells = {
        (attacked, asked): run.known.get(
            f"{SUCCESS}{run.budget}.{asked}.{method}" if attacked == asked else f"{TRANSFER}.{attacked}.{asked}.{method}"
        )
        for attacked in models
        for asked in models
    }
    caption = (
        f"{run.name}: of the successes on the ranker of the line the share that reach the goal on that of the column; on the "
        "diagonal success itself; n: dialogues"
    )
    side = 1.4 + 0.9 * len(models)
    title = f"Transfer of {visible(method)}"
    drawn = plots.svg((side + 0.8, side), f"{run.name}, {title}", lambda axes: draw_heat(axes, models, cells))
    return Figure(title, caption, Markup(drawn))


def draw_heat(axes: Axes, names: Sequence[str], cells: Mapping[tuple[str, str], Estimate | None]) -> None:
    """Draws shares as a table of tinted cells with their numbers.

    Args:
        axes: where to draw.
        names: of lines and columns.
        cells: share by line and column; none where there is none.
    """
    for row, line in enumerate(names):
        for column, other in enumerate(names):
            found = cells[line, other]
            known = found is not None and found.n > 0
            shade = 0.08 + 0.72 * found.value if found is not None and known else 0.0
            axes.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, color=plots.TINT, alpha=shade, linewidth=0))
            text = f"{100 * found.value:.0f} %\nn {found.n:,}" if found is not None and known else "\N{EN DASH}"
            axes.text(column, row, text, ha="center", va="center", color=plots.INK, fontsize=9)
    shown = [plots.short(visible(name)) for name in names]
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xticks(range(len(names)), shown, rotation=30 if max(map(len, shown)) > 9 else 0)
    axes.set_yticks(range(len(names)), shown)
    axes.tick_params(length=0)
    axes.set(xlabel="shown to", ylabel="found on")
