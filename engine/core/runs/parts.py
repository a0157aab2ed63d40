"""Rows of a run: their columns, the Parquet files that hold them (parts), and tables for other programs.

A part holds the rows of one finished shard, with a checksum on every page. It is whole or absent, so a killed run holds
finished shards only. Reading a part finds later damage, from a disk or a copy that was cut short.

Every row has the item's key, its status and its seed; the other columns are null in rows of failed items. `SCHEMA_VERSION`
grows when a column changes its meaning or type. Rows with an answer of a chat model keep its thoughts and withheld text beside
the reply, so an answer without a reply tells why.

`write_tables` writes CSV, Parquet or JSON lines, part by part, whole or not at all. Lists and structures are kept in Parquet
and JSON lines; a CSV cell holds them as JSON. Texts may begin like formulas, and spreadsheets open CSV: such cells get an
apostrophe in front (`FORMULA`), and are counted. CSV tells an empty text from none by its quotes.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from parley.engine.core.runs.documents import plain, whole_file, write_whole
from parley.engine.core.runs.remote_sync import replicate
from parley.engine.core.stats.rows import Recent
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.files import ASIDE, delete, entries, put
from parley.envs.core.storage.uris import display_path, join_uri, uri_of
from parley.envs.core.visible import FORMULA, well_formed
from parley.policies.chat.model import Answer

SCHEMA_VERSION = 1
OK, ERROR = "ok", "error"

BASE = pa.schema(
    [
        pa.field("item_key", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("schema_version", pa.int64(), nullable=False),
    ]
)
"""Columns of every row: the item's key, "ok" or "error" with the reason, the item's own seed (63 bits), the version."""


Columns = Mapping[str, Any]
"""Kinds by column: a Python type, a list [KIND], a structure of columns, or an Arrow type. A name may be several, with blanks
between: {"before after": str, "scores": [float]}."""
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def fields_of(columns: Columns) -> list[pa.Field]:
    """Return the Arrow fields of columns."""
    return [pa.field(name, arrow_type(kind)) for names, kind in columns.items() for name in names.split()]


def arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type of a kind of column."""
    if isinstance(kind, list):
        # Parquet calls list elements "element"; any other name would change on the way back.
        return pa.list_(pa.field("element", arrow_type(*kind)))
    if isinstance(kind, Mapping):
        return pa.struct(fields_of(kind))
    return kind if isinstance(kind, pa.DataType) else _ARROW[kind]


def row_schema(columns: Columns, base: pa.Schema = BASE) -> pa.Schema:
    """Return the schema of a kind of row: the columns of `BASE` or of another kind of row, then its own."""
    return pa.schema([*base, *fields_of(columns)])


def require_whole(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Make sure that columns of whole numbers get whole numbers, because pyarrow 26 silently cuts 3.5 to 3.

    Args:
        rows: rows by column; missing columns are null.
        schema: the columns.

    Raises:
        RunError: a number has a fraction, or is not finite.
    """
    for column in schema:
        if (cut := _not_whole([row.get(column.name) for row in rows], column.type)) is not None:
            raise RunError(
                f"the column {column.name} holds whole numbers, and this is none",
                got=repr(cut),
                fix="let the game, agent or model of your own that gives it give whole numbers",
            )


def _not_whole(values: Iterable[Any], kind: pa.DataType) -> Any:
    """Return the first number among values that the type would cut; None if there is none."""
    if pa.types.is_integer(kind):
        present = list(values)
        if set(map(type, present)) <= {int, NoneType}:
            return None
        return next((value for value in present if isinstance(value, float | np.floating) and value % 1 != 0), None)
    nested: list[tuple[Iterable[Any], pa.DataType]] = []
    if pa.types.is_list(kind):
        nested = [(chain.from_iterable(value for value in values if value is not None), kind.value_type)]
    elif pa.types.is_struct(kind):
        present = [value for value in values if value is not None]
        nested = [([value.get(part.name) for value in present], part.type) for part in kind]
    return next((cut for part, kind_of_part in nested if (cut := _not_whole(part, kind_of_part)) is not None), None)


def ok_row(item_key: str, seed: int) -> dict[str, Any]:
    """Return the base columns of the row of an item that worked; the columns of its kind follow."""
    return {"item_key": item_key, "status": OK, "error": None, "seed": seed, "schema_version": SCHEMA_VERSION}


def error_row(item_key: str, seed: int, reason: str) -> dict[str, Any]:
    """Return the row of an item that failed; every column of its kind is null."""
    return {"item_key": item_key, "status": ERROR, "error": well_formed(reason), "seed": seed, "schema_version": SCHEMA_VERSION}


ANSWERED = dict.fromkeys(("kind", "reasoning", "withheld"), str)
"""The columns of one answer, beside its reply: its kind (`parley.policies.chat.model.AnswerKind`), the thoughts before the
reply, and text that is no reply: half of a filtered answer, or a refusal in a field of its own. Null without a chat model."""
NO_REPLIES = [{"asked kind": str, "answers": int}]
"""Type of counts of answers that are no replies, by question and by kind."""


def answer_columns(answer: Answer | None) -> dict[str, Any]:
    """Return the values of `ANSWERED`; nulls for a model that is no chat model."""
    if answer is None:
        return dict.fromkeys(ANSWERED)
    return {"kind": answer.kind.value, "reasoning": answer.reasoning, "withheld": answer.withheld}


def count_no_replies(answers: Mapping[str, Iterable[Answer]]) -> list[dict[str, Any]]:
    """Return the value of a column `NO_REPLIES`.

    Args:
        answers: answers by question.
    """
    counts: dict[tuple[str, str], int] = {}
    for question, answers_of_question in answers.items():
        for answer in answers_of_question:
            if not answer.is_reply:
                counts[question, answer.kind.value] = counts.get((question, answer.kind.value), 0) + 1
    return [{"asked": question, "kind": kind, "answers": number} for (question, kind), number in sorted(counts.items())]


CORRUPT = ".corrupt"
"""The ending of a damaged part that was moved aside."""
_PREFIX, _ENDING = "part-", ".parquet"


@dataclass(frozen=True)
class Part:
    """Summary of a part without its rows or keys: a run may have millions of items.

    Args:
        num_done: number of items that worked.
        num_failed: number of items whose rows hold an error.
        digest: digest of the keys of all items, see `digest_of`.
    """

    num_done: int
    num_failed: int
    digest: bytes

    @classmethod
    def of(cls, table: pa.Table) -> Part:
        """Return the summary of a part's rows."""
        num_done = table["status"].to_pylist().count(OK)
        return cls(num_done, table.num_rows - num_done, digest_of(table["item_key"].to_pylist()))

    @property
    def num_items(self) -> int:
        """The number of items of the part."""
        return self.num_done + self.num_failed


def digest_of(keys: Iterable[str]) -> bytes:
    """Return 16 bytes that identify a set of keys, in any order."""
    return hashlib.blake2b(json.dumps(sorted(keys)).encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Outcomes:
    """Counts of the outcomes of items.

    Args:
        done: number of items that worked.
        errors: number of items that failed, by reason.
        damaged: number of parts that cannot be read.
    """

    done: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    damaged: int = 0

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes(self.done + other.done, self.errors + other.errors, self.damaged + other.damaged)

    @property
    def failed(self) -> int:
        """The number of items that failed."""
        return self.errors.total()


_SMALL, _SETTLED_NS, _MOST_KEPT = 65_536, 100_000_000, 2**22
"""Largest bytes of a part whose rows are held in memory, the least age of its file, and the bytes of all such rows."""


def part_path(folder: Path, name: str) -> Path:
    """Return the file of a shard's part."""
    return folder / f"{_PREFIX}{name}{_ENDING}"


def list_parts(folder: Path) -> dict[str, Path]:
    """Return the parts of a folder by shard name, in the order of their names, without files moved aside."""
    paths = sorted(folder.glob(f"{_PREFIX}*{_ENDING}"))
    return {path.name.removeprefix(_PREFIX).removesuffix(_ENDING): path for path in paths}


def to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of exactly this schema; missing columns are null.

    An unknown column, an item with two rows, or a missing base column is a mistake of the caller.

    Raises:
        RunError: a column of whole numbers holds another number.
    """
    unknown = {column for row in rows for column in row} - set(schema.names)
    assert not unknown, f"columns that the schema lacks: {sorted(unknown)}"
    require_whole(rows, schema)
    table = pa.Table.from_pylist(list(rows), schema=schema)
    missing = [field.name for field in schema if not field.nullable and table[field.name].null_count]
    assert not missing, f"every row needs {missing}"
    assert len(set(table["item_key"].to_pylist())) == len(rows), "an item has one row"
    return table


def write_part(path: Path, table: pa.Table) -> int:
    """Write a part whole and return its size in bytes.

    Raises:
        OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    content = _encoded(table)
    write_whole(path, content)
    return len(content)


def put_part(rows: str, name: str, table: pa.Table) -> int:
    """Put a part among the rows of a run at a URI, with the bytes that `write_part` writes, and return its size.

    Args:
        rows: URI of the folder of the run's parts.
        name: name of the shard.
        table: its rows.

    Raises:
        StorageError: it cannot be written; the old content stays.
    """
    content = _encoded(table)
    put(join_uri(rows, f"{_PREFIX}{name}{_ENDING}"), content)
    return len(content)


def require_writable(uri: str) -> None:
    """Check that files below a URI can be written and deleted.

    Raises:
        StorageError: they cannot.
    """
    # Nothing lists this name, should this process die before it is deleted.
    probe = join_uri(uri, f"{uuid.uuid4().hex}{ASIDE}")
    put(probe, b"")
    delete(probe)


def _encoded(table: pa.Table) -> bytes:
    # In memory, because Python's own file errors tell their kind and Arrow's do not.
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


def read_part(path: Path, columns: Sequence[str] | None = None) -> pa.Table | None:
    """Return the rows of a part with verified checksums; None if it is damaged.

    Args:
        path: the file.
        columns: those of its columns that are read; all if not given.

    Raises:
        OSError: the file cannot be read at all, which says nothing about its content.
    """
    status = path.stat()
    # A file that has only just been written may change again under the same time.
    is_kept = status.st_size <= _SMALL and time.time_ns() - status.st_mtime_ns > _SETTLED_NS
    if not is_kept:
        return _decoded(path, columns)
    key = path, status.st_mtime_ns, status.st_size, status.st_ino
    table = _kept.get(key)
    if table is None:
        table = _decoded(path, None)
        if table is not None:
            _kept.put(key, table, table.nbytes)
    return table if table is None or columns is None else table.select([name for name in table.schema.names if name in columns])


def _decoded(path: Path, columns: Sequence[str] | None) -> pa.Table | None:
    content = path.read_bytes()
    try:
        with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as file:
            # Arrow's threads may outlive the interpreter and then crash the process after all work is done.
            table = file.read(None if columns is None else list(columns), use_threads=False)
        table.validate(full=True)
    except Exception:  # Where the damage lies decides what Arrow raises: its own errors, OSError, UnicodeDecodeError.
        return None
    return table


# Tables and pages of a run read small parts up to ten times; a part is known by its time, size and number.
_kept = Recent[tuple[Path, int, int, int], pa.Table](_MOST_KEPT)


def count_part(path: Path) -> Outcomes:
    """Return the outcomes of a part's items; no other column is read.

    Raises:
        OSError: the file cannot be read at all, which says nothing about its content.
    """
    columns = _read_columns(path, "status", "error")
    if columns is None:
        return Outcomes(damaged=1)
    statuses, reasons = columns
    errors = Counter(str(reason) for status, reason in zip(statuses, reasons, strict=True) if status != OK)
    return Outcomes(len(statuses) - errors.total(), errors)


def done_keys(path: Path) -> frozenset[str]:
    """Return the keys of the items of a part that worked; none if it is damaged.

    Raises:
        OSError: as in `count_part`.
    """
    keys, statuses = _read_columns(path, "item_key", "status") or ((), ())
    return frozenset(key for key, status in zip(keys, statuses, strict=True) if status == OK)


def _read_columns(path: Path, *names: str) -> list[list[Any]] | None:
    """Return some columns of a part; None if it is damaged."""
    with path.open("rb") as content:
        try:
            with pq.ParquetFile(content, page_checksum_verification=True) as file:
                table = file.read(names, use_threads=False)
            return [table[name].to_pylist() for name in names]
        except Exception:  # As in `read_part`.
            return None


def count_parts(folder: Path, noted: Mapping[str, Mapping[str, Any]]) -> Outcomes:
    """Return the outcomes of the parts of a folder; only parts with failed items or an unexpected size are read.

    Args:
        folder: folder of the parts.
        noted: by shard name, the "done", "failed" and "bytes" recorded when its part was written.

    Raises:
        OSError: a file cannot be read at all, which says nothing about its content.
    """
    total, done = Outcomes(), 0
    for name, path in list_parts(folder).items():
        event = noted.get(name)
        if event is not None and not event["failed"] and event.get("bytes") == path.stat().st_size:
            done += event["done"]
        else:
            total += count_part(path)
    return total + Outcomes(done)


class WrittenTable(NamedTuple):
    """Counts of a written table.

    Args:
        num_lines: number of lines below the names of the columns.
        num_guarded: number of cells with an apostrophe added in front.
    """

    num_lines: int
    num_guarded: int


def require_new(path: Path, endings: Collection[str] = ()) -> None:
    """Raise an error unless a table may be written to a file; called before anything is read.

    Args:
        path: the file.
        endings: endings that can be written; those of rows if empty.

    Raises:
        ConfigError: the file has none of the endings, or exists already.
        StorageError: the URI that it is the copy of cannot be read.
    """
    endings = endings or ENDINGS
    if path.suffix not in endings:
        what = f"no table can be written to a file of that kind{nearest(path.suffix, endings)}"
        fix = f"name a file that ends in {', '.join(endings)}"
        raise ConfigError(what, where=display_path(path), got=path.suffix or "no ending", fix=fix)
    folder = uri_of(path.parent)
    if path.exists() if folder is None else path.name in entries(folder):
        fix = "name another file, or delete this one"
        raise ConfigError("the file is there already", where=display_path(path), fix=fix)


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> WrittenTable:
    """Write tables of one schema below each other.

    Args:
        path: the file, whose ending is one of `ENDINGS`; folders above it are made. The local copy of a URI is put there.
        schema: schema of each table.
        tables: the tables; one at a time is in memory.

    Raises:
        RunError: the disk is full or the file cannot be written.
        StorageError: the URI cannot be written.
    """
    num_lines = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file, closing(ENDINGS[path.suffix](file, schema)) as writer:
            for table in tables:
                writer.write(table)
                num_lines += table.num_rows
    except OSError as error:
        fix = "make room, or name a file that can be written"
        raise RunError("the table cannot be written", where=display_path(path), got=error.strerror or error, fix=fix) from error
    replicate(path)
    return WrittenTable(num_lines, writer.num_guarded)


class _Writer(Protocol):
    num_guarded: int

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class _Parquet:
    num_guarded = 0

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")

    def close(self) -> None:
        self._writer.close()

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)


class _Csv:
    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        kinds = [pa.string() if pa.types.is_nested(kind) else kind for kind in schema.types]
        self._schema = pa.schema(list(zip(schema.names, kinds, strict=True)))
        self._writer = pv.CSVWriter(file, self._schema)
        self.num_guarded = 0

    def close(self) -> None:
        self._writer.close()

    def write(self, table: pa.Table) -> None:
        self._writer.write(pa.table([self._cells(column) for column in table.columns], schema=self._schema))

    def _cells(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_nested(column.type):
            return pa.chunked_array([[None if value is None else _json(value) for value in column.to_pylist()]], pa.string())
        if not pa.types.is_string(column.type):
            return column
        import pyarrow.compute as pc

        needed = pc.match_substring_regex(column, FORMULA)
        self.num_guarded += pc.sum(needed).as_py() or 0
        return pc.if_else(needed, pc.binary_join_element_wise("'", column, ""), column)


class _JsonLines:
    num_guarded = 0

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file

    def close(self) -> None:
        """Do nothing: nothing is left to write."""

    def write(self, table: pa.Table) -> None:
        self._file.writelines(f"{_json(row)}\n".encode() for row in table.to_pylist())


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


ENDINGS: dict[str, Callable[[BinaryIO, pa.Schema], _Writer]] = {".csv": _Csv, ".parquet": _Parquet, ".jsonl": _JsonLines}
"""The writer of a file, by its ending."""
