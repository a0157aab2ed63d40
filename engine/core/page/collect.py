"""From a run folder to what its report shows.

What a job can tell the report, beyond its metrics and rows:
  * `write_summary(metrics, extra)` with `title` (a short heading), `description` (one sentence) and `command` (what to type);
  * events, as the curves of the chapters list them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from parley.engine.core.page.chapters import load_chapters
from parley.engine.core.page.content import Chapter, Report, RunLine, Stages
from parley.engine.core.page.page import verdicts, write_report
from parley.engine.core.page.runs import Run, find_runs, short_paths
from parley.engine.core.runs.event_log import is_summarised
from parley.engine.core.runs.layout import ENVIRONMENT
from parley.engine.core.runs.manifest import read_json, whole
from parley.engine.core.runs.remote_sync import replicate
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import USAGE, WARNINGS
from parley.engine.core.verbs.status import FINISHED, run_status
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible

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
