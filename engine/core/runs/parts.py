"""One part: the rows of one finished shard in one Parquet file, with a checksum on every page.

A part is whole or absent, so a run that was killed holds finished shards only. What was damaged afterwards (a disk, a
copy cut short) is found by reading it through.
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parley.engine.core.runs.documents import write_whole
from parley.engine.core.runs.schemas import OK, require_whole
from parley.envs.core.storage.files import ASIDE, delete, put
from parley.envs.core.storage.uris import join_uri

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
