"""Settings say in their types which values are allowed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest

from parley.envs.core.config import (
    AtLeastTwo,
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    NonPositiveFloat,
    NumItems,
    NumItemsOrAll,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    Share,
    ShareBelowOne,
)
from parley.envs.core.errors import ConfigError, OutOfRangeError

MOST = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Every(Configuration):
    """A setting of each type."""

    seed: NonNegativeInt = 0
    batch: PositiveInt = 1
    length: AtLeastTwo = 2
    dialogues: NumItems = 1
    limit: NumItemsOrAll = 0
    weight: NonNegativeFloat = 0.0
    log_probability: NonPositiveFloat | None = None
    rate: PositiveFloat = 0.1
    share: Share = 1.0
    decay: PositiveShare = 1.0
    dropout: ShareBelowOne = 0.0


@pytest.mark.parametrize(
    ("name", "least", "below", "allowed"),
    [
        ("seed", 0, -1, "at least 0"),
        ("batch", 1, 0, "at least 1"),
        ("length", 2, 1, "at least 2"),
        ("dialogues", MOST, MOST + 1, "at least 1 and at most 10,000,000"),
        ("dialogues", 1, 0, "at least 1 and at most 10,000,000"),
        ("limit", 0, -1, "at least 0 and at most 10,000,000"),
        ("weight", 0.0, -0.1, "at least 0"),
        ("log_probability", 0.0, 0.1, "at most 0"),
        ("rate", 1e-9, 0.0, "above 0"),
        ("share", 0.0, -0.1, "0 to 1"),
        ("share", 1.0, 1.1, "0 to 1"),
        ("decay", 1.0, 0.0, "above 0, at most 1"),
        ("dropout", 0.99, 1.0, "at least 0, below 1"),
        ("dropout", 0.0, float("nan"), "at least 0, below 1"),
    ],
)
def test_a_value_outside_of_its_range_is_told_with_the_range(name: str, least: float, below: float, allowed: str) -> None:
    assert getattr(replace(Every(), **{name: least}), name) == least
    with pytest.raises(OutOfRangeError, match=rf"{name} is out of range(.|\n)*allowed: {allowed}"):
        replace(Every(), **{name: below})


def test_ranges_are_those_of_bases_too_and_of_a_field_written_anew() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Narrower(Every):
        batch: AtLeastTwo = 2

    with pytest.raises(OutOfRangeError, match="seed"):
        Narrower(seed=-1)
    with pytest.raises(OutOfRangeError, match=r"batch(.|\n)*at least 2"):
        Narrower(batch=1)


@dataclass(frozen=True, kw_only=True)
class Chosen(Configuration):
    """Settings whose values are listed, and others."""

    rule: Literal["paper", "released"] = "paper"
    every: PositiveInt = 4
    rate: Share = 0.2


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("rule", "nosuch", "give one of 'paper', 'released'"),
        ("every", 2.5, "give a whole number"),
        ("every", "4", "give a whole number"),
        ("every", True, "give a whole number"),
        ("rate", "x", "give a finite number"),
    ],
)
def test_a_value_of_another_type_or_choice_is_refused_from_python_too(name: str, value: object, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Chosen(**{name: value})  # type: ignore[arg-type]  # the mistake
    what = "is out of range" if name == "rule" else "has the wrong type"
    assert (caught.value.what, caught.value.fix) == (f"{name} {what}", fix)


def test_numbers_of_numpy_are_numbers() -> None:
    made = Chosen(every=np.int64(3), rate=np.float32(0.5))  # type: ignore[arg-type]  # what users compute
    assert made == Chosen(every=3, rate=0.5)
    assert (type(made.every), type(made.rate)) == (int, float)
