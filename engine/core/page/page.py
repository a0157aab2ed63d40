"""The report as one self-contained HTML page: nothing is loaded from elsewhere, every text is escaped.

What speakers say is hostile text. Three lines of defence: jinja2 escapes everything that is not a figure drawn here, the page's
content policy forbids foreign resources and every script but the viewer's own, known by its hash, and invisible characters are
written out (`envs/core/visible.py`). Without the script the page stands as it is, its items folded.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from parley.engine.core.page.content import Chapter, Failures, Item, Report, Section, ShownRun, Verdict
from parley.engine.core.page.figure import Figure
from parley.engine.core.page.markup import fill
from parley.engine.core.page.verdicts import interval, number
from parley.engine.core.runs.documents import write_whole
from parley.engine.core.stats.statistics import NEITHER, Estimate, Metric
from parley.engine.core.stats.tables import ABSENT, TextTable
from parley.envs.core.errors import RunError
from parley.envs.core.visible import visible

MOST_NUMBERS = 12
"""Numbers of a chapter that are not folded away."""
MOST_FIGURES = 3
"""Drawings of a chapter that are not."""
_MOST_COLUMNS = 8
"""Columns of a table that a page of 1,200 pixels has room for."""
_RAIL = 120.0
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Line:
    """One estimate of a metric; `dot`, `span` (start, width) and `zero` are places on a rail of 120 units."""

    name: str
    value: str
    interval: str
    n: int
    small: bool
    dot: float | None
    span: tuple[float, float] | None
    zero: float | None


@dataclass(frozen=True)
class MetricBlock:
    """One metric of all runs that have it, drawn to one scale."""

    title: str
    direction: str
    definition: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Sheet:
    """A table as it fits a page: with as few columns as its two sides allow, or row by row where neither is few."""

    heading: str
    table: TextTable
    form: Literal["wide", "stacked"]


@dataclass(frozen=True)
class ShownVerdict:
    """A verdict with its picture."""

    chapter: Chapter[Any]
    sentence: str
    picture: MetricBlock


@dataclass(frozen=True)
class ShownItem:
    """An item with its address."""

    anchor: str
    item: Item

    @property
    def values(self) -> str:
        """As the viewer reads them."""
        return json.dumps({name: value for name, value in self.item.values.items() if math.isfinite(value)})

    @property
    def tags(self) -> str:
        """As the viewer reads them."""
        return json.dumps([visible(tag) for tag in self.item.tags])


@dataclass(frozen=True)
class ShownChapter:
    """A chapter as the page has it: what stands open, what is folded, links to items, and the words that it uses."""

    chapter: Chapter[Any]
    section: Section
    sheets: Sequence[Sheet]
    blocks: Sequence[MetricBlock]
    folded_sheets: Sequence[Sheet]
    folded_blocks: Sequence[MetricBlock]
    figures: Sequence[Figure]
    folded_figures: Sequence[Figure]
    chosen: Mapping[str, str]

    @property
    def measured(self) -> list[ShownRun]:
        """The runs that have metrics."""
        return [each for each in self.section.measured if each.metrics]

    @property
    def failures(self) -> list[Failures]:
        """What is in no figure."""
        return [failures for each in self.section.measured for failures in each.failures]

    @property
    def notes(self) -> list[str]:
        """How each run was made, and what more the chapter has to say."""
        described = [f"{each.name}: {each.description}" for each in self.measured if each.description]
        return [*described, *self.section.notes]


def write_report(report: Report, chapters: Sequence[Chapter[Any]], path: Path) -> Path:
    """Writes the page.

    Args:
        report: what to show.
        chapters: those that have found it.
        path: the file to write; a page that stands there is replaced only when the new one is complete.

    Returns:
        The path written.

    Raises:
        RunError: the file cannot be written.
    """
    page = render(report, chapters).encode("utf-8", "backslashreplace")
    try:
        write_whole(path, page)
    except OSError as error:
        fix = "free some space, or give a folder that can be written"
        raise RunError("the report cannot be written", where=path, got=error.strerror, fix=fix) from None
    return path


def render(report: Report, chapters: Sequence[Chapter[Any]]) -> str:
    """The page as text; the same report gives the same text."""
    parts = [(chapter, chapter.render(report.found[chapter.name])) for chapter in chapters if chapter.name in report.found]
    items = _addressed([item for _, section in parts for item in section.items])
    shown = [_shown(chapter, section, items, report.title) for chapter, section in parts]
    script = files("parley.engine.core.page").joinpath("templates/viewer.js").read_text(encoding="utf-8") if items else ""
    page = str(
        fill(
            "core/page/templates/page.html",
            report=report,
            verdicts=[] if report.overview else shown_verdicts(report, chapters),
            chapters=[(each, fill("core/page/templates/chapter.html", part=each, terms=_terms(each))) for each in shown],
            items=items,
            kinds=[
                f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
                for kind in dict.fromkeys(each.item.kind for each in items)
            ],
            style=Markup(files("parley.engine.core.page").joinpath("templates/report.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_hash=_hash(script),
        )
    )
    # Here for every name, title, setting and text; a line without such characters is found so at once.
    return "\n".join(map(visible, page.split("\n")))


def verdicts(report: Report, chapters: Sequence[Chapter[Any]]) -> list[tuple[Chapter[Any], Verdict]]:
    """What the chapters of a report come to; minor verdicts only where there is no other."""
    said = [(each, each.verdict(report.found[each.name])) for each in chapters if each.name in report.found]
    found = [(each, verdict) for each, verdict in said if verdict is not None]
    return [pair for pair in found if not pair[1].minor] or found


def shown_verdicts(report: Report, chapters: Sequence[Chapter[Any]]) -> list[ShownVerdict]:
    """The same with their pictures."""
    return [
        ShownVerdict(chapter, verdict.sentence, _block(verdict.metric, verdict.marks))
        for chapter, verdict in verdicts(report, chapters)
    ]


def metric_blocks(measured: Sequence[ShownRun]) -> list[tuple[Metric, MetricBlock]]:
    """The metrics of some runs, each over all runs that have it; those that a reader looks for first come first.

    Metrics of one name that mean different things are not comparable: they have blocks of their own.
    """
    legends = [metric for each in measured for metric in {**each.legend, **each.metrics}]
    places = {name: place for place, name in reversed(list(enumerate(legends)))}
    found: dict[tuple[str, Metric], dict[str, Estimate]] = {}
    for each in measured:
        for name, estimate in each.metrics.items():
            metric = each.legend.get(name) or Metric(name.replace("_", " "), NEITHER, "")
            found.setdefault((name, metric), {})[each.name] = estimate
    keys = sorted(found, key=lambda key: (not key[1].main, places[key[0]]))
    return [(key[1], _block(key[1], found[key])) for key in keys]


def fitted(heading: str, table: TextTable) -> Sheet:
    """A table as a page has room for: turned round where it has many columns and few rows, stacked where both are many."""
    if len(table.columns) <= _MOST_COLUMNS:
        return Sheet(heading, table, "wide")
    if len(table.rows) < _MOST_COLUMNS:
        first, *others = zip(table.columns, *table.rows, strict=True)
        return Sheet(heading, TextTable(first, tuple(others), table.note), "wide")
    return Sheet(heading, table, "stacked")


def _shown(chapter: Chapter[Any], section: Section, items: Sequence[ShownItem], title: str) -> ShownChapter:
    """Opens a dozen numbers, tables first, and folds the rest; what repeats the page's title is told without it."""

    def brief(text: str) -> str:
        rest = text.removeprefix(title)
        return rest[2:] if rest != text and rest[:2] in (", ", ": ", "; ") else text

    figures = [replace(each, caption=brief(each.caption)) for each in section.figures]
    room = MOST_NUMBERS
    open_sheets: list[Sheet] = []
    folded_sheets: list[Sheet] = []
    open_blocks: list[MetricBlock] = []
    folded_blocks: list[MetricBlock] = []
    for heading, table in section.tables:
        num = sum(cell not in ("", ABSENT) for row in table.rows for cell in row[1:])
        (open_sheets if num <= room else folded_sheets).append(fitted(heading, table))
        room -= num if num <= room else 0
    found = metric_blocks([each for each in section.measured if each.metrics])
    first = [block for metric, block in found if metric.main] or [block for _, block in found]
    for _, block in found:
        wanted = not folded_blocks and len(block.lines) <= room and block in first
        (open_blocks if wanted else folded_blocks).append(block)
        room -= len(block.lines) * wanted
    addresses = {id(each.item): each.anchor for each in items}
    return ShownChapter(
        chapter,
        section,
        open_sheets,
        open_blocks,
        folded_sheets,
        folded_blocks,
        figures[:MOST_FIGURES],
        figures[MOST_FIGURES:],
        {brief(name): addresses[id(item)] for name, item in section.chosen.items()},
    )


def _terms(shown: ShownChapter) -> list[tuple[str, str]]:
    """The words of the glossary that stand in a chapter."""
    text = _TAG.sub(" ", fill("core/page/templates/chapter.html", part=shown, terms=[]))
    return [term for pattern, term in shown.chapter.terms.items() if re.search(pattern, text, re.IGNORECASE)]


def _addressed(items: Sequence[Item]) -> list[ShownItem]:
    """The items, each with an address of its own, made of its kind, run and key."""
    times: dict[str, int] = {}
    shown = []
    for item in items:
        slug = "-".join(filter(None, (_slug(item.kind), _slug(item.group)[-60:], _slug(item.key)[-40:])))
        times[slug] = times.get(slug, 0) + 1
        shown.append(ShownItem(slug if times[slug] == 1 else f"{slug}--{times[slug]}", item))
    return shown


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _hash(script: str) -> str:
    """What the content policy knows the script by; empty for none."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" if script else ""


def _block(metric: Metric, estimates: Mapping[str, Estimate]) -> MetricBlock:
    bounds = [x for e in estimates.values() for x in (e.low, e.value, e.high) if math.isfinite(x)]
    low, high = (0.0, 1.0) if metric.form in ("rate", "share") else (min(0.0, *bounds, 0.0), max(0.0, *bounds, 0.0))
    width = (high - low) or 1.0

    def place(x: float) -> float:
        return round(4 + (_RAIL - 8) * (x - low) / width, 2)

    lines = []
    for name, estimate in estimates.items():
        known = all(map(math.isfinite, (estimate.low, estimate.high)))
        lines.append(
            Line(
                name=name,
                value=number(metric, estimate.value),
                interval=interval(metric, estimate),
                n=estimate.n,
                small=estimate.flagged,
                dot=place(estimate.value) if known else None,
                span=(place(estimate.low), round(place(estimate.high) - place(estimate.low), 2)) if known else None,
                zero=place(0.0) if known and low < 0 < high else None,
            )
        )
    direction = "" if metric.direction == NEITHER else metric.direction
    return MetricBlock(metric.title[:1].upper() + metric.title[1:], direction, metric.definition, tuple(lines))
