"""Verbs that run a job or take runs: each verb of a job, `parley report`, `table`, `compare`, `rows`, `status` and `resume`.

A verb parses its flags, does its work and shows the result.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.text import Text
from tyro import conf

from parley.engine.core.cli.flags import FailIf, JobCommand, parse, parse_job, spelled_out
from parley.engine.core.cli.main import Verb
from parley.engine.core.cli.screen import duration, make_console, show_lines, show_result, show_table, show_tables, watching
from parley.engine.core.ray import logs
from parley.engine.core.runs.documents import CONFIG
from parley.engine.core.runs.remote_sync import fetched_run, replicate
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.catalogue import find
from parley.engine.core.verbs.job import Job, Result, flat
from parley.engine.core.verbs.status import DAMAGED, FAILED, FINISHED, INTERRUPTED, Pace, RunStatus, statuses
from parley.engine.core.verbs.trainings import Entry
from parley.envs.core.config import as_now, assign, from_dict, to_dict
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import HUMAN
from parley.envs.core.registry import Trust, require_trust_in, trusting
from parley.envs.core.storage.uris import display_path, local_copy
from parley.policies.chat.model import by_kind

if TYPE_CHECKING:
    from parley.engine.core.verbs.conditions import ConditionOutcome, FailCondition

READING = "runs are being read"
"""The first line of a verb that reads runs, if that takes a second."""


@dataclass(frozen=True, kw_only=True)
class RowsArguments:
    """A run and a file."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of a run, finished or not."""
    file: Annotated[conf.Positional[str], conf.arg(metavar="FILE")]
    """The file or URI to write, which does not exist yet: .csv, .parquet or .jsonl; .eval is a log of inspect_ai, .json holds
    conversations for other tools."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print what was written as one JSON object on standard output."""


def run_rows(verb: Verb, arguments: Sequence[str]) -> int:
    """Write the rows of a run into a file; return the exit status."""
    options = parse(RowsArguments, verb, arguments)
    from parley.engine.core.verbs.export import write_flat

    with watching(first=READING) as reporter:
        written = write_flat(options.run, options.file, reporter)
    if options.json:
        sys.stdout.write(f"{json.dumps({**asdict(written), 'file': display_path(written.file)})}\n")
        return 0
    console = make_console()
    facts = [
        ("lines", f"{written.num_lines:,}, of {written.num_rows:,} rows"),
        ("failed rows", f"{written.num_failed:,}, a line each that says why" if written.num_failed else ""),
        ("scores" if written.file.suffix in (".eval", ".json") else "columns", ", ".join(written.columns)),
    ]
    show_table(console, f"{options.run}: {written.job}", ("", "written"), [fact for fact in facts if fact[1]])
    if written.num_guarded:
        hint = f"{written.num_guarded:,} texts begin as a formula does, or with an apostrophe: an apostrophe stands in front"
        console.print(Text(f"\n{hint}; .parquet and .jsonl hold them as they are"), soft_wrap=True)
    if not written.finished:
        console.print(Text("\nthe run is not finished: these are the rows that it has so far"), soft_wrap=True)
    show_lines(console, "files", [display_path(written.file)])
    show_lines(console, "next", [] if written.finished else [_resume(local_copy(options.run))])
    return 0


def _resume(run: Path) -> str:
    """Return the command that goes on with a run; it agrees to the Python files and programs that the run names."""
    words = ["parley", "resume", display_path(run)]
    try:
        with trusting(Trust()):
            require_trust_in(RunFolder.load(run).config)
    except ConfigError:
        words.append("--trust-code")
    return shlex.join(words)


def run_job(verb: Verb, arguments: Sequence[str]) -> int:
    """Run the job of a verb; return the exit status."""
    entry = find("-".join(verb.words))
    job = entry.load()
    return carry_out(entry, job, parse_job(verb, job, arguments))


def _without_figures(result: Result) -> Result:
    """Return the result without empty tables if every item failed."""
    reason = result.failure or result.undecided
    if not reason or any(estimate.n for estimate in result.metrics.values()):
        return result
    reason += "" if "--debug" in reason else "; the same command with --debug shows the traceback"
    reasons: dict[str, Any] = {"failure" if result.failure else "undecided": reason}
    return replace(result, metrics={}, legend={}, tables={}, next_commands=(), **reasons)


def carry_out(entry: Entry, job: Job[Any, Any, Any], command: JobCommand) -> int:
    """Run a job and show its result.

    Args:
        entry: the entry of the job in the list of jobs.
        job: the job.
        command: its configuration and folder.

    Returns:
        The exit status: 1 if the result is not what the job promises, 2 if a limit could not be decided.
    """
    typed = HUMAN in flat(to_dict(command.config)).values()
    with logs.metadata(run=str(command.run), job=job.name):
        first = f"{' '.join(entry.words)}: models and data are being read"
        with watching(live=not typed, first=first) as reporter:
            result = job.run(command.config, command.run, reporter)
            # A dry run leaves no run.
            if entry.reports and (result.run / CONFIG).is_file():
                from parley.engine.core.page.page import report_from_run

                result = replace(result, files=(report_from_run(result.run), *result.files))
        show_result(_without_figures(result))
    verdicts: list[ConditionOutcome] = []
    status = 0
    if command.conditions:
        from parley.engine.core.verbs.conditions import decide_all, exit_status

        verdicts = decide_all(command.conditions, result.metrics)
        status = exit_status(verdicts)
    _show_verdicts(verdicts)
    if command.json:
        metrics = {name: estimate.to_json() for name, estimate in result.metrics.items()}
        document = {"metrics": metrics, "run": display_path(result.run)} | _verdicts_json(verdicts)
        document |= {name: text for name in ("failure", "undecided") if (text := getattr(result, name))}
        document |= {"warnings": list(result.warnings)} if result.warnings else {}
        document |= {"chat_usage": dict(result.chat_usage)} if result.chat_usage else {}
        sys.stdout.write(f"{json.dumps(document)}\n")
    return 1 if result.failure or status == 1 else 2 if result.undecided else status


def _show_verdicts(verdicts: Sequence[ConditionOutcome]) -> None:
    console = make_console()
    for verdict in verdicts:
        style = "" if verdict.holds is False else "bold red"
        console.print(Text(f"fail-if {verdict}", style=style), soft_wrap=True)


def _verdicts_json(verdicts: Sequence[ConditionOutcome]) -> dict[str, Any]:
    entries = [{"condition": verdict.text, "holds": verdict.holds, "missing": list(verdict.missing)} for verdict in verdicts]
    return {"fail_if": entries} if entries else {}


@dataclass(frozen=True, kw_only=True)
class TableArguments:
    """A run and a file."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of a run that has measured something."""
    file: Annotated[conf.Positional[str], conf.arg(metavar="FILE", help_behavior_hint="")] = ""
    """The file or URI to write: .csv or .json with all digits, .tex, .md or .html. Without a file, tables go to the screen."""
    heading: Annotated[str, conf.arg(metavar="TEXT", help_behavior_hint="")] = ""
    """Only the tables whose heading contains this text, in any case."""


def run_table(verb: Verb, arguments: Sequence[str]) -> int:
    """Show the tables of a run, or write them into a file; return the exit status."""
    options = parse(TableArguments, verb, arguments)
    from parley.engine.core.verbs.export import tables_of_run, write_tables_of_run

    with watching():
        tables = tables_of_run(options.run, options.heading)
        file = write_tables_of_run(tables, options.file) if options.file else None
    if file is None:
        show_tables(make_console(stderr=False), "", tables)
        return 0
    show_lines(make_console(), "files", [display_path(file)])
    return 0


@dataclass(frozen=True, kw_only=True)
class ReportArguments:
    """A run."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of a run, or of a folder that holds runs."""
    file: Annotated[conf.Positional[str], conf.arg(metavar="FILE", help_behavior_hint="")] = ""
    """The .html file or URI to write; without one, report.html of the run."""
    picture: Annotated[str, conf.arg(metavar="FILE", help_behavior_hint="")] = ""
    """Also draw the verdicts into one .png, .svg or .pdf, for a slide or a README."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the path of the page as one JSON object on standard output."""


@dataclass(frozen=True, kw_only=True)
class ResumeArguments:
    """A run."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")]
    """Folder or URI of the run."""
    set: Annotated[conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")] = ()
    """A setting that changes no row, such as chat.max_requests=2000 (also --max-requests 2000) or workers=4."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print the metrics as one JSON object on standard output."""
    fail_if: FailIf = ()
    """End with status 1 if this is true of the metrics, such as "METRIC.low < 0.3"; 2 if it cannot be decided."""


def run_report(verb: Verb, arguments: Sequence[str]) -> int:
    """Write the page of a run; return the exit status."""
    options = parse(ReportArguments, verb, arguments)
    if options.file and not options.file.endswith(".html"):
        runs = shlex.join([options.run, options.file])
        fix = f"parley compare {runs}; a folder of runs has one page of all: parley report FOLDER; a page is a file NAME.html"
        raise ConfigError("a report is of one run, or of one folder of runs", got=runs, fix=fix)
    from parley.engine.core.page.page import collect_run, load_chapters, report_from_run
    from parley.engine.core.page.plots import require_suffix, write_picture

    if options.picture:
        require_suffix(options.picture)
    with watching(first=READING):
        run = fetched_run(options.run)
        files = [report_from_run(run, options.file)]
        if options.picture:
            picture = local_copy(options.picture)
            shown = collect_run(run)
            files.append(write_picture(shown, load_chapters(shown.jobs), picture))
            replicate(picture)
    # For a URI also the local copy, for the browser.
    names = [name for file in files for name in dict.fromkeys((display_path(file), str(file)))]
    show_lines(make_console(), "files", names)
    if options.json:
        sys.stdout.write(f"{json.dumps({'report': names[0], 'run': display_path(run)})}\n")
    return 0


def run_resume(verb: Verb, arguments: Sequence[str]) -> int:
    """Resume a run with the configuration in its folder; return the exit status."""
    options = parse(ResumeArguments, verb, spelled_out(arguments))
    run = fetched_run(options.run)
    folder = RunFolder.load(run)
    entry = find(folder.job)
    job = entry.load()
    where = str(run / "config.json")
    config: Any = assign(from_dict(job.config, as_now(job.config, folder.config, where), where), options.set)
    conditions: tuple[FailCondition, ...] = ()
    if options.fail_if:
        from parley.engine.core.verbs.conditions import parse_conditions

        conditions = parse_conditions(options.fail_if, known=job.metrics_of(config))
    return carry_out(entry, job, JobCommand(config, run, options.json, conditions))


@dataclass(frozen=True, kw_only=True)
class CompareArguments:
    """Runs of one verb; the flags of a recipe are shown by: parley compare RECIPE.yaml --help."""

    runs: Annotated[conf.Positional[tuple[str, ...]], conf.arg(metavar="RUN")]
    """Folders or URIs of runs; trainings of one system are joined by commas or a pattern: runs/a-1,runs/a-2 or 'runs/b-*'.
    Logs of garak (.jsonl), promptfoo (.json) and inspect_ai (.eval, .json) beside scans and one another."""
    metric: Annotated[
        conf.UseAppendAction[tuple[str, ...]], conf.arg(metavar="NAME,...", help_behavior_hint="(repeatable)")
    ] = ()
    """Metrics to show, by names or patterns such as 'r@1.*'; all for every one; the main ones when none is named."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print everything as one JSON object on standard output."""
    fail_if: FailIf = ()
    """End with status 1 if this is true of a later run, such as "METRIC.difference.high < 0"; 2 if it cannot be decided."""


def run_compare(verb: Verb, arguments: Sequence[str]) -> int:
    """Compare runs item by item, or carry out a recipe; return the exit status."""
    if any(word.endswith((".yaml", ".yml")) for word in arguments):
        return run_job(verb, arguments)
    options = parse(CompareArguments, verb, arguments)
    from parley.engine.core.verbs.compare import compare_runs, comparison_tables
    from parley.engine.core.verbs.conditions import exit_status, parse_conditions

    conditions = parse_conditions(options.fail_if, compares=True)
    names = [name for names in options.metric for name in names.split(",") if name]
    with watching(first=READING) as reporter:
        compared = compare_runs(options.runs, reporter, names, conditions)
    verdicts = compared.decide(conditions)
    console = make_console()
    show_tables(console, compared.job, comparison_tables(compared))
    for warning in compared.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    _show_verdicts(verdicts)
    if options.json:
        sys.stdout.write(f"{json.dumps(compared.to_json() | _verdicts_json(verdicts))}\n")
    return exit_status(verdicts)


_REASONS = 5
"""Number of reasons of failures on the screen; --json prints all."""


@dataclass(frozen=True, kw_only=True)
class StatusArguments:
    """A run."""

    run: Annotated[conf.Positional[str], conf.arg(metavar="RUN")] = "runs"
    """Folder or URI of a run, or of a folder that holds runs."""
    json: Annotated[conf.FlagCreatePairsOff[bool], conf.arg(help_behavior_hint="")] = False
    """Print {"runs": [...]} as one JSON object on standard output."""


def run_status(verb: Verb, arguments: Sequence[str]) -> int:
    """Show the status of runs; return the exit status."""
    options = parse(StatusArguments, verb, arguments)
    with watching():
        run = fetched_run(options.run)
        runs = statuses(run)
    if options.json:
        sys.stdout.write(f"{json.dumps({'runs': [status.to_json() for status in runs]})}\n")
        return 0
    console = make_console()
    if len(runs) == 1:
        _show_one(console, runs[0])
    else:
        _show_table(console, display_path(run), runs)
    unfinished = [status for status in runs if status.state in (DAMAGED, FAILED, INTERRUPTED)]
    # Resuming a run also resumes the runs below it. One that was finished with less than they have now takes their rows.
    of_all = runs[:1] if unfinished and runs[0].run == run else []
    resumable = of_all if unfinished[:1] == of_all else [*unfinished, *of_all]
    resumes = [_resume(status.run) for status in resumable]
    reports = [shlex.join(["parley", "report", display_path(status.run)]) for status in runs[:1] if status.state == FINISHED]
    show_lines(console, "next", resumes or reports)
    return 0


def _show_one(console: Console, status: RunStatus) -> None:
    rows = [
        ("state", status.state + (f", by {status.writer}" if status.writer else "")),
        ("progress", _progress(status.pace)),
        ("rate", _rate(status.pace)),
        ("time left", duration(status.left_s)),
        ("workers", _workers(status)),
        ("failed", f"{sum(status.errors.values()):,}"),
        ("answers of chat models", f"{sum(status.answers.values()):,}: {by_kind(status.answers)}" if status.answers else ""),
        ("damaged parts", f"{status.damaged:,}" if status.damaged else ""),
        ("last event", _last_event(status)),
    ]
    show_table(console, f"{display_path(status.run)}: {status.job}", ("", "now"), [row for row in rows if row[1]])
    reasons = [f"{count:,} x {reason}" for reason, count in status.errors.items()]
    more = [f"and {len(reasons) - _REASONS:,} more reasons: --json"] if len(reasons) > _REASONS else []
    show_lines(console, "errors", [*reasons[:_REASONS], *more])


def _show_table(console: Console, title: str, runs: Sequence[RunStatus]) -> None:
    columns = ("run", "job", "state", "progress", "rate", "time left", "failed", "last event")
    rows = [
        (
            display_path(status.run),
            status.job,
            status.state,
            _progress(status.pace),
            _rate(status.pace),
            duration(status.left_s),
            f"{sum(status.errors.values()):,}",
            _last_event(status),
        )
        for status in runs
    ]
    show_table(console, title, columns, rows, right=("progress", "rate", "time left", "failed"))


def _progress(pace: Pace) -> str:
    if not pace.done and pace.total is None:
        return ""
    return f"{pace.done:,}" + (f" of {pace.total:,}" if pace.total is not None else "") + f" {pace.unit}"


def _rate(pace: Pace) -> str:
    return f"{pace.per_s:.3g} {pace.unit}/s" if pace.per_s else ""


def _workers(status: RunStatus) -> str:
    if status.workers is None:
        return ""
    return f"{status.workers:,} Ray actor{'s' * (status.workers > 1)}" if status.workers else "none: its own process works"


def _last_event(status: RunStatus) -> str:
    return f"{status.last_event}, {duration(status.last_event_s)} ago" if status.last_event else ""
