"""The report as one self-contained HTML page: no script, nothing loaded from elsewhere, every text escaped.

What speakers say is hostile text. Three lines of defence: jinja2 escapes everything that is not a figure drawn here, the page's
content policy forbids scripts and foreign resources, and invisible characters are written out (`envs/core/visible.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from engine.metrics.negotiation.attack import ATTACK_METRICS, REACTIVE, budget_curves
from engine.metrics.statistics import NEITHER, Estimate, Metric, Points
from engine.report.content import MatchSection, ReportData, RobustnessSection, SearchSection
from engine.report.figure import Figure, told_apart
from engine.report.negotiation.dialogues import Dialogue, extremes
from engine.report.perturb.examples import read_robustness
from engine.report.sweeps.trials import read_sweep
from engine.report.triggers.pairs import read_search, search_figures
from engine.store.documents import write_whole
from envs.core.errors import RunError

_BUDGETS = {
    "replaced": ("Advantage by replaced words", "words that may be replaced", "a word that is replaced twice counts twice"),
    "queries": (
        "Advantage by queries of the target",
        "queries that may be made",
        "a query asks whether a sentence makes the target end the talk, or what it would then choose; gradients do not count",
    ),
}
"""Title, budget and what is counted in it, by name in `budget_curves`."""
_WITHOUT_CURVE = "preemptive attacks record no steps, combined ones only those that succeeded, so neither has a curve"
_RAIL = 120.0
_MAX_REASONS = 5
_ITEMS = {MatchSection: "dialogues", SearchSection: "targets", RobustnessSection: "examples"}


@dataclass(frozen=True)
class Cell:
    """One estimate of the table; `dot`, `span` (start, width) and `zero` are places on a rail of 120 units."""

    value: str
    interval: str
    n: int
    small: bool
    dot: float | None
    span: tuple[float, float] | None
    zero: float | None


@dataclass(frozen=True)
class MetricRow:
    """One metric over the columns of its table; None where a column lacks it."""

    title: str
    direction: str
    definition: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class MetricTable:
    """Metrics of the matches that share some: those that a reader looks for first, and the others."""

    columns: tuple[str, ...]
    rows: tuple[MetricRow, ...]
    more: tuple[MetricRow, ...]


@dataclass(frozen=True)
class Headline:
    """The result of one match in figures that a reader takes away; `forced` is empty where no end was forced."""

    name: str
    description: str
    advantage: str
    interval: str
    forced: str
    num_dialogues: int
    small: bool
    scores: tuple[float, float]


@dataclass(frozen=True)
class Examples:
    """Dialogues of one match."""

    name: str
    best: list[Dialogue]
    worst: list[Dialogue]


@dataclass(frozen=True)
class Failures:
    """Dialogues of a match, targets or examples that ended in an error, and the most frequent reasons."""

    name: str
    what: str
    failed: int
    total: int
    reasons: list[tuple[str, int]]


def write_report(data: ReportData, path: Path) -> Path:
    """Writes the page.

    Args:
        data: what to show.
        path: the file to write; a page that stands there is replaced only when the new one is complete.

    Returns:
        The path written.

    Raises:
        RunError: the file cannot be written.
    """
    page = render(data).encode("utf-8", "backslashreplace")
    try:
        write_whole(path, page)
    except OSError as error:
        fix = "free some space, or give a folder that can be written"
        raise RunError("the report cannot be written", where=path, got=error.strerror, fix=fix) from None
    return path


def render(data: ReportData) -> str:
    """The page as text; the same data give the same text."""
    # matplotlib costs a second, which readers of this module's tables need not pay.
    from engine.report import plots

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("engine.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    played = [section for section in data.sections if section.dialogues]
    parts: dict[str, Sequence[Any]] = {
        "headlines": [headline for section in data.sections if section.large and (headline := _headline(section))],
        "attack_tables": data.attack_tables,
        "tables": metric_tables([*data.sections, *data.searches]),
        "budgets": _budgets([s for s in played if s.kinds == {REACTIVE} and not s.only_successes]),
        "outcomes": [Figure(s.name, _outcome_caption(s), Markup(plots.scatter_svg(s))) for s in played],
        "curves": [
            Figure(curve.title, _curve_caption(curve.smoothed, curve.x_label, curve.y_label), Markup(plots.curve_svg(curve)))
            for curve in data.curves
            if any(curve.series.values())
        ],
        "searches": [read_search(section) for section in data.searches if section.targets],
        "search_figures": search_figures(data.searches),
        "robustness": [read_robustness(section) for section in data.robustness if section.examples],
        "sweeps": [read_sweep(section) for section in data.sweeps if section.trials],
        "examples": [Examples(section.name, *extremes(section.dialogues)) for section in played],
        "failures": [_failures(section) for section in _all(data) if section.failures],
    }
    anchors = {
        "attacks": ("attack_tables", "Attacks"),
        "matches": ("headlines", "Matches"),
        "metrics": ("tables", "Metrics"),
        "budget": ("budgets", "Budget"),
        "outcomes": ("outcomes", "Outcomes"),
        "training": ("curves", "Training"),
        "triggers": ("searches", "Triggers"),
        "robustness": ("robustness", "Robustness"),
        "sweeps": ("sweeps", "Sweeps"),
        "dialogues": ("examples", "Dialogues"),
        "failures": ("failures", "Failures"),
    }
    contents = [(anchor, name) for anchor, (part, name) in anchors.items() if parts[part]]
    if contents and (data.commands or data.files or data.config or data.environment):
        contents.append(("run", "The run"))
    style = Markup(files("engine.report").joinpath("templates/report.css").read_text())
    return environment.get_template("report.html").render(data=data, contents=contents, style=style, **parts)


def _all(data: ReportData) -> list[MatchSection | SearchSection | RobustnessSection]:
    return [*data.sections, *data.searches, *data.robustness]


def metric_tables(sections: Sequence[MatchSection | SearchSection]) -> list[MetricTable]:
    """One table for each group of sections that have a metric in common, so that comparable figures stand side by side.

    Metrics of one name that mean different things are not comparable: they have rows of their own.
    """
    groups: list[tuple[set[tuple[str, Metric]], list[MatchSection | SearchSection]]] = []
    for section in sections:
        if not section.metrics:
            continue
        measured, members = set(_measured(section)), [section]
        met = set(measured)
        apart = []
        for known, others in groups:
            if known & measured:
                met |= known
                members = [*others, *members]
            else:
                apart.append((known, others))
        groups = [*apart, (met, members)]
    order = {id(section): i for i, section in enumerate(sections)}
    ordered = [sorted(members, key=lambda section: order[id(section)]) for _, members in groups]
    return [_table(members) for members in sorted(ordered, key=lambda members: order[id(members[0])])]


def _table(sections: Sequence[MatchSection | SearchSection]) -> MetricTable:
    columns = [_measured(section) for section in sections]
    places = {name: place for place, name in enumerate(ATTACK_METRICS)}
    present = dict.fromkeys(key for column in columns for key in column)
    keys = sorted(present, key=lambda key: places.get(key[0], len(places)))
    rows = {}
    for key in keys:
        _, metric = key
        direction = "" if metric.direction == NEITHER else metric.direction
        cells = _cells(metric, [column.get(key) for column in columns])
        rows[key] = MetricRow(metric.title[:1].upper() + metric.title[1:], direction, metric.definition, cells)
    first = [key for key in keys if key[1].main] or keys
    return MetricTable(
        columns=tuple(section.name for section in sections),
        rows=tuple(rows[key] for key in first),
        more=tuple(rows[key] for key in keys if key not in first),
    )


def _measured(section: MatchSection | SearchSection) -> dict[tuple[str, Metric], Estimate]:
    """The estimates of a section by name and meaning."""
    legend = section.legend
    return {
        (name, legend.get(name) or Metric(name.replace("_", " "), NEITHER, "")): estimate
        for name, estimate in section.metrics.items()
    }


def _cells(metric: Metric, estimates: Sequence[Estimate | None]) -> tuple[Cell | None, ...]:
    bounds = [x for e in estimates if e for x in (e.low, e.value, e.high) if math.isfinite(x)]
    low, high = (0.0, 1.0) if metric.form == "share" else (min(0.0, *bounds, 0.0), max(0.0, *bounds, 0.0))
    width = (high - low) or 1.0

    def place(x: float) -> float:
        return round(4 + (_RAIL - 8) * (x - low) / width, 2)

    cells: list[Cell | None] = []
    for estimate in estimates:
        if estimate is None:
            cells.append(None)
            continue
        known = all(map(math.isfinite, (estimate.low, estimate.high)))
        cells.append(
            Cell(
                value=_number(metric, estimate.value),
                interval=f"{_number(metric, estimate.low)} to {_number(metric, estimate.high)}" if known else "",
                n=estimate.n,
                small=estimate.flagged,
                dot=place(estimate.value) if known else None,
                span=(place(estimate.low), round(place(estimate.high) - place(estimate.low), 2)) if known else None,
                zero=place(0.0) if known and low < 0 < high else None,
            )
        )
    return tuple(cells)


def _number(metric: Metric, value: float) -> str:
    if not math.isfinite(value):
        return "none"
    if metric.form == "share":
        return f"{100 * value:.1f} %"
    whole = metric.form == "count" or abs(value) >= 1000
    return f"{value:,.{0 if whole else 2}f}".replace("-", "\N{MINUS SIGN}")


def _headline(section: MatchSection) -> Headline | None:
    wanted = [section.metrics.get(name) for name in ("advantage", "score_adversary", "score_target")]
    if any(estimate is None or not math.isfinite(estimate.value) for estimate in wanted):
        return None
    advantage, adversary, target = (estimate for estimate in wanted if estimate)
    forced = section.metrics.get("forced_advantage")
    return Headline(
        name=section.name,
        description=section.description,
        advantage=_signed(advantage.value),
        interval=_interval(advantage),
        forced=f"{_signed(forced.value)} where the end is forced, {_interval(forced)}" if forced else "",
        num_dialogues=advantage.n,
        small=advantage.flagged,
        scores=(adversary.value, target.value),
    )


def _signed(advantage: float) -> str:
    return ("+" if advantage > 0 else "") + _number(ATTACK_METRICS["advantage"], advantage)


def _interval(advantage: Estimate) -> str:
    low, high = (_number(ATTACK_METRICS["advantage"], end) for end in (advantage.low, advantage.high))
    return f"95 % interval {low} to {high}"


def _budgets(sections: Sequence[MatchSection]) -> list[Figure]:
    """What searches gain within a budget, all attacks in one drawing; none for searches that never went a step.

    Args:
        sections: reactive attacks with all their searches on record.
    """
    from engine.report import plots

    by_budget: dict[str, dict[str, Points]] = {name: {} for name in _BUDGETS}
    for heading, section in zip(told_apart([section.name for section in sections]), sections, strict=True):
        for name, points in budget_curves(section.dialogues).items():
            by_budget[name][heading] = points
    figures = []
    for name, (title, label, counted) in _BUDGETS.items():
        series = {section: points for section, points in by_budget[name].items() if len(points) > 1}
        if series:
            nums = ", ".join(f"{points[0][1].n:,}" for points in series.values())
            mean = f"mean over {nums} dialogues with a reactive attack; bands are 95 % intervals"
            caption = f"{mean}; {counted}; {_WITHOUT_CURVE}"
            figures.append(Figure(title, caption, Markup(plots.budget_svg(title, label, series))))
    return figures


def _outcome_caption(section: MatchSection) -> str:
    rows = section.dialogues
    agreed = sum(bool(row["agreed"]) for row in rows)
    optimal = sum(bool(row["pareto"]) for row in rows)
    return f"{len(rows)} dialogues: {agreed} deals, {optimal} of them Pareto optimal, {len(rows) - agreed} without a deal"


def _curve_caption(smoothed: bool, x_label: str, y_label: str) -> str:
    return f"{y_label} per {x_label}" + (", moving average in front of the single values" if smoothed else "")


def _failures(section: MatchSection | SearchSection | RobustnessSection) -> Failures:
    reasons: Mapping[str, int] = Counter(str(row["error"]).splitlines()[0] for row in section.failures)
    frequent = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MAX_REASONS]
    return Failures(section.name, _ITEMS[type(section)], len(section.failures), len(section.rows), frequent)
