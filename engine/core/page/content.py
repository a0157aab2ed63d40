"""The content of a report as plain values that know no system: runs, chapters, verdicts, figures and items.

A chapter says which jobs are its own, reads their runs (`collect`) and shows the content (`render`). `page.py` lists the
chapters, makes a `Report` of a run folder and writes it as HTML; `plots.py` draws it as a picture. `fill` makes HTML from
templates: it escapes every value that this package has not made.

A folder may be a run, hold runs, or both: the stages of a demonstration lie below it, and its report shows them together in the
order of their start.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import jinja2
from markupsafe import Markup

from parley.engine.core.runs.documents import CONFIG, ENVIRONMENT
from parley.engine.core.runs.parts import OK
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate, Metric, Row, finished
from parley.engine.core.stats.trainings import spread_of, spread_table
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import ATTACK
from parley.envs.core.errors import RunError
from parley.envs.core.visible import visible


def fill(template: str, **values: Any) -> Markup:
    """Return a template filled with values.

    Args:
        template: path of the template below `engine/`, such as "negotiation/page/dialogue.html".
        values: values by name; a missing name is an error.
    """
    return Markup(_environment().get_template(template).render(**values))


def line(pattern: str, *values: Any, **named: Any) -> Markup:
    """Return one line of HTML, `pattern` in the syntax of `str.format`; values are escaped."""
    return Markup(pattern).format(*values, **named)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("parley.engine", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption."""

    name: str
    caption: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Some series over the same steps of training.

    Args:
        title: title of the curve.
        x_label: name of the step, such as "epoch".
        y_label: the quantity and its unit.
        series: (step, value) points by name, each in the order of its steps.
        smoothed: whether to draw a moving average in front of the single points, for quantities that jump from step to step.
        bands: (step, low, high) 95 % intervals of some series, by name.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    smoothed: bool = False
    bands: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)


def told_apart(names: Sequence[str]) -> list[str]:
    """Return the names, numbered where several are equal, so that each can name a series."""
    return [f"{name} ({names[: index + 1].count(name)})" if names.count(name) > 1 else name for index, name in enumerate(names)]


_PATH = re.compile(r"[^\s,;()'\"]*/[^\s,;()'\"]+")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a page.

    Args:
        name: the run's folder below the page's own; empty for the page's own run.
        heading: heading on the page.
        shown: whether its own metrics and rows are shown; those of a run with stages are shown stage by stage.
        folder: the run.
    """

    name: str
    heading: str
    shown: bool = True
    folder: RunFolder

    @property
    def job(self) -> str:
        """The name of its job."""
        return self.folder.job

    @property
    def config(self) -> Mapping[str, Any]:
        """Its configuration as JSON types."""
        return self.folder.config

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Its summary; empty before there is one."""
        return self.folder.summary() or {}

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Its estimates by name."""
        return estimates(self.summary.get("metrics", {}))

    @cached_property
    def legend(self) -> Mapping[str, Metric]:
        """The definitions of its metrics; empty for a job that this version does not have."""
        try:
            return find(self.job).load().legend
        except RunError:
            return {}

    @property
    def description(self) -> str:
        """One sentence; empty for the page's own run, whose description is in the heading."""
        text = str(self.summary.get("description", "")) if self.name else ""
        return short_paths([text])[text]

    @property
    def trainings(self) -> list[tuple[str, EstimateTable]]:
        """The table of its trainings, with its heading; empty if it made one training."""
        values = spread_of(self.summary)
        title = f"{self.heading}: each training" if self.name else "Each training"
        return [(title, spread_table(values, self.metrics, self.legend))] if values else []

    @cached_property
    def rows(self) -> list[Row]:
        """All of its rows."""
        return self.folder.read_rows().to_pylist()

    @property
    def done(self) -> list[Row]:
        """The rows of items that worked."""
        return finished(self.rows)

    @property
    def failed(self) -> list[Row]:
        """The rows of items that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]


def estimates(parts: Mapping[str, Any]) -> dict[str, Estimate]:
    """Return the estimates of a summary by name."""
    return {name: Estimate.from_json(estimate) for name, estimate in parts.items()}


def find_runs(folder: Path) -> dict[str, RunFolder]:
    """Return the runs of a folder by name: its own first, under the empty name, then those below it in the order of start.

    Raises:
        RunError: there is no run.
    """
    # A checkpoint also has a configuration, but no `environment.json`.
    folders = [path.parent for path in folder.glob(f"*/{CONFIG}") if (path.parent / ENVIRONMENT).is_file()]
    below = sorted([RunFolder.load(path) for path in folders], key=lambda run: (_started(run), run.path.name))
    own = {} if below and not (folder / CONFIG).is_file() else {"": RunFolder.load(folder)}
    return {**own, **{run.path.name: run for run in below}}


def _started(run: RunFolder) -> str:
    events = run.events()
    return str(events[0]["time"]) if events else ""


def short_paths(texts: Iterable[str]) -> dict[str, str]:
    """Return the texts with each path cut to its end, as short as keeps all paths different; by text."""
    texts = list(texts)
    paths = {path.rstrip("/") for text in texts for path in _PATH.findall(text)}
    ends = {path: _unique_end(path, paths) for path in paths}
    return {text: _PATH.sub(lambda match: ends[match[0].rstrip("/")], text) for text in texts}


def _unique_end(path: str, paths: Iterable[str]) -> str:
    parts, other_parts = path.split("/"), [other.split("/") for other in paths if other != path]
    return next(
        (
            "/".join(parts[-length:])
            for length in range(1, len(parts))
            if all(other[-length:] != parts[-length:] for other in other_parts)
        ),
        path,
    )


_MAX_REASONS = 5


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer of a chapter.

    Args:
        sentence: the answer, with its numbers.
        metric: metric of the marks.
        marks: the estimates behind the sentence, by label; drawn on one axis.
        minor: whether it is shown only if no other chapter has a verdict.
    """

    sentence: str
    metric: Metric
    marks: Mapping[str, Estimate]
    minor: bool = False


@dataclass(frozen=True)
class Failures:
    """Items of a run that ended in an error, and the most frequent reasons."""

    name: str
    what: str
    failed: int
    total: int
    reasons: Sequence[tuple[str, int]]


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """One run as a chapter has read it; chapters add further fields.

    Args:
        name: a short heading, such as "adversary vs target".
        metrics: estimates by metric name.
        legend: definitions of the metrics; metrics without one are shown by name.
        description: one sentence for a reader who does not know the run.
        rows: its items, in any order.
        attack: parts of its attack in words, if it tells them.
    """

    unit: ClassVar[str] = "items"
    """Name of the items, in the plural."""
    name: str
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    legend: Mapping[str, Metric] = field(default_factory=dict)
    description: str = ""
    rows: Sequence[Row] = ()
    attack: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, **more: Any) -> Self:
        """Return the shown form of a run; `more` holds further or other fields of a chapter."""
        values: dict[str, Any] = {name: getattr(run, name) for name in ("metrics", "legend", "description", "rows")}
        attack = {name: visible(str(text)) for name, text in run.summary.get(ATTACK, {}).items()}
        return cls(name=run.heading, **values | {"attack": attack} | more)

    @property
    def done(self) -> list[Row]:
        """The rows of items that worked."""
        return finished(self.rows)

    @property
    def failures(self) -> list[Failures]:
        """The items that ended in an error; empty if nothing failed."""
        failed = [row for row in self.rows if row["status"] != OK]
        reasons = Counter(str(row["error"]).splitlines()[0] for row in failed)
        frequent = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MAX_REASONS]
        return [Failures(self.name, self.unit, len(failed), len(self.rows), frequent)] if failed else []


@dataclass(frozen=True)
class Piece:
    """A stretch of text; `change` is "before" or "after" for words that only that side has, else empty."""

    text: str
    change: str = ""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One dialogue, trigger or example of the viewer.

    Args:
        kind: its kind in one word.
        key: its key in the run; its address on the page is made of it.
        group: the run that it comes from, and its sort if the run holds several.
        summary: one line.
        tags: tags by which the viewer filters.
        values: values by which the viewer sorts, by name.
        body: the whole item, as HTML.
    """

    kind: str
    key: str
    group: str
    summary: Markup
    tags: Sequence[str]
    values: Mapping[str, float]
    body: Markup


@dataclass(frozen=True)
class ShownItem:
    """An item with its address."""

    anchor: str
    item: Item

    @property
    def values(self) -> str:
        """The values as JSON for the viewer."""
        return json.dumps({name: value for name, value in self.item.values.items() if math.isfinite(value)})

    @property
    def tags(self) -> str:
        """The tags as JSON for the viewer."""
        return json.dumps([visible(tag) for tag in self.item.tags])


MOST_DRAWN = 200
"""Items that stand in the page as plain HTML; all others are packed."""
MOST_PACKED_BYTES = 3_000_000
"""Bytes of packed items before base64: a page stays below 5 MB."""
MOST_ITEMS = 20_000
"""Items of a page, so that it is written and opened in seconds."""


@dataclass(frozen=True)
class PackedItems:
    """The items of a page.

    Args:
        drawn: the first items, which stand in the page as HTML.
        packed: all others, a JSON list a line, as raw deflate in base64; empty if there are no others.
        kinds: names of their kinds, in the plural.
        num: number of all items.
        left_out: whether there are more than the page takes.
        addresses: address of each chosen item, by its `id`.
    """

    drawn: Sequence[ShownItem]
    packed: str
    kinds: Sequence[str]
    num: int
    left_out: bool
    addresses: Mapping[int, str]


def pack_items(items: Iterable[Item], chosen: Sequence[Item] = ()) -> PackedItems:
    """Return as many items as fit into a page, each with an address of its own, made of its kind, run and key.

    Args:
        items: the items; no more are asked for than are packed.
        chosen: items that are linked to; they are packed even if the page is full.
    """
    times: Counter[str] = Counter()
    kinds: dict[str, None] = {}
    addresses: dict[int, str] = {}
    wanted = {id(item) for item in chosen}
    drawn: list[ShownItem] = []
    deflate, pieces, size = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS), list[bytes](), 0
    num, left_out = 0, False

    def add(item: Item) -> None:
        nonlocal num, size
        slug = "-".join(filter(None, (_slug(item.kind), _slug(item.group)[-60:], _slug(item.key)[-40:])))
        times[slug] += 1
        shown = ShownItem(slug if times[slug] == 1 else f"{slug}--{times[slug]}", item)
        kinds[item.kind] = None
        if id(item) in wanted:
            addresses[id(item)] = shown.anchor
        num += 1
        if len(drawn) < MOST_DRAWN:
            drawn.append(shown)
            return
        values = {name: value for name, value in item.values.items() if math.isfinite(value)}
        texts = (shown.anchor, item.kind, item.group, item.key)
        record = [*map(visible, texts), list(map(visible, item.tags)), values, *map(_visible_lines, (item.summary, item.body))]
        # A full flush every so often tells the size; `compress` alone keeps bytes back.
        piece = deflate.compress(f"{json.dumps(record, ensure_ascii=False)}\n".encode("utf-8", "backslashreplace"))
        piece += deflate.flush(zlib.Z_SYNC_FLUSH) if num % _FLUSHED == 0 else b""
        pieces.append(piece)
        size += len(piece)

    for item in items:
        if size >= MOST_PACKED_BYTES or num >= MOST_ITEMS:
            left_out = True
            break
        add(item)
    for item in chosen:
        if id(item) not in addresses:
            add(item)
    pieces.append(deflate.flush())
    packed = base64.b64encode(b"".join(pieces)).decode() if num > len(drawn) else ""
    plurals = [f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s" for kind in kinds]
    return PackedItems(drawn, packed, plurals, num, left_out, addresses)


_FLUSHED = 50


def _visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A chapter as the page shows it: a dozen numbers open, the rest folded.

    Args:
        notes: sentences below the heading.
        tables: tables with their headings.
        measured: runs whose metrics and failures are shown.
        figures: drawings.
        lists: longer lists of (thing, remark), by heading; always folded.
        items: items for the viewer, those worth most first; a page takes as many as fit, so that they may be made one by one.
        chosen: items worth a look, by label; each an element of `items`.
    """

    notes: Sequence[str] = ()
    tables: Sequence[tuple[str, EstimateTable]] = ()
    measured: Sequence[ShownRun] = ()
    figures: Sequence[Figure] = ()
    lists: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    items: Iterable[Item] = ()
    chosen: Mapping[str, Item] = field(default_factory=dict)


def tables_of(runs: Sequence[tuple[str, Mapping[str, EstimateTable]]]) -> list[tuple[str, EstimateTable]]:
    """Return the tables of some runs, each with its heading and, if there are several runs, the name of its run."""
    return [(f"{title}, {name}" if len(runs) > 1 else title, table) for name, tables in runs for title, table in tables.items()]


@dataclass(frozen=True)
class Stages:
    """The presentation of the stages of a run that holds others.

    Args:
        names: short headings by stage, or by path of a stage of a stage; the run's summary may decide them. The title of the
            whole run says the rest.
        others: heading of stages without a name, or "hidden".
    """

    names: Mapping[str, str] | Callable[[Mapping[str, Any]], Mapping[str, str]] = field(default_factory=dict)
    others: Literal["by title", "by folder", "hidden"] = "by title"

    def of(self, summary: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the headings in a run with this summary, which is empty for an unfinished run."""
        return self.names(summary) if callable(self.names) else self.names


Found = TypeVar("Found")


class Chapter(ABC, Generic[Found]):
    """One system on the page; a subclass defines all of it.

    Attributes:
        name: address of the chapter on the page.
        title: its heading.
        jobs: names of its jobs, unless it overrides `owns`.
        stages: presentation of the stages of its composite runs, by job.
        terms: glossary: meaning of a word of the chapter, by a regular expression that finds it in any case.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    jobs: ClassVar[Collection[str]] = ()
    stages: ClassVar[Mapping[str, Stages]] = {}
    terms: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def owns(self, job: str) -> bool:
        """Return whether runs of a job belong to this chapter; a run goes to the first chapter that accepts it."""
        return job in self.jobs

    @abstractmethod
    def collect(self, runs: Sequence[Run]) -> Found | None:
        """Return the content of its runs; None if there is nothing."""

    @abstractmethod
    def verdict(self, content: Found) -> Verdict | None:
        """Return its verdict; None if nothing was measured."""

    @abstractmethod
    def render(self, content: Found) -> Section:
        """Return its content as the page shows it, with drawings."""


@dataclass(frozen=True)
class RunLine:
    """One run of a folder of runs: its short name, job, state, verdict, and its own page if there is one."""

    name: str
    job: str
    state: str
    outcome: str
    page: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole report.

    Args:
        title: heading of the page.
        lead: one or two sentences under it.
        state: state of an unfinished run; empty for others.
        warnings: sentences on answers of chat models that are no reply.
        found: content of each chapter, by its name, in the order of the page.
        overview: the runs of a folder that is no run itself.
        commands: commands that give the same figures again.
        runs: (folder, title) of the runs shown.
        jobs: names of their jobs.
        files: (path, description) of the files beside the report.
        config: settings by dotted name.
        environment: versions, device and the like by name.
    """

    title: str
    lead: str = ""
    state: str = ""
    warnings: Sequence[str] = ()
    found: Mapping[str, Any] = field(default_factory=dict)
    overview: Sequence[RunLine] = ()
    commands: Sequence[str] = ()
    runs: Sequence[tuple[str, str]] = ()
    jobs: Sequence[str] = ()
    files: Sequence[tuple[str, str]] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
