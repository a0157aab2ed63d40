"""Drawings of evaluations of rankers: first places by rule, by shared words (figure 1), and ranks before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from parley.engine.core.page import plots
from parley.engine.core.page.figure import Figure
from parley.engine.core.stats.statistics import Estimate
from parley.engine.ranking.metrics.movement import rank_movement
from parley.engine.ranking.metrics.overlap import Bin, figure_1
from parley.engine.ranking.metrics.ranking import CLEAN, RankedRows, metric_of
from parley.engine.ranking.page.sections import ShownRanking
from parley.envs.core.visible import visible
from parley.envs.ranking.groups import CandidateGroup, CandidateKind

_MOST_RANKERS = 4
"""Rankers of a drawing: as many as there are colours."""
_LARGEST = 420.0
"""Area of a dot that stands for all replies of a row, in square points."""


def figures_of(evaluation: ShownRanking) -> list[Figure]:
    """All drawings of an evaluation."""
    shown = [ranker for ranker in evaluation.rankers if (ranker, CLEAN) in evaluation.ranked.scores][:_MOST_RANKERS]
    if not shown:
        return []
    found = [_by_rule(evaluation, shown), *_by_overlap(evaluation, shown), *_by_words(evaluation, shown)]
    return found + [_movement(evaluation, shown[0], rule) for rule in evaluation.ranked.rules]


def _by_rule(evaluation: ShownRanking, rankers: Sequence[str]) -> Figure:
    situations = {CLEAN: True, **evaluation.ranked.rules}
    series: dict[str, dict[str, Estimate]] = {visible(ranker): {} for ranker in rankers}
    for ranker in rankers:
        for rule, keeps in situations.items():
            measured = evaluation.metrics.get(f"{metric_of(evaluation.first, keeps)}.{ranker}.{rule}")
            if measured is not None and measured.n:
                series[visible(ranker)][visible(rule)] = measured
    others = [visible(rule) for rule, keeps in evaluation.ranked.rules.items() if not keeps]
    caption = f"{evaluation.name}, contexts that the rule changed; bars are 95 % intervals"
    caption += f"; under {', '.join(others)} what is left of the right reply" if others else ""
    drawn = plots.dots_svg(f"{evaluation.name}, first places", "% of contexts", list(map(visible, situations)), series, 100.0)
    return Figure("Right replies in the first place", caption, Markup(drawn))


def _by_overlap(evaluation: ShownRanking, rankers: Sequence[str]) -> list[Figure]:
    """Figure 1: first places on clean candidates by alpha, and by beta."""
    groups = _groups(evaluation.ranked)
    dialogues = {str(number): dialogue for number, dialogue in evaluation.ranked.clusters.items()}
    found: list[dict[str, list[Bin]]] = [{}, {}]
    for ranker in rankers:
        metrics = evaluation.ranked.measured(ranker, CLEAN)
        bins = figure_1(groups, replace(metrics, keys=metrics.keys.astype(str)), evaluation.first, dialogues)
        for series, of_ranker in zip(found, bins, strict=True):
            series[visible(ranker)] = of_ranker
    told = {
        "alpha": "words that context and right reply share, of the fewer of the two",
        "beta": "words that context and a wrong reply share, at most, by those of the right reply",
    }
    return [
        Figure(
            f"First places by {name}",
            f"{evaluation.name}, candidates as they are; {name}: {what}; bars are 95 % intervals",
            Markup(_binned_svg(f"{evaluation.name}, by {name}", series)),
        )
        for (name, what), series in zip(told.items(), found, strict=True)
    ]


def _binned_svg(title: str, series: Mapping[str, Sequence[Bin]]) -> str:
    first = next(iter(series.values()))
    names = [f"{each.low:g} or more" if np.isinf(each.high) else f"{each.low:g} to {each.high:g}" for each in first]
    drawn: dict[str, dict[str, Estimate]] = {
        label: {name: each.estimate for name, each in zip(names, bins, strict=True) if each.estimate.n}
        for label, bins in series.items()
    }
    return plots.dots_svg(title, "% of contexts", names, drawn, 100.0)


def _by_words(evaluation: ShownRanking, rankers: Sequence[str]) -> list[Figure]:
    """Figure 2: first places when only the most important words of right replies stay, by those with whole replies."""
    found = {visible(ranker): evaluation.ranked.kept_points(ranker) for ranker in rankers}
    series = {label: [(point.k, point.relative) for point in points] for label, points in found.items() if points}
    series = {label: points for label, points in series.items() if points[0][1].n}
    if not series:
        return []
    caption = (
        f"{evaluation.name}, candidates as they are; right replies of which only the words stay whose erasure costs most; "
        "1 is as often first as with whole replies; bands are 95 % intervals"
    )
    title = f"{evaluation.name}, first places by words that stay"
    drawn = plots.budget_svg(title, "words that stay", series, "relative to whole replies")
    return [Figure("First places with a few words alone", caption, Markup(drawn))]


def _groups(ranked: RankedRows) -> list[CandidateGroup]:
    return [
        CandidateGroup(
            str(number),
            tuple(tuple(turn.split()) for turn in row["context"]),
            tuple(tuple(text.split()) for text in row["candidates"]),
            tuple(row["labels"]),
            tuple(map(CandidateKind, row["kinds"])),
            (True,) * len(row["labels"]),
        )
        for number, row in enumerate(ranked.rows)
    ]


def _movement(evaluation: ShownRanking, ranker: str, rule: str) -> Figure:
    moved = rank_movement(evaluation.ranked, ranker, rule)
    title = f"{evaluation.name}, ranks under {visible(rule)}"
    caption = f"{evaluation.name}, {visible(ranker)}: {moved.sum():,} changed replies; areas are shares of a rank before"
    drawn = plots.svg((3.6, 3.4), title, lambda axes: draw_movement(axes, moved))
    return Figure(f"Ranks before and after {visible(rule)}", caption, Markup(drawn))


def draw_movement(axes: Axes, moved: np.ndarray) -> None:
    """Draws how many replies went from each rank to each other one, as dots; those on the line stayed.

    Args:
        axes: where to draw.
        moved: (n, n) counts by rank before and after.
    """
    size = len(moved)
    shares = moved / np.maximum(moved.sum(axis=1, keepdims=True), 1)
    before, after = np.nonzero(moved)
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.plot([1, size], [1, size], color=plots.MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.scatter(after + 1, before + 1, s=_LARGEST * shares[before, after], color=plots.SERIES[1], linewidths=0)
    axes.set_xlim(0.4, size + 0.6)
    axes.set_ylim(size + 0.6, 0.4)
    axes.set_xticks(range(1, size + 1))
    axes.set_yticks(range(1, size + 1))
    axes.set(xlabel="rank after", ylabel="rank before")
