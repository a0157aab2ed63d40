"""Rows of a shard whose items are asked about together: one that fails costs itself alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from parley.engine.core.ray.sharding import ItemT, Shard
from parley.engine.core.runs.schemas import error_row
from parley.envs.core.play import agent_errors, play_apart

logger = logging.getLogger(__name__)


def rows_apart(
    rows_of: Callable[[Shard[ItemT]], list[dict[str, Any]]], shard: Shard[ItemT], seed: Callable[[str], int]
) -> list[dict[str, Any]]:
    """One row per item, in order: of all items together, or, where a model that is asked fails, of each by itself.

    Args:
        rows_of: the rows of items, which do not depend on what is asked with them.
        shard: the items.
        seed: of an item, by its key.
    """

    def asked(items: Sequence[tuple[str, ItemT]]) -> list[dict[str, Any]]:
        keys, found = zip(*items, strict=True)
        with agent_errors():
            return rows_of(Shard(shard.name, keys, found))

    parts, lost = play_apart(asked, list(zip(shard.keys, shard.items, strict=True)))
    rows = {row["item_key"]: row for part in parts for row in part}
    rows |= {key: error_row(key, seed(key), str(error)) for (key, _), error in lost}
    if lost:
        logger.warning("%d of %d items are lost: %s", len(lost), len(shard), lost[0][1].what)
    return [rows[key] for key in shard.keys]
