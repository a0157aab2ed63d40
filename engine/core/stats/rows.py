"""Rows of runs, as metrics read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""One item, keyed by the columns of its job's rows."""


def finished(rows: Sequence[Row]) -> list[Row]:
    """The rows of items that came to their end."""
    return [row for row in rows if row["status"] == "ok"]


def lost(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of items that ended in an error."""
    return [row for row in rows if row["status"] != "ok"]
