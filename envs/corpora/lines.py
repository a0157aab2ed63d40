"""Base parts of every corpus: sources and their files, vocabularies, text lines, and errors with file and line.

`Source`       a corpus that can be found and compiled (`files.py` has the base of them)
`CorpusFile`   a published file with its size and digest
`WordList`     the base of all vocabularies
`ReadText`     the result of reading a corpus, with its errors
"""

from __future__ import annotations

import hashlib
import json
import shlex
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import TextIOWrapper
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from parley.envs.core.conformance import expect
from parley.envs.core.errors import ConfigError, DataError, ParleyError
from parley.envs.core.registry import Registry
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.arrow import UNNAMED, UnwholeCorpusError, data_root, opened_file, read_file, root_words


def has_its_files(source: Any) -> None:
    """Find its files."""
    source.require_files(data_root())


def keeps_its_fingerprint(source: Any) -> None:
    """Has the same fingerprint while its files are the same."""
    first, second = source.fingerprint(data_root()), source.fingerprint(data_root())
    expect(isinstance(first, str) and bool(first), "hex digits", repr(first))
    expect(first == second, "the same digits twice", f"{first} and {second}")


@dataclass(frozen=True)
class WordList:
    """Words and their ids, special tokens first.

    Args:
        words: all words, index = id; the special tokens of the class come first.

    Raises:
        DataError: the special tokens are not first, or a word occurs twice.
    """

    words: tuple[str, ...]

    SPECIALS: ClassVar[tuple[str, ...]] = ()
    UNKNOWN_ID: ClassVar[int] = 0

    def __post_init__(self) -> None:
        specials = self.SPECIALS
        if self.words[: len(specials)] != specials:
            got, fix = self.words[: len(specials)], f"put {specials} in front"
            raise DataError("a vocabulary must start with its special tokens", got=got, fix=fix)
        if len(set(self.words)) != len(self.words):
            twice = [word for word, count in Counter(self.words).items() if count > 1]
            raise DataError("a vocabulary holds a word twice", got=twice[:5], fix="remove the repeated words")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the JSON list that `save` wrote."""
        return cls(tuple(json.loads(path.read_text(encoding="utf-8"))))

    def save(self, path: Path) -> None:
        """Write the words as a JSON list, one entry per id."""
        path.write_text(json.dumps(list(self.words), ensure_ascii=False, indent=0), encoding="utf-8")

    @cached_property
    def index(self) -> dict[str, int]:
        """The id of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits, equal for equal vocabularies."""
        return hashlib.blake2b("\n".join(self.words).encode(), digest_size=6).hexdigest()

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Return the ids (n,) int64 of words; an unknown word becomes `<unk>`."""
        return np.array([self.index.get(word, self.UNKNOWN_ID) for word in words], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the words of the ids."""
        return [self.words[i] for i in ids]

    def __len__(self) -> int:
        return len(self.words)


SPLITS = ("train", "val", "test")


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One file of a corpus, with the facts that its publisher fixed."""

    name: str
    """File name in the corpus' folder."""
    num_lines: int | None = None
    """Number of lines."""
    num_bytes: int | None = None
    """Size in bytes."""
    sha256: tuple[str, ...] = ()
    """Accepted digests of the content; empty if the content is not fixed."""
    any_order: bool = False
    """The digests are of the sorted lines, because the published order is unknown."""

    def describe(self) -> str:
        """Return the name with the fixed number of lines and size."""
        facts = []
        if self.num_lines is not None:
            facts.append(f"{self.num_lines:,} lines")
        if self.num_bytes is not None:
            facts.append(f"{self.num_bytes:,} bytes")
        return f"{self.name} ({', '.join(facts)})" if facts else self.name

    def mismatch(self, path: Path) -> str:
        """Return how the file at `path` differs from the fixed facts, or an empty string.

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
        """A description in one line."""

    @property
    def licence(self) -> str:
        """Terms of use, one line."""

    def folder(self, root: Path) -> Path | None:
        """Return the folder of the files, or None for a generated corpus."""

    def fingerprint(self, root: Path) -> str:
        """Return hex digits that change with the text; raise `DataError` if files are missing."""


class WantingSource(Source, Protocol):
    """A corpus that says which of its files are missing."""

    def missing(self, root: Path) -> tuple[str, ...]:
        """Return the required files that are not in `folder`."""

    def require_files(self, root: Path) -> None:
        """Raise a `DataError` that names missing files and their folder."""


def named_source(registry: Registry, name: str, *members: str) -> Any:
    """Return the corpus of that name, checked to be one.

    Args:
        registry: the corpora of this kind.
        name: a registered name, or `path/file.py:NAME`.
        members: attributes of every corpus of this kind.

    Raises:
        ConfigError: an unknown corpus (with the nearest name), or an object that is not a corpus.
    """
    source = registry.get(name)
    lacking = [member for member in members if not hasattr(source, member)]
    if isinstance(source, type) or lacking:
        got = f"the class {source.__name__}" if isinstance(source, type) else f"{source!r:.80} without {', '.join(lacking)}"
        fix = "name an object that is one; CONTRIBUTING.md says what it promises, and parley check tests it"
        raise ConfigError(f"this is no {registry.kind}", where=name, got=got, fix=fix)
    return source


def fingerprint(*parts: str | int) -> str:
    """Return hex digits of all that the text of a corpus depends on."""
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits.

    Raises:
        DataError: the file cannot be read.
    """
    with opened_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sorted_lines(content: bytes) -> bytes:
    return b"".join(line + b"\n" for line in sorted(content.removesuffix(b"\n").split(b"\n")))


_MAX_SHOWN, _BLOCK = 160, 1 << 16
_VERBS = ("check", "get")
"""Verbs of `parley data` in messages."""


@dataclass(frozen=True)
class FileLine:
    """A line of a file, for messages.

    Args:
        source: the file's path, or the name of a generated text.
        line: counted from 1.
    """

    source: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file without line ends; bytes that are not UTF-8 become surrogates for the parser.

    Raises:
        DataError: the file cannot be read.
    """
    return list(stream_lines(path))


def stream_lines(path: Path) -> Iterator[str]:
    """Yield the lines of `read_lines` one by one; the rest of the file is not in memory.

    Raises:
        DataError: the file cannot be read.
    """
    with opened_file(path) as file:
        for number, content in enumerate(file):
            line = content.decode("utf-8", errors="surrogateescape").removesuffix("\n").removesuffix("\r")
            yield line if number else line.removeprefix("\ufeff")


def split_lines(content: bytes) -> list[str]:
    """Return the lines of a file's content, without a byte order mark; as `read_lines`."""
    return text_lines(content.decode("utf-8", errors="surrogateescape").removeprefix("\ufeff"))


def text_lines(text: str) -> list[str]:
    """Return the lines of a text without line ends (LF or CR LF)."""
    # Not splitlines(): it also splits at form feeds and other characters that are no line ends here.
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def utf8_start(path: Path) -> str:
    """Return the first nonblank line of a user's file, stripped and without a byte order mark.

    Raises:
        DataError: the file cannot be read.
    """
    return next((line.strip() for line in stream_lines(path) if line.strip()), "")


def utf8_text(path: Path) -> str:
    """Return the text of a user's file, without a byte order mark.

    Raises:
        DataError: the file cannot be read, or is not UTF-8; the message names the line.
    """
    content = read_file(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = FileLine(str(path), content.count(b"\n", 0, error.start) + 1)
        raise DataError("the file is not UTF-8 text", where=where, got=error.reason, fix="save the file as UTF-8") from None


def stream_utf8(path: Path, newline: str) -> Iterator[str]:
    """Yield the text of `utf8_text` line by line, with line ends as `open` reads them; errors come before the first line."""
    with opened_file(path) as file, TextIOWrapper(file, "utf-8-sig", newline=newline) as source:
        try:
            while source.read(_BLOCK):
                pass
        except UnicodeDecodeError:
            utf8_text(path)
        source.seek(0)
        yield from source


class TextNumbers:
    """Numbers of distinct texts in the order in which they come; a text, told by 64 bits of a hash, takes 16 to 24 bytes."""

    def __init__(self) -> None:
        self._digests, self._slots = array("Q"), array("i", [-1]) * 1024

    def __len__(self) -> int:
        return len(self._digests)

    def number(self, text: str) -> int:
        """Return the number of a text; that of a new one is the number of all before."""
        if 2 * len(self) >= len(self._slots):
            self._slots = array("i", [-1]) * (2 * len(self._slots))
            for known, digest in enumerate(self._digests):
                self._slots[self._slot(digest)] = known
        digest = stable_hash(text)
        slot = self._slot(digest)
        if self._slots[slot] < 0:
            self._slots[slot] = len(self)
            self._digests.append(digest)
        return self._slots[slot]

    def _slot(self, digest: int) -> int:
        """Return the slot that holds a digest, or the free one where it belongs."""
        slot = digest % len(self._slots)
        while (number := self._slots[slot]) >= 0 and self._digests[number] != digest:
            slot = (slot + 1) % len(self._slots)
        return slot


def broken_rule(rule: str, got: object) -> DataError:
    """Return the error of a line that breaks a rule; the value is shortened for display."""
    # A terminal would execute control characters.
    shown = got if isinstance(got, str) and got.replace("\t", "").isprintable() else repr(got)
    return DataError(rule, got=shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}...")


def require_utf8(text: str) -> None:
    """Raise unless a line from `read_lines` was UTF-8.

    Raises:
        DataError: some bytes were not UTF-8.
    """
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise broken_rule("the file is UTF-8 text", ascii(text)) from None


def located(
    error: ParleyError, source: str, line: int, fix: str = "mend the line, or get the published file again"
) -> DataError:
    """Return the error of a parser with its file and line, and a fix."""
    return DataError(f"a broken line: {error.what}", where=FileLine(source, line), got=error.got, fix=fix)


class ReadText:
    """The result of reading a corpus: its good lines, and errors for the others."""

    broken: list[DataError]
    """One error per broken line, with file and line number, and one per missing file."""

    def require_whole(self) -> Self:
        """Return the text if nothing is broken.

        Raises:
            UnwholeCorpusError: something is broken; the message has the first error and their number. `corpus_named` adds the
                name of the corpus.
        """
        if self.broken:
            first = self.broken[0]
            raise UnwholeCorpusError(
                f"{first.what} ({len(self.broken)} broken in all)",
                where=first.where,
                got=first.got,
                fix="; ".join(filter(None, (first.fix, f"`{data_command('check', UNNAMED)}` lists them all"))),
            )
        return self


@contextmanager
def corpus_named(name: str, data_root: Path | None) -> Iterator[None]:
    """Complete the commands in errors of incomplete corpora, inside a block.

    Args:
        name: the requested name of the corpus.
        data_root: the given data root, or None.
    """
    try:
        yield
    except UnwholeCorpusError as error:
        fix = whole_commands(error.fix or "", name, data_root)
        raise UnwholeCorpusError(error.what, where=error.where, got=error.got, fix=fix) from None


def whole_commands(text: str, name: str, data_root: Path | None) -> str:
    """Return a text in which the commands of `parley data` name the corpus.

    Args:
        text: of an error.
        name: the requested name of the corpus.
        data_root: the given data root, or None.
    """
    for verb in _VERBS:
        text = text.replace(data_command(verb, UNNAMED), data_command(verb, name, data_root))
    return text


def data_command(verb: str, name: str, data_root: Path | None = None) -> str:
    """Return a command of `parley data` for a corpus, such as "parley data check mine --data-root data"."""
    return shlex.join(["parley", "data", verb, name, *root_words(data_root)])
