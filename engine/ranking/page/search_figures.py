"""Drawings of attacks on rankers: success against queries, and transfer between rankers as a heat table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from parley.engine.core.page import plots
from parley.engine.core.page.figure import Figure
from parley.engine.ranking.metrics.searched import SUCCESS, TRANSFER, points_of
from parley.engine.ranking.page.sections import ShownSearches
from parley.envs.core.visible import visible

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
    def cell(attacked: str, asked: str) -> tuple[float, str] | None:
        own, others = f"{SUCCESS}{run.budget}.{asked}.{method}", f"{TRANSFER}.{attacked}.{asked}.{method}"
        found = run.known.get(own if attacked == asked else others)
        return (found.value, f"{100 * found.value:.0f} %\nn {found.n:,}") if found is not None and found.n > 0 else None

    caption = (
        f"{run.name}: of the successes on the ranker of the line the share that reach the goal on that of the column; on the "
        "diagonal success itself; n: dialogues"
    )
    title, names = f"Transfer of {visible(method)}", [visible(name) for name in models]
    cells = [[cell(attacked, asked) for asked in models] for attacked in models]
    drawn = plots.heat_svg(f"{run.name}, {title}", names, names, cells, ("shown to", "found on"))
    return Figure(title, caption, Markup(drawn))
