"""The report as one self-contained HTML page: nothing is loaded from elsewhere, every text is escaped.

What speakers say is hostile text. Three lines of defence: jinja2 escapes everything that is not a figure drawn here, the page's
content policy forbids foreign resources and every script but the viewer's own, known by its hash, and invisible characters are
written out (`envs/core/visible.py`). Without the script the page stands as it is, its items folded.

The chapters of a report, in the order of the page: one line per system, imported when a run of it is shown.

What the sentences of verdicts are made of: numbers in words, directions, and what a number does not carry.

From a run folder to what its report shows.

What a job can tell the report, beyond its metrics and rows:
  * `write_summary(metrics, extra)` with `title` (a short heading), `description` (one sentence) and `command` (what to type);
  * events, as the curves of the chapters list them.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from parley.engine.core.page.content import (
    Chapter,
    Failures,
    Figure,
    Item,
    Report,
    Run,
    RunLine,
    Section,
    ShownRun,
    Stages,
    Verdict,
    fill,
    find_runs,
    short_paths,
)
from parley.engine.core.runs.documents import ENVIRONMENT, read_json, whole, write_whole
from parley.engine.core.runs.remote_sync import replicate
from parley.engine.core.runs.run_folder import RunFolder, is_summarised
from parley.engine.core.stats.statistics import FEW, NEITHER, Estimate, Metric
from parley.engine.core.stats.tables import ABSENT, TextTable
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import USAGE, WARNINGS
from parley.engine.core.verbs.status import FINISHED, run_status
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible

CHAPTERS = (
    "parley.engine.negotiation.page.chapter:Negotiations",
    # What hardening came to stands before the attacks that measured it.
    "parley.engine.triggers.page.chapter:HardenedModels",
    "parley.engine.triggers.page.chapter:TriggerSearches",
    "parley.engine.perturb.page.chapter:Perturbations",
    "parley.engine.ranking.page.searches:HardenedRankers",
    "parley.engine.ranking.page.chapter:Rankings",
    "parley.engine.ranking.page.searches:RankerAttacks",
    "parley.engine.generation.page.chapter:TrainedGenerators",
    "parley.engine.generation.page.chapter:JudgedSystems",
    "parley.engine.mutual_friends.page.hardened:HardenedFriends",
    "parley.engine.mutual_friends.page.chapter:Collaborations",
    "parley.engine.core.page.sweeps:Sweeps",
    "parley.engine.core.page.trainings:Trainings",
    # Last: what no other chapter knows.
    "parley.engine.core.page.trainings:Measurements",
)
_WITHOUT = ("core", "responders")
"""Packages whose jobs the chapters of every page show."""


def load_chapters(jobs: Iterable[str] | None = None) -> list[Chapter[Any]]:
    """Return the chapters that can own runs of some jobs, in the order of the page.

    Args:
        jobs: names as run folders carry them; all chapters where it is left out.
    """
    systems = None if jobs is None else {_system(job) for job in jobs}
    return [_load(target) for target in CHAPTERS if _is_wanted(target.split(".")[2], systems)]


def _is_wanted(system: str, systems: Collection[str] | None) -> bool:
    if systems is None or system == "core" or system in systems:
        return True
    # The demonstration holds runs of all systems; a job of another version may be of any.
    with_chapters = {target.split(".")[2] for target in CHAPTERS}
    return any(other not in with_chapters and other not in _WITHOUT for other in systems)


def _system(job: str) -> str:
    """Return the system of a job, such as "triggers"; empty for a job that this version does not have."""
    try:
        room, package = find(job).target.split(".")[1:3]
    except RunError:
        return ""
    return package if room == "engine" else "core"


def _load(target: str) -> Chapter[Any]:
    module, _, name = target.partition(":")
    chapter: Chapter[Any] = getattr(importlib.import_module(module), name)()
    return chapter


MINUS = "\N{MINUS SIGN}"
POINTS = Metric("points", "", "")
SHARE = Metric("share", "", "", "share")
MOST_MARKS = 12
"""Estimates that a picture has room for."""


def number(metric: Metric, value: float) -> str:
    """A value in the form of its metric: decimals, percent, or a whole number; "none" for NaN."""
    if not math.isfinite(value):
        return "none"
    if metric.form == "share":
        return f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
    whole = metric.form == "count" or abs(value) >= 1000
    return f"{value:,.{0 if whole else 2}f}".replace("-", MINUS)


def interval(metric: Metric, estimate: Estimate) -> str:
    """The 95 % interval in words; empty where there is none."""
    if not all(map(math.isfinite, (estimate.low, estimate.high))):
        return ""
    return f"{number(metric, estimate.low)} to {number(metric, estimate.high)}"


def certain_sign(difference: Estimate) -> Literal[-1, 0, 1]:
    """Which side of 0 the whole interval is on; 0 where it holds 0 or there is none."""
    return 1 if difference.low > 0 else -1 if difference.high < 0 else 0


def caveat(*estimates: Estimate, unit: str = "independent units") -> str:
    """A sentence, with a blank before it, on what the numbers of a verdict do not carry; empty where they carry it.

    Args:
        estimates: the numbers.
        unit: what they are counted in, in the plural.
    """
    known = [each for each in estimates if math.isfinite(each.value)]
    said = ""
    if known and (least := min(each.n for each in known)) < FEW:
        said += f" Few {unit} ({least:,}): do not lean on it."
    if any(not math.isfinite(each.low) for each in known):
        said += " There is no interval."
    return said


def listed(names: list[str]) -> str:
    """Such as "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def first_marks(marks: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """As many as a picture has room for."""
    return dict(list(marks.items())[:MOST_MARKS])


def others_below(measured: Sized, what: str = "evaluations") -> str:
    """A sentence, with a blank before it, on the runs that a verdict on the first one leaves out; empty for no other."""
    return f" {len(measured) - 1} more {what} are below." if len(measured) > 1 else ""


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


REPORT = "report.html"

_FILES = {
    "config.json": "what was asked for",
    "environment.json": "versions, commit, device",
    "events.jsonl": "what happened when",
    "rows": "every dialogue, target or example, as Parquet",
    "next.tsv": "what followed the recorded replies; empty where the corpus does not know",
    "labels": "the sheets that people have labelled",
    "sheet.csv": "changed lines for a person to label",
    "summary.json": "the metrics",
    "targets.json": "what was searched for",
    "best.yaml": "the best settings, for --config",
    "table.md": "the table, as Markdown",
    "tensorboard": "training as TensorBoard shows it: tensorboard --logdir of the run",
}
_WEIGHTS = ".safetensors"
_ALL_FAILED, _DAMAGED = "every item failed", "damaged"


def report_from_run(run_dir: Path) -> Path:
    """Writes `report.html` into a run folder.

    Args:
        run_dir: a run, or a folder that holds runs.

    Returns:
        The page written.

    Raises:
        RunError: there is no run in the folder, a part of it is damaged, or the page cannot be written. Of a folder of runs
            those that are damaged stand in the table of all with what is wrong.
    """
    with _whole(run_dir):
        report = collect_run(run_dir)
        page = write_report(report, load_chapters(report.jobs), run_dir / REPORT)
    replicate(page)
    return page


def collect_run(run_dir: Path) -> Report:
    """What the report of a run folder shows.

    Args:
        run_dir: a run, or a folder that holds runs.

    Raises:
        RunError: there is no run in the folder, or something that one holds is damaged.
    """
    with _whole(run_dir):
        return _collect(run_dir)


def _whole(run_dir: Path) -> AbstractContextManager[None]:
    return whole(run_dir, f"parley resume {display_path(run_dir)} mends what it can; --debug shows where reading ended")


def _collect(run_dir: Path) -> Report:
    found = find_runs(run_dir)
    top = found.get("")
    overview = [] if top else [_line(name, folder) for name, folder in found.items()]
    # One of many keeps the others from no page; where all are damaged, reading them says how.
    damaged = {line.name for line in overview if line.state.startswith(_DAMAGED)}
    found = {name: folder for name, folder in found.items() if name not in damaged} or found
    stages = _stages(top)
    if top and stages.others == "hidden":
        # Its phases are many; the page shows what they came to.
        there = [name for name in stages.of({}) if (run_dir / name / ENVIRONMENT).is_file()]
        found = {"": top} | {name: RunFolder.load(run_dir / name) for name in there}
    summaries = {name: folder.summary() or {} for name, folder in found.items()}
    about = summaries.get("", {})
    titles = {name: str(summaries[name].get("title") or name or folder.path.resolve().name) for name, folder in found.items()}
    headings = _headings(found, titles, stages, stages.of(summaries.get("", {})))
    runs = [
        # What a run of several stages measured is in its stages; shown twice it would look like one more.
        Run(name=name, heading=headings[name], shown=bool(name) or len(found) == 1, folder=folder)
        for name, folder in found.items()
    ]
    failed = {line.name for line in overview if line.state.startswith(_ALL_FAILED)}
    config: dict[str, str] = {}
    files: list[tuple[str, str]] = []
    for run in runs:
        prefix = f"{run.name}/" if run.name else ""
        config |= _flat(run.config, f"{run.name}." if run.name else "")
        files += [(prefix + path, what) for path, what in _files(run.folder.path)]
    commands = [str(summary["command"]) for summary in summaries.values() if "command" in summary]
    return Report(
        title=f"{len(overview)} runs in {display_path(run_dir)}" if overview else short_paths([titles[""]])[titles[""]],
        lead=about.get("description", ""),
        state=_state(runs[0]) if top else "",
        warnings=_warnings(summaries),
        found=_read([run for run in runs if run.name not in failed]),
        overview=overview,
        commands=commands[:1] if "command" in about else commands,
        runs=[(name or ".", title) for name, title in titles.items()],
        jobs=[folder.job for folder in found.values()],
        files=files,
        config=config,
        environment=_flat(read_json(next(iter(found.values())).path / ENVIRONMENT), ""),
    )


def _warnings(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what runs say of answers that are no reply, each sentence once, those of the page's own run first."""
    warnings = (str(sentence) for summary in summaries.values() for sentence in summary.get(USAGE, {}).get(WARNINGS, ()))
    return list(dict.fromkeys(visible(sentence) for sentence in warnings))


def _stages(top: RunFolder | None) -> Stages:
    if top is None:
        return Stages()
    known = {job: stages for chapter in load_chapters([top.job]) for job, stages in chapter.stages.items()}
    return known.get(top.job, Stages())


def _headings(
    found: Mapping[str, RunFolder], titles: Mapping[str, str], stages: Stages, known: Mapping[str, str]
) -> dict[str, str]:
    """What each run is called: by its title, or short where the title of the page says the rest; equal titles by folder too."""
    short = short_paths(titles.values())
    named = {
        name: known.get(name) or (name if name and stages.others == "by folder" else short[title])
        for name, title in titles.items()
    }
    folders = {name: name or folder.path.resolve().name for name, folder in found.items()}
    times = Counter(named.values())
    return {name: f"{heading} ({folders[name]})" if times[heading] > 1 else heading for name, heading in named.items()}


def _shared_out(runs: Iterable[Run]) -> list[tuple[Chapter[Any], list[Run]]]:
    """The chapters that have runs, each with its own."""
    runs = list(runs)
    chapters = load_chapters(run.job for run in runs)
    shares: dict[str, list[Run]] = {}
    for run in runs:
        owner = next(chapter for chapter in chapters if chapter.owns(run.job))
        shares.setdefault(owner.name, []).append(run)
    return [(chapter, shares[chapter.name]) for chapter in chapters if chapter.name in shares]


def _read(runs: Iterable[Run]) -> dict[str, Any]:
    """What the chapters find in their runs, by chapter."""
    found = {chapter.name: chapter.collect(own) for chapter, own in _shared_out(runs)}
    return {name: read for name, read in found.items() if read is not None}


def _line(name: str, folder: RunFolder) -> RunLine:
    """A run among others: how it stands, and what its own page would say of it."""
    page = f"{name}/{REPORT}" if (folder.path / REPORT).is_file() else ""
    try:
        alone = collect_run(folder.path)
    except RunError as error:
        said = "; ".join(str(part) for part in (error.what, error.where, error.fix) if part is not None)
        return RunLine(name=name, job=folder.job, state=f"{_DAMAGED}: {said}", outcome="", page=page)
    outcome = " ".join(verdict.sentence for _, verdict in verdicts(alone, load_chapters(alone.jobs)))
    failed = alone.state.startswith(_ALL_FAILED)
    return RunLine(name=name, job=folder.job, state=alone.state or FINISHED, outcome="" if failed else outcome, page=page)


def _state(run: Run) -> str:
    """How a run stands that is not whole, in one line; empty for one that is."""
    outcomes = run.folder.outcomes()
    if outcomes.failed and not outcomes.done:
        ((reason, times),) = outcomes.errors.most_common(1)
        return f"{_ALL_FAILED}, {times:,} of {outcomes.failed:,} with: {reason}"
    if run.summary and is_summarised(run.folder.events()):
        return ""
    status = run_status(run.folder.path)
    resume = "" if status.writer else f"; go on with: {shlex.join(['parley', 'resume', display_path(status.run)])}"
    total = f" of {status.pace.total:,}" if status.pace.total is not None else ""
    return f"{status.state}: {status.pace.done:,}{total} {status.pace.unit} are done{resume}"


def _files(path: Path) -> Sequence[tuple[str, str]]:
    known = [(name, what) for name, what in _FILES.items() if (path / name).exists()]
    weights = sorted(str(file.relative_to(path)) for file in path.glob(f"*{_WEIGHTS}"))
    weights += sorted(str(file.relative_to(path)) for file in path.glob(f"*/*{_WEIGHTS}"))
    return [*known, *((name, "weights") for name in weights)]


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Nested settings by dotted name; what is not set is left out."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat
