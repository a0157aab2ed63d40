"""Mistakes on a command line, told in the one style of all errors: what is wrong, what was found, how to mend it."""

from __future__ import annotations

import difflib
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

# tyro offers its errors to a caller in this module alone; constraints.txt pins the version.
from tyro._errors import BadValue, InstantiationFailure, InvalidChoice, MissingArgs, ParseErrorEvent, on_parse_error
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from parley.envs.core.errors import ConfigError, ParleyError

_ALIKE = 0.75
"""How alike a name must be to one that was typed to be meant by it: of `difflib`, 1 is the same."""
_MEANINGS = (
    {"adversary", "speaker", "attacker", "learner"},
    {"target", "model", "agent", "victim", "corpus"},
    {"dialogues", "limit", "num-trials", "budget", "contexts", "num-targets", "samples", "n", "num", "count", "games"},
    {"run", "out", "output", "output-dir", "dir", "folder"},
    {"workers", "env-runners", "num-workers", "jobs", "processes"},
    {"device", "gpu", "cuda"},
    {"judge", "lm"},
)
"""Names of flags that say about the same, because verbs call it by different ones."""
_KINDS = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path"}


@contextmanager
def told(command: str, words: Sequence[str]) -> Iterator[None]:
    """A block in which tyro's errors become our own.

    Args:
        command: the verb as typed, such as "parley selfplay".
        words: that followed it.

    Raises:
        ConfigError: a value is missing or of the wrong type.
    """
    fix = f"{command} --help"

    def hook(event: ParseErrorEvent) -> None:
        match event:
            case MissingArgs(missing_arguments=missing):
                raise ConfigError(f"{', '.join(_name(each.arg) for each in missing)} is missing", fix=fix)
            case BadValue(argument=argument):
                raise ConfigError(f"{_name(argument)} needs a value", got=event.offending_value, fix=fix)
            case InvalidChoice(argument=argument, value=value, choices=choices):
                what = f"{_name(argument)} takes one of {', '.join(choices)}{meant(value, choices)}"
                raise ConfigError(what, got=repr(value), fix=fix)
            case InstantiationFailure(argument=None, message=message):
                # The arguments' own checks have raised, and tyro is at work on that.
                error = sys.exception()
                raise error if isinstance(error, ParleyError) else ConfigError(message, fix=fix)
            case InstantiationFailure(argument=argument) if argument is not None:
                flag = _name(argument)
                kinds = [kind for metavar, kind in _KINDS.items() if metavar in str(argument.lowered.metavar)]
                raise ConfigError(f"{flag} takes {' or '.join(kinds) or 'another value'}", got=_value_of(flag, words), fix=fix)

    with on_parse_error(hook):
        yield


def unknown_flag(
    argument: str, command: str, flags: Sequence[str], positional: Sequence[str], settings: Sequence[str]
) -> ConfigError:
    """The error of an argument that a verb does not have.

    Args:
        argument: as typed.
        command: the verb, such as "parley selfplay".
        flags: the names of those that it has; no dashes in front.
        positional: the names of its arguments without a flag.
        settings: dotted keys of its sections.
    """
    fix = f"{command} --help"
    if not argument.startswith("-"):
        return ConfigError(f"{argument!r} is one argument too many", fix=f"{fix}; a preset comes before the flags")
    shown = argument.partition("=")[0]
    name = shown.lstrip("-").replace("_", "-")
    inside = [key for key in settings if key.endswith(f".{name.replace('-', '_')}")]
    if inside:
        return ConfigError(f"{shown} is a setting of a section and not a flag", fix=f"--set {inside[0]}=VALUE")
    section = name.replace("-", "_")
    if any(key.startswith(f"{section}.") for key in settings):
        return ConfigError(f"{shown} is a section of settings and not a flag", fix=f"--set {section}.KEY=VALUE")
    if name in positional:
        return ConfigError(f"{name} is typed without a flag", got=shown, fix=fix)
    return ConfigError(f"there is no flag {shown}{meant(name, flags, '--')}", fix=fix)


def meant(name: str, names: Sequence[str], dashes: str = "") -> str:
    """A hint such as ", did you mean '--speaker'?": the name that says about the same, or is spelled alike; or nothing."""
    alike = difflib.get_close_matches(name, names, n=1, cutoff=_ALIKE)
    same = [each for group in _MEANINGS if name in group for each in names if each in group]
    found = [*(each for each in alike if each in same), *same, *alike][:1]
    return f", did you mean {dashes + found[0]!r}?" if found else ""


numbers = ConstructorRegistry()
"""How tyro reads numbers: whole ones may be written 1e3, others must be finite."""


@numbers.primitive_rule
def _number(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if kind.type not in (int, float):
        return None
    read, metavar = (_whole, "INT") if kind.type is int else (_finite, "FLOAT")
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = _finite(text)
        if not value.is_integer():
            raise ValueError(repr(text)) from None
        return int(value)


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(repr(text))
    return value


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    """What was typed behind a flag, the last time that it was."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    found += [value for word, value in itertools.pairwise(words) if word == flag]
    return repr(found[-1]) if found else None


def _name(argument: Any) -> str:
    """How an argument is typed: its flag, or what the help calls a positional one."""
    flags = argument.lowered.name_or_flags
    return str(argument.lowered.metavar) if argument.is_positional() else str(flags[0])
