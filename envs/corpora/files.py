"""The base of every corpus: its facts, required files, missing files, and a digest of their content.

Subclasses read the files: `envs/corpora/pairs/tokens.py`, `envs/ranking/sources.py`, `envs/mutual_friends/compiled.py` and
`envs/negotiation/corpora/catalogue.py`. Others generate a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from parley.envs.core.errors import DataError
from parley.envs.corpora.arrow import DATA_VARIABLE, UnwholeCorpusError
from parley.envs.corpora.lines import content_digest, fingerprint


@dataclass(frozen=True, kw_only=True)
class CorpusFolder:
    """A corpus in the files of one folder."""

    name: str
    """Registered name, and the default name of its folder in the data root."""
    summary: str
    """A description in one line."""
    licence: str
    """Terms of use, one line."""
    obtain: str
    """Where to get the files; empty for a user's own files."""
    wanted: tuple[tuple[str, ...], ...]
    """Groups of file patterns below the folder, such as `train/*.txt`; one pattern of each group must match."""
    place: Path | None = None
    """The folder, if it is not in the data root."""
    shares: str | None = None
    """The corpus whose folder this one reads, if it has none of its own."""
    tools: tuple[str, ...] = ()
    """Versions of other software that the text depends on."""

    READER_VERSION: ClassVar[int]
    """Grows when the reader changes; part of the key of compiled corpora."""
    OWN: ClassVar[str]
    """The fix for a user's own files that are missing."""

    @property
    def remedy(self) -> str:
        """The fix for missing files."""
        return f"get the files from {self.obtain}" if self.obtain else self.OWN

    def folder(self, root: Path) -> Path:
        """Return the folder of the files."""
        return root / (self.shares or self.name) if self.place is None else self.place

    def missing(self, root: Path) -> tuple[str, ...]:
        """Return the groups of patterns without a matching file."""
        folder = self.folder(root)
        return tuple(" or ".join(group) for group in self.wanted if not any(_matches(folder, pattern) for pattern in group))

    def missing_files(self, root: Path) -> list[DataError]:
        """Return an error for each missing group."""
        folder = self.folder(root)
        return [DataError("a file is missing", where=folder / name, fix=self.remedy) for name in self.missing(root)]

    def require_files(self, root: Path) -> None:
        """Raise if files are missing.

        Raises:
            UnwholeCorpusError: some are missing; the message names them and their folder.
        """
        missing = self.missing(root)
        if missing:
            folder = self.folder(root)
            elsewhere = f"; or name another data root with --data-root or {DATA_VARIABLE}" if self.place is None else ""
            raise UnwholeCorpusError(
                f"the corpus {self.name!r} is not complete",
                where=folder,
                got=f"no {', '.join(missing)}" if folder.is_dir() else "no such folder",
                fix=f"{self.remedy}, and put {', '.join(missing)} into {folder}{elsewhere}" if self.obtain else self.remedy,
            )

    def fingerprint(self, root: Path) -> str:
        """Return a digest of the reader's version and of all file names and contents.

        Raises:
            DataError: a file is missing or cannot be read.
        """
        self.require_files(root)
        folder = self.folder(root)
        paths = {path for group in self.wanted for pattern in group for path in _matches(folder, pattern)}
        parts = [f"{path.relative_to(folder)} {content_digest(path)}" for path in sorted(paths)]
        return fingerprint("files", self.READER_VERSION, *parts, *self.tools)


@dataclass(frozen=True, kw_only=True)
class GeneratedFolder(CorpusFolder):
    """A corpus that Parley generates, from the files of a folder or from none, so that everything runs offline."""

    obtain: str = ""
    wanted: tuple[tuple[str, ...], ...] = ()

    def folder(self, root: Path) -> Path | None:  # type: ignore[override]  # none where there are no files
        """Return the folder of the files that it is generated from; None if there are none."""
        return super().folder(root) if self.wanted else None


def _matches(folder: Path, pattern: str) -> list[Path]:
    return [path for path in folder.glob(pattern) if path.is_file()]
