"""The report of a run folder as one self-contained HTML page: collect its content, choose its chapters, and write it.

Words of speakers are hostile text. Three defences: jinja2 escapes everything except drawings made here; the page's content
policy forbids foreign resources and every script but the viewer's own, known by its hash; and invisible characters are written
out (`envs/core/visible.py`). Without the script the page stands as it is, with its items folded.

`CHAPTERS` lists the chapters in the order of the page, one line per system; a chapter is imported when a run of it is shown.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import math
import re
import shlex
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from markupsafe import Markup

from parley.engine.core.page.content import (
    Chapter,
    Item,
    Report,
    Run,
    RunLine,
    Stages,
    fill,
    find_runs,
    pack_items,
    read_curves,
    short_paths,
    verdicts,
)
from parley.engine.core.runs.documents import ENVIRONMENT, read_json, whole, write_whole
from parley.engine.core.runs.remote_sync import replicate
from parley.engine.core.runs.run_folder import RunFolder, is_summarised
from parley.engine.core.stats.statistics import NEITHER, Estimate, Metric
from parley.engine.core.tables.table import ABSENT, EstimateTable
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import ATTACK, USAGE, WARNINGS, lost_items
from parley.engine.core.verbs.status import FINISHED, has_lost_rows, run_status
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path, local_copy
from parley.envs.core.visible import visible

CHAPTERS = (
    "parley.engine.scan.page:Scans",
    "parley.engine.core.page.trainings:Recipes",
    # The result of hardening comes before the attacks that measured it.
    "parley.engine.negotiation.page:HardenedNegotiators",
    "parley.engine.negotiation.page:Tactics",
    "parley.engine.negotiation.page:Negotiations",
    "parley.engine.negotiation.page:Populations",
    "parley.engine.triggers.page:HardenedModels",
    "parley.engine.triggers.page:TriggerSearches",
    "parley.engine.perturb.page:Perturbations",
    "parley.engine.perturb.page:Audits",
    "parley.engine.ranking.page:HardenedRankers",
    "parley.engine.ranking.page:HardenedEncoders",
    "parley.engine.ranking.page:Rankings",
    "parley.engine.ranking.page:RankerAttacks",
    "parley.engine.generation.page:TrainedGenerators",
    "parley.engine.generation.page:JudgedSystems",
    "parley.engine.chat.page:HardenedChats",
    "parley.engine.chat.page:HardenedChatNegotiators",
    "parley.engine.mutual_friends.page:HardenedFriends",
    "parley.engine.mutual_friends.page:MutualFriendsChapter",
    "parley.engine.secret.page:Secrets",
    "parley.engine.core.page.sweeps:Sweeps",
    "parley.engine.core.page.trainings:Trainings",
    # Last: runs that no other chapter knows.
    "parley.engine.core.page.trainings:Measurements",
)
_ON_EVERY_PAGE = ("core", "responders")
"""Packages whose jobs are shown by chapters of every page."""


def load_chapters(jobs: Iterable[str] | None = None) -> list[Chapter]:
    """Return the chapters that can own runs of some jobs, in the order of the page.

    Args:
        jobs: names of the jobs in run folders; all chapters if left out.
    """
    systems = None if jobs is None else {_system(job) for job in jobs}
    return [_load(target) for target in CHAPTERS if _is_wanted(target.split(".")[2], systems)]


def _is_wanted(system: str, systems: Collection[str] | None) -> bool:
    if systems is None or system == "core" or system in systems:
        return True
    # The demonstration holds runs of all systems; a job of another version may be of any.
    with_chapters = {target.split(".")[2] for target in CHAPTERS}
    return any(name not in with_chapters and name not in _ON_EVERY_PAGE for name in systems)


def _system(job: str) -> str:
    """Return the system of a job, such as "triggers"; empty for a job that this version does not have."""
    try:
        room, package = find(job).target.split(".")[1:3]
    except RunError:
        return ""
    return package if room == "engine" else "core"


def _load(target: str) -> Chapter:
    module, _, name = target.partition(":")
    chapter: Chapter = getattr(importlib.import_module(module), name)()
    return chapter


MINUS = "\N{MINUS SIGN}"
POINTS = Metric("points", "", "")
SHARE = Metric("share", "", "", "share")
MOST_MARKS = 12
"""The number of estimates that fit into a picture."""


def number(metric: Metric, value: float) -> str:
    """Return a value in the form of its metric: decimals, percent, or a whole number; "none" for NaN."""
    if not math.isfinite(value):
        return "none"
    if metric.form == "share":
        return f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
    whole = metric.form == "count" or abs(value) >= 1000
    return f"{value:,.{0 if whole else 2}f}".replace("-", MINUS)


def interval(metric: Metric, estimate: Estimate) -> str:
    """Return the 95 % interval in words; empty if there is none."""
    if not all(map(math.isfinite, (estimate.low, estimate.high))):
        return ""
    return f"{number(metric, estimate.low)} to {number(metric, estimate.high)}"


def certain_sign(difference: Estimate) -> Literal[-1, 0, 1]:
    """Return the side of 0 that holds the whole interval; 0 if the interval holds 0 or does not exist."""
    return 1 if difference.low > 0 else -1 if difference.high < 0 else 0


def listed(names: list[str]) -> str:
    """Return the names as a phrase such as "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def brief_name(name: str, most: int = 8) -> str:
    """Return the first words of a run's name, which may be longer than a sentence has room for."""
    words = name.split()
    return name if len(words) <= most else f"{' '.join(words[:most])} \N{HORIZONTAL ELLIPSIS}"


def first_marks(marks: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the first marks, as many as fit into a picture."""
    return dict(list(marks.items())[:MOST_MARKS])


MOST_NUMBERS = 12
"""Numbers of a chapter that are not folded."""
MOST_FIGURES = 3
"""Drawings of a chapter that are not folded."""
_MOST_COLUMNS = 8
"""Columns of a table that fit on a page of 1,200 pixels."""
_RAIL = 120.0
_TAG = re.compile(r"<[^>]*>")


class Line(NamedTuple):
    """One estimate of a metric; `dot`, `span` (start, width) and `zero` are positions on a rail of 120 units."""

    name: str
    value: str
    interval: str
    n: int
    small: bool
    dot: float | None
    span: tuple[float, float] | None
    zero: float | None


class MetricBlock(NamedTuple):
    """One metric of all runs that have it, drawn to one scale."""

    title: str
    direction: str
    definition: str
    lines: Sequence[Line]


class Sheet(NamedTuple):
    """A table that fits a page: turned if its columns are too many, stacked row by row if both sides are long."""

    heading: str
    table: EstimateTable
    form: str


def write_report(report: Report, chapters: Sequence[Chapter], path: Path) -> Path:
    """Write the page.

    Args:
        report: the report to show.
        chapters: the chapters that have collected it.
        path: the file to write; an existing page is replaced only when the new one is complete.

    Returns:
        The written path.

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


def render(report: Report, chapters: Sequence[Chapter]) -> str:
    """Return the page as text; the same report gives the same text."""
    present = [(chapter, report.found[chapter.name]) for chapter in chapters if chapter.name in report.found]
    owners: dict[str, Chapter] = {}

    def groups() -> Iterator[tuple[str, Iterable[Item]]]:
        for chapter, runs in present:
            for heading, (name, own) in ((run.heading, group) for run in runs for group in chapter.items(run)):
                group = ", ".join(filter(None, (heading, name)))
                owners.setdefault(group, chapter)
                yield group, own

    items = pack_items(groups())
    shown = []
    for chapter, runs in present:
        links = {f"{group}: {link}": anchor for (group, link), anchor in items.links.items() if owners[group] is chapter}
        html = fill("core/page/templates/chapter.html", **_parts(chapter, runs, links, report.title))
        words = _TAG.sub(" ", html)
        terms = [term for pattern, term in chapter.terms.items() if re.search(pattern, words, re.IGNORECASE)]
        shown.append((chapter, html, terms))
    script = files("parley.engine.core.page").joinpath("templates/viewer.js").read_text(encoding="utf-8") if items.num else ""
    page = fill(
        "core/page/templates/page.html",
        report=report,
        verdicts=[] if report.overview else shown_verdicts(report, chapters),
        chapters=shown,
        items=items,
        style=Markup(files("parley.engine.core.page").joinpath("templates/report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        # The hash by which the content policy knows the script.
        script_hash=f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" if script else "",
    )
    # Applied here to every name, title, setting and text; line by line, because most lines have no such characters.
    return "\n".join(map(visible, str(page).split("\n")))


def shown_verdicts(report: Report, chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    """Return the verdicts, each with its number as a line and the picture of its marks."""
    return [
        {
            "chapter": chapter,
            "verdict": verdict,
            "number": _block(verdict.metric, {"": verdict.number}).lines[0],
            "picture": _block(verdict.metric, verdict.marks),
        }
        for chapter, verdict in verdicts(report, chapters)
    ]


def metric_blocks(runs: Iterable[tuple[str, Mapping[str, Estimate], Mapping[str, Metric]]]) -> list[tuple[Metric, MetricBlock]]:
    """Return the metrics of some runs, each over all runs that have it; main metrics come first.

    Metrics of one name with different meanings are not comparable: they have blocks of their own.

    Args:
        runs: name, metrics and legend of each run.
    """
    positions: dict[str, int] = {}
    estimates: dict[tuple[str, Metric], dict[str, Estimate]] = {}
    for run, metrics, legend in runs:
        for name in {**legend, **metrics}:
            positions.setdefault(name, len(positions))
        for name, estimate in metrics.items():
            metric = legend.get(name) or Metric(name.replace("_", " "), NEITHER, "")
            estimates.setdefault((name, metric), {})[run] = estimate
    keys = sorted(estimates, key=lambda key: (not key[1].main, positions[key[0]]))
    return [(key[1], _block(key[1], estimates[key])) for key in keys]


def headed_tables(chapter: Chapter, runs: Sequence[Run]) -> list[tuple[str, EstimateTable]]:
    """Return the tables of a chapter with their headings; of several runs with tables those below the page are named."""
    by_run = [(run, own) for run in runs if (own := chapter.tables(run))]
    tables = [
        (", ".join(filter(None, (heading, run.heading if run.name and len(by_run) > 1 else ""))) or run.heading, table)
        for run, own in by_run
        for heading, table in own.items()
    ]
    return [*tables, *chapter.shared_tables(runs).items()]


def fitted(heading: str, table: EstimateTable) -> Sheet:
    """Return a table that fits the page: transposed if it has many columns and few rows, stacked if it has many of both."""
    if len(table.columns) <= _MOST_COLUMNS:
        return Sheet(heading, table, "wide")
    if len(table.rows) < _MOST_COLUMNS:
        first, *columns = zip(table.columns, *table.rows, strict=True)
        return Sheet(heading, EstimateTable(first, tuple(columns), table.note), "wide")
    return Sheet(heading, table, "stacked")


def _parts(chapter: Chapter, runs: Sequence[Run], links: Mapping[str, str], title: str) -> dict[str, Any]:
    """Return a chapter with a dozen numbers open, tables first, and the rest folded; drop the page's title from texts."""

    def brief(text: str) -> str:
        rest = text.removeprefix(title)
        return rest[2:] if rest != text and rest[:2] in (", ", ": ", "; ") else text

    several, room = len(runs) > 1, MOST_NUMBERS
    sheets: dict[bool, list[Sheet]] = {True: [], False: []}
    for heading, table in headed_tables(chapter, runs):
        columns = [place for place, column in enumerate(table.columns) if place and column not in table.texts]
        num = sum(row[place] not in ("", ABSENT) for row in table.rows for place in columns)
        is_open = num <= room or chapter.open_tables
        sheets[is_open].append(fitted(brief(heading), table))
        room -= num * is_open
    measured = [(run, metrics) for run in runs if run.shown and (metrics := chapter.shown(run))]
    blocks = metric_blocks((run.heading, metrics, chapter.legend(run)) for run, metrics in measured)
    has_main = any(metric.main for metric, _ in blocks)
    drawn_blocks: dict[bool, list[MetricBlock]] = {True: [], False: []}
    for metric, block in blocks:
        is_open = not drawn_blocks[False] and len(block.lines) <= room and (metric.main or not has_main)
        drawn_blocks[is_open].append(block)
        room -= len(block.lines) * is_open
    figures = list(chapter.shared_figures(runs))
    figures += [replace(figure, run=run.heading) for run in runs for figure in chapter.figures(run)]
    curves = [curve for curve in read_curves(chapter.curves, runs) if any(curve.series.values())]
    if figures or curves:
        # matplotlib takes a second to load.
        from parley.engine.core.page import plots

        figures = [plots.drawn(figure, title, brief) for figure in [*figures, *map(plots.curve, curves)]]
    noted: dict[str, list[str]] = {}
    for run in runs:
        for note in chapter.notes(run):
            noted.setdefault(note, []).append(run.heading)
    described = [f"{run.heading}: {run.description}" for run in runs if run.shown and run.metrics and run.description]
    return {
        "chapter": chapter,
        "failures": [(run, failures) for run in runs if run.shown and (failures := run.failures)],
        "sheets": sheets[True],
        "folded_sheets": sheets[False],
        "blocks": drawn_blocks[True],
        "folded_blocks": drawn_blocks[False],
        "alone": len(measured) == 1,
        "figures": figures[:MOST_FIGURES],
        "folded_figures": figures[MOST_FIGURES:],
        "links": {brief(name): anchor for name, anchor in links.items()},
        "attacks": {run.heading: attack for run in runs if (attack := run.summary.get(ATTACK))},
        "lists": {
            f"{heading}, {run.heading}" if several else heading: pairs
            for run in runs
            for heading, pairs in chapter.lists(run).items()
        },
        # A note on all runs stands once.
        "notes": [*described, *(note if len(of) > 1 else brief(f"{of[0]}: {note}") for note, of in noted.items())],
    }


def _block(metric: Metric, estimates: Mapping[str, Estimate]) -> MetricBlock:
    bounds = [x for e in estimates.values() for x in (e.low, e.value, e.high) if math.isfinite(x)]
    low, high = (0.0, 1.0) if metric.form in ("rate", "share") else (min(0.0, *bounds, 0.0), max(0.0, *bounds, 0.0))
    width = (high - low) or 1.0

    def position(x: float) -> float:
        return round(4 + (_RAIL - 8) * (x - low) / width, 2)

    lines = []
    for name, estimate in estimates.items():
        bounded = all(map(math.isfinite, (estimate.low, estimate.high)))
        lines.append(
            Line(
                name=name,
                value=number(metric, estimate.value),
                interval=interval(metric, estimate),
                n=estimate.n,
                small=estimate.flagged,
                dot=position(estimate.value) if bounded else None,
                span=(position(estimate.low), round(position(estimate.high) - position(estimate.low), 2)) if bounded else None,
                zero=position(0.0) if bounded and low < 0 < high else None,
            )
        )
    direction = "" if metric.direction == NEITHER else metric.direction
    return MetricBlock(metric.title[:1].upper() + metric.title[1:], direction, metric.definition, lines)


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


def report_from_run(run_dir: Path, file: str = "") -> Path:
    """Write the page of a run.

    Args:
        run_dir: a run, or a folder that holds runs.
        file: the file or URI to write; `report.html` of the run when empty.

    Returns:
        The written page.

    Raises:
        RunError: there is no run in the folder, a part of it is damaged, or the page cannot be written. Damaged runs in a
            folder of runs are listed in its table, with the damage.
    """
    with _whole(run_dir):
        report = collect_run(run_dir)
        page = write_report(report, load_chapters(report.jobs), local_copy(file) if file else run_dir / REPORT)
    replicate(page)
    return page


def collect_run(run_dir: Path) -> Report:
    """Return the content of the report of a run folder.

    Args:
        run_dir: a run, or a folder that holds runs.

    Raises:
        RunError: there is no run in the folder, or a run is damaged.
    """
    with _whole(run_dir):
        return _collect(run_dir)


def _whole(run_dir: Path) -> AbstractContextManager[None]:
    return whole(run_dir, f"parley resume {display_path(run_dir)} mends what it can; --debug shows where reading ended")


def _collect(run_dir: Path) -> Report:
    folders = find_runs(run_dir)
    top = folders.get("")
    overview = [] if top else [_line(name, folder) for name, folder in folders.items()]
    # A damaged run keeps no other from the page; if all are damaged, reading them raises the error.
    damaged = {line.name for line in overview if line.state.startswith(_DAMAGED)}
    folders = {name: folder for name, folder in folders.items() if name not in damaged} or folders
    stages = _stages(top)
    if top and stages.others == "hidden":
        # Its stages are many; the page shows their results.
        existing = [name for name in stages.of({}) if (run_dir / name / ENVIRONMENT).is_file()]
        folders = {"": top} | {name: RunFolder.load(run_dir / name) for name in existing}
    summaries = {name: folder.summary() or {} for name, folder in folders.items()}
    about = summaries.get("", {})
    titles = {name: str(summaries[name].get("title") or name or folder.path.resolve().name) for name, folder in folders.items()}
    headings = _headings(folders, titles, stages, stages.of(summaries.get("", {})))
    runs = [
        # The measurements of a run with stages are those of its stages; shown twice they would look like one more.
        Run(name=name, heading=headings[name], shown=bool(name) or len(folders) == 1, folder=folder)
        for name, folder in folders.items()
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
        found=_collected([run for run in runs if run.name not in failed]),
        overview=overview,
        commands=commands[:1] if "command" in about else commands,
        runs=[(name or ".", title) for name, title in titles.items()],
        jobs=[folder.job for folder in folders.values()],
        files=files,
        config=config,
        environment=_flat(read_json(next(iter(folders.values())).path / ENVIRONMENT), ""),
    )


def _warnings(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the warnings of runs on answers that are no reply, each sentence once, behind the names of its runs."""
    runs: dict[str, list[str]] = {}
    for name, summary in summaries.items():
        for sentence in summary.get(USAGE, {}).get(WARNINGS, ()):
            runs.setdefault(str(sentence), []).append(name)
    return [visible(sentence if "" in names else f"{', '.join(names)}: {sentence}") for sentence, names in runs.items()]


def _stages(top: RunFolder | None) -> Stages:
    if top is None:
        return Stages()
    stages_of = {job: stages for chapter in load_chapters([top.job]) for job, stages in chapter.stages.items()}
    return stages_of.get(top.job, Stages())


def _headings(
    folders: Mapping[str, RunFolder], titles: Mapping[str, str], stages: Stages, stage_headings: Mapping[str, str]
) -> dict[str, str]:
    """Return the heading of each run: its title, shortened if the page's title says the rest, with the folder if equal."""
    short = short_paths(titles.values())
    headings = {
        name: stage_headings.get(name) or (name if name and stages.others == "by folder" else short[title])
        for name, title in titles.items()
    }
    folder_names = {name: name or folder.path.resolve().name for name, folder in folders.items()}
    times = Counter(headings.values())
    return {name: f"{heading} ({folder_names[name]})" if times[heading] > 1 else heading for name, heading in headings.items()}


def _runs_by_chapter(runs: Iterable[Run]) -> list[tuple[Chapter, list[Run]]]:
    """Return the chapters that have runs, each with its own."""
    runs = list(runs)
    chapters = load_chapters(run.job for run in runs)
    shares: dict[str, list[Run]] = {}
    for run in runs:
        owner = next(chapter for chapter in chapters if chapter.owns(run.job))
        shares.setdefault(owner.name, []).append(run)
    return [(chapter, shares[chapter.name]) for chapter in chapters if chapter.name in shares]


def _collected(runs: Iterable[Run]) -> dict[str, Sequence[Run]]:
    contents = {chapter.name: chapter.collect(own) for chapter, own in _runs_by_chapter(runs)}
    return {name: content for name, content in contents.items() if content}


def _line(name: str, folder: RunFolder) -> RunLine:
    """Return a run among others: its state, and the verdict of its own page."""
    page = f"{name}/{REPORT}" if (folder.path / REPORT).is_file() else ""
    try:
        with _whole(folder.path):
            alone = _collect(folder.path)
            # A damaged part shows when it is read.
            for run in (run for runs in alone.found.values() for run in runs):
                deque(run.folder.read_parts(), maxlen=0)
            own = [verdict for _, verdict in verdicts(alone, load_chapters(alone.jobs))]
    except RunError as error:
        message = "; ".join(str(part) for part in (error.what, error.where, error.fix) if part is not None)
        return RunLine(name=name, job=folder.job, state=f"{_DAMAGED}: {message}", outcome="", page=page)
    lost = [f"{lost}." for lost in [lost_items(folder.outcomes())] if lost]
    outcome = " ".join([*(sentence for verdict in own for sentence in (verdict.sentence, *verdict.cautions)), *lost])
    failed = alone.state.startswith(_ALL_FAILED)
    return RunLine(name=name, job=folder.job, state=alone.state or FINISHED, outcome="" if failed else outcome, page=page)


def _state(run: Run) -> str:
    """Return the state of an unfinished run in one line; empty for a finished one."""
    outcomes = run.folder.outcomes()
    if outcomes.failed and not outcomes.done:
        ((reason, times),) = outcomes.errors.most_common(1)
        return f"{_ALL_FAILED}, {times:,} of {outcomes.failed:,} with: {reason}"
    events = run.folder.events()
    if run.summary and is_summarised(events) and not has_lost_rows(events, outcomes):
        return ""
    status = run_status(run.folder.path)
    resume = "" if status.writer else f"; go on with: {shlex.join(['parley', 'resume', display_path(status.run)])}"
    total = f" of {status.pace.total:,}" if status.pace.total is not None else ""
    return f"{status.state}: {status.pace.done:,}{total} {status.pace.unit} are done{resume}"


def _files(path: Path) -> Sequence[tuple[str, str]]:
    files = [(name, description) for name, description in _FILES.items() if (path / name).exists()]
    weights = sorted(str(file.relative_to(path)) for file in path.glob(f"*{_WEIGHTS}"))
    weights += sorted(str(file.relative_to(path)) for file in path.glob(f"*/*{_WEIGHTS}"))
    return [*files, *((name, "weights") for name in weights)]


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return nested settings by dotted name, without those that are not set."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat
