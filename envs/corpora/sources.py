"""Where a corpus comes from: its files, their addresses and what they are called in each split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry
from parley.envs.corpora.root import read_file

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One file of a corpus, and what is fixed about it by its publisher."""

    name: str
    """File name in the corpus' folder."""
    num_lines: int | None = None
    """Number of lines."""
    num_bytes: int | None = None
    """Size in bytes."""
    sha256: tuple[str, ...] = ()
    """Digests of the content, any of which is right; none when the content is not fixed."""
    any_order: bool = False
    """The digests are of the sorted lines, because the published order is not known."""

    def describe(self) -> str:
        """The name with number of lines and size, as far as they are fixed."""
        facts = []
        if self.num_lines is not None:
            facts.append(f"{self.num_lines:,} lines")
        if self.num_bytes is not None:
            facts.append(f"{self.num_bytes:,} bytes")
        return f"{self.name} ({', '.join(facts)})" if facts else self.name

    def mismatch(self, path: Path) -> str:
        """How the file at `path` differs from what is fixed, or the empty string.

        Raises:
            DataError: the file cannot be read.
        """
        if not self.sha256:
            return ""
        content = read_file(path)
        digest = hashlib.sha256(_sorted_lines(content) if self.any_order else content).hexdigest()
        if digest in self.sha256:
            return ""
        num_lines = content.count(b"\n")
        kind = "sha256 of the sorted lines" if self.any_order else "sha256"
        return f"{num_lines:,} lines, {len(content):,} bytes, {kind} {digest}"


class Source(Protocol):
    """A corpus of any kind that can be found and compiled."""

    @property
    def name(self) -> str:
        """The registered name."""

    @property
    def summary(self) -> str:
        """What it is, one line."""

    @property
    def licence(self) -> str:
        """Terms of use, one line."""

    def folder(self, root: Path) -> Path | None:
        """The folder with the files, or none for a corpus that is generated."""

    def fingerprint(self, root: Path) -> str:
        """Hex digits that change whenever the text does; raises `DataError` when files are missing."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """What every corpus says of itself."""

    name: str
    """Registered name, and that of its folder in the data root unless it names another."""
    summary: str
    """What it is, one line."""
    licence: str
    """Terms of use, one line."""


def named_source(registry: Registry, name: str, *members: str) -> Any:
    """The corpus of that name; what a file of a user's own calls so may be anything.

    Args:
        registry: of the corpora of its kind.
        name: a registered name, or `path/file.py:NAME`.
        members: what a corpus of the kind has.

    Raises:
        ConfigError: no such corpus, with the nearest name; or what is called so is none.
    """
    found = registry.get(name)
    lacking = [member for member in members if not hasattr(found, member)]
    if isinstance(found, type) or lacking:
        got = f"the class {found.__name__}" if isinstance(found, type) else f"{found!r:.80} without {', '.join(lacking)}"
        fix = "name an object that is one; CONTRIBUTING.md says what it promises, and parley check tests it"
        raise ConfigError(f"this is no {registry.kind}", where=name, got=got, fix=fix)
    return found


def fingerprint(*parts: str | int) -> str:
    """Hex digits of what the text of a corpus depends on."""
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def content_digest(path: Path) -> str:
    """Hex digits of the content of a file.

    Raises:
        DataError: it cannot be read.
    """
    return hashlib.sha256(read_file(path)).hexdigest()


def _sorted_lines(content: bytes) -> bytes:
    return b"".join(line + b"\n" for line in sorted(content.removesuffix(b"\n").split(b"\n")))
