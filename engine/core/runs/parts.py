"""One part: the rows of one finished shard in one Parquet file, with a checksum on every page.

A part is whole or absent, so a run that was killed holds finished shards only. What was damaged afterwards (a disk, a
copy cut short) is found by reading it through.

The columns of the rows that runs write, one Arrow schema per kind of row.

Every row says which item of work it belongs to, whether that worked, and from which seed; the other columns are null in
rows of failed items. `SCHEMA_VERSION` grows when a column changes its meaning or type.

The columns of rows that hold an answer of a chat model, whichever job asked for it.

A row keeps what was thought and what was withheld beside the reply, so that an answer without a reply tells why.

Tables as files that other programs read: CSV, Parquet or JSON lines, written part by part, whole or not at all.

Lists and structures stay what they are in Parquet and JSON lines; a cell of CSV holds them as JSON. Texts of corpora and models
may begin as formulas do, and CSV is opened in spreadsheets: such cells have an apostrophe in front there (`FORMULA`), and are
counted. CSV tells an empty text from none by its quotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import Any
import numpy as np
import pyarrow as pa
from parley.envs.core.errors import RunError
from parley.envs.core.visible import well_formed
from collections.abc import Iterable, Mapping
from parley.policies.chat.model import Answer
import hashlib
import io
import json
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
import pyarrow.parquet as pq
from parley.engine.core.runs.documents import write_whole
from parley.envs.core.storage.files import ASIDE, delete, put
from parley.envs.core.storage.uris import join_uri
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import BinaryIO, NamedTuple, Protocol
import pyarrow.compute as pc
import pyarrow.csv as pv
from parley.engine.core.runs.documents import plain, whole_file
from parley.engine.core.runs.remote_sync import replicate
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.visible import FORMULA
from parley.envs.core.storage.files import entries
from parley.envs.core.storage.uris import display_path, uri_of


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
"""What every row has: the item's key, "ok" or "error" with the reason, the item's own seed (63 bits), the version."""


def with_base(fields: list[pa.Field]) -> pa.Schema:
    """The schema of a kind of row: the columns of `BASE`, then its own."""
    return pa.schema([*BASE, *fields])


def list_of(of: pa.DataType) -> pa.DataType:
    """The type of lists of a type."""
    # Parquet calls list elements "element"; any other name would come back changed.
    return pa.list_(pa.field("element", of))


def require_whole(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Make sure that columns of whole numbers get whole numbers: pyarrow 26 cuts 3.5 to 3 without a word.

    Args:
        rows: by column; those that a row lacks are null.
        schema: the columns.

    Raises:
        RunError: a number has a fraction, or is none.
    """
    for column in schema:
        if (cut := _not_whole([row.get(column.name) for row in rows], column.type)) is not None:
            raise RunError(
                f"the column {column.name} holds whole numbers, and this is none",
                got=repr(cut),
                fix="let the game, agent or model of your own that gives it give whole numbers",
            )


def _not_whole(values: Iterable[Any], kind: pa.DataType) -> Any:
    """The first number among values of a type that the type would cut; None where there is none."""
    if pa.types.is_integer(kind):
        given = list(values)
        if set(map(type, given)) <= {int, NoneType}:
            return None
        return next((value for value in given if isinstance(value, float | np.floating) and value % 1 != 0), None)
    inside: list[tuple[Iterable[Any], pa.DataType]] = []
    if pa.types.is_list(kind):
        inside = [(chain.from_iterable(value for value in values if value is not None), kind.value_type)]
    elif pa.types.is_struct(kind):
        given = [value for value in values if value is not None]
        inside = [([value.get(part.name) for value in given], part.type) for part in kind]
    return next((cut for part, of in inside if (cut := _not_whole(part, of)) is not None), None)


def ok_row(item_key: str, seed: int) -> dict[str, Any]:
    """What the row of an item that worked begins with; the columns of its kind follow."""
    return {"item_key": item_key, "status": OK, "error": None, "seed": seed, "schema_version": SCHEMA_VERSION}


def error_row(item_key: str, seed: int, reason: str) -> dict[str, Any]:
    """The row of an item that failed; every column of its kind is null."""
    return {"item_key": item_key, "status": ERROR, "error": well_formed(reason), "seed": seed, "schema_version": SCHEMA_VERSION}


ANSWERED = [
    # The kind of the answer (`parley.policies.chat.model.AnswerKind`), what was thought before the reply, and text that is no
    # reply: half of a filtered answer, or a refusal in a field of its own. Null where the model is no chat model.
    pa.field("kind", pa.string()),
    pa.field("reasoning", pa.string()),
    pa.field("withheld", pa.string()),
]
"""The columns of one answer, beside its reply."""
_COUNTED = [pa.field("asked", pa.string()), pa.field("kind", pa.string()), pa.field("answers", pa.int64())]
NO_REPLIES = list_of(pa.struct(_COUNTED))
"""How many answers are no replies, by what was asked and by kind; nothing is said of those that are."""


def answer_columns(answer: Answer | None) -> dict[str, Any]:
    """Return the values of `ANSWERED`; nulls of a model that is no chat model."""
    if answer is None:
        return dict.fromkeys(field.name for field in ANSWERED)
    return {"kind": answer.kind.value, "reasoning": answer.reasoning, "withheld": answer.withheld}


def count_no_replies(answers: Mapping[str, Iterable[Answer]]) -> list[dict[str, Any]]:
    """Return the value of a column `NO_REPLIES`.

    Args:
        answers: by what was asked.
    """
    counts: dict[tuple[str, str], int] = {}
    for question, given in answers.items():
        for answer in given:
            if not answer.is_reply:
                counts[question, answer.kind.value] = counts.get((question, answer.kind.value), 0) + 1
    return [{"asked": question, "kind": kind, "answers": number} for (question, kind), number in sorted(counts.items())]


CORRUPT = ".corrupt"
"""The ending of a damaged part that was moved aside."""
_PREFIX, _ENDING = "part-", ".parquet"


@dataclass(frozen=True)
class Part:
    """What is known of a part without holding its rows, or even their keys: a run may have millions of items.

    Args:
        num_done: items that worked.
        num_failed: items whose rows hold an error.
        digest: of the keys of all of them, see `digest_of`.
    """

    num_done: int
    num_failed: int
    digest: bytes

    @classmethod
    def of(cls, table: pa.Table) -> Part:
        """What a part's rows come to."""
        num_done = table["status"].to_pylist().count(OK)
        return cls(num_done, table.num_rows - num_done, digest_of(table["item_key"].to_pylist()))

    @property
    def num_items(self) -> int:
        """Every item of the part."""
        return self.num_done + self.num_failed


def digest_of(keys: Iterable[str]) -> bytes:
    """16 bytes that tell one set of keys from another, in whatever order they come."""
    return hashlib.blake2b(json.dumps(sorted(keys)).encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Outcomes:
    """How items came out, counted.

    Args:
        done: items that worked.
        errors: items that failed, by reason.
        damaged: parts that cannot be read.
    """

    done: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    damaged: int = 0

    def __add__(self, other: Outcomes) -> Outcomes:
        return Outcomes(self.done + other.done, self.errors + other.errors, self.damaged + other.damaged)

    @property
    def failed(self) -> int:
        """Items that failed."""
        return self.errors.total()


def part_path(folder: Path, name: str) -> Path:
    """The file of the shard of that name."""
    return folder / f"{_PREFIX}{name}{_ENDING}"


def list_parts(folder: Path) -> dict[str, Path]:
    """The parts of a folder by shard name, in the order of their names; files moved aside are none."""
    found = sorted(folder.glob(f"{_PREFIX}*{_ENDING}"))
    return {path.name.removeprefix(_PREFIX).removesuffix(_ENDING): path for path in found}


def to_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table of exactly that schema; columns that a row lacks are null.

    An unknown column, an item with two rows or a missing base column is a mistake of the caller.

    Raises:
        RunError: a column of whole numbers holds another.
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
    """Writes a part whole and returns its size in bytes.

    Raises:
        OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    content = _encoded(table)
    write_whole(path, content)
    return len(content)


def put_part(rows: str, name: str, table: pa.Table) -> int:
    """Puts a part among the rows of a run at a URI, the same bytes as `write_part` writes, and returns its size.

    Args:
        rows: URI of the folder of the run's parts.
        name: of the shard.
        table: its rows.

    Raises:
        StorageError: it cannot be written; what was there before stays.
    """
    content = _encoded(table)
    put(join_uri(rows, f"{_PREFIX}{name}{_ENDING}"), content)
    return len(content)


def require_writable(uri: str) -> None:
    """Makes sure that files can be put below a URI, and deleted.

    Raises:
        StorageError: they cannot.
    """
    # Listed nowhere, should this process die before it is deleted.
    probe = join_uri(uri, f"{uuid.uuid4().hex}{ASIDE}")
    put(probe, b"")
    delete(probe)


def _encoded(table: pa.Table) -> bytes:
    # In memory, because Python's own file errors say which kind they are and Arrow's do not.
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


def read_part(path: Path) -> pa.Table | None:
    """The rows of a part, checksums verified; None when it is damaged.

    Raises:
        OSError: the file cannot be read at all, which says nothing about its content.
    """
    content = path.read_bytes()
    try:
        with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as file:
            # Arrow's threads may outlive the interpreter and then bring the process down, all work done.
            table = file.read(use_threads=False)
        table.validate(full=True)
    except Exception:  # Where the damage lies decides what Arrow raises: its own errors, OSError, UnicodeDecodeError.
        return None
    return table


def count_part(path: Path) -> Outcomes:
    """How a part's items came out, of which no other column is read.

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
    """Keys of the items of a part that worked; none when it is damaged.

    Raises:
        OSError: as in `count_part`.
    """
    keys, statuses = _read_columns(path, "item_key", "status") or ((), ())
    return frozenset(key for key, status in zip(keys, statuses, strict=True) if status == OK)


def _read_columns(path: Path, *names: str) -> list[list[Any]] | None:
    """Some columns of a part; None when it is damaged."""
    with path.open("rb") as content:
        try:
            with pq.ParquetFile(content, page_checksum_verification=True) as file:
                table = file.read(names, use_threads=False)
            return [table[name].to_pylist() for name in names]
        except Exception:  # As in `read_part`.
            return None


def count_parts(folder: Path, told: Mapping[str, Mapping[str, Any]]) -> Outcomes:
    """How the parts of a folder came out; one is read only where items failed, or where it is not the file that was told of.

    Args:
        folder: of the parts.
        told: by shard name, the "done", "failed" and "bytes" that were noted when its part was written.

    Raises:
        OSError: a file cannot be read at all, which says nothing about its content.
    """
    total, done = Outcomes(), 0
    for name, path in list_parts(folder).items():
        event = told.get(name)
        if event is not None and not event["failed"] and event.get("bytes") == path.stat().st_size:
            done += event["done"]
        else:
            total += count_part(path)
    return total + Outcomes(done)


class WrittenTable(NamedTuple):
    """What a file of a table holds.

    Args:
        num_lines: lines below the names of the columns.
        num_guarded: cells with an apostrophe in front that are none of the table's.
    """

    num_lines: int
    num_guarded: int


def require_new(path: Path) -> None:
    """Finds out before anything is read whether a table may be written to a file.

    Raises:
        ConfigError: it ends in none of `ENDINGS`, or is there already.
        StorageError: the URI that it is the copy of cannot be read.
    """
    if path.suffix not in ENDINGS:
        what = f"no table can be written to a file of that kind{nearest(path.suffix, ENDINGS)}"
        fix = f"name a file that ends in {', '.join(ENDINGS)}"
        raise ConfigError(what, where=display_path(path), got=path.suffix or "no ending", fix=fix)
    folder = uri_of(path.parent)
    if path.exists() if folder is None else path.name in entries(folder):
        fix = "name another file, or delete this one"
        raise ConfigError("the file is there already", where=display_path(path), fix=fix)


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> WrittenTable:
    """Writes tables of one schema below each other.

    Args:
        path: the file, whose ending is one of `ENDINGS`; folders above it are made. The local copy of a URI is put there.
        schema: of each table.
        tables: no more than one is held.

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
        needed = pc.match_substring_regex(column, FORMULA)
        self.num_guarded += pc.sum(needed).as_py() or 0
        return pc.if_else(needed, pc.binary_join_element_wise("'", column, ""), column)


class _JsonLines:
    num_guarded = 0

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file

    def close(self) -> None:
        """Nothing is left to write."""

    def write(self, table: pa.Table) -> None:
        self._file.writelines(f"{_json(row)}\n".encode() for row in table.to_pylist())


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


ENDINGS: dict[str, Callable[[BinaryIO, pa.Schema], _Writer]] = {".csv": _Csv, ".parquet": _Parquet, ".jsonl": _JsonLines}
"""What writes a file, by its ending."""
