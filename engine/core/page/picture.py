"""The verdicts of a report as one picture, for a slide or a README."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parley.engine.core.page.content import Chapter, Report, Verdict
from parley.engine.core.page.page import verdicts
from parley.engine.core.page.plots import INK, MUTED, PAPER, STYLE, draw_dots
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible

SUFFIXES = (".png", ".svg", ".pdf")
_WIDTH, _HEIGHT_OF_LINE, _HEIGHT_OF_MARK = 8.4, 0.19, 0.24
_CHARACTERS = 96


def require_suffix(path: str | Path) -> None:
    """Finds out before anything is done whether a picture of that name can be drawn.

    Raises:
        ConfigError: it ends in none of `SUFFIXES`.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        fix = f"name a file that ends in {', '.join(SUFFIXES)}"
        raise ConfigError("a picture of that kind cannot be drawn", where="--picture", got=suffix or path, fix=fix)


def write_picture(report: Report, chapters: Sequence[Chapter[Any]], path: Path) -> Path:
    """Writes the verdicts of a report, each with its estimates, in the form that the name of the file says.

    Args:
        report: with at least one verdict.
        chapters: those that have found it.
        path: the file to write.

    Returns:
        The path written.

    Raises:
        ConfigError: the file's suffix is none of `SUFFIXES`.
        RunError: the report holds no verdict, or the file cannot be written.
    """
    require_suffix(path)
    told = [verdict for _, verdict in verdicts(report, chapters)]
    if not told:
        raise RunError("there is nothing to draw", where=report.title, fix="draw a run that has measured something")
    texts = [textwrap.wrap(visible(verdict.sentence), _CHARACTERS) for verdict in told]
    heights = [
        _HEIGHT_OF_LINE * len(text) + _HEIGHT_OF_MARK * len(verdict.marks) + 0.75
        for text, verdict in zip(texts, told, strict=True)
    ]
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": report.title}):
        figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained", facecolor=PAPER)
        parts = figure.subfigures(len(told), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, text, verdict in zip(parts, texts, told, strict=True):
            part.suptitle("\n".join(text), x=0.01, horizontalalignment="left", fontsize=9.5, fontweight="bold", color=INK)
            _draw(part.subplots(), verdict)
        # Without its usual marks of software and date, the same run gives the same bytes.
        kind = path.suffix.lower().removeprefix(".")
        nothing: dict[str, Any] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}.get(kind, {"Date": None})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, format=kind, metadata=nothing)
        except OSError as error:
            raise RunError(
                "the picture cannot be written",
                where=display_path(path),
                got=error.strerror,
                fix="name a file that can be written",
            ) from None
    return path


def _draw(axes: Axes, verdict: Verdict) -> None:
    """One row per estimate with its interval, and how many stand behind it."""
    share = verdict.metric.form == "share"
    unit = 100.0 if share else 1.0
    draw_dots(axes, verdict.metric.title.lower() + " in %" * share, list(verdict.marks), {"": verdict.marks}, unit)
    labels = [
        f"{visible(name)} (n = {estimate.n:,}{', few' if estimate.flagged else ''})" for name, estimate in verdict.marks.items()
    ]
    axes.set_yticks(range(len(labels)), labels)
    axes.axvline(0, color=MUTED, linewidth=0.8, zorder=1)
