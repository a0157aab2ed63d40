"""Lines of corpus files: how they are read, and how a broken one is named."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from parley.envs.core.errors import DataError, ParleyError
from parley.envs.corpora.root import UNNAMED, UnwholeCorpusError, read_file, root_words

_MAX_SHOWN = 160
_VERBS = ("check", "get")
"""Verbs of `parley data` that messages name."""


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
    """The lines of a text file without line ends; bytes that are not UTF-8 stay as surrogates, for the parser to report.

    Raises:
        DataError: the file cannot be read.
    """
    return split_lines(read_file(path))


def split_lines(content: bytes) -> list[str]:
    """The same for the content of a file in hand; a byte order mark at its beginning is none of its text."""
    return text_lines(content.decode("utf-8", errors="surrogateescape").removeprefix("\ufeff"))


def text_lines(text: str) -> list[str]:
    """Return the lines of a text without line ends: line feeds alone, or behind a carriage return."""
    # Not splitlines(): it would also split at form feeds and other characters that are no line end in these files.
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def utf8_start(path: Path) -> str:
    """Return the first line of a user's file that is not blank, without blanks and a byte order mark around.

    Raises:
        DataError: the file cannot be read.
    """
    return next((line.strip() for line in read_lines(path) if line.strip()), "")


def utf8_text(path: Path) -> str:
    """Return the text of a user's file, without a byte order mark.

    Raises:
        DataError: the file cannot be read, or is no UTF-8; the message names the line.
    """
    content = read_file(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = FileLine(str(path), content.count(b"\n", 0, error.start) + 1)
        raise DataError("the file is not UTF-8 text", where=where, got=error.reason, fix="save the file as UTF-8") from None


def broken_rule(rule: str, got: object) -> DataError:
    """The error of a line that breaks a rule; what was found is cut to a length that fits a screen."""
    # Control characters would be obeyed by a terminal.
    shown = got if isinstance(got, str) and got.replace("\t", "").isprintable() else repr(got)
    return DataError(rule, got=shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}...")


def require_utf8(text: str) -> None:
    """Checks a line that `read_lines` gave.

    Raises:
        DataError: some of its bytes were not UTF-8.
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
    """The error of a parser with the place it happened at, and what mends it."""
    return DataError(f"a broken line: {error.what}", where=FileLine(source, line), got=error.got, fix=fix)


class ReadText:
    """A corpus as it was read: its good lines, and what is wrong with the others."""

    broken: list[DataError]
    """One error per broken line, with file and line number, and one per missing file."""

    def require_whole(self) -> Self:
        """The same text.

        Raises:
            UnwholeCorpusError: something is broken; the message holds the first of the errors and their number. What the corpus
                was asked for by is `corpus_named`'s to say.
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
    """A block in which the error of a corpus that is not whole gives whole commands.

    Args:
        name: what the corpus was asked for by.
        data_root: where it was said to lie; None when nothing was said.
    """
    try:
        yield
    except UnwholeCorpusError as error:
        fix = whole_commands(error.fix or "", name, data_root)
        raise UnwholeCorpusError(error.what, where=error.where, got=error.got, fix=fix) from None


def whole_commands(text: str, name: str, data_root: Path | None) -> str:
    """A text in which the commands of `parley data` that leave the corpus open name it.

    Args:
        text: of an error.
        name: what the corpus was asked for by.
        data_root: where it was said to lie; None when nothing was said.
    """
    for verb in _VERBS:
        text = text.replace(data_command(verb, UNNAMED), data_command(verb, name, data_root))
    return text


def data_command(verb: str, name: str, data_root: Path | None = None) -> str:
    """What to type so that `parley data` does something with a corpus, such as "parley data check mine --data-root data"."""
    return shlex.join(["parley", "data", verb, name, *root_words(data_root)])
