"""The scenario of MutualFriends: the schema, two tables of friends with exactly one common friend, and random scenarios.

Source: He, Balakrishnan, Eric, Liang 2017, section 2, with its `schema.json` and the released generator of scenarios.

Random choices use blocks of uniform numbers, which is faster than one call to numpy for each choice.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import accumulate, chain, product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from parley.envs.core.config import Configuration, PositiveInt, check
from parley.envs.core.errors import ConfigError, DataError, ScenarioError

T = TypeVar("T")
Draw = Callable[[], float]
"""Returns the next random number in [0, 1)."""
_AT_ONCE = 160


def uniforms(rng: np.random.Generator) -> Draw:
    """Return an endless source of random numbers; it draws blocks, so the generator should have no other user."""

    def more() -> Iterator[list[float]]:
        while True:
            yield rng.random(_AT_ONCE).tolist()

    return chain.from_iterable(more()).__next__


def pick(values: Sequence[T], draw: Draw) -> T:
    """Return one of some values, all equally likely."""
    return values[int(draw() * len(values))]


def some(values: Sequence[T], most: int, draw: Draw) -> list[T]:
    """Return up to `most` distinct values in random order."""
    pool, chosen = list(values), []
    for remaining in range(len(pool), max(len(pool) - most, 0), -1):
        i = int(draw() * remaining)
        chosen.append(pool[i])
        pool[i] = pool[remaining - 1]
    return chosen


def weighted(shares: Sequence[float], draw: Draw) -> int:
    """Return an index with a probability proportional to its share."""
    bounds = list(accumulate(shares))
    return bisect_right(bounds, draw() * bounds[-1], 0, len(bounds) - 1)


_WORD = re.compile(r"[\w']+|[^\w\s]")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""JSON's escape of half of a surrogate pair."""
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u2018": "'"})


class Entity(NamedTuple):
    """A value of an attribute, such as ("camping", "hobby"): a node of a knowledge graph.

    Args:
        value: the schema's value, in lower case.
        type: its category, such as "school".
    """

    value: str
    type: str


class EntitiesOf(dict[str, Entity]):
    """A cache of entities of one category by value in any case; tables repeat few values.

    Args:
        kind: the category.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __missing__(self, value: str) -> Entity:
        entity = self[value] = Entity(value.lower(), self._kind)
        return entity


entities_of = cache(EntitiesOf)
"""The cached entities of a category."""


@dataclass(frozen=True)
class Attribute:
    """A column of a table of friends.

    Args:
        name: such as "Time Preference".
        type: the category of its values, such as "time_pref".
        unique: whether no two friends of a table may share a value; false in all of the release.
    """

    name: str
    type: str
    unique: bool = False


@dataclass(frozen=True)
class FriendsSchema:
    """Attributes and their values, from which tables are drawn.

    Args:
        attributes: the columns to choose from.
        values: values of each category, with case; distinct without case.

    Raises:
        DataError: two attributes of one name, a category without values, or a value that occurs twice.
    """

    attributes: tuple[Attribute, ...]
    values: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        names = [attribute.name for attribute in self.attributes]
        if not names or len(set(names)) < len(names):
            raise DataError("a schema needs attributes of different names", got=names, fix="name each attribute once")
        for attribute in self.attributes:
            if not self.values.get(attribute.type):
                got = f"type {attribute.type!r} of attribute {attribute.name!r}; values of {', '.join(self.values) or 'none'}"
                raise DataError("a category has no values", got=got, fix="list its values, or leave the attribute out")
        for kind, values in self.values.items():
            if len({value.lower() for value in values}) < len(values):
                raise DataError(f"a value of {kind!r} stands twice", fix="list each value once, whatever its case")

    def entities(self) -> list[Entity]:
        """Return all values of all categories."""
        return [entities_of(kind)[value] for kind, values in self.values.items() for value in values]


def chat_words(text: str) -> tuple[str, ...]:
    """Return the words of a typed text: lower case, punctuation marks and symbols separate; empty for blank text."""
    return tuple(_WORD.findall(text.translate(_APOSTROPHES).lower()))


def read_schema(path: Path) -> FriendsSchema:
    """Read a schema in the published format: `{"attributes": [{name, value_type, unique}], "values": {type: [...]}}`.

    The release lists some values twice; the first one counts.

    Raises:
        DataError: the file cannot be read, is not such JSON, or has a category without values.
    """
    content = read_json(path)
    if not isinstance(content, Mapping) or "attributes" not in content or not isinstance(content.get("values"), Mapping):
        fix = 'write {"attributes": [...], "values": {"hobby": [...]}}'
        raise DataError("not a schema", where=path, got=repr(content)[:80], fix=fix)
    attributes = read_attributes(content["attributes"], f"{path}: attributes")
    values = {str(kind): _once(listed, f"{path}: values of {kind!r}") for kind, listed in content["values"].items()}
    try:
        return FriendsSchema(attributes, values)
    except DataError as error:
        raise DataError(error.what, where=path, got=error.got, fix=error.fix) from error


def read_attributes(listed: Any, where: str) -> tuple[Attribute, ...]:
    """Parse the attributes of a schema or a scenario in the released format.

    Raises:
        DataError: an attribute lacks its name or category; `where` names the list.
    """
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise DataError("attributes are not a list", where=where, got=repr(listed)[:80], fix="list {name, value_type} objects")
    for index, entry in enumerate(listed):
        if not isinstance(entry, Mapping) or not all(isinstance(entry.get(key), str) for key in ("name", "value_type")):
            raise DataError("no attribute", where=f"{where}[{index}]", got=repr(entry)[:80], fix="give it name and value_type")
    return tuple(Attribute(entry["name"], entry["value_type"], bool(entry.get("unique", False))) for entry in listed)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        DataError: the file cannot be read, or the JSON is broken, with the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if _HALF.search(text):
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except OSError as error:
        raise DataError("the file cannot be read", where=path, got=error.strerror, fix="check the path") from error
    except UnicodeDecodeError as error:
        raise DataError("the file is not text in UTF-8", where=path, got=str(error), fix="save it as UTF-8") from error
    except UnicodeEncodeError as error:
        got = repr(error.object[max(0, error.start - 30) : error.end + 30])
        raise DataError("half of a character, which no file can hold", where=path, got=got, fix="mend the text") from error
    except json.JSONDecodeError as error:
        raise DataError("broken JSON", where=f"{path}:{error.lineno}", got=error.msg, fix="mend the file") from error
    except (ValueError, RecursionError) as error:
        # Numbers with thousands of digits, or lists nested thousands deep.
        raise DataError("the JSON cannot be read", where=path, got=str(error)[:80], fix="mend the file") from error


def _once(listed: Any, where: str) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(value, str) and value.strip() for value in listed):
        raise DataError("values are not a list of texts", where=where, got=repr(listed)[:80], fix="list them as texts")
    return tuple({value.lower(): value for value in reversed(listed)}[low] for low in dict.fromkeys(map(str.lower, listed)))


Item = tuple[str, ...]
"""A friend: one value per attribute, with case."""
ALPHAS = (0.3, 1.0, 3.0)
"""Concentrations of the Dirichlet distributions of values; with a smaller one, more friends share a value."""
_Urn = tuple[list[str], float, float, list[str]]
"""The values of an attribute, their alpha, their total weight, and the values that one side has drawn."""
_MOST_DRAWS = 40
"""Most draws per friend of a table; then the missing friends are drawn uniformly."""


@dataclass(frozen=True)
class FriendsScenario:
    """Two tables with one common friend.

    Args:
        key: a name, equal for equal scenarios of one source.
        attributes: the columns of both tables.
        tables: the friends of side 0 and of side 1, in the order that each side sees.
        alphas: the concentration of each attribute's values; empty if unknown.

    Raises:
        ScenarioError: an empty table, a friend with a wrong number of values or listed twice, or not one common friend.
    """

    key: str
    attributes: tuple[Attribute, ...]
    tables: tuple[tuple[Item, ...], tuple[Item, ...]]
    alphas: tuple[float, ...] = ()
    shared: tuple[int, int] = field(init=False, repr=False, compare=False)
    """Index of the common friend in the table of side 0 and of side 1."""

    def __post_init__(self) -> None:
        width = len(self.attributes)
        for side, table in enumerate(self.tables):
            for index, item in enumerate(table):
                if len(item) != width:
                    where = f"scenario {self.key}, side {side}, item {index}"
                    got, fix = f"{len(item)} values {item}", "give one for each attribute"
                    raise ScenarioError(f"a friend does not have {width} values", where=where, got=got, fix=fix)
        entities = self.entities
        distinct = set(entities[0]), set(entities[1])
        for side, friends in enumerate(entities):
            if not friends or len(distinct[side]) < len(friends):
                where, got = (
                    f"scenario {self.key}, side {side}",
                    f"{len(friends)} friends, {len(distinct[side])} different ones",
                )
                raise ScenarioError("a table needs friends that all differ", where=where, got=got, fix="list each friend once")
        common_friends = distinct[0] & distinct[1]
        if len(common_friends) != 1:
            where, got = f"scenario {self.key}", f"{len(common_friends)} friends in both tables"
            raise ScenarioError("a scenario has exactly one common friend", where=where, got=got, fix="share one friend")
        (common,) = common_friends
        object.__setattr__(self, "shared", (entities[0].index(common), entities[1].index(common)))

    @cached_property
    def entities(self) -> tuple[tuple[tuple[Entity, ...], ...], tuple[tuple[Entity, ...], ...]]:
        """The values as entities, by side, item and attribute."""
        lookups = [entities_of(attribute.type).__getitem__ for attribute in self.attributes]
        first, second = (tuple(zip(*map(map, lookups, zip(*table, strict=True)), strict=True)) for table in self.tables)
        return first, second

    @cached_property
    def mentionable(self) -> tuple[frozenset[Entity], frozenset[Entity]]:
        """The distinct entities of each side's table."""
        first, second = (frozenset().union(*table) for table in self.entities)
        return first, second

    @cached_property
    def all_mentionable(self) -> frozenset[Entity]:
        """The distinct entities of both tables."""
        return self.mentionable[0] | self.mentionable[1]

    @cached_property
    def alternatives(self) -> tuple[dict[str, list[Entity]], dict[str, list[Entity]]]:
        """By side and category, the distinct entities that the common friend lacks, in order."""
        by_side: tuple[dict[str, list[Entity]], dict[str, list[Entity]]] = ({}, {})
        for table, common_row, by_category in zip(self.entities, self.shared, by_side, strict=True):
            for entity in dict.fromkeys(chain.from_iterable(table)):
                if entity not in table[common_row]:
                    by_category.setdefault(entity.type, []).append(entity)
        return by_side


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions(Configuration):
    """Bounds of random scenarios."""

    min_items: PositiveInt = 5
    """Fewest friends of a table."""
    max_items: PositiveInt = 12
    """Most friends of a table; both tables have the same number."""
    min_attributes: PositiveInt = 3
    """Fewest attributes."""
    max_attributes: PositiveInt = 4
    """Most attributes; 3 gives the released generator, which never draws the upper bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "max_items", self.max_items >= self.min_items, "at least min_items")
        check(self, "max_attributes", self.max_attributes >= self.min_attributes, "at least min_attributes")


def check_schema(schema: FriendsSchema, options: ScenarioOptions) -> None:
    """Raise unless every scenario of the options can be drawn.

    Raises:
        ConfigError: too few attributes, or too few values; the message has their numbers.
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
    """Draw a scenario: the number of friends, the attributes, an alpha for each, then the tables.

    Each attribute has up to twice as many values as a table has friends, chosen from the schema. Each side draws its own
    Dirichlet distribution over them. If a concentrated one gives too few distinct friends, the last are drawn uniformly.

    Args:
        schema: the schema; see `check_schema`.
        rng: generator of all draws.
        options: bounds.
        key: the scenario's name.
    """
    options, draw = options or ScenarioOptions(), uniforms(rng)
    num_items = pick(range(options.min_items, options.max_items + 1), draw)
    width = pick(range(options.min_attributes, options.max_attributes + 1), draw)
    attributes = tuple([schema.attributes[i] for i in sorted(some(range(len(schema.attributes)), width, draw))])
    alphas = tuple([pick(ALPHAS, draw) for _ in attributes])
    values = [some(schema.values[attribute.type], 2 * num_items, draw) for attribute in attributes]
    return FriendsScenario(key, attributes, _tables(values, alphas, num_items, draw), alphas)


def _tables(
    values: Sequence[list[str]], alphas: Sequence[float], num_items: int, draw: Draw
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return the tables of both sides, given an alpha for the values of each attribute."""
    urns: list[list[_Urn]] = [
        [(column_values, alpha, alpha * len(column_values), []) for column_values, alpha in zip(values, alphas, strict=True)]
        for _ in (0, 1)
    ]
    shared = _drawn(pick(urns, draw), draw)
    taken, tables = {shared}, []
    for urn in urns:
        table = [shared]
        for _ in range(_MOST_DRAWS * num_items):
            if len(table) == num_items:
                break
            item = _drawn(urn, draw)
            if item not in taken:
                taken.add(item)
                table.append(item)
        if len(table) < num_items:
            remaining = [item for item in product(*values) if item not in taken]
            table += some(remaining, num_items - len(table), draw)
            taken.update(table)
        tables.append(tuple(some(table, num_items, draw)))
    return tables[0], tables[1]


def _drawn(urns: Sequence[_Urn], draw: Draw) -> Item:
    """Return a friend drawn from Polya's urns: each value weighs alpha, each earlier draw weighs 1.

    Draws from such urns are distributed as draws by Dirichlet shares, so the shares need not be drawn.
    """
    item, num_before = [], len(urns[0][-1])
    for values, alpha, weight, before in urns:
        position = draw() * (num_before + weight) - num_before
        # Both lists are indexed 0, -1, -2, ..., so rounding cannot leave the list.
        value = before[int(position)] if position < 0 else values[-int(position / alpha)]
        before.append(value)
        item.append(value)
    return tuple(item)
