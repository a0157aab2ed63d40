"""The error tree: every failure a user can cause or mend is a `ParleyError` with four parts.

A message says what is wrong, where, what was found there, and how to fix it. Broken invariants of our own code are
assertions, not errors of this tree.

Packages that only some need: the extras of pyproject.toml.

Files on a disk: what they hold, and what a power cut must not undo.

Public names of a package that are imported when they are first asked for, so that a package's door stays light.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def how_to_install(extra: str) -> str:
    """The command that brings an extra, as the fix of an error says it: Parley comes from its folder, not from a registry."""
    return f'in the folder of Parley: pip install --constraint constraints.txt --editable ".[{extra}]"'


def sync(path: str | Path) -> None:
    """Waits until a file's content is on the disk; of a folder, until the files in it have the names that they were given."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def public(package: str, names: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """What a package puts into `__all__` and `__getattr__`.

    Args:
        package: its `__name__`.
        names: the module of the package in which each public name stands, such as {"GibbsEnum": "gibbs_enum"}.

    Returns:
        The sorted names, and a function that imports one; a name is imported once.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{package}.{names[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return sorted(names), get


class ParleyError(ValueError):
    """A failure that the user can act on.

    Args:
        what: what is wrong, one clause, no full stop.
        where: the file and line, field, argument or address it was found at.
        got: the offending value, already shortened for display.
        fix: the action, often a command, that mends it.
    """

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
    """A preset, key, flag or value of a configuration is wrong."""


class OutOfRangeError(ConfigError):
    """A value is outside of what is allowed; the message begins with the setting's name."""


class DataError(ParleyError):
    """A corpus file is missing, broken, or not what its reader expects."""


class ScenarioError(ParleyError):
    """A scenario, an utterance or a selection breaks a rule of its game."""


class CheckpointError(ParleyError):
    """A checkpoint is missing, damaged, of another kind, or does not fit its partner."""


class RankerError(ParleyError):
    """A ranker raised, or gave no usable scores."""


class JudgeError(ParleyError):
    """A judge of generated replies did not give one finite score for each pair."""


class ModelError(ParleyError):
    """A chat model gave no answer: its server cannot be reached, refused, or said what its protocol does not know."""


class RefusedModelError(ModelError):
    """A server takes no such key, or knows no such model: no other question would fare better, so a command ends."""


class RunError(ParleyError):
    """A run folder cannot be created, resumed, read or written."""


class ClusterError(ParleyError):
    """Ray cannot be reached, or lacks the resources a job asks for."""


class StorageError(ParleyError):
    """Storage that a URI names cannot be reached, read or written."""
