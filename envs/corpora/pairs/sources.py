"""Where pairs come from: files of a published format, or a generator. `corpora.py` names those that Parley knows.

A corpus of your own is an object like those there: put `CORPUS = FilePairs(name="mine", ...)` into a file and name it as
`path/file.py:CORPUS`, or let an installed package offer it under the entry point group `parley.pairs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from parley.envs.corpora.files import CorpusFolder
from parley.envs.corpora.pairs.text import PairText
from parley.envs.corpora.sources import Described, Source, content_digest, fingerprint

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
class FilePairs(CorpusFolder):
    """A corpus of pairs in files of one folder."""

    vocabulary: int
    """Entries of the vocabulary, specials included."""
    reader: Callable[[Path], PairText]
    """Reads the folder."""

    READER_VERSION: ClassVar[int] = READER_VERSION
    OWN: ClassVar[str] = (
        "name a file or folder of pairs that is there: lines source<TAB>reply, or train.tsv, val.tsv and test.tsv"
    )

    def read(self, root: Path) -> PairText:
        """Reads the files; nothing is read while some are missing, and each of those is an error."""
        missing = self.missing_files(root)
        return PairText(broken=missing) if missing else self.reader(self.folder(root))


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
