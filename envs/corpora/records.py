"""Files of records: CSV, TSV, JSON, JSON Lines and Parquet, told apart by their content and header.

A record has its columns by name, in lower case. Nothing of a file is dropped: a row that does not fit its header, two columns
of one name, and separators other than commas and tabs are errors with file and line. Numbers are texts, as they are written.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine, utf8_text
from parley.envs.corpora.root import read_file

RecordKind = Literal["CSV", "TSV", "JSON", "JSON Lines", "Parquet"]
KINDS: dict[str, RecordKind] = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".json": "JSON",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".parquet": "Parquet",
}
"""By suffix in lower case, where content and header say nothing."""
_SEPARATORS = ",\t;|"
"""Marks between columns that are recognised; the last two are refused."""
_PARQUET = b"PAR1"
_JSON_FIX = 'write [{"column": "text", ...}, ...], or one object a line'
_JSON_BLANKS = re.compile(r"[ \t\r\n]*")


class Record(NamedTuple):
    """One row or object of a file."""

    line: int
    """Where it begins, counted from 1; in Parquet the number of the row."""
    values: dict[str, Any]
    """By column. CSV and TSV hold texts alone."""
    number: int
    """Names it among all of the file: its line, or its place in a list of JSON, from 1."""


def record_kind(path: Path, is_header: Callable[[Sequence[str]], bool]) -> RecordKind | None:
    """Return the kind of a file of records by its content; None for other text.

    Args:
        path: the file.
        is_header: tells whether these cells of a first line, in lower case, are names of columns.

    Raises:
        DataError: the file cannot be read.
    """
    line = _first_line(path)
    if line is None:
        return "Parquet"
    if line.startswith("["):
        return "JSON" if re.match(r"\[\s*(\{|$)", line) else None
    if line.startswith("{"):
        try:
            return "JSON Lines" if isinstance(json.loads(line), dict) else None
        except ValueError:
            return None
    for separator in _SEPARATORS:
        if is_header(header_cells(line, separator)):
            return "TSV" if separator == "\t" else "CSV"
    return None


def header_cells(line: str, separator: str) -> list[str]:
    """Return the cells of a line in lower case, without blanks around."""
    try:
        cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        cells = line.split(separator)
    return [_name(cell) for cell in cells]


def read_records(path: Path, kind: RecordKind) -> Iterator[Record]:
    """Read the records of a file in turn; those of CSV and TSV without the header.

    Raises:
        DataError: the file cannot be read, is no UTF-8, or is none of its kind; the message names the line.
    """
    if kind == "Parquet":
        yield from _parquet(path)
        return
    text = utf8_text(path)
    if kind == "JSON":
        yield from _json_list(path, text)
    elif kind == "JSON Lines":
        yield from _json_lines(path, text)
    else:
        yield from _rows(path, text, kind)


def value_text(value: Any, column: str, where: FileLine) -> str:
    """Return the text of a value, without blanks around.

    Raises:
        DataError: it is missing or blank, or no text.
    """
    if isinstance(value, str) and value.strip():
        return value.strip()
    if value is None or isinstance(value, str):
        got = "nothing" if value is None else repr(value)
        raise DataError(f"a {column} is empty", where=where, got=got, fix="write a text there, or leave the line out")
    raise DataError(f"a {column} is no text", where=where, got=repr(value)[:80], fix=f'write it in quotes: "{value}"')


def _first_line(path: Path) -> str | None:
    """Return the first line that is not blank, without blanks around; None of Parquet."""
    try:
        with path.open("rb") as file:
            if file.read(len(_PARQUET)) == _PARQUET:
                return None
            file.seek(0)
            lines = (line.decode("utf-8-sig", errors="replace").strip() for line in file)
            return next((line for line in lines if line), "").partition("\r")[0]
    except OSError as error:
        raise DataError("the file cannot be read", where=path, got=error.strerror, fix="check that you may read it") from None


def _rows(path: Path, text: str, kind: RecordKind) -> Iterator[Record]:
    """Read CSV or TSV; a cell of TSV may be quoted as in CSV, and where that fails its quotes are part of the text."""
    # The module's limit holds for the process; it is raised alone, so that no other reader loses by it.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    if kind == "CSV":
        yield from _checked_rows(path, _cells(path, text, ",", csv.QUOTE_MINIMAL))
        return
    try:
        rows = list(_cells(path, text, "\t", csv.QUOTE_MINIMAL))
    except DataError:
        rows = list(_cells(path, text, "\t", csv.QUOTE_NONE))
    yield from _checked_rows(path, rows)


def _cells(path: Path, text: str, separator: str, quoting: Literal[0, 3]) -> Iterator[tuple[int, list[str]]]:
    """Read the rows that are not blank, each with the line where it begins."""
    source = io.StringIO(text, newline="")
    reader = csv.reader(source, delimiter=separator, quoting=quoting, strict=True, skipinitialspace=separator == ",")
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        fix = 'quote the whole cell, and write "" for a quote in it'
        raise DataError("a line is no CSV", where=FileLine(str(path), line), got=error, fix=fix) from None


def _checked_rows(path: Path, rows: Iterable[tuple[int, list[str]]]) -> Iterator[Record]:
    """Give cells the names of the first row."""
    numbered = iter(rows)
    line, header = next(numbered, (1, []))
    columns = [_name(cell) for cell in header]
    if not columns:
        raise DataError("the file is empty", where=path, fix="write a line with the names of the columns, and then the rows")
    where = FileLine(str(path), line)
    if len(columns) == 1 and any(mark in columns[0] for mark in _SEPARATORS):
        fix = "save the file with commas (CSV) or tabs (TSV) between columns"
        raise DataError("a header is separated by other marks than its kind of file", where=where, got=header[0][:80], fix=fix)
    _require_distinct(columns, where)
    for line, cells in numbered:
        where = FileLine(str(path), line)
        if len(cells) != len(columns):
            got = f"{len(cells)} cells under {len(columns)} columns ({', '.join(columns)})"
            fix = "quote a cell that holds a separator, and give every column a cell"
            raise DataError("a row does not fit the header", where=where, got=got, fix=fix)
        # Without a name stands what a table's writer numbers its rows by, in front.
        if nameless := next((cell for name, cell in zip(columns[1:], cells[1:], strict=True) if not name and cell.strip()), ""):
            fix = "name the column, or quote a cell that holds a separator"
            raise DataError("a cell stands under no column", where=where, got=nameless[:80], fix=fix)
        yield Record(line, {name: cell for name, cell in zip(columns, cells, strict=True) if name}, line)


def _require_distinct(columns: Sequence[str], where: FileLine) -> None:
    twice = [name for name, count in Counter(columns).items() if name and count > 1]
    if twice:
        fix = "rename or leave out one of them"
        raise DataError("two columns have one name", where=where, got=", ".join(twice), fix=fix)


def _json_list(path: Path, text: str) -> Iterator[Record]:
    """Read the objects of a list, or of one object a line."""
    start = _skipped(text, 0)
    if not text.startswith("[", start):
        yield from _json_lines(path, text)
        return
    decoder, end, line, seen, number = _decoder(), start + 1, 1, 0, 0
    while True:
        end = _skipped(text, end)
        if text.startswith("]", end) and not text[end + 1 :].strip():
            return
        line, seen = line + text.count("\n", seen, end), end
        where = FileLine(str(path), line)
        try:
            entry, end = decoder.raw_decode(text, end)
        except ValueError as error:
            raise DataError("the file is no JSON", where=where, got=error, fix=_JSON_FIX) from None
        number += 1
        yield Record(line, _named(entry, where), number)
        end = _skipped(text, end)
        if text.startswith(",", end):
            end += 1
        elif not text.startswith("]", end):
            got = text[end : end + 40] or "the end of the file"
            raise DataError("the file is no JSON", where=where, got=got, fix=_JSON_FIX)


def _json_lines(path: Path, text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield Record(number, _object(line, FileLine(str(path), number)), number)


def _skipped(text: str, start: int) -> int:
    blanks = _JSON_BLANKS.match(text, start)
    assert blanks is not None, "no blanks are blanks"
    return blanks.end()


def _object(line: str, where: FileLine) -> dict[str, Any]:
    try:
        entry = _decoder().decode(line)
    except ValueError as error:
        raise DataError("a line is no JSON", where=where, got=error, fix=_JSON_FIX) from None
    return _named(entry, where)


class _Pairs(list[tuple[str, Any]]):
    """The members of an object of JSON in their order, so that none is lost before it is looked at."""


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str)


def _named(entry: Any, where: FileLine) -> dict[str, Any]:
    if not isinstance(entry, _Pairs):
        raise DataError("an entry is no object", where=where, got=repr(entry)[:80], fix=_JSON_FIX)
    _require_distinct([_name(name) for name, _ in entry], where)
    return {_name(name): _plain(value) for name, value in entry}


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {name: _plain(part) for name, part in value}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(io.BytesIO(read_file(path)))
    except (pa.ArrowException, OSError) as error:
        got = str(error).partition("\n")[0]
        raise DataError("the file is no Parquet", where=path, got=got, fix="write it again") from None
    columns = [_name(name) for name in table.column_names]
    _require_distinct(columns, FileLine(str(path), 1))
    number = 0
    for batch in table.to_batches():
        for row in batch.to_pylist():
            number += 1
            yield Record(
                number, {name: _parquet_value(value) for name, value in zip(columns, row.values(), strict=True)}, number
            )


def _parquet_value(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _name(cell: str) -> str:
    return cell.strip().lower()
