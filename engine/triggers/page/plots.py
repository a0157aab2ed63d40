"""Figures of trigger searches, in the style of the others (`parley.engine.core.page.plots`)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from parley.engine.core.page.plots import MUTED, SERIES, short, svg


def words_svg(title: str, words: Sequence[str], log_probabilities: Sequence[float], threshold: float | None) -> str:
    """How likely each word of a sentence is, as SVG text (see `draw_words`)."""
    return svg((5.4, 3.2), title, lambda axes: draw_words(axes, words, log_probabilities, threshold))


def draw_words(axes: Axes, words: Sequence[str], log_probabilities: Sequence[float], threshold: float | None) -> None:
    """Draws the log-probability of each word of a sentence, and as a dashed line what a usual word has.

    Args:
        axes: where to draw.
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
