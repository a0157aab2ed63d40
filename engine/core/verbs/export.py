"""The rows of a run as one flat file, for pandas, R or a spreadsheet: `parley rows`.

A run holds one row for each item of work, and what belongs to the item as lists in it: so it is resumed and shared out. Who
counts wants a line for the smallest thing, such as a candidate under a rule. What that is each job says beside its columns
(`Job.flat`); rows of others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import BASE, OK, require_new, write_tables
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder, is_summarised
from parley.engine.core.verbs.catalogue import find
from parley.envs.core.errors import RunError
from parley.envs.core.storage.uris import display_path, local_copy

if TYPE_CHECKING:
    from parley.engine.core.verbs.job import Job, Reporter

Row = Mapping[str, Any]
Line = dict[str, Any]

_LINES = 50_000
"""Lines that are written together, at least, where there are so many: parts of a run may be small."""
_NAMED = 3


@dataclass(frozen=True)
class FlatRows:
    """How rows become lines.

    Args:
        schema: the columns of the lines, those of `BASE` first.
        lines: the lines of a row that worked; what a line says itself stands in the place of the row's base columns. A row
            that failed is one line, which has no others.
    """

    schema: pa.Schema
    lines: Callable[[Row], Iterable[Line]]


@dataclass(frozen=True)
class FlatFile:
    """What was written.

    Args:
        file: where.
        job: whose rows they are.
        columns: names of the columns.
        num_rows: rows of the run.
        num_lines: lines of the file.
        num_failed: rows that say why their item failed.
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
    """Rows of a list of structures: a line for each, which has the row's other columns, too; one without its fields for none.

    Args:
        schema: of the rows.
        column: the list's; no field of its structures is called as another column.
        renamed: fields of its structures that have another name in the lines.
    """
    others = [field for field in schema if field.name != column]
    inside = [field.with_name(renamed.get(field.name, field.name)) for field in schema.field(column).type.value_type]
    assert not {field.name for field in others} & {field.name for field in inside}, "two columns of one name"

    def lines(row: Row) -> Iterator[Line]:
        about = {field.name: row[field.name] for field in others}
        entries: list[Line] = row[column] or [{}]
        yield from (about | {renamed.get(name, name): value for name, value in entry.items()} for entry in entries)

    return FlatRows(pa.schema([*others, *inside]), lines)


def write_flat(name: str, file: str, reporter: Reporter) -> FlatFile:
    """Writes the rows of a run, finished or not, part by part into one file.

    Args:
        name: folder or URI of the run.
        file: path or URI of the file, which is not there yet; its ending says what is written (`table_files.ENDINGS`).
        reporter: who looks on.

    Raises:
        ConfigError: the file is there, or has another ending.
        RunError: there is no run, it holds no rows, or a part is damaged; or the disk refuses.
        StorageError: a URI cannot be read or written.
    """
    path = local_copy(file)
    require_new(path)
    run = RunFolder.load(fetched_run(name))
    job, finished = find(run.job).load(), (run.path / SUMMARY).is_file() and is_summarised(run.events())
    outcomes = run.outcomes()
    num_rows = outcomes.done + outcomes.failed
    if not num_rows and not outcomes.damaged:
        raise _without_rows(run, job)
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
            waiting.append(_lines(part, flat) if flat else part)
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
    found: list[Line] = []
    for row in part.to_pylist():
        base = {name: row[name] for name in BASE.names}
        found += (base | line for line in flat.lines(row)) if row["status"] == OK else [base]
    return pa.Table.from_pylist(found, schema=flat.schema)


def _without_rows(run: RunFolder, job: Job[Any, Any, Any]) -> RunError:
    below = sorted({display_path(part.parent.parent) for part in run.path.glob("*/**/rows/part-*.parquet")})
    if below:
        fix = f"name one of the runs below it that do: {', '.join(below[:_NAMED])}{', ...' if below[_NAMED:] else ''}"
    elif job.schema is BASE:
        fix = f"name an evaluation, an attack or a search; what this run has shows parley report {display_path(run.path)}"
    else:
        fix = f"parley resume {display_path(run.path)} makes some"
    return RunError("the run holds no rows", where=display_path(run.path), got=f"a run of {run.job}", fix=fix)
