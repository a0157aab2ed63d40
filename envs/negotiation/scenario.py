"""Scenarios of any game, with their points and Pareto optimality. What a game is about is its `Domain`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.envs.core.errors import ScenarioError
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Domain, Numbers, Selections, domain_of

ILLEGAL = "<illegal>"
"""Stands for a selection out of range in what is written of a dialogue."""


@dataclass(frozen=True, order=True)
class Scenario:
    """One deal to be struck: how many of each item there are and what each side's items are worth.

    Args:
        counts: number of each item; of Deal or No Deal books, hats, balls, each 1..4, 5..7 in total.
        values: for side 0 and side 1, points per item; of Deal or No Deal each 0..10, and counts times values sum to 10.
        game: the name of its `Domain`.

    Raises:
        ConfigError: no game is called that.
        ScenarioError: a number is not whole, or a rule of the game is broken (message names the rule).
    """

    counts: Numbers
    values: tuple[Numbers, Numbers]
    game: str = DEAL_OR_NO_DEAL

    def __post_init__(self) -> None:
        counts, first, second = map(_whole, (self.counts, *self.values))
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "values", (first, second))
        domain, num = self.domain, len(self.domain.items)
        whole = all(len(part) == num for part in (self.counts, *self.values))
        problem = domain.problem(self.counts, self.values) if whole else f"there are {num} items"
        if problem:
            got = f"counts {self.counts}, values {self.values}"
            raise ScenarioError(f"illegal scenario: {problem}", got=got, fix=domain.rule)

    @property
    def domain(self) -> Domain:
        """What it is about."""
        return domain_of(self.game)

    @property
    def key(self) -> str:
        """A short name, equal for equal scenarios of a game: counts, then each side's values."""
        return "/".join(",".join(map(str, part)) for part in (self.counts, *self.values))

    @property
    def selections(self) -> Selections:
        """What may be chosen."""
        return self.domain.selections(self.counts)

    def context(self, side: int) -> Numbers:
        """The numbers that a side sees: count and own value of each item in turn."""
        return tuple(itertools.chain.from_iterable(zip(self.counts, self.values[side], strict=True)))

    def swapped(self) -> Scenario:
        """The same scenario with the sides exchanged."""
        return Scenario(self.counts, (self.values[1], self.values[0]), self.game)

    @classmethod
    def from_contexts(cls, first: Sequence[int], second: Sequence[int], game: str = DEAL_OR_NO_DEAL) -> Scenario:
        """A scenario from both sides' numbers (count and value of each item in turn).

        Raises:
            ScenarioError: the sides disagree on the counts, or a rule is broken.
        """
        width = 2 * len(domain_of(game).items)
        if len(first) != width or len(second) != width or tuple(first[::2]) != tuple(second[::2]):
            raise ScenarioError(
                "the two sides' contexts do not describe one scenario",
                got=f"{list(first)} and {list(second)}",
                fix=f"give {width} numbers a side with equal counts: c0 v0 c1 v1 and so on",
            )
        return cls(tuple(first[::2]), (tuple(first[1::2]), tuple(second[1::2])), game)


def _whole(numbers: Iterable[Any]) -> Numbers:
    """Return numbers as Python's whole ones, whoever made them.

    Raises:
        ScenarioError: one is not whole.
    """
    given = tuple(numbers)
    if not all(isinstance(number, int | float | np.integer | np.floating) and number % 1 == 0 for number in given):
        fix = "scale the values up until all are whole: halves by 2"
        raise ScenarioError("a scenario has whole numbers", got=f"({', '.join(map(str, given))})", fix=fix)
    return tuple(map(int, given))


def points(scenario: Scenario, selections: tuple[int, int]) -> tuple[bool, tuple[int, int]]:
    """Whether the sides' selections fit together, and what each side earns (0, 0 if they do not).

    Refusals and anything that does not add up to the counts are no agreement, as in the published scoring.
    """
    legal, (first, second) = scenario.selections, selections
    if first >= legal.no_agreement or int(legal.fits[first]) != second:
        return False, (0, 0)
    return True, (int(legal.own[first] @ scenario.values[0]), int(legal.other[first] @ scenario.values[1]))


def is_pareto_optimal(scenario: Scenario, earned: tuple[int, int]) -> bool:
    """Whether no legal deal is at least as good for both sides and better for one."""
    first, second = scenario.selections.own @ scenario.values[0], scenario.selections.other @ scenario.values[1]
    # Refusals earn nothing, so that they are better than no deal.
    better = (first >= earned[0]) & (second >= earned[1]) & ((first > earned[0]) | (second > earned[1]))
    return not better.any()
