"""The scenario of MutualFriends: two tables of friends with exactly one friend in both, and how scenarios are drawn.

Source: He, Balakrishnan, Eric, Liang 2017, section 2.1; the released generator of scenarios.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain, repeat
from operator import getitem

import numpy as np

from envs.core.config import check
from envs.core.errors import ConfigError, ScenarioError
from envs.core.ranges import Configuration, PositiveInt
from envs.friends.schema import Attribute, Entity, FriendsSchema, entities_of

Item = tuple[str, ...]
"""A friend: one value for each attribute, as people write it."""
ALPHAS = (0.3, 1.0, 3.0)
"""Concentrations of the Dirichlet distributions that values are drawn from; the smaller, the more friends share a value."""
_ROUNDS = 20


@dataclass(frozen=True)
class FriendsScenario:
    """One search for the common friend.

    Args:
        key: a name; equal scenarios of one source share it.
        attributes: the columns of both tables.
        tables: the friends of side 0 and of side 1, in the order in which each sees them.
        alphas: how concentrated the values of each attribute were drawn; empty where nobody knows.

    Raises:
        ScenarioError: an empty table, a friend with too many or too few values or listed twice, not exactly one in both.
    """

    key: str
    attributes: tuple[Attribute, ...]
    tables: tuple[tuple[Item, ...], tuple[Item, ...]]
    alphas: tuple[float, ...] = ()
    shared: tuple[int, int] = field(init=False, repr=False, compare=False)
    """Where the common friend stands in the table of side 0 and of side 1."""

    def __post_init__(self) -> None:
        width = len(self.attributes)
        for side, table in enumerate(self.tables):
            for index, item in enumerate(table):
                if len(item) != width:
                    where = f"scenario {self.key}, side {side}, item {index}"
                    got, fix = f"{len(item)} values {item}", "give one for each attribute"
                    raise ScenarioError(f"a friend does not have {width} values", where=where, got=got, fix=fix)
        entities = self.entities
        different = set(entities[0]), set(entities[1])
        for side, friends in enumerate(entities):
            if not friends or len(different[side]) < len(friends):
                where, got = (
                    f"scenario {self.key}, side {side}",
                    f"{len(friends)} friends, {len(different[side])} different ones",
                )
                raise ScenarioError("a table needs friends that all differ", where=where, got=got, fix="list each friend once")
        both = different[0] & different[1]
        if len(both) != 1:
            where, got = f"scenario {self.key}", f"{len(both)} friends in both tables"
            raise ScenarioError("a scenario has exactly one common friend", where=where, got=got, fix="share one friend")
        (common,) = both
        object.__setattr__(self, "shared", (entities[0].index(common), entities[1].index(common)))

    @cached_property
    def entities(self) -> tuple[tuple[tuple[Entity, ...], ...], tuple[tuple[Entity, ...], ...]]:
        """By side, item and attribute: the values as entities."""
        known = [entities_of(attribute.type) for attribute in self.attributes]
        first, second = (tuple([tuple(map(getitem, known, item)) for item in table]) for table in self.tables)
        return first, second

    @cached_property
    def mentionable(self) -> tuple[frozenset[Entity], frozenset[Entity]]:
        """By side: the different entities of its table."""
        first, second = (frozenset().union(*table) for table in self.entities)
        return first, second

    @cached_property
    def all_mentionable(self) -> frozenset[Entity]:
        """The different entities of both tables."""
        return self.mentionable[0] | self.mentionable[1]

    @cached_property
    def alternatives(self) -> tuple[dict[str, list[Entity]], dict[str, list[Entity]]]:
        """By side and category: the different entities of its table that the common friend does not have, in order."""
        found: tuple[dict[str, list[Entity]], dict[str, list[Entity]]] = ({}, {})
        for table, place, by_category in zip(self.entities, self.shared, found, strict=True):
            for entity in dict.fromkeys(chain.from_iterable(table)):
                if entity not in table[place]:
                    by_category.setdefault(entity.type, []).append(entity)
        return found


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions(Configuration):
    """How scenarios are drawn."""

    min_items: PositiveInt = 5
    """Fewest friends of a table."""
    max_items: PositiveInt = 12
    """Most friends of a table; both tables have equally many."""
    min_attributes: PositiveInt = 3
    """Fewest attributes."""
    max_attributes: PositiveInt = 4
    """Most attributes; 3 draws scenarios as the released generator does, which never draws the upper bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "max_items", self.max_items >= self.min_items, "at least min_items")
        check(self, "max_attributes", self.max_attributes >= self.min_attributes, "at least min_attributes")


def check_schema(schema: FriendsSchema, options: ScenarioOptions) -> None:
    """Checks that every scenario of the options can be drawn.

    Raises:
        ConfigError: too few attributes, or too few values; names those attributes with their numbers of values.
    """
    fix = "give them more values, or draw smaller tables"
    if len(schema.attributes) < options.max_attributes:
        got = f"{len(schema.attributes)} attributes for up to {options.max_attributes}"
        raise ConfigError("the schema has too few attributes", got=got, fix="add attributes, or lower max_attributes")
    sizes = {attribute.name: len(schema.values[attribute.type]) for attribute in schema.attributes}
    fewest = sorted(sizes, key=lambda name: sizes[name])[: options.min_attributes]
    most = 2 * options.max_items - 1
    if math.prod(min(sizes[name], 2 * options.max_items) for name in fewest) < most:
        got = f"{', '.join(f'{name} {sizes[name]}' for name in fewest)}: too few for {most} different friends"
        raise ConfigError("attributes of the schema have too few values", got=got, fix=fix)


def random_friends(
    schema: FriendsSchema, rng: np.random.Generator, options: ScenarioOptions | None = None, key: str = ""
) -> FriendsScenario:
    """Draws a scenario: a number of friends, attributes, one alpha for each, then the tables.

    Each attribute has up to twice as many values as a table has friends, chosen from the schema; each side draws its own
    Dirichlet distribution over them. Where a concentrated one gives too few different friends, the last are drawn evenly.

    Args:
        schema: what values there are; see `check_schema`.
        rng: all randomness.
        options: bounds.
        key: the scenario's name.
    """
    (found,) = many_friends(schema, [rng], options, [key])
    return found


def many_friends(
    schema: FriendsSchema, rngs: Sequence[np.random.Generator], options: ScenarioOptions | None, keys: Sequence[str]
) -> list[FriendsScenario]:
    """As `random_friends`, a scenario for each generator: one kind of draw after the other, which takes less time.

    Args:
        schema: what values there are; see `check_schema`.
        rngs: the randomness of each; no scenario depends on the others.
        options: bounds.
        keys: the scenarios' names.
    """
    options = options or ScenarioOptions()
    items, num_attributes = (
        [int(rng.integers(least, most + 1)) for rng in rngs]
        for least, most in ((options.min_items, options.max_items), (options.min_attributes, options.max_attributes))
    )
    places = [rng.permutation(len(schema.attributes))[:num].tolist() for rng, num in zip(rngs, num_attributes, strict=True)]
    attributes = [tuple([schema.attributes[i] for i in sorted(chosen)]) for chosen in places]
    alphas = [
        tuple([ALPHAS[i] for i in rng.integers(len(ALPHAS), size=num).tolist()])
        for rng, num in zip(rngs, num_attributes, strict=True)
    ]
    values = [
        [_some(schema.values[attribute.type], 2 * num, rng) for attribute in chosen]
        for rng, num, chosen in zip(rngs, items, attributes, strict=True)
    ]
    # Gamma variates in proportion are a Dirichlet one.
    variates = [
        [rng.standard_gamma(alpha, (2, len(few))).tolist() for few, alpha in zip(all_few, each, strict=True)]
        for rng, all_few, each in zip(rngs, values, alphas, strict=True)
    ]
    tables = [_tables(*each) for each in zip(values, variates, items, rngs, strict=True)]
    return [FriendsScenario(*each) for each in zip(keys, attributes, tables, alphas, strict=True)]


def _some(values: Sequence[str], most: int, rng: np.random.Generator) -> list[str]:
    return [values[i] for i in rng.choice(len(values), min(len(values), most), replace=False).tolist()]


def _tables(
    values: Sequence[list[str]], variates: Sequence[list[list[float]]], num_items: int, rng: np.random.Generator
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The tables of both sides; `variates` are shares of each attribute's values by side, up to a factor."""
    bounds = [[list(accumulate(shares)) for shares in by_side] for by_side in variates]
    (shared,) = _drawn(values, bounds, int(rng.integers(2)), rng, 1)
    taken, tables = {shared}, []
    for side in (0, 1):
        own = [shared]
        for _ in range(_ROUNDS):
            if len(own) == num_items:
                break
            own += _fresh(_drawn(values, bounds, side, rng, 2 * num_items), taken, num_items - len(own))
        if len(own) < num_items:
            own += _fresh(_shuffled(values, rng), taken, num_items - len(own))
        tables.append(tuple([own[i] for i in rng.permutation(num_items).tolist()]))
    return tables[0], tables[1]


def _drawn(
    values: Sequence[list[str]], bounds: Sequence[list[list[float]]], side: int, rng: np.random.Generator, num: int
) -> Iterator[Item]:
    """Friends; `bounds` are the cumulative shares of each attribute's values by side, up to a factor."""
    columns = []
    for few, by_side, uniforms in zip(values, bounds, rng.random((len(values), num)).tolist(), strict=True):
        shares = by_side[side]
        places = map(bisect_right, repeat(shares), map(shares[-1].__mul__, uniforms), repeat(0), repeat(len(few) - 1))
        columns.append(map(few.__getitem__, places))
    return zip(*columns, strict=True)


def _shuffled(values: Sequence[list[str]], rng: np.random.Generator) -> list[Item]:
    """All friends that the values make, in random order."""
    sizes = tuple(map(len, values))
    at = np.unravel_index(rng.permutation(math.prod(sizes)), sizes)
    return list(zip(*([few[i] for i in places.tolist()] for few, places in zip(values, at, strict=True)), strict=True))


def _fresh(drawn: Iterable[Item], taken: set[Item], most: int) -> list[Item]:
    """The first different ones that nobody has yet; `taken` then holds them too."""
    fresh: list[Item] = []
    for item in drawn:
        if item not in taken:
            taken.add(item)
            fresh.append(item)
            if len(fresh) == most:
                break
    return fresh
