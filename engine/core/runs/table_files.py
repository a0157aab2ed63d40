"""Tables as files that other programs read: CSV, Parquet or JSON lines, written part by part, whole or not at all.

Lists and structures stay what they are in Parquet and JSON lines; a cell of CSV holds them as JSON. Texts of corpora and models
may begin as formulas do, and CSV is opened in spreadsheets: such cells have an apostrophe in front there (`FORMULA`), and are
counted. CSV tells an empty text from none by its quotes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from parley.engine.core.runs.documents import plain, whole_file
from parley.engine.core.runs.remote_sync import replicate
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.visible import FORMULA
from parley.envs.core.storage.files import entries
from parley.envs.core.storage.uris import display_path, uri_of


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
