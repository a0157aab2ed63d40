"""The error tree, and small functions that need nothing else: public names, lists in files, digests, fsync.

Every failure that a user can cause or fix is a `ParleyError` with four parts: what is wrong, where, what was given, and how
to fix it. Broken invariants of our own code are assertions, not errors of this tree.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib.resources import files
from inspect import isfunction, signature
from numbers import Integral, Real
from pathlib import Path
from typing import Any


class ParleyError(ValueError):
    """A failure that the user can fix.

    Args:
        what: the failure, one clause, no full stop.
        where: the file and line, field, argument or address.
        got: the offending value, already shortened for display.
        fix: the action that fixes it, often a command.

    Attributes:
        indices: questions of a call to a chat model that met it; empty if that is unknown.
    """

    indices: tuple[int, ...] = ()

    def __init__(self, what: str, *, where: object = None, got: object = None, fix: str | None = None) -> None:
        self.what, self.where, self.got, self.fix = what, where, got, fix
        lines = [what]
        if where is not None:
            lines.append(f"  where: {where}")
        if got is not None:
            lines.append(f"  got:   {got}")
        if fix is not None:
            lines.append(f"  fix:   {fix}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Ray workers), so they must survive a round trip with their parts.
        return _rebuild, (type(self), self.what, self.where, self.got, self.fix)


def _rebuild(kind: type[ParleyError], what: str, where: object, got: object, fix: str | None) -> ParleyError:
    return kind(what, where=where, got=got, fix=fix)


class ConfigError(ParleyError):
    """A wrong preset, key, flag or value of a configuration."""


class NothingToMeasureError(ConfigError):
    """A run that has nothing to measure, which is a result of the runs before it and no failure of a table that holds it."""


class OutOfRangeError(ConfigError):
    """A value outside its range; the message begins with the setting's name."""


class DataError(ParleyError):
    """A corpus file that is missing, broken, or of another format."""


class ScenarioError(ParleyError):
    """A scenario, utterance or selection that breaks a rule of its game."""


class CheckpointError(ParleyError):
    """A checkpoint that is missing, damaged, of another kind, or does not fit its partner."""


class RankerError(ParleyError):
    """A ranker that raised, or gave no usable scores."""


class JudgeError(ParleyError):
    """A judge of generated replies that did not give one finite score per pair."""


class ModelError(ParleyError):
    """A chat model without a reply: its server is unreachable, refused, or broke the protocol."""


class RefusedModelError(ModelError):
    """A key or model that the server refuses; every other request would fail too, so the command ends."""


class LimitReachedError(RefusedModelError):
    """A limit on requests or on their cost that is reached; what is there is kept, and the command ends."""


class RunError(ParleyError):
    """A run folder that cannot be created, resumed, read or written."""


class ClusterError(ParleyError):
    """A Ray cluster that cannot be reached, or lacks the resources of a job."""


class StorageError(ParleyError):
    """Storage at a URI that cannot be reached, read or written."""


def public(package: str, names: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` of a package whose public names are imported on first use.

    Args:
        package: its `__name__`.
        names: the module of each public name, such as {"GibbsEnum": "gibbs_enum"}.

    Returns:
        The sorted names, and a function that imports one. Each name is imported once. Functions check their arguments.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        part = getattr(importlib.import_module(f"{package}.{names[name]}"), name)
        if isfunction(part) and getattr(part, "package", None) is None:
            part = _checked(part)
            # Pickle finds it there.
            vars(part)["package"] = part.__module__ = package
        setattr(sys.modules[package], name, part)
        return part

    return sorted(names), get


def _is_list(value: Any) -> bool:
    import numpy as np

    # Rows of unequal length are a ValueError.
    with suppress(ValueError):
        return np.ndim(value) > 0 and np.asarray(value).dtype.kind != "O"
    return False


_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "None": ("None", lambda value: value is None),
    "str": ("text", lambda value: isinstance(value, str)),
    "Path": ("a path", lambda value: isinstance(value, str | Path)),
    "int": ("a whole number", lambda value: isinstance(value, Integral)),
    "float": ("a number", lambda value: isinstance(value, Real)),
    "ArrayLike": ("a list of numbers, or of texts", _is_list),
    "Sequence[Row]": ("a list of rows", lambda value: isinstance(value, Sequence) and not isinstance(value, str)),
}
"""Types of arguments that are checked, by their names in annotations, with the words for them."""


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a public function with a `ConfigError` for wrong arguments, and for rows that lack a column."""
    shape, where = signature(function), f"{function.__name__}()"
    kinds = {name: str(about.annotation).split(" | ") for name, about in shape.parameters.items()}
    kinds = {name: known for name, known in kinds.items() if _KINDS.keys() >= {*known}}

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            given = shape.bind(*arguments, **named).arguments
        except TypeError as error:
            raise ConfigError(str(error), where=where, fix=f"its arguments are {', '.join(shape.parameters)}") from None
        for name in filter(kinds.__contains__, given):
            if not any(_KINDS[kind][1](given[name]) for kind in kinds[name]):
                fix = f"give {' or '.join(_KINDS[kind][0] for kind in kinds[name])}"
                raise ConfigError(f"{name} has the wrong type", where=where, got=repr(given[name])[:80], fix=fix)
        try:
            return function(*arguments, **named)
        except (AssertionError, ValueError) as error:
            if shape.return_annotation != "Estimate":
                raise
            raise ConfigError(str(error), where=where, got=repr(given)[:80], fix=f"help(parley.{function.__name__})") from error
        except (KeyError, TypeError) as error:
            rows, key = given.get("rows", ()), error.args[0] if isinstance(error, KeyError) else None
            if all(isinstance(row, Mapping) and (key is None or key in row) for row in rows):
                raise
            what = "each row is a mapping of columns" if key is None else f"the rows lack {key!r}"
            raise ConfigError(what, where=where, got=repr(rows)[:80], fix="give rows that Parley has written") from error

    return call


@cache
def packaged_lists(package: str, file: str) -> Mapping[str, str]:
    """Return the lists of a text file of a package by their headings, which are lines "== HEADING"."""
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    headings_and_lists = re.split(r"(?m)^== (.+)\n", text)[1:]
    return dict(zip(headings_and_lists[::2], headings_and_lists[1::2], strict=True))


def packaged_phrases(package: str, file: str) -> dict[str, tuple[str, ...]]:
    """Return the lines of each list of a text file of a package."""
    return {heading: tuple(filter(None, text.split("\n"))) for heading, text in packaged_lists(package, file).items()}


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra, for the fix of an error; Parley is installed from its folder."""
    return f'in the folder of Parley: pip install --constraint constraints.txt --editable ".[{extra}]"'


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: str | Path) -> None:
    """Flush a file to the disk; for a folder, flush the names of its files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
