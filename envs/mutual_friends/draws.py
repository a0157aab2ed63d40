"""Choices by uniform random numbers that are at hand, which take less time than a call to numpy for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Draw = Callable[[], float]
"""The next random number, from 0 to 1, which is never reached."""
_AT_ONCE = 160


def uniforms(rng: np.random.Generator) -> Draw:
    """Random numbers without end; the generator is asked for many at once, and should serve nobody else."""

    def more() -> Iterator[list[float]]:
        while True:
            yield rng.random(_AT_ONCE).tolist()

    return chain.from_iterable(more()).__next__


def one(values: Sequence[T], draw: Draw) -> T:
    """One of some values, each as likely."""
    return values[int(draw() * len(values))]


def some(values: Sequence[T], most: int, draw: Draw) -> list[T]:
    """Different ones in random order, all of them where there are no more than that."""
    pool, found = list(values), []
    for left in range(len(pool), max(len(pool) - most, 0), -1):
        at = int(draw() * left)
        found.append(pool[at])
        pool[at] = pool[left - 1]
    return found


def weighted(shares: Sequence[float], draw: Draw) -> int:
    """A place with a probability proportional to its share."""
    bounds = list(accumulate(shares))
    return bisect_right(bounds, draw() * bounds[-1], 0, len(bounds) - 1)
