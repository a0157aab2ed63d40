"""Export a run: its rows as one flat file for pandas, R or a spreadsheet (`parley rows`), and its tables (`parley table`).

A run holds one row for each item of work, with lists inside it. A flat file has a line for each of the smallest things that a
user counts, such as a candidate under a rule. A job defines these lines in `Job.flat`; rows of other jobs stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parley.engine.core.runs.documents import SUMMARY, write_whole
from parley.engine.core.runs.parts import BASE, ENDINGS, OK, require_new, write_tables
from parley.engine.core.runs.remote_sync import fetched_run, replicate
from parley.engine.core.runs.run_folder import RunFolder, is_summarised
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.stats.trainings import spread_of, spread_table
from parley.engine.core.tables.table import WHOLE, EstimateTable, few_note, num_measured, with_interval
from parley.engine.core.verbs.catalogue import ENTRIES, find
from parley.engine.core.verbs.exchange import EXCHANGE_ENDING, write_exchange
from parley.engine.core.verbs.transcripts import LOG_ENDING, inspect_log, write_log
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.storage.uris import display_path, local_copy
from parley.envs.core.visible import visible

if TYPE_CHECKING:
    from parley.engine.core.verbs.job import Job, Reporter

Row = Mapping[str, Any]
Line = dict[str, Any]

_ROWS = 32
"""Rows that are turned into lines at a time; each may have hundreds."""
_LINES = 10_000
"""The smallest number of lines that are written together, if there are so many: parts of a run may be small."""
_MAX_NAMED = 3


@dataclass(frozen=True)
class FlatRows:
    """The rule by which rows become lines.

    Args:
        schema: the columns of the lines, those of `BASE` first.
        lines: gives the lines of a row that worked; columns of a line replace the base columns of the row. A failed row is one
            line with base columns alone.
    """

    schema: pa.Schema
    lines: Callable[[Row], Iterable[Line]]


@dataclass(frozen=True)
class FlatFile:
    """A file of exported rows.

    Args:
        file: path of the file.
        job: job of the run.
        columns: names of the columns; of a log of inspect_ai, names of the scores.
        num_rows: rows of the run.
        num_lines: lines of the file.
        num_failed: rows of failed items.
        num_guarded: see `parley.engine.core.runs.parts.WrittenTable`.
        finished: whether the run has nothing left to do.
    """

    file: Path
    job: str
    columns: Sequence[str]
    num_rows: int
    num_lines: int
    num_failed: int
    num_guarded: int
    finished: bool


def each_of(schema: pa.Schema, column: str, renamed: Mapping[str, str] = MappingProxyType({})) -> FlatRows:
    """Return the rule that gives each structure of a list column a line, with the row's other columns; an empty list gives one.

    Args:
        schema: schema of the rows.
        column: name of the list column; no field of its structures has the name of another column.
        renamed: names in the lines, by field of the structures.
    """
    row_fields = [field for field in schema if field.name != column]
    list_fields = [field.with_name(renamed.get(field.name, field.name)) for field in schema.field(column).type.value_type]
    assert not {field.name for field in row_fields} & {field.name for field in list_fields}, "two columns of one name"

    def lines(row: Row) -> Iterator[Line]:
        row_values = {field.name: row[field.name] for field in row_fields}
        entries: list[Line] = row[column] or [{}]
        yield from (row_values | {renamed.get(name, name): value for name, value in entry.items()} for entry in entries)

    return FlatRows(pa.schema([*row_fields, *list_fields]), lines)


def write_flat(name: str, file: str, reporter: Reporter) -> FlatFile:
    """Write the rows of a run, finished or not, part by part into one file.

    Args:
        name: folder or URI of the run.
        file: path or URI of a file that does not exist yet; its ending chooses the format (`ENDINGS`, `LOG_ENDING` for a log of
            inspect_ai, `EXCHANGE_ENDING` for conversations as JSON).
        reporter: receives the progress.

    Raises:
        ConfigError: the file exists, or has another ending; or inspect_ai is needed and not installed.
        RunError: the run does not exist, holds no rows or no conversations, or has a damaged part; or the disk refuses.
        StorageError: a URI cannot be read or written.
    """
    run = RunFolder.load(fetched_run(name))
    path = local_copy(file)
    require_new(path, (*ENDINGS, LOG_ENDING, EXCHANGE_ENDING))
    job, finished = find(run.job).load(), (run.path / SUMMARY).is_file() and is_summarised(run.events())
    outcomes = run.outcomes()
    num_rows = outcomes.done + outcomes.failed
    if not num_rows and not outcomes.damaged:
        raise _without_rows(run, job)
    if path.suffix in (LOG_ENDING, EXCHANGE_ENDING):
        if path.suffix == LOG_ENDING:
            inspect_log()
        reporter.stage("writing transcripts", num_rows, "rows")
        if (rule := job.transcripts(run)) is None:
            from parley.engine.core.verbs.job import Job

            jobs = (entry.load() for entry in ENTRIES)
            there = ", ".join(" ".join(other.words) for other in jobs if type(other).transcripts is not Job.transcripts)
            fix = f"name a run of one of: {there}; .csv, .parquet and .jsonl hold the rows of every run"
            raise RunError("the rows of this run are no conversations", where=name, got=f"a run of {run.job}", fix=fix)
        legend = dict(job.legend)
        if job.item_metrics is not None:
            legend |= {metric: job.item_metrics.describe(metric) for metric in run.metrics()}
        if path.suffix == EXCHANGE_ENDING:
            scores, num_written = write_exchange(path, run, rule), outcomes.done
        else:
            scores, num_written = write_log(path, run, rule, legend, finished=finished), num_rows
        return FlatFile(path, run.job, scores, num_rows, num_written, outcomes.failed, 0, finished)
    flat = job.flat(run)
    rows_schema = job.schema if flat else next(run.read_parts()).schema
    reporter.stage("writing rows", num_rows, "rows")
    num_read = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal num_read
        waiting, num_waiting = [], 0
        for part in run.read_parts():
            if not part.schema.equals(rows_schema):
                fix = "use the version of Parley that made the run"
                raise RunError("the rows of this run have other columns than are known", where=display_path(run.path), fix=fix)
            for start in range(0, part.num_rows, _ROWS if flat else part.num_rows or 1):
                waiting.append(_lines(part.slice(start, _ROWS), flat) if flat else part)
                num_waiting += waiting[-1].num_rows
                if num_waiting >= _LINES:
                    yield pa.concat_tables(waiting).combine_chunks()
                    waiting, num_waiting = [], 0
            num_read += part.num_rows
            reporter.advance(num_read)
        if waiting:
            yield pa.concat_tables(waiting).combine_chunks()

    schema = flat.schema if flat else rows_schema
    written = write_tables(path, schema, tables())
    return FlatFile(path, run.job, schema.names, num_read, written.num_lines, outcomes.failed, written.num_guarded, finished)


def _lines(part: pa.Table, flat: FlatRows) -> pa.Table:
    lines: list[Line] = []
    for row in part.to_pylist():
        base = {name: row[name] for name in BASE.names}
        lines += (base | line for line in flat.lines(row)) if row["status"] == OK else [base]
    return pa.Table.from_pylist(lines, schema=flat.schema)


def _without_rows(run: RunFolder, job: Job[Any, Any, Any]) -> RunError:
    below = sorted({display_path(part.parent.parent) for part in run.path.glob("*/**/rows/part-*.parquet")})
    if below:
        fix = f"name one of the runs below it that do: {', '.join(below[:_MAX_NAMED])}{', ...' if below[_MAX_NAMED:] else ''}"
    elif job.schema is BASE:
        fix = f"name an evaluation, an attack or a search; what this run has shows parley report {display_path(run.path)}"
    else:
        fix = f"parley resume {display_path(run.path)} makes some"
    return RunError("the run holds no rows", where=display_path(run.path), got=f"a run of {run.job}", fix=fix)


def tables_of_run(name: str, heading: str = "") -> dict[str, EstimateTable]:
    """Return the tables of a run by heading; its metrics are one table if its job lays out none.

    Args:
        name: folder or URI of the run.
        heading: only tables whose heading contains this text, in any case; empty for all.

    Raises:
        RunError: the run does not exist or has measured nothing.
        ConfigError: no table has such a heading.
    """
    run = RunFolder.load(fetched_run(name))
    job = find(run.job).load()
    summary = run.summary() or {}
    metrics = {metric: Estimate.from_json(parts) for metric, parts in summary.get("metrics", {}).items()}
    if not metrics:
        fix = f"parley resume {display_path(run.path)} goes on with it; parley report shows a training"
        raise RunError("the run has measured nothing yet", where=display_path(run.path), got=f"a run of {run.job}", fix=fix)
    values = spread_of(summary)
    first = spread_table(values, metrics, job.legend) if values else metrics_table(metrics, job.legend)
    tables = {**(job.tables(run) or {"": first}), **job.more(run)}
    tables = {title or str(summary.get("title", "")): table for title, table in tables.items()}
    chosen = {title: table for title, table in tables.items() if heading.lower() in title.lower()}
    if not chosen:
        fix = f"name a part of one of: {'; '.join(tables)}"
        raise ConfigError("no table of the run has that heading", where="--heading", got=heading, fix=fix)
    return chosen


def metrics_table(metrics: Mapping[str, Estimate], legend: Mapping[str, Metric]) -> EstimateTable:
    """Return a table of metrics with their directions, a row each."""
    titles = {name: legend.get(name, Metric(name, "", "")) for name in metrics}
    forms = {name: WHOLE.cell for name, count in metrics.items() if math.isnan(count.low) and count.value.is_integer()}
    rows = [
        (titles[name].title, titles[name].direction, forms.get(name, with_interval)(estimate), num_measured(estimate))
        for name, estimate in metrics.items()
    ]
    few = any(estimate.flagged and estimate.n for estimate in metrics.values())
    note = "Brackets: 95 % intervals." + few_note("independent dialogues or targets") * few
    return EstimateTable(("metric", "better", "value", "n"), tuple(rows), note)


def write_tables_of_run(tables: Mapping[str, EstimateTable], file: str) -> Path:
    """Write tables into a file; control characters of terminals are spelled out.

    Args:
        tables: tables by heading.
        file: path or URI of a file that does not exist yet; its ending chooses the format (`formats.WRITERS`).

    Raises:
        ConfigError: the file exists, or has another ending.
        RunError: the disk refuses.
        StorageError: the URI cannot be written.
    """
    from parley.engine.core.tables.formats import WRITERS

    path = local_copy(file)
    require_new(path, tuple(WRITERS))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, visible(WRITERS[path.suffix](tables), keep="\n").encode())
    except OSError as error:
        fix = "make room, or name a file that can be written"
        raise RunError("the table cannot be written", where=display_path(path), got=error.strerror, fix=fix) from error
    replicate(path)
    return path
