"""Where pairs come from: files of a published format, or a generator. `corpora.py` names those that Parley knows.

A corpus of your own is an object like those there: put `CORPUS = FilePairs(name="mine", ...)` into a file and name it as
`path/file.py:CORPUS`, or let an installed package offer it under the entry point group `parley.pairs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from envs.core.errors import DataError
from envs.data.root import DATA_VARIABLE
from envs.data.sources import Described, Source, content_digest, fingerprint
from envs.pairs.text import PairText

_OWN = "name a file or folder of pairs that is there: lines source<TAB>reply, or train.tsv, val.tsv and test.tsv"
READER_VERSION = 2
"""Grows when the same files would be read differently; compiled corpora are keyed by it."""


@runtime_checkable
class PairSource(Source, Protocol):
    """What the registry holds: a corpus of pairs."""

    @property
    def vocabulary(self) -> int:
        """Entries of the vocabulary, specials included."""

    def missing(self, root: Path) -> tuple[str, ...]:
        """Files that must lie in `folder` and do not."""

    def require_files(self, root: Path) -> None:
        """Raises a `DataError` that says what to put where, when files are missing."""

    def read(self, root: Path) -> PairText:
        """The text, broken lines and missing files included as errors."""


@dataclass(frozen=True, kw_only=True)
class FilePairs(Described):
    """A corpus in files of one folder."""

    obtain: str
    """Where a person gets the files; empty where they are that person's own."""
    vocabulary: int
    """Entries of the vocabulary, specials included."""
    wanted: tuple[tuple[str, ...], ...]
    """Patterns of files below the folder, for example `train/*.txt`; of each group one must match a file."""
    reader: Callable[[Path], PairText]
    """Reads the folder."""
    place: Path | None = None
    """The folder, when it is not in the data root."""
    shares: str | None = None
    """The corpus whose folder this one reads, when it has none of its own."""

    @property
    def _remedy(self) -> str:
        return f"get the files from {self.obtain}" if self.obtain else _OWN

    def folder(self, root: Path) -> Path:
        """Where the files lie."""
        return root / (self.shares or self.name) if self.place is None else self.place

    def missing(self, root: Path) -> tuple[str, ...]:
        """The groups of patterns that no file matches."""
        folder = self.folder(root)
        return tuple(" or ".join(group) for group in self.wanted if not any(_matches(folder, each) for each in group))

    def require_files(self, root: Path) -> None:
        """Checks that the files are there.

        Raises:
            DataError: some are missing; the message says which, and where to put them.
        """
        missing = self.missing(root)
        if missing:
            folder = self.folder(root)
            elsewhere = f"; or name another data root with --data-root or {DATA_VARIABLE}" if self.place is None else ""
            raise DataError(
                f"the corpus {self.name!r} is not complete",
                where=folder,
                got=f"no {', '.join(missing)}" if folder.is_dir() else "no such folder",
                fix=f"{self._remedy}, and put {', '.join(missing)} into {folder}{elsewhere}" if self.obtain else self._remedy,
            )

    def fingerprint(self, root: Path) -> str:
        """Digest of the reader's version and of the names and contents of all files.

        Raises:
            DataError: a file is missing or cannot be read.
        """
        self.require_files(root)
        folder = self.folder(root)
        paths = {path for group in self.wanted for pattern in group for path in _matches(folder, pattern)}
        parts = [f"{path.relative_to(folder)} {content_digest(path)}" for path in sorted(paths)]
        return fingerprint("files", READER_VERSION, *parts)

    def read(self, root: Path) -> PairText:
        """Reads the files; nothing is read while some are missing, and each of those is an error."""
        folder = self.folder(root)
        missing = self.missing(root)
        if missing:
            return PairText(broken=[DataError("a file is missing", where=folder / each, fix=self._remedy) for each in missing])
        return self.reader(folder)


@dataclass(frozen=True, kw_only=True)
class GeneratedPairs(Described):
    """A corpus that Parley writes itself, so that everything runs on a fresh machine offline."""

    vocabulary: int
    """Entries of the vocabulary, specials included."""
    generator: Callable[[], PairText]
    """Writes the text, the same at every call."""
    sources: tuple[Path, ...]
    """Python files that the generated text depends on."""

    def folder(self, root: Path) -> None:
        """None: there are no files."""

    def missing(self, root: Path) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def require_files(self, root: Path) -> None:
        """Nothing is needed."""

    def fingerprint(self, root: Path) -> str:
        """Digest of the reader's version and the generator's source."""
        # The source stands for a version number that somebody would have to remember to raise.
        return fingerprint("generated", READER_VERSION, *map(content_digest, self.sources))

    def read(self, root: Path) -> PairText:
        """Generates the text."""
        return self.generator()


def _matches(folder: Path, pattern: str) -> list[Path]:
    return [path for path in folder.glob(pattern) if path.is_file()]
