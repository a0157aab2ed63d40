"""What friends are told by: attributes, the values that each may have, and how text becomes words.

Source: MutualFriends (He, Balakrishnan, Eric, Liang 2017, section 2) and its `schema.json`. Tables are in `scenario.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from parley.envs.core.errors import DataError

_WORD = re.compile(r"[\w']+|[^\w\s]")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON writes half of a character; two of them are a whole one."""
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u2018": "'"})


class Entity(NamedTuple):
    """A value of an attribute, such as ("camping", "hobby"): a node of a knowledge graph.

    Args:
        value: as the schema writes it, in lower case.
        type: its category, such as "school".
    """

    value: str
    type: str


class EntitiesOf(dict[str, Entity]):
    """Entities of one category by value, as anybody writes it; each is made once, for tables hold the same few again and again.

    Args:
        kind: the category.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __missing__(self, value: str) -> Entity:
        entity = self[value] = Entity(value.lower(), self._kind)
        return entity


entities_of = cache(EntitiesOf)
"""The entities of a category, the same for everybody."""


@dataclass(frozen=True)
class Attribute:
    """A column of a table of friends.

    Args:
        name: such as "Time Preference".
        type: the category of its values, such as "time_pref".
        unique: whether no two friends of a table may share a value; kept as the release writes it, and false throughout there.
    """

    name: str
    type: str
    unique: bool = False


@dataclass(frozen=True)
class FriendsSchema:
    """Attributes and the values that a table may be drawn from.

    Args:
        attributes: the columns to choose from.
        values: of each category, as people write them; no two equal but for case.

    Raises:
        DataError: two attributes of one name, a category without values, or a value that stands twice.
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
        """All values of all categories."""
        return [entities_of(kind)[value] for kind, values in self.values.items() for value in values]


def chat_words(text: str) -> tuple[str, ...]:
    """The words of what somebody typed: lower case, punctuation marks and symbols apart; none of blank text."""
    return tuple(_WORD.findall(text.translate(_APOSTROPHES).lower()))


def read_schema(path: Path) -> FriendsSchema:
    """Reads a schema in the published format: `{"attributes": [{name, value_type, unique}], "values": {type: [...]}}`.

    The release lists some values twice; the first stands.

    Raises:
        DataError: the file cannot be read, is no such JSON, or names a category without values.
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
    """Attributes as the release lists them, in schemas and in scenarios.

    Raises:
        DataError: one lacks its name or category; `where` says in which list.
    """
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise DataError("attributes are not a list", where=where, got=repr(listed)[:80], fix="list {name, value_type} objects")
    for index, entry in enumerate(listed):
        if not isinstance(entry, Mapping) or not all(isinstance(entry.get(key), str) for key in ("name", "value_type")):
            raise DataError("no attribute", where=f"{where}[{index}]", got=repr(entry)[:80], fix="give it name and value_type")
    return tuple(Attribute(entry["name"], entry["value_type"], bool(entry.get("unique", False))) for entry in listed)


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        DataError: it cannot be read, or the JSON is broken; says in which line.
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
        # Numbers of thousands of digits, lists within thousands of lists.
        raise DataError("the JSON cannot be read", where=path, got=str(error)[:80], fix="mend the file") from error


def _once(listed: Any, where: str) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(value, str) and value.strip() for value in listed):
        raise DataError("values are not a list of texts", where=where, got=repr(listed)[:80], fix="list them as texts")
    return tuple({value.lower(): value for value in reversed(listed)}[low] for low in dict.fromkeys(map(str.lower, listed)))
