"""A user's own file as a corpus: CSV, TSV, JSON, JSON Lines or Parquet, with options in its name.

    faq.csv                                     columns with known names, such as question and answer
    faq.csv#context=question,reply=answer       named columns
    rated.jsonl#context=u1+u2,reply=r,label=ok  several columns are turns, oldest first; labels, 1 or 0, make candidates
    faq.csv#shares=70:15:15                     shares of train, val and test

The options after `#` are part of the corpus' name, so every verb and file that names the corpus has them.

Content and header determine the kind of file. A record maps column names in lower case to values. No data is dropped: a row
that does not fit its header, two columns of one name, and other separators than commas and tabs are errors with file and line.
Numbers are kept as text, as written.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.registry import nearest
from parley.envs.corpora.arrow import opened_file, read_file
from parley.envs.corpora.lines import SPLITS, FileLine, stream_lines, stream_utf8, utf8_text

RecordKind = Literal["CSV", "TSV", "JSON", "JSON Lines", "Parquet"]
KINDS: dict[str, RecordKind] = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".json": "JSON",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".parquet": "Parquet",
}
"""Kinds by suffix in lower case, if content and header do not determine the kind."""
_SEPARATORS = ",\t;|"
"""Separators of columns; the last two are recognised and refused."""
_MOST_CELL = 2**31 - 1
"""Characters of a cell that the csv module reads."""
_PARQUET, _BATCH = b"PAR1", 1024
"""First bytes of Parquet, and its rows that are read at a time."""
_JSON_FIX = 'write [{"column": "text", ...}, ...], or one object a line'
_JSON_BLANKS = re.compile(r"[ \t\r\n]*")


class Record(NamedTuple):
    """One row or object of a file."""

    line: int
    """Its first line, counted from 1; in Parquet the number of the row."""
    values: dict[str, Any]
    """Values by column; CSV and TSV have only texts."""
    number: int
    """Its key in the file: its line, or its position in a JSON list, from 1."""


def record_kind(path: Path, is_header: Callable[[Sequence[str]], bool]) -> RecordKind | None:
    """Return the kind of a record file by its content; None for other text.

    Args:
        path: the file.
        is_header: returns whether the cells of a first line, in lower case, are names of columns.

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
    """Return the cells of a line, stripped and in lower case."""
    try:
        cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        cells = line.split(separator)
    return [_name(cell) for cell in cells]


def read_records(path: Path, kind: RecordKind) -> Iterator[Record]:
    """Yield the records of a file; the header of CSV and TSV is not a record.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or is not of its kind; the message names the line.
    """
    if kind == "Parquet":
        yield from _parquet(path)
    elif kind == "JSON":
        yield from _json_list(path, utf8_text(path))
    elif kind == "JSON Lines":
        yield from _json_lines(path, stream_utf8(path, "\n"))
    else:
        yield from _rows(path, kind)


def value_text(value: Any, column: str, where: FileLine) -> str:
    """Return the stripped text of a value.

    Raises:
        DataError: the value is missing, blank, or not a text.
    """
    if isinstance(value, str) and value.strip():
        return value.strip()
    if value is None or isinstance(value, str):
        got = "nothing" if value is None else repr(value)
        raise DataError(f"a {column} is empty", where=where, got=got, fix="write a text there, or leave the line out")
    raise DataError(f"a {column} is no text", where=where, got=repr(value)[:80], fix=f'write it in quotes: "{value}"')


def behind_context(values: Mapping[str, Any], request: str) -> str:
    """Return a request behind its context, the column ContextString of HarmBench, put together as there."""
    context = str(values.get("contextstring") or "").strip()
    return f"{context}\n\n---\n\n{request}" if context else request


def _first_line(path: Path) -> str | None:
    """Return the first nonblank line, stripped; None for Parquet."""
    with opened_file(path) as file:
        if file.read(len(_PARQUET)) == _PARQUET:
            return None
        file.seek(0)
        lines = (line.decode("utf-8-sig", errors="replace").strip() for line in file)
        return next((line for line in lines if line), "").partition("\r")[0]


def _rows(path: Path, kind: RecordKind) -> Iterator[Record]:
    """Yield the rows of CSV or TSV; if TSV is not valid with quoted cells, its quotes are text."""
    # The limit of the csv module is per process; it is only raised, so other readers are not affected.
    csv.field_size_limit(_MOST_CELL)
    separator = "," if kind == "CSV" else "\t"
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    if kind == "TSV":
        try:
            for _ in _cells(path, separator, quoting):
                pass
        except DataError:
            quoting = csv.QUOTE_NONE
    yield from _checked_rows(path, _cells(path, separator, quoting))


def _cells(path: Path, separator: str, quoting: Literal[0, 3]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with its first line."""
    source = stream_utf8(path, "")
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


_NAMED = 20
"""Lines that an error names."""


def _checked_rows(path: Path, rows: Iterable[tuple[int, list[str]]]) -> Iterator[Record]:
    """Yield records whose cells are named by the first row."""
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
    misfits: dict[int, int] = {}
    for line, cells in numbered:
        where = FileLine(str(path), line)
        if len(cells) != len(columns):
            misfits[line] = len(cells)
            continue
        # Only the first column may lack a name: tables often have row numbers there.
        if nameless := next((cell for name, cell in zip(columns[1:], cells[1:], strict=True) if not name and cell.strip()), ""):
            fix = "name the column, or quote a cell that holds a separator"
            raise DataError("a cell stands under no column", where=where, got=nameless[:80], fix=fix)
        yield Record(line, {name: cell for name, cell in zip(columns, cells, strict=True) if name}, line)
    if misfits:
        first, num = next(iter(misfits.items()))
        named = ", ".join(map(str, islice(misfits, _NAMED))) + ", ..." * (len(misfits) > _NAMED)
        what = "a row does not fit the header" if len(misfits) == 1 else f"{len(misfits):,} rows do not fit the header"
        lines = f"lines {named}, the first with " * (len(misfits) > 1)
        got = f"{lines}{num} cells under {len(columns)} columns ({', '.join(columns)})"
        fix = "quote a cell that holds a separator, and give every column a cell"
        raise DataError(what, where=FileLine(str(path), first), got=got, fix=fix)


def _require_distinct(columns: Sequence[str], where: FileLine) -> None:
    twice = [name for name, count in Counter(columns).items() if name and count > 1]
    if twice:
        fix = "rename or leave out one of them"
        raise DataError("two columns have one name", where=where, got=", ".join(twice), fix=fix)


def _json_list(path: Path, text: str) -> Iterator[Record]:
    """Yield the objects of a list, or of one object per line."""
    start = _skipped(text, 0)
    if not text.startswith("[", start):
        yield from _json_lines(path, text.split("\n"))
        return
    decoder, end, line, counted, number = _decoder(), start + 1, 1, 0, 0
    while True:
        end = _skipped(text, end)
        if text.startswith("]", end) and not text[end + 1 :].strip():
            return
        line, counted = line + text.count("\n", counted, end), end
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


def _json_lines(path: Path, lines: Iterable[str]) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield Record(number, _object(line.removesuffix("\n"), FileLine(str(path), number)), number)


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
    """The members of a JSON object in their order, so that duplicate names are detected."""


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

    number = 0
    try:
        file = parquet.ParquetFile(io.BytesIO(read_file(path)))
        columns = [_name(name) for name in file.schema_arrow.names]
        _require_distinct(columns, FileLine(str(path), 1))
        for batch in file.iter_batches(_BATCH):
            for row in batch.to_pylist():
                number += 1
                values = {name: _parquet_value(value) for name, value in zip(columns, row.values(), strict=True)}
                yield Record(number, values, number)
    except (pa.ArrowException, OSError) as error:
        got = str(error).partition("\n")[0]
        raise DataError("the file is no Parquet", where=path, got=got, fix="write it again") from None


def _parquet_value(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _name(cell: str) -> str:
    return cell.strip().lower()


CONTEXT, REPLY, LABEL, SHARES = "context", "reply", "label", "shares"
ROLES = (CONTEXT, REPLY, LABEL)
KNOWN: dict[str, tuple[str, ...]] = {
    CONTEXT: ("context", "source", "question", "prompt", "input", "query", "instruction", "message"),
    REPLY: ("reply", "response", "answer", "target", "output", "completion"),
    LABEL: ("label",),
}
"""Known column names of each role; a file with two for one role needs named columns."""
EVEN_SHARES = (90, 5, 5)
_STEMS = {"train": ("train",), "val": ("val", "valid", "dev"), "test": ("test",)}
_SUFFIXES = ("", ".txt", *KINDS)
_OPTION = re.compile(rf"\s*(?:{'|'.join((*ROLES, SHARES))})\s*=", re.IGNORECASE)
_LABELS = {"0": False, "1": True, "false": False, "true": True}
_LOOKED_AT = 20
"""Number of lines that are tested for CSV in a file without tabs."""


class ExchangeRecord(NamedTuple):
    """The turns, replies and label of a record."""

    line: int
    context: tuple[str, ...]
    """Turns, oldest first."""
    replies: tuple[str, ...]
    label: bool | None
    """Whether the replies are correct; None if the file has no labels."""


@dataclass(frozen=True)
class OwnFile:
    """A file or folder of a user, with the options of its name.

    Args:
        path: the file or folder.
        columns: roles and names of columns, in the order of the name; empty to use known names.
        shares: of train, val and test, if one file holds all splits.
    """

    path: Path
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    shares: tuple[int, int, int] = EVEN_SHARES

    def of(self, path: Path) -> OwnFile:
        """Return a file of this folder with the same columns."""
        return replace(self, path=path)

    @property
    def told_shares(self) -> str:
        """The shares in words, and how to change them; empty for a folder and a file of one split."""
        if not self.path.is_file() or split_named(self.path):
            return ""
        shares = ":".join(map(str, self.shares))
        return f"shared out {shares} to train, val and test by hash of the source; {self.path}#shares=70:15:15 does otherwise"

    @property
    def key(self) -> tuple[str, ...]:
        """The parts of the name that the text depends on, apart from the content of the files."""
        named = tuple(f"{role}={'+'.join(names)}" for role, names in self.columns)
        return named if self.shares == EVEN_SHARES else (*named, f"{SHARES}={':'.join(map(str, self.shares))}")

    @cached_property
    def kind(self) -> RecordKind | None:
        """The kind of record file; None for lines.

        Raises:
            DataError: the file cannot be read.
        """
        if kind := record_kind(self.path, _is_header):
            return kind
        by_suffix = KINDS.get(self.path.suffix.lower())
        if self.columns:
            return by_suffix or "CSV"
        # Lines of two texts and a tab are not a table, whatever the file's suffix.
        return None if by_suffix in ("TSV", None) or _has_tabs(self.path) else by_suffix

    @cached_property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """The columns of each role in a record file.

        Raises:
            DataError: a column is missing, or the columns of context and reply are unknown.
        """
        assert self.kind is not None, "lines have no columns"
        columns = next((list(record.values) for record in read_records(self.path, self.kind)), None)
        if columns is None:
            raise DataError("the file holds no row", where=self.path, fix="write rows with a text in the columns of each")
        if self.columns:
            for name in (name for _, names in self.columns for name in names if name not in columns):
                got, fix = f"columns {', '.join(columns)}", "name columns of the file"
                raise DataError(f"there is no column {name!r}{nearest(name, columns)}", where=self.path, got=got, fix=fix)
            return dict(self.columns)
        roles = {role: [name for name in columns if name in KNOWN[role]] for role in ROLES}
        if len(roles[CONTEXT]) == 1 == len(roles[REPLY]) and len(roles[LABEL]) < 2:
            return {role: tuple(names) for role, names in roles.items() if names}
        raise unnamed_columns(self.path, self.kind, columns)

    @property
    def columns_text(self) -> str:
        """The kind and columns in words, such as "CSV: context=question, reply=answer"; empty for lines."""
        if self.kind is None:
            return ""
        return f"{self.kind}: {', '.join(f'{role}={chr(43).join(names)}' for role, names in self.roles.items())}"

    def exchanges(self, broken: list[DataError]) -> Iterator[ExchangeRecord | None]:
        """Yield the exchanges of a record file; None for each broken record.

        Args:
            broken: receives the error of each broken record.
        """
        assert self.kind is not None, "lines are read elsewhere"
        roles = self.roles
        try:
            for record in read_records(self.path, self.kind):
                where = FileLine(str(self.path), record.line)
                try:
                    context = [text for name in roles[CONTEXT] for text in _texts(record.values.get(name), name, where)]
                    replies = [text for name in roles[REPLY] for text in _texts(record.values.get(name), name, where)]
                    labels = [_label(record.values.get(name), name, where) for name in roles.get(LABEL, ())]
                except DataError as error:
                    broken.append(error)
                    yield None
                    continue
                yield ExchangeRecord(record.line, tuple(context), tuple(replies), all(labels) if labels else None)
        except DataError as error:
            # After a row that does not fit, the start of the next is unknown.
            broken.append(error)


def own_file(name: str) -> OwnFile:
    """Parse the name of a user's file or folder.

    Raises:
        ConfigError: an unknown option after `#`.
    """
    path, mark, options = name.rpartition("#")
    if not mark or "=" not in options or Path(name).expanduser().exists():
        return OwnFile(Path(name).expanduser())
    columns: dict[str, tuple[str, ...]] = {}
    shares = EVEN_SHARES
    fix = f"write {path}#context=COLUMN,reply=COLUMN, and perhaps label=COLUMN and shares=70:15:15"
    for part in options.split(","):
        role, _, value = part.partition("=")
        role, value = role.strip().lower(), value.strip()
        if role == SHARES:
            shares = _shares(value, name)
        elif role in ROLES and role not in columns and value:
            columns[role] = tuple(column.strip().lower() for column in value.split("+"))
        else:
            raise ConfigError(f"the name of a file says {part!r}, which is not known", where=name, fix=fix)
    if columns and not {CONTEXT, REPLY} <= columns.keys():
        raise ConfigError(
            "columns are named for context and reply, or for neither", where=name, got=", ".join(columns), fix=fix
        )
    return OwnFile(Path(path).expanduser(), tuple(columns.items()), shares)


def own_file_names(names: str) -> list[str]:
    """Split a comma-separated list of file names; the commas of options stay in their name."""
    files: list[str] = []
    for part in map(str.strip, names.split(",")):
        if files and "#" in files[-1] and _OPTION.match(part):
            files[-1] += f",{part}"
        elif part:
            files.append(part)
    return files


def without_options(name: str) -> str:
    """Return the name of a file without its options; other names stay unchanged."""
    path, mark, options = name.rpartition("#")
    return path if mark and _OPTION.match(options) and not Path(name).expanduser().exists() else name


def split_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split in a folder.

    Raises:
        ConfigError: two files of one split.
    """
    by_split: dict[str, Path] = {}
    for split in SPLITS:
        stems = _STEMS[split]
        files = sorted(
            path for path in folder.glob("*") if path.stem in stems and path.suffix.lower() in _SUFFIXES and path.is_file()
        )
        if len(files) > 1:
            got, fix = ", ".join(path.name for path in files), "leave one of them there, or name a file"
            raise ConfigError(f"two files of one folder are for {split}", where=folder, got=got, fix=fix)
        if files:
            by_split[split] = files[0]
    return by_split


def split_named(path: Path) -> str | None:
    """Return the split of a file name; None for other names."""
    return next((split for split, stems in _STEMS.items() if path.stem in stems), None)


def unnamed_columns(path: Path, kind: RecordKind, columns: Sequence[str]) -> DataError:
    """Return the error of a file with unknown columns; one sentence of help replaces many errors."""
    first, second = [*columns, "COLUMN", "COLUMN"][:2]
    return DataError(
        f"this looks like {kind} with columns {', '.join(columns)}, and which of them hold context and reply is not known",
        where=path,
        fix=f"name them: {path}#context={first},reply={second}",
    )


def looks_like_csv(path: Path) -> DataError | None:
    """Return the error of a file without tabs that is CSV or ParlAI; None for other files."""
    lines = [line for line in islice(stream_lines(path), _LOOKED_AT) if line.strip()]
    if any(line.startswith("text:") and "\tlabels:" in line for line in lines):
        what = "this looks like ParlAI's text:...<TAB>labels:..., which is not read"
        return DataError(what, where=path, fix="write lines source<TAB>reply, or JSON Lines with the columns context and reply")
    if not lines or any("\t" in line for line in lines):
        return None
    for separator in (",", ";", "|"):
        counts = {len(header_cells(line, separator)) for line in lines}
        if len(counts) == 1 and counts.pop() > 1:
            if separator == ",":
                return unnamed_columns(path, "CSV", header_cells(lines[0], separator))
            fix = "save the file with commas (CSV) or tabs (TSV) between columns"
            return DataError(f"this looks like CSV with {separator!r} between columns", where=path, got=lines[0][:80], fix=fix)
    return None


def _is_header(cells: Sequence[str]) -> bool:
    return not {*KNOWN[CONTEXT]}.isdisjoint(cells) and not {*KNOWN[REPLY]}.isdisjoint(cells)


def _has_tabs(path: Path) -> bool:
    return any("\t" in line for line in islice(stream_lines(path), 1))


def _shares(value: str, name: str) -> tuple[int, int, int]:
    parts = value.split(":")
    if len(parts) != len(SPLITS) or not all(part.isdecimal() and len(part) < 6 for part in parts) or not any(map(int, parts)):
        fix = "write whole numbers for train, val and test, such as shares=70:15:15"
        raise ConfigError("the shares of a split are three whole numbers", where=name, got=value, fix=fix)
    train, val, test = map(int, parts)
    return train, val, test


def _texts(value: Any, column: str, where: FileLine) -> list[str]:
    """Return the texts of a value: one text, a list of texts, or the contents of messages."""
    parts = value if isinstance(value, list) else [value]
    texts = [part.get("content") if isinstance(part, dict) else part for part in parts]
    if texts and all(isinstance(text, str) and text.strip() for text in texts):
        return [str(text) for text in texts]
    got, fix = repr(value)[:80], "write a text there, or leave the line out"
    raise DataError(f"a {column} is empty, or no text", where=where, got=got, fix=fix)


def _label(value: Any, column: str, where: FileLine) -> bool:
    label = _LABELS.get(str(value).strip().lower())
    if label is None:
        raise DataError(f"a {column} is 0 or 1", where=where, got=repr(value)[:80], fix="write 0 or 1, or name other columns")
    return label
