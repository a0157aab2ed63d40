"""The columns of the rows that runs write, one Arrow schema per kind of row.

Every row says which item of work it belongs to, whether that worked, and from which seed; the other columns are null in
rows of failed items. `SCHEMA_VERSION` grows when a column changes its meaning or type.
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
