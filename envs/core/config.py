"""Configuration: frozen dataclasses built from a preset, then a YAML file, then flags; unknown keys are errors.

This module converts dataclasses to dictionaries and back, overlays a YAML file on a preset, and prints the difference
between two configurations. It also defines setting types with a range of allowed values, and the base class that checks
them. The command line (engine/core/cli) reads the flags.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import numbers
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

import yaml

from parley.envs.core.errors import ConfigError, OutOfRangeError
from parley.envs.core.registry import nearest

ConfigT = TypeVar("ConfigT")
hints_of = cache(get_type_hints)
"""The types of the fields of a class by name, worked out once; not to be changed."""


class JsonObject(str):
    """The text of a JSON object with sorted keys, or empty; a setting of this type also takes a mapping."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Mapping[str, Any] | str) -> JsonObject:
        """Return the JSON text of a mapping, or a JSON text in its normal form.

        Raises:
            ValueError: the text is not a JSON object.
        """
        document = value if isinstance(value, Mapping) else json.loads(value or "{}")
        if not isinstance(document, Mapping):
            raise ValueError(value)
        return cls(json.dumps(document, sort_keys=True, allow_nan=False) if document else "")

    @property
    def document(self) -> dict[str, Any]:
        """The object as a dictionary; empty if the text is."""
        return dict(json.loads(self or "{}"))


def check(owner: object, field: str, ok: bool, allowed: str) -> None:
    """Raise an `OutOfRangeError` with field, value and allowed range unless `ok`.

    Called from `__post_init__` of configuration dataclasses.
    """
    if not ok:
        raise OutOfRangeError(f"{field} is out of range", got=repr(getattr(owner, field)), fix=f"allowed: {allowed}")


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as nested dictionaries of JSON types."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=str))


def from_dict(kind: type[ConfigT], values: Mapping[str, Any], where: str = "") -> ConfigT:
    """Build a configuration from nested dictionaries; missing keys take the defaults.

    Raises:
        ConfigError: an unknown key (with the nearest name), a missing key without a default, a wrong type, or a value out of
            range.
    """
    return _build(kind, _without_constants(kind, values, where), where)


def as_now(kind: type, stored: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the stored settings of a run as this version names them.

    Settings that are constants today are left out. Settings that an earlier version lacked have the value that means what it
    did.

    Args:
        kind: the configuration.
        stored: its settings, of this or an earlier version.
        where: source of the settings, for messages.

    Raises:
        ConfigError: a setting had another value than the constant that it is today.
    """
    document = _without_constants(kind, stored, where)
    _add(kind, document)
    return document


def _add(kind: type, document: dict[str, Any]) -> None:
    """Add the settings that an earlier version lacked, in sections too."""
    for key, value in getattr(kind, "added", {}).items():
        document.setdefault(key, value)
    for name, section in _sections(kind):
        if isinstance(document.get(name), dict):
            _add(section, document[name])


def _without_constants(kind: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return settings without those that are constants today, and without sections that held nothing else."""
    document = _copied(values)
    for key, constant in constants_of(kind).items():
        *sections, last = key.split(".")
        outer = [document]
        for section in sections:
            inner = outer[-1].get(section)
            outer.append(inner if isinstance(inner, dict) else {})
        if last not in outer[-1]:
            continue
        if (value := outer[-1].pop(last)) != constant:
            now = "left to its default" if constant is None else f"always {constant!r}"
            raise ConfigError(
                f"{key} is no setting any more: it is {now}",
                where=where or None,
                got=repr(value),
                fix=f"{_instead(kind, key)}; an earlier run with another value can be read and reported, and not resumed",
            )
        for section, holder, inner in reversed(list(zip(sections, outer, outer[1:], strict=False))):
            if not inner:
                holder.pop(section, None)
    return document


def _instead(kind: type, key: str) -> str:
    section, _, rest = key.partition(".")
    inner = dict(_sections(kind)).get(section)
    return _instead(inner, rest) if rest and inner else getattr(kind, "instead", {}).get(key, "leave it out")


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def constants_of(kind: type, prefix: str = "") -> dict[str, Any]:
    """Return the values of all constants of a configuration that were settings of earlier versions, by dotted key.

    Args:
        kind: the configuration.
        prefix: stands before each key.
    """
    names = [name for name, hint in hints_of(kind).items() if get_origin(hint) is ClassVar and name not in _ABOUT_SETTINGS]
    own = {name: getattr(kind, name) for name in names} | dict(getattr(kind, "constants", {}))
    constants = {f"{prefix}{name}": value for name, value in own.items()}
    for name, section in _sections(kind):
        constants |= constants_of(section, f"{prefix}{name}.")
    return constants


@cache
def _sections(kind: type) -> tuple[tuple[str, type], ...]:
    return tuple(
        (name, hint) for name, hint in hints_of(kind).items() if isinstance(hint, type) and dataclasses.is_dataclass(hint)
    )


def overlay(config: ConfigT, path: Path, name: str | Path) -> ConfigT:
    """Return the configuration with the values of a YAML file laid over it.

    Args:
        config: the base configuration.
        path: the file.
        name: the file's name in errors: its URI, if the path is a local copy.

    Raises:
        ConfigError: the file is missing or not a mapping, or a key or value is wrong.
    """
    try:
        values = read_yaml(path.read_text(encoding="utf-8"), "the configuration file", str(name))
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
    return from_dict(type(config), _merge(to_dict(config), values), str(name))


def shared(config: Any, kind: type) -> dict[str, Any]:
    """Return the settings that a configuration shares with its base class `kind`, by name."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(kind)}


def fingerprint(config: Any) -> str:
    """Return twelve hex digits that change with any value of the configuration."""
    text = json.dumps(to_dict(config), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a line "key: old -> new" for every value that differs between two configurations."""
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
    """Build a configuration; errors name its settings with `prefix` in front."""
    hints = hints_of(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    for key in values:
        if key not in names:
            raise ConfigError(
                f"unknown key {f'{prefix}{key}'!r}{nearest(str(key), names)}",
                where=where or None,
                fix=f"known keys: {', '.join(sorted(names))}",
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
            fix = f"give one of {', '.join(map(repr, arguments))}"
            raise OutOfRangeError(f"{field} is out of range", where=where or None, got=repr(value), fix=fix)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong_type(field, value, "a list", where)
        return tuple(_coerce(arguments[0], item, field, where) for item in value)
    if type(None) in arguments:
        inner = [argument for argument in arguments if argument is not type(None)]
        return None if value is None else _coerce(inner[0], value, field, where)
    if (hint is Path and isinstance(value, str)) or (hint is str and isinstance(value, Path)):
        return hint(value)
    if hint is JsonObject:
        try:
            return JsonObject.of(value)
        except (TypeError, ValueError, RecursionError):
            raise _wrong_type(field, value, _TYPES[JsonObject], where) from None
    is_number = type(value) is not bool and isinstance(value, numbers.Real) and math.isfinite(value)
    if is_number and (hint is float or (hint is int and value == int(value))):
        # 1e3 is whole, and numpy has numbers of its own.
        return hint(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise _wrong_type(field, value, _TYPES.get(hint, hint.__name__), where)
    if hint is float and not math.isfinite(value):
        raise _wrong_type(field, value, "a finite number", where)
    return value


def _wrong_type(field: str, value: object, wanted: str, where: str) -> ConfigError:
    return ConfigError(f"{field} has the wrong type", where=where or None, got=repr(value), fix=f"give {wanted}")


_ABOUT_SETTINGS = {"constants", "instead", "added", "topic"}
"""Class variables of a configuration that say something of its settings."""
_TYPES = {
    int: "a whole number",
    float: "a finite number",
    str: "text, a number in quotes",
    bool: "true or false",
    JsonObject: 'a JSON object such as {"top_p": 0.9}',
}
# In YAML 1.1, which PyYAML reads, a number with an exponent needs a decimal point; users omit it.
_EXPONENT = re.compile(r"[+-]?\d+e[+-]?\d+", re.IGNORECASE)


def put(document: dict[str, Any], key: str, value: Any, where: str = "") -> None:
    """Set a value under a dotted key, and create missing sections.

    Args:
        document: the dictionary to change.
        key: such as "section.key".
        value: the new value.
        where: source of the value, for messages.

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
    """Return the configuration with new values under some dotted keys.

    Args:
        config: a configuration.
        values: the new value of each key.
        where: source of the values, for messages.

    Raises:
        ConfigError: an unknown key (with the nearest name), or a value that is not allowed.
    """
    document = to_dict(config)
    for key, value in values.items():
        put(document, key, value, where)
    return from_dict(type(config), document, where)


def assign(config: ConfigT, settings: Sequence[str], flag: str = "--set") -> ConfigT:
    """Return the configuration with single settings changed; settings that need each other may come in any order.

    Args:
        config: a configuration.
        settings: "key=value" or "section.key=value"; the value is read as YAML.
        flag: the flag that gave them, for errors.

    Raises:
        ConfigError: an unknown key (with the nearest name), no equals sign, or a value that is not allowed.
    """
    pending: dict[str, dict[str, Any]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        where = f"{flag} {setting}"
        if not equals:
            raise ConfigError("a setting needs a value", where=where, fix=f"{flag} {key}=VALUE")
        values = {key: _value(text, where)}
        try:
            config = with_values(config, values, where)
        except ConfigError:
            # It may be allowed together with a later one.
            pending[where] = values
    together = {key: value for values in pending.values() for key, value in values.items()}
    return with_values(config, together, " ".join(pending)) if pending else config


def _value(text: str, where: str) -> Any:
    if _EXPONENT.fullmatch(text):
        return float(text)
    return read_yaml(text, "the value of a setting", where) if text else ""


def read_yaml(text: str, what: str, where: str, fix: str | None = None) -> Any:
    """Return the content of a YAML text; a text that is none raises a `ConfigError` that says so of `what`."""
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ConfigError(f"{what} is nested too deep", where=where[:80], fix="settings nest two deep") from None
    except (yaml.YAMLError, ValueError) as error:
        # A date such as 2026-13-01 is a ValueError.
        fix = "indent with blanks, not with tabs" if r"'\t'" in str(error) else fix
        raise ConfigError(f"{what} is not YAML", where=where, got=str(error), fix=fix) from None


MOST_ITEMS = 10_000_000
"""Most items (dialogues, targets, samples) of one run; each key takes about a hundred bytes of memory."""


@dataclass(frozen=True)
class Range:
    """The allowed values of a setting; None is not checked.

    Args:
        allowed: in words, for errors.
        holds: whether a value is allowed.
    """

    allowed: str
    holds: Callable[[Any], bool]


def _at_least(least: int) -> Range:
    return Range(f"at least {least}", lambda value: least <= value < math.inf)


def _items(least: int) -> Range:
    return Range(f"at least {least} and at most {MOST_ITEMS:,}", lambda value: least <= value <= MOST_ITEMS)


NonNegativeInt = Annotated[int, _at_least(0)]
PositiveInt = Annotated[int, _at_least(1)]
AtLeastTwo = Annotated[int, _at_least(2)]
NumItems = Annotated[int, _items(1)]
"""Items of one run, such as dialogues or targets."""
NumItemsOrAll = Annotated[int, _items(0)]
"""The same; 0 means all."""
NumSeeds = Annotated[int, Range("at least 1 and at most 1,000", lambda value: 1 <= value <= 1000)]
"""Number of trainings, each with its own seed."""
NonPositiveFloat = Annotated[float, Range("at most 0", lambda value: -math.inf < value <= 0)]
NonNegativeFloat = Annotated[float, _at_least(0)]
PositiveFloat = Annotated[float, Range("above 0", lambda value: 0 < value < math.inf)]
Share = Annotated[float, Range("0 to 1", lambda value: 0 <= value <= 1)]
PositiveShare = Annotated[float, Range("above 0, at most 1", lambda value: 0 < value <= 1)]
ShareBelowOne = Annotated[float, Range("at least 0, below 1", lambda value: 0 <= value < 1)]


class Configuration:
    """The base of dataclasses that hold settings; a value outside its range raises `OutOfRangeError`.

    Attributes:
        constants: settings of earlier versions that are constants today, with their values, by dotted key. Any other class
            variable of a configuration is one too, under its own name.
        instead: what to do instead of setting a constant, by its key.
        added: settings that runs of earlier versions lack, with the value that means what these versions did.
        topic: the words behind `parley settings` that list the settings of this section; other lists have one line for it.
    """

    constants: ClassVar[Mapping[str, Any]] = {}
    instead: ClassVar[Mapping[str, str]] = {}
    added: ClassVar[Mapping[str, Any]] = {}
    topic: ClassVar[str] = ""

    def __post_init__(self) -> None:
        kind: type = type(self)
        for name, hint in _types(kind):
            value = getattr(self, name)
            if type(value) is not hint:
                object.__setattr__(self, name, _coerce(hint, value, name, ""))
        for name, range_ in _ranges(kind):
            value = getattr(self, name)
            check(self, name, value is None or range_.holds(value), range_.allowed)


@cache
def _types(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return name and type of each setting; a section checks itself."""
    hints = hints_of(kind).items()
    return tuple(
        (name, hint) for name, hint in hints if get_origin(hint) is not ClassVar and not dataclasses.is_dataclass(hint)
    )


@cache
def _ranges(kind: type) -> tuple[tuple[str, Range], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple((name, range_) for name, hint in hints.items() for range_ in _ranges_in(hint))


def _ranges_in(hint: Any) -> Iterator[Range]:
    for part in get_args(hint):
        if isinstance(part, Range):
            yield part
        else:
            yield from _ranges_in(part)
