"""A limit on items: which of them a run takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from parley.envs.core.seeds import stream

ItemT = TypeVar("ItemT")


def drawn(found: Sequence[ItemT], limit: int, seed: int, name: str) -> list[ItemT]:
    """So many items at most, drawn by the seed, in their order; all where the limit is 0.

    Args:
        found: all of them.
        limit: how many at most.
        seed: master seed.
        name: of the corpus.
    """
    places: Sequence[int] = range(len(found))
    if limit and len(found) > limit:
        places = sorted(stream(seed, "examples", name).permutation(len(found))[:limit].tolist())
    return [found[place] for place in places]
