"""One `Registry` per kind of part (corpus, agent, preset): names to factories, found lazily.

A part is registered by decorator, by a lazy "module:attribute" target (so that listing names imports nothing heavy), by
an installed package's entry point, or named on the spot as `path/file.py:Name`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.own_code import own_start
from parley.envs.core.trust import require_trust


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint such as ", did you mean 'attack'?", or the empty string when nothing is near."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


class Registry:
    """Names of one kind of part, with a one-line summary each.

    Args:
        kind: what is registered, for messages ("corpus").
        entry_point_group: installed packages may add parts under this group ("parley.corpora").
    """

    def __init__(self, kind: str, entry_point_group: str) -> None:
        self.kind = kind
        self.entry_point_group = entry_point_group
        self._targets: dict[str, Any] = {}
        self._summaries: dict[str, str] = {}

    def register(self, name: str, summary: str, target: str | None = None) -> Callable[[Any], Any]:
        """Adds a part; used as a decorator, or directly with a lazy "module:attribute" target.

        Raises:
            ConfigError: the name is taken.
        """
        if name in self._targets:
            raise ConfigError(f"the {self.kind} {name!r} is registered twice", fix="give one of them another name")
        self._summaries[name] = summary
        self._targets[name] = target

        def decorate(part: Any) -> Any:
            self._targets[name] = part
            return part

        return decorate

    def __contains__(self, name: object) -> bool:
        return name in self._targets or any(point.name == name for point in _installed(self.entry_point_group))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._targets, *(point.name for point in _installed(self.entry_point_group))}))

    def summary(self, name: str) -> str:
        """The one-line summary that listings print."""
        return self._summaries.get(name, "from an installed package")

    def get(self, name: str) -> Any:
        """The part of that name.

        Args:
            name: a registered name, or `path/file.py:Name` for a part of the user's own.

        Raises:
            ConfigError: no such part, with the nearest name; or a file that may not be imported (`envs/core/trust.py`).
        """
        if name in self._targets:
            target = self._targets[name]
            return _load(target) if isinstance(target, str) else target
        for point in _installed(self.entry_point_group):
            if point.name == name:
                return point.load()
        if ".py:" in name:
            return _load_file(name)
        known = f"known: {', '.join(self)}; or " if [*self] else ""
        served = f"; openai:{name} is a chat model's server" if name.startswith(("http://", "https://")) else ""
        raise ConfigError(
            f"no {self.kind} is called {name!r}{nearest(name, self)}",
            fix=f"{known}name your own as path/file.py:Name{served}",
        )


@cache
def _installed(group: str) -> tuple[EntryPoint, ...]:
    """Parts of installed packages; read once, for the metadata of every package is looked through."""
    return tuple(entry_points(group=group))


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


class _AsItStands(SourceFileLoader):
    """Reads a file anew: compiled code that lies beside it may be of another text of the same second and length."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_file(name: str) -> Any:
    path, _, attribute = name.rpartition(":")
    stem = Path(path).stem
    spec = importlib.util.spec_from_file_location(stem, path, loader=_AsItStands(stem, path))
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ConfigError("no such Python file", where=path, fix="name an existing file as path/file.py:Name")
    require_trust(name)
    module = importlib.util.module_from_spec(spec)
    with own_start(name):
        spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise ConfigError(f"the file defines no {attribute!r}", where=path, fix=f"define it{nearest(attribute, dir(module))}")
    return getattr(module, attribute)
