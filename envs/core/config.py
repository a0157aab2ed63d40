"""Configuration: frozen dataclasses built from a preset, then a YAML file, then flags; unknown keys are errors.

This module turns dataclasses into plain dictionaries and back, overlays a YAML file on a preset, and prints the
difference between two configurations. Flags are read by the command line (engine/core/cli).

Types of settings that say which values are allowed, and the base class of configurations, which checks them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from parley.envs.core.errors import ConfigError, OutOfRangeError
from parley.envs.core.registry import nearest

ConfigT = TypeVar("ConfigT")


class JsonObject(str):
    """The text of a JSON object, its keys in order; empty for none. A setting of this type takes a mapping as well."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Mapping[str, Any] | str) -> JsonObject:
        """Return the text of a mapping, or a text in its normal form.

        Raises:
            ValueError: it is no JSON object.
        """
        document = value if isinstance(value, Mapping) else json.loads(value or "{}")
        if not isinstance(document, Mapping):
            raise ValueError(value)
        return cls(json.dumps(document, sort_keys=True, allow_nan=False) if document else "")

    @property
    def document(self) -> dict[str, Any]:
        """The object; empty where there is none."""
        return dict(json.loads(self or "{}"))


def check(owner: object, field: str, ok: bool, allowed: str) -> None:
    """Raises an `OutOfRangeError` that names field, value and allowed range unless `ok`.

    Called from `__post_init__` of configuration dataclasses.
    """
    if not ok:
        raise OutOfRangeError(f"{field} is out of range", got=repr(getattr(owner, field)), fix=f"allowed: {allowed}")


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as nested dictionaries of JSON types."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=str))


def from_dict(kind: type[ConfigT], values: Mapping[str, Any], where: str = "") -> ConfigT:
    """A configuration from nested dictionaries; missing keys take the defaults.

    Raises:
        ConfigError: an unknown key (with the nearest name), one that is missing and has no default, a wrong type, or a value
            out of range.
    """
    return _build(kind, values, where)


def overlay(config: ConfigT, path: Path, name: str | Path) -> ConfigT:
    """The configuration with the values of a YAML file laid over it.

    Args:
        config: what it is laid over.
        path: the file.
        name: what errors call it: the URI, where it is the copy of one.

    Raises:
        ConfigError: the file is missing or not a mapping, or a key or value is wrong.
    """
    try:
        values = _read_yaml(path.read_text(encoding="utf-8"), "the configuration file", str(name))
    except OSError as error:
        fix = "name a file that is there: --config FILE.yaml"
        raise ConfigError("the configuration file cannot be read", where=name, got=error.strerror, fix=fix) from None
    except UnicodeDecodeError as error:
        raise ConfigError("the configuration file is not YAML", where=name, got=str(error)) from None
    if values is None:
        return config
    if not isinstance(values, Mapping):
        fix = "write lines KEY: VALUE"
        raise ConfigError("the configuration file is not a mapping of keys", where=name, got=type(values).__name__, fix=fix)
    return _build(type(config), _merge(to_dict(config), values), str(name))


def shared(config: Any, kind: type) -> dict[str, Any]:
    """The settings of a configuration that a base class of its has too, by name, for another one with the same base."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(kind)}


def fingerprint(config: Any) -> str:
    """Twelve hex digits that change whenever a value of the configuration does."""
    text = json.dumps(to_dict(config), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Lines "key: old -> new" for every value that differs between two configurations."""
    lines: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key, "(absent)"), new.get(key, "(absent)")
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += difference(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {before!r} -> {after!r}")
    return lines


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return merged


def _build(kind: Any, values: Mapping[str, Any], where: str, prefix: str = "") -> Any:
    """A configuration, of which errors call the settings by their keys with `prefix` in front."""
    hints = get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    for key in values:
        if key not in known:
            raise ConfigError(
                f"unknown key {f'{prefix}{key}'!r}{nearest(str(key), known)}",
                where=where or None,
                fix=f"known keys: {', '.join(sorted(known))}",
            )
    absent = [field for field in dataclasses.fields(kind) if field.name not in values]
    if missing := [prefix + field.name for field in absent if field.default is field.default_factory is dataclasses.MISSING]:
        raise ConfigError(f"the configuration lacks {', '.join(missing)}", where=where or None, fix="give each of them a value")
    fields = {key: _coerce(hints[key], value, f"{prefix}{key}", where) for key, value in values.items()}
    try:
        return kind(**fields)
    except OutOfRangeError as error:
        raise OutOfRangeError(f"{prefix}{error.what}", where=where or None, got=error.got, fix=error.fix) from None


def _coerce(hint: Any, value: Any, field: str, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise _wrong_type(field, value, "a mapping of keys", where)
        return _build(hint, value, where, f"{field}.")
    if origin is typing.Literal:
        if value not in arguments:
            raise _wrong_type(field, value, "one of " + ", ".join(map(repr, arguments)), where)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong_type(field, value, "a list", where)
        return tuple(_coerce(arguments[0], item, field, where) for item in value)
    if type(None) in arguments:
        inner = [argument for argument in arguments if argument is not type(None)]
        return None if value is None else _coerce(inner[0], value, field, where)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is JsonObject:
        try:
            return JsonObject.of(value)
        except (TypeError, ValueError, RecursionError):
            raise _wrong_type(field, value, _TYPES[JsonObject], where) from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        # As 1e3 is read.
        return int(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise _wrong_type(field, value, _TYPES.get(hint, hint.__name__), where)
    if hint is float and not math.isfinite(value):
        raise _wrong_type(field, value, "a finite number", where)
    return value


def _wrong_type(field: str, value: object, wanted: str, where: str) -> ConfigError:
    return ConfigError(f"{field} has the wrong type", where=where or None, got=repr(value), fix=f"give {wanted}")


_TYPES = {
    int: "a whole number",
    float: "a finite number",
    str: "text, a number in quotes",
    bool: "true or false",
    JsonObject: 'a JSON object such as {"top_p": 0.9}',
}
# PyYAML reads YAML 1.1, in which a number with an exponent needs a point; nobody types that.
_EXPONENT = re.compile(r"[+-]?\d+e[+-]?\d+", re.IGNORECASE)


def put(document: dict[str, Any], key: str, value: Any, where: str = "") -> None:
    """Puts a value under a dotted key, into sections within sections, which are made where they are not there.

    Args:
        document: what is changed.
        key: such as "section.key".
        value: what shall stand there.
        where: who asks, for messages.

    Raises:
        ConfigError: a section of the key is a setting.
    """
    *sections, last = key.split(".")
    for section in sections:
        inner = document.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{section!r} is a setting and not a section", where=where or None, fix=f"{section}=VALUE")
        document = inner
    document[last] = value


def with_values(config: ConfigT, values: Mapping[str, Any], where: str) -> ConfigT:
    """The configuration with other values under some dotted keys.

    Args:
        config: a configuration.
        values: what shall stand under each key.
        where: who asks, for messages.

    Raises:
        ConfigError: no such key (with the nearest name), or a value that is not allowed.
    """
    document = to_dict(config)
    for key, value in values.items():
        put(document, key, value, where)
    return from_dict(type(config), document, where)


def assign(config: ConfigT, settings: Sequence[str], flag: str = "--set") -> ConfigT:
    """The configuration with single settings changed; those that need each other may come in any order.

    Args:
        config: a configuration.
        settings: "key=value" or "section.key=value"; the value is read as YAML.
        flag: what they were given by, for errors.

    Raises:
        ConfigError: no such key (with the nearest name), no equals sign, or a value that is not allowed.
    """
    left: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        where = f"{flag} {setting}"
        if not equals:
            raise ConfigError("a setting needs a value", where=where, fix=f"{flag} {key}=VALUE")
        values = {key: _value(text, where)}
        try:
            config = with_values(config, values, where)
        except ConfigError:
            # It may be allowed beside another one.
            left[where] = values
    together = {key: value for values in left.values() for key, value in values.items()}
    return with_values(config, together, " ".join(left)) if left else config


def _value(text: str, where: str) -> Any:
    if _EXPONENT.fullmatch(text):
        return float(text)
    return _read_yaml(text, "the value of a setting", where) if text else ""


def _read_yaml(text: str, what: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ConfigError(f"{what} is nested too deep", where=where[:80], fix="settings nest two deep") from None
    except (yaml.YAMLError, ValueError) as error:
        # A date such as 2026-13-01 is a ValueError.
        raise ConfigError(f"{what} is not YAML", where=where, got=str(error)) from None


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
