"""How work is cut: shards of K items in key order, the same for one worker and for a hundred.

A shard is one part in the run folder. Its composition depends on the items and K alone, so that batching inside it, and with it
every row, is the same wherever it runs. Most workers do one at a time; one that works in turns (`worker.py`) holds several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Shard(Generic[ItemT]):
    """A piece of the work.

    Args:
        name: five digits or more, rising with the keys.
        keys: the items' keys in rising order.
        items: what the keys stand for, in the same order.
        kept: what an earlier attempt at it has left to go on from, JSON types; None where there is nothing.
        deaths: processes without actors that died while they worked on it.
    """

    name: str
    keys: tuple[str, ...]
    items: tuple[ItemT, ...]
    kept: Any = None
    deaths: int = 0

    def __len__(self) -> int:
        return len(self.keys)


def make_shards(items: Mapping[str, ItemT], size: int) -> list[Shard[ItemT]]:
    """Cuts the work into shards of `size` items in key order; the last one may be smaller.

    Args:
        items: what is to be done, by key; keys sort as text, so numbers in them want leading zeros.
        size: items per shard, at least 1.
    """
    assert size >= 1, "a shard holds at least one item"
    keys = sorted(items)
    digits = max(5, len(str(len(keys) // size)))
    return [
        Shard(f"{number:0{digits}d}", tuple(chunk), tuple(items[key] for key in chunk))
        for number, chunk in enumerate(keys[start : start + size] for start in range(0, len(keys), size))
    ]
