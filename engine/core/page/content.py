"""The content of a report as plain values that know no system: runs, chapters, verdicts, figures and items.

A chapter says which jobs are its own, and what their runs show beyond what every run shows. `page.py` lists the chapters, makes
a `Report` of a run folder and writes it as HTML; `markup.py` has the HTML of items; `plots.py` has the drawings, and draws a
report as a picture. `fill` makes HTML from templates: it escapes every value that this package has not made.

A folder may be a run, hold runs, or both: the stages of a demonstration lie below it, and its report shows them together in the
order of their start.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from abc import ABC
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, cast

import jinja2
from markupsafe import Markup

from parley.engine.core.page.markup import breakable
from parley.engine.core.runs.documents import CONFIG, ENVIRONMENT
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rows import selected
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Row, finished, lost
from parley.engine.core.stats.trainings import spread_of, spread_table
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.catalogue import find
from parley.envs.core.errors import RunError
from parley.envs.core.visible import visible


def fill(template: str, **values: Any) -> Markup:
    """Return a template filled with values.

    Args:
        template: path of the template below `engine/`, such as "negotiation/page/dialogue.html".
        values: values by name; a missing name is an error.
    """
    return Markup(_environment().get_template(template).render(**values))


@cache
def _environment() -> jinja2.Environment:
    loader, strict = jinja2.PackageLoader("parley.engine", ""), jinja2.StrictUndefined
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=strict, trim_blocks=True, lstrip_blocks=True)
    environment.filters["breakable"] = breakable
    return environment


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption; `plots` has the functions that make one, and draws it as SVG.

    Args:
        name: its title.
        caption: the words beside the title.
        svg: the drawing, if it is drawn already.
        size: width and height in inches.
        draw: draws it on matplotlib's axes.
        run: heading of its run, if the chapter has several.
    """

    name: str
    caption: str
    svg: str = ""
    size: tuple[float, float] = (5.4, 3.2)
    draw: Callable[[Any], None] | None = None
    run: str = ""


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


Reading = TypeVar("Reading")
_PATH = re.compile(r"[^\s,;()'\"]*/[^\s,;()'\"]+")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a page.

    Args:
        name: the run's folder below the page's own; empty for the page's own run.
        heading: heading on the page.
        shown: whether its own metrics and rows are shown; those of a run with stages are shown stage by stage.
        folder: the run.
        arm: name of the part of the run that this is; empty for a whole run.
    """

    name: str
    heading: str
    shown: bool = True
    folder: RunFolder
    arm: str = ""
    _read: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def job(self) -> str:
        """The name of its job."""
        return self.folder.job

    @property
    def config(self) -> Mapping[str, Any]:
        """Its configuration as JSON types."""
        return self.folder.config

    def part(self, name: str, heading: str, **values: Any) -> Run:
        """Return a part of the run, such as one of its arms, with metrics, legend or rows of its own."""
        part = replace(self, arm=name, heading=heading)
        part.__dict__.update(values)
        return part

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

    @cached_property
    def tables(self) -> Mapping[str, EstimateTable]:
        """The tables of its verb by heading; empty before it is measured."""
        job = find(self.job).load()
        return {**job.tables(self.folder), **job.more(self.folder)} if self.metrics else {}

    @cached_property
    def note(self) -> str:
        """The sentences of its verb below the tables."""
        return find(self.job).load().note(self.folder) if self.metrics else ""

    @property
    def trainings(self) -> list[tuple[str, EstimateTable]]:
        """The table of its trainings, with its heading; empty if it made one training."""
        values = spread_of(self.summary)
        title = f"{self.heading}: each training" if self.name else "Each training"
        return [(title, spread_table(values, self.metrics, self.legend))] if values else []

    @cached_property
    def rows(self) -> Sequence[Row]:
        """All of its rows, which are read in a stream."""
        return self.folder.rows()

    def read(self, reader: Callable[..., Reading], *given: Any) -> Reading:
        """Return its rows as a reader of rows returns them, which reads them once; `given` are further arguments of it."""
        if (reader, given) not in self._read:
            self._read[reader, given] = reader(self.rows, *given)
        return cast("Reading", self._read[reader, given])

    @cached_property
    def done(self) -> Sequence[Row]:
        """The rows of items that worked."""
        return finished(self.rows)

    @cached_property
    def failed(self) -> Sequence[Row]:
        """The rows of items that ended in an error."""
        return lost(self.rows)

    @property
    def failures(self) -> list[tuple[str, int]]:
        """The most frequent reasons of errors, each with its number of items."""
        reasons = Counter(str(row["error"]).splitlines()[0] for row in selected(self.failed, "error"))
        return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_MAX_REASONS]


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
    """The answer of a chapter: one sentence, and one number with its interval.

    Args:
        sentence: the answer, at most 25 words.
        metric: metric of the number and of the marks.
        number: the number in large type.
        marks: estimates to compare it with, by label; drawn on one axis.
        warnings: sentences that a reader must not miss.
        details: further sentences, folded.
        label: name of the number, if it is not the metric's title.
        unit: name of the independent units behind the number, in the plural.
        rank: of several verdicts those of the lowest rank are shown.
    """

    sentence: str
    metric: Metric
    marks: Mapping[str, Estimate]
    number: Estimate = NOTHING
    warnings: Sequence[str] = ()
    details: Sequence[str] = ()
    label: str = ""
    unit: str = "units"
    rank: int = 0

    @property
    def cautions(self) -> list[str]:
        """The warnings; first those on a number from few units, or without an interval."""
        few = [f"Few {self.unit} ({self.number.n:,}): do not lean on it."] if self.number.flagged else []
        bare = ["There is no interval."] if math.isfinite(self.number.value) and not math.isfinite(self.number.low) else []
        return [*few, *bare, *self.warnings]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One dialogue, trigger or example of the viewer.

    Args:
        kind: its kind in one word.
        key: its key in the run; its address on the page is made of it.
        summary: one line.
        body: the whole item, as HTML.
        tags: tags by which the viewer filters.
        values: values by which the viewer sorts, by name.
        link: words of the chapter's link to it, such as "an example"; linked items come first in their group.
        group: the run that it comes from, and its sort if the run holds several; the frame sets it.
    """

    kind: str
    key: str
    summary: Markup
    body: Markup
    tags: Sequence[str] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    link: str = ""
    group: str = ""


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
        links: address of each linked item, by its group and the words of the link.
    """

    drawn: Sequence[ShownItem]
    packed: str
    kinds: Sequence[str]
    num: int
    left_out: bool
    links: Mapping[tuple[str, str], str]


def pack_items(groups: Iterable[tuple[str, Iterable[Item]]]) -> PackedItems:
    """Return as many items as fit into a page, each with an address of its own, made of its kind, run and key.

    Args:
        groups: the items by group; no more are asked for than are packed. Those that are linked to come first in their group,
            and are packed even if the page is full.
    """
    links: dict[tuple[str, str], str] = {}
    times: Counter[str] = Counter()
    kinds: dict[str, None] = {}
    drawn: list[ShownItem] = []
    deflate, pieces, size = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS), list[bytes](), 0
    num, left_out = 0, False

    def add(item: Item) -> None:
        nonlocal num, size
        slug = "-".join(filter(None, (_slug(item.kind), _slug(item.group)[-60:], _slug(item.key)[-40:])))
        times[slug] += 1
        shown = ShownItem(slug if times[slug] == 1 else f"{slug}--{times[slug]}", item)
        kinds[item.kind] = None
        if item.link:
            links[item.group, item.link] = shown.anchor
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

    for group, items in groups:
        for item in items:
            is_full = size >= MOST_PACKED_BYTES or num >= MOST_ITEMS
            left_out |= is_full
            if is_full and not item.link:
                break
            add(replace(item, group=group))
    pieces.append(deflate.flush())
    packed = base64.b64encode(b"".join(pieces)).decode() if num > len(drawn) else ""
    plurals = [f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s" for kind in kinds]
    return PackedItems(drawn, packed, plurals, num, left_out, links)


_FLUSHED = 50


def _visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


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


STEP = "number"
"""The field of an event that holds the number of the epoch or iteration."""

Steps = Mapping[float, Mapping[str, Any]]
"""Events by step; of a step that a resumed run did twice, the last one counts."""


@dataclass(frozen=True)
class CurveSource:
    """The event and the fields that make a curve.

    Args:
        kind: kind of the event, which is also the name of the step.
        title: title of the curve.
        y_label: the quantity and its unit.
        fields: fields of the event by name of the series.
        smoothed: as in `Curve`.
    """

    kind: str
    title: str
    y_label: str
    fields: Mapping[str, str]
    smoothed: bool = False

    def read(self, heading: str, events: Sequence[Mapping[str, Any]]) -> Curve | None:
        """Return the curve of a run, under a heading; None if the run has no such event."""
        steps = {event[STEP]: event for event in events if event["kind"] == self.kind}
        series = {label: points for label, name in self.fields.items() if (points := _series(steps, name))}
        if not series:
            return None
        return Curve(
            title=f"{heading}: {self.title}",
            x_label=self.kind,
            y_label=self.y_label,
            series=series,
            smoothed=self.smoothed,
            bands={label: band for label, name in self.fields.items() if (band := _band(steps, name))},
        )


def read_curves(sources: Sequence[CurveSource], runs: Sequence[Run]) -> list[Curve]:
    """Return the curves of some runs, run by run."""
    needs = {source.kind: {STEP: float} for source in sources}
    logs = [(run.heading, run.folder.events(needs)) for run in runs]
    return [curve for heading, events in logs for source in sources if (curve := source.read(heading, events))]


def _series(steps: Steps, name: str) -> list[tuple[float, float]]:
    points = [(float(step), event[name]) for step, event in sorted(steps.items()) if name in event]
    return [(step, math.nan if value is None else float(value)) for step, value in points]


def _band(steps: Steps, name: str) -> list[tuple[float, float, float]]:
    estimates = [(step, event.get("estimates", {}).get(name)) for step, event in sorted(steps.items())]
    return [(float(step), parts["low"], parts["high"]) for step, parts in estimates if parts and parts["low"] is not None]


class Chapter(ABC):
    """One system on the page: what its runs show beyond what the frame shows of every run.

    The frame shows of each run its failures, its attack, the tables of its verb with their notes, its metrics, and curves of
    its events. A subclass names its jobs, and overrides what differs.

    Attributes:
        name: address of the chapter on the page.
        title: its heading.
        unit: name of the rows of its runs, in the plural.
        jobs: names of its jobs, unless it overrides `owns`.
        stages: presentation of the stages of its composite runs, by job.
        curves: the curves that events of its runs make.
        in_tables: whether the tables show all metrics.
        open_tables: whether all tables stand open, because they are what the run is for.
        noted: whether to show the note of the verb; it may stand below a table already.
        terms: glossary: meaning of a word of the chapter, by a regular expression that finds it in any case.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str] = "items"
    jobs: ClassVar[Collection[str]] = ()
    stages: ClassVar[Mapping[str, Stages]] = {}
    curves: ClassVar[Sequence[CurveSource]] = ()
    in_tables: ClassVar[bool] = False
    open_tables: ClassVar[bool] = False
    noted: ClassVar[bool] = True
    terms: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def owns(self, job: str) -> bool:
        """Return whether runs of a job belong to this chapter; a run goes to the first chapter that accepts it."""
        return job in self.jobs

    def collect(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Return the runs that have something to show."""
        return [run for run in runs if self.shows(run)]

    def shows(self, run: Run) -> bool:
        """Return whether a run has something to show."""
        return run.shown and bool(run.rows or run.metrics)

    def verdict(self, runs: Sequence[Run]) -> Verdict | None:
        """Return the verdict of the first run that has one, with those of the others folded; None if none has."""
        verdicts = [(run, verdict) for run in runs if (verdict := self.verdict_of(run)) is not None]
        if not verdicts:
            return None
        (_, first), *others = verdicts
        sentences = [" ".join((f"{run.heading}:", other.sentence, *other.cautions)) for run, other in others]
        return replace(first, details=[*first.details, *sentences])

    def verdict_of(self, run: Run) -> Verdict | None:
        """Return the verdict on a run; None if nothing was measured."""
        return None

    def shown(self, run: Run) -> Mapping[str, Estimate]:
        """Return the metrics that stand outside the tables."""
        return {} if self.in_tables else run.metrics

    def legend(self, run: Run) -> Mapping[str, Metric]:
        """Return the definitions of a run's metrics."""
        return run.legend

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        """Return the tables of a run by heading."""
        return run.tables

    def shared_tables(self, runs: Sequence[Run]) -> Mapping[str, EstimateTable]:
        """Return the tables of all runs together, by heading."""
        return {}

    def notes(self, run: Run) -> Iterable[str]:
        """Return sentences on how a run was measured."""
        return [run.note] if self.noted and run.note else []

    def shared_figures(self, runs: Sequence[Run]) -> Iterable[Figure]:
        """Return the drawings of all runs together, which come first."""
        return ()

    def figures(self, run: Run) -> Iterable[Figure]:
        """Return the drawings of a run."""
        return ()

    def lists(self, run: Run) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return longer lists of (thing, remark), by heading."""
        return {}

    def items(self, run: Run) -> Iterable[tuple[str, Iterable[Item]]]:
        """Return items for the viewer by group, an empty name for the run itself; items are made one by one."""
        return ()


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
        found: runs of each chapter, by its name, in the order of the page.
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
    found: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    overview: Sequence[RunLine] = ()
    commands: Sequence[str] = ()
    runs: Sequence[tuple[str, str]] = ()
    jobs: Sequence[str] = ()
    files: Sequence[tuple[str, str]] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def verdicts(report: Report, chapters: Sequence[Chapter]) -> list[tuple[Chapter, Verdict]]:
    """Return the verdicts of the chapters of a report, those of the lowest rank alone."""
    candidates = [
        (chapter, chapter.verdict(report.found[chapter.name])) for chapter in chapters if chapter.name in report.found
    ]
    pairs = [(chapter, verdict) for chapter, verdict in candidates if verdict is not None]
    lowest = min((verdict.rank for _, verdict in pairs), default=0)
    return [pair for pair in pairs if pair[1].rank == lowest]
