"""Types of settings that say which values are allowed, and the base class of configurations, which checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from parley.envs.core.config import check

MOST_ITEMS = 10_000_000
"""Dialogues, targets, samples or other items of one run: their keys are held in memory, at some hundred bytes each."""


@dataclass(frozen=True)
class Range:
    """Which values a setting may have; what has no value is not asked.

    Args:
        allowed: in words, for errors.
        holds: whether a value is one of them.
    """

    allowed: str
    holds: Callable[[Any], bool]


def _at_least(least: int) -> Range:
    return Range(f"at least {least}", lambda value: value >= least)


def _items(least: int) -> Range:
    return Range(f"at least {least} and at most {MOST_ITEMS:,}", lambda value: least <= value <= MOST_ITEMS)


NonNegativeInt = Annotated[int, _at_least(0)]
PositiveInt = Annotated[int, _at_least(1)]
AtLeastTwo = Annotated[int, _at_least(2)]
NumItems = Annotated[int, _items(1)]
"""Items of one run, such as dialogues or targets."""
NumItemsOrAll = Annotated[int, _items(0)]
"""The same, where 0 stands for all that there are."""
NumSeeds = Annotated[int, Range("at least 1 and at most 1,000", lambda value: 1 <= value <= 1000)]
"""Trainings, each from a seed of its own."""
NonPositiveFloat = Annotated[float, Range("at most 0", lambda value: value <= 0)]
NonNegativeFloat = Annotated[float, _at_least(0)]
PositiveFloat = Annotated[float, Range("above 0", lambda value: value > 0)]
Share = Annotated[float, Range("0 to 1", lambda value: 0 <= value <= 1)]
PositiveShare = Annotated[float, Range("above 0, at most 1", lambda value: 0 < value <= 1)]
ShareBelowOne = Annotated[float, Range("at least 0, below 1", lambda value: 0 <= value < 1)]


class Configuration:
    """Base of the dataclasses that hold settings: a value outside of its type's range is an `OutOfRangeError`."""

    def __post_init__(self) -> None:
        kind: type = type(self)
        for name, found in _ranges(kind):
            value = getattr(self, name)
            check(self, name, value is None or found.holds(value), found.allowed)


@cache
def _ranges(kind: type) -> tuple[tuple[str, Range], ...]:
    """The ranges of the settings of a configuration by their names."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((name, found) for name, hint in hints.items() for found in _ranges_in(hint))


def _ranges_in(hint: Any) -> Iterator[Range]:
    """Those that a type, or one of several, is annotated with."""
    for part in get_args(hint):
        if isinstance(part, Range):
            yield part
        else:
            yield from _ranges_in(part)
