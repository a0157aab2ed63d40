"""Typed search spaces: which settings of a job a sweep turns, and how far.

A space is a mapping from dotted keys of the job's configuration to what may stand there. It is checked against the
configuration before anything starts, so that a key that is not there, or a bound that is not allowed, costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from parley.envs.core.config import with_values

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

ConfigT = TypeVar("ConfigT")
Value = str | int | float | bool


@dataclass(frozen=True)
class Choice:
    """One of some values, in no order."""

    values: tuple[Value, ...]

    def distribution(self) -> BaseDistribution:
        """The same for Optuna."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)


@dataclass(frozen=True)
class Integer:
    """A whole number from `low` to `high`, both included; `log` draws its magnitude evenly."""

    low: int
    high: int
    log: bool = False

    def distribution(self) -> BaseDistribution:
        """The same for Optuna."""
        from optuna.distributions import IntDistribution

        return IntDistribution(self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; `log` draws its magnitude evenly."""

    low: float
    high: float
    log: bool = False

    def distribution(self) -> BaseDistribution:
        """The same for Optuna."""
        from optuna.distributions import FloatDistribution

        return FloatDistribution(self.low, self.high, log=self.log)


Domain = Choice | Integer | Real
Space = Mapping[str, Domain]
"""What may stand under each dotted key."""


def corners(domain: Domain) -> tuple[Value, ...]:
    """Values that must be allowed for all others to be."""
    return domain.values if isinstance(domain, Choice) else (domain.low, domain.high)


def check_space(config: Any, space: Space, where: str) -> None:
    """Finds out whether every setting of a space is there and may take its values.

    Args:
        config: what the sweep turns settings of.
        space: which ones.
        where: who asks, for messages.

    Raises:
        ConfigError: no such key (with the nearest name), or a corner of the space that is not allowed.
    """
    for key, domain in space.items():
        for corner in corners(domain):
            with_values(config, {key: corner}, where)
