"""Where candidates come from: files of a published format, or a corpus of pairs. `corpora.py` names those that Parley knows.

A corpus of your own is a file of rows "label TAB turn TAB ... TAB response", a folder of them (`envs/ranking/rows.py`), or
an object like those in `corpora.py`: put `CORPUS = FileCandidates(name="mine", ...)` into a file and name it as
`path/file.py:CORPUS`, or let an installed package offer it under the entry point group `parley.candidates`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from parley.envs.corpora.files import CorpusFolder
from parley.envs.corpora.pairs.sources import PairSource
from parley.envs.corpora.sources import Source, fingerprint
from parley.envs.ranking.dialogues import groups_of_pairs
from parley.envs.ranking.text import CandidateText


@runtime_checkable
class CandidateSource(Source, Protocol):
    """What the registry holds: a corpus of candidates."""

    def missing(self, root: Path) -> tuple[str, ...]:
        """Files that must lie in `folder` and do not."""

    def require_files(self, root: Path) -> None:
        """Raises a `DataError` that says what to put where, when files are missing."""

    def read_groups(self, root: Path, turns: int) -> CandidateText:
        """The groups, broken lines and missing files included as errors; of contexts at least the last `turns` turns."""


@dataclass(frozen=True, kw_only=True)
class FileCandidates(CorpusFolder):
    """A corpus of candidates in files of one folder."""

    reader: Callable[[Path], CandidateText]
    """Reads the folder."""

    READER_VERSION: ClassVar[int] = 1
    OWN: ClassVar[str] = (
        "name a file of rows label<TAB>turn<TAB>...<TAB>response that is there, or a folder of such files: train, val and test"
    )

    def read_groups(self, root: Path, turns: int) -> CandidateText:
        """Reads the files; nothing is read while some are missing, and each of those is an error."""
        missing = self.missing_files(root)
        return CandidateText(broken=missing) if missing else self.reader(self.folder(root))


@dataclass(frozen=True, kw_only=True)
class PairCandidates:
    """The replies of a corpus of pairs, among others that are drawn for them."""

    pairs: PairSource
    """Whose name, files and licence these are."""

    READER_VERSION: ClassVar[int] = 1
    """Grows when other groups would be made of the same pairs."""

    @property
    def name(self) -> str:
        """That of the pairs."""
        return self.pairs.name

    @property
    def summary(self) -> str:
        """What they are, and that wrong replies are drawn."""
        return f"{self.pairs.summary}; wrong replies are drawn"

    @property
    def licence(self) -> str:
        """That of the pairs."""
        return self.pairs.licence

    def folder(self, root: Path) -> Path | None:
        """Where the pairs lie."""
        return self.pairs.folder(root)

    def missing(self, root: Path) -> tuple[str, ...]:
        """Files of pairs."""
        return self.pairs.missing(root)

    def require_files(self, root: Path) -> None:
        """As for pairs."""
        self.pairs.require_files(root)

    def fingerprint(self, root: Path) -> str:
        """Digest of the version of what makes groups, and of the pairs."""
        return fingerprint("pairs", self.READER_VERSION, self.pairs.fingerprint(root))

    def read_groups(self, root: Path, turns: int) -> CandidateText:
        """Reads the pairs and follows them back."""
        return groups_of_pairs(self.pairs.read(root), turns)
