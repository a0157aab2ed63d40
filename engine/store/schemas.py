"""The columns of the rows that runs write, one Arrow schema per kind of row.

Every row says which item of work it belongs to, whether that worked, and from which seed; the other columns are null in
rows of failed items. `SCHEMA_VERSION` grows when a column changes its meaning or type.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from envs.core.visible import well_formed

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


def ok_row(item_key: str, seed: int) -> dict[str, Any]:
    """What the row of an item that worked begins with; the columns of its kind follow."""
    return {"item_key": item_key, "status": OK, "error": None, "seed": seed, "schema_version": SCHEMA_VERSION}


def error_row(item_key: str, seed: int, reason: str) -> dict[str, Any]:
    """The row of an item that failed; every column of its kind is null."""
    return {"item_key": item_key, "status": ERROR, "error": well_formed(reason), "seed": seed, "schema_version": SCHEMA_VERSION}
