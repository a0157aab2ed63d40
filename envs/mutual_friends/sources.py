"""Where chats come from: files of the published format, or scripted players. `corpora.py` names those that Parley knows.

A corpus of your own is an object like those there: put `CORPUS = FileChats(name="mine", ...)` into a file and name it as
`path/file.py:CORPUS`, or let an installed package offer it under the entry point group `parley.friends`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from parley.envs import mutual_friends
from parley.envs.core.errors import DataError
from parley.envs.corpora.files import CorpusFolder
from parley.envs.corpora.lines import ReadText
from parley.envs.corpora.sources import SPLITS, Source, content_digest, fingerprint
from parley.envs.mutual_friends.chats import read_chats
from parley.envs.mutual_friends.events import FriendsChat
from parley.envs.mutual_friends.linker import EntityLinker, Form, read_lexicon
from parley.envs.mutual_friends.schema import FriendsSchema, read_schema

READER_VERSION = 1
"""Grows when the same files would be read differently; compiled corpora are keyed by it."""
SCHEMA_FILE, LEXICON_FILE = "schema.json", "inverse_lexicon_data.txt"
_MAKERS = ("draws", "events", "game", "linker", "play", "scenario", "schema")
"""Modules that scripted chats depend on, those of the players apart."""
PUBLISHED = {"train": "train.json", "val": "dev.json", "test": "test.json"}
"""Files of the splits, as published."""


@dataclass(kw_only=True)
class ChatText(ReadText):
    """What a corpus of chats holds."""

    schema: FriendsSchema | None = None
    forms: list[Form] = field(default_factory=list)
    """Spellings of entities, as often as they were seen."""
    splits: dict[str, list[FriendsChat]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    broken: list[DataError] = field(default_factory=list)


@runtime_checkable
class ChatSource(Source, Protocol):
    """What the registry holds: a corpus of chats."""

    def missing(self, root: Path) -> tuple[str, ...]:
        """Files that must lie in `folder` and do not."""

    def require_files(self, root: Path) -> None:
        """Raises a `DataError` that says what to put where, when files are missing."""

    def read_text(self, root: Path) -> ChatText:
        """The chats, with broken ones and missing files as errors."""


@dataclass(frozen=True, kw_only=True)
class FileChats(CorpusFolder):
    """Chats in the published format, with schema and lexicon, in one folder."""

    splits: Mapping[str, str] = field(default_factory=lambda: PUBLISHED)
    """The file of each split."""

    READER_VERSION: ClassVar[int] = READER_VERSION
    OWN: ClassVar[str] = "name a folder with schema.json, inverse_lexicon_data.txt, train.json, dev.json and test.json"

    def read_text(self, root: Path) -> ChatText:
        """Reads the files; nothing is read while some are missing."""
        text = ChatText(broken=self.missing_files(root))
        if not text.broken:
            folder = self.folder(root)
            text.schema = read_schema(folder / SCHEMA_FILE)
            text.forms = read_lexicon(folder / LEXICON_FILE, text.schema)
            linker = EntityLinker(text.schema, text.forms)
            for split, name in self.splits.items():
                text.splits[split], broken = read_chats(folder / name, linker)
                text.broken += broken
        return text


@dataclass(frozen=True, kw_only=True)
class ScriptedChats(CorpusFolder):
    """Chats that scripted players have about friends of a schema: Parley's own, or that of files."""

    sizes: tuple[int, int, int]
    """Chats of train, val and test."""
    seed: int = 0
    """Master seed."""
    obtain: str = ""
    wanted: tuple[tuple[str, ...], ...] = ()

    READER_VERSION: ClassVar[int] = READER_VERSION

    def folder(self, root: Path) -> Path | None:  # type: ignore[override]  # none where there are no files
        """Where schema and lexicon lie; none for Parley's own."""
        return super().folder(root) if self.wanted else None

    def missing(self, root: Path) -> tuple[str, ...]:
        """The files that are not there."""
        return super().missing(root) if self.wanted else ()

    def fingerprint(self, root: Path) -> str:
        """Digest of sizes and seed, of all code that makes the chats, and of the schema's files."""
        # The source stands for a version number that somebody would have to remember to raise.
        folder = Path(mutual_friends.__path__[0])
        code = sorted([*(folder / f"{name}.py" for name in _MAKERS), *(folder / "scripted").glob("*.py")])
        files = super().fingerprint(root) if self.wanted else ""
        return fingerprint("generated", READER_VERSION, *self.sizes, self.seed, files, *map(content_digest, code))

    def read_text(self, root: Path) -> ChatText:
        """Lets the players chat."""
        from parley.envs.mutual_friends.scripted.corpus import scripted_chats
        from parley.envs.mutual_friends.scripted.schema import FRIENDS_SCHEMA, friends_forms

        text = ChatText(schema=FRIENDS_SCHEMA, forms=friends_forms())
        if self.wanted:
            text = ChatText(broken=self.missing_files(root))
            if text.broken:
                return text
            folder = super().folder(root)
            text.schema = read_schema(folder / SCHEMA_FILE)
            text.forms = read_lexicon(folder / LEXICON_FILE, text.schema)
        assert text.schema is not None
        linker = EntityLinker(text.schema, text.forms)
        begin = 0
        for split, size in zip(SPLITS, self.sizes, strict=True):
            text.splits[split] = scripted_chats(text.schema, linker, range(begin, begin + size), self.seed)
            begin += size
        return text
