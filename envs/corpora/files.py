"""Corpora in files of one folder: which files are wanted, which are missing, and what their content is.

What the files hold is said by the classes that build on this one, in `envs/corpora/pairs/tokens.py` and
`envs/ranking/sources.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import DATA_VARIABLE
from parley.envs.corpora.lines import Described, content_digest, fingerprint


@dataclass(frozen=True, kw_only=True)
class CorpusFolder(Described):
    """A corpus in files of one folder."""

    obtain: str
    """Where a person gets the files; empty where they are that person's own."""
    wanted: tuple[tuple[str, ...], ...]
    """Patterns of files below the folder, for example `train/*.txt`; of each group one must match a file."""
    place: Path | None = None
    """The folder, when it is not in the data root."""
    shares: str | None = None
    """The corpus whose folder this one reads, when it has none of its own."""
    tools: tuple[str, ...] = ()
    """Versions of other software that the text depends on."""

    READER_VERSION: ClassVar[int]
    """Grows when the same files would be read differently; compiled corpora are keyed by it."""
    OWN: ClassVar[str]
    """What to name instead, where the files are a person's own and not there."""

    @property
    def remedy(self) -> str:
        """How to get the files."""
        return f"get the files from {self.obtain}" if self.obtain else self.OWN

    def folder(self, root: Path) -> Path:
        """Where the files lie."""
        return root / (self.shares or self.name) if self.place is None else self.place

    def missing(self, root: Path) -> tuple[str, ...]:
        """The groups of patterns that no file matches."""
        folder = self.folder(root)
        return tuple(" or ".join(group) for group in self.wanted if not any(_matches(folder, each) for each in group))

    def missing_files(self, root: Path) -> list[DataError]:
        """An error for each of these groups."""
        folder = self.folder(root)
        return [DataError("a file is missing", where=folder / each, fix=self.remedy) for each in self.missing(root)]

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
                fix=f"{self.remedy}, and put {', '.join(missing)} into {folder}{elsewhere}" if self.obtain else self.remedy,
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
        return fingerprint("files", self.READER_VERSION, *parts, *self.tools)


def _matches(folder: Path, pattern: str) -> list[Path]:
    return [path for path in folder.glob(pattern) if path.is_file()]
