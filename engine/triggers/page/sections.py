"""The data of the chapter of triggers: searches, tables of several, and figures in the style of the page's plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes

from parley.engine.core.page.content import ShownRun
from parley.engine.core.page.plots import MUTED, SERIES, short, svg
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.triggers.metrics.hits import HIT_RATE
from parley.engine.triggers.page.typed import ShownTyped


def words_svg(title: str, words: Sequence[str], log_probabilities: Sequence[float], threshold: float | None) -> str:
    """Return the log-probability of each word of a sentence as SVG text (see `draw_words`)."""
    return svg((5.4, 3.2), title, lambda axes: draw_words(axes, words, log_probabilities, threshold))


def draw_words(axes: Axes, words: Sequence[str], log_probabilities: Sequence[float], threshold: float | None) -> None:
    """Draw the log-probability of each word of a sentence, and as a dashed line that of a usual word.

    Args:
        axes: the axes to draw on.
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


@dataclass(frozen=True, kw_only=True)
class ShownSearch(ShownRun):
    """One trigger search; its items are targets.

    Args:
        targets: the list of sentences that was searched for.
        hit: the type of hit that was searched for.
        thresholds: log probabilities of usual words, in nats, by name.
        skipped: sentences that no target could be made of, each with the reason.
        candidates: inputs tried at each visit.
        alike: equal for searches that differ in `candidates` alone.
    """

    unit = "targets"
    targets: str = ""
    hit: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    skipped: Sequence[tuple[str, str]] = ()
    candidates: int = 0
    alike: str = ""

    @property
    def rate(self) -> Estimate:
        """Return the share of targets that are hits as wanted."""
        return self.metrics.get(f"{HIT_RATE}{self.hit}", NOTHING)


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """The searches and tables of a page.

    Args:
        searches: one by one.
        tables: of several.
        others: runs that are shown by their metrics alone.
        typed: runs that type inputs to chat models.
        compared: the description of a successful reply, and the share of targets with one by method, under one budget.
    """

    searches: Sequence[ShownSearch] = ()
    tables: Sequence[tuple[str, EstimateTable]] = ()
    others: Sequence[ShownRun] = ()
    typed: Sequence[ShownTyped] = ()
    compared: Sequence[tuple[str, Mapping[str, Estimate]]] = ()
