"""A configuration and rows for tests of run folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from parley.engine.core.runs.parts import OK, SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class SmallConfig:
    num_items: int = 8
    temperature: float = 0.5
    num_workers: int = 0


def row(key: str, **more: Any) -> dict[str, Any]:
    base = {"item_key": key, "status": OK, "error": None, "seed": 7, "schema_version": SCHEMA_VERSION}
    return base | {"counts": [1, 2, 3], "turns": [{"side": 0, "words": f"i am {key}"}], "points_adversary": len(key)} | more


def rows(keys: Iterable[str]) -> list[dict[str, Any]]:
    return [row(key) for key in keys]
