"""Lines of corpus files: how they are read, and how a broken one is named."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envs.core.errors import DataError, ParleyError
from envs.data.root import read_file

_MAX_SHOWN = 160
_UNNAMED = "parley data check NAME"


class BrokenCorpusError(DataError):
    """A corpus is not whole: the first of its errors, and their number."""


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
    """The same for the content of a file in hand."""
    # Not splitlines(): it would also split at form feeds and other characters that are no line end in these files.
    lines = content.decode("utf-8", errors="surrogateescape").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def broken_rule(rule: str, got: object) -> DataError:
    """The error of a line that breaks a rule; what was found is cut to a length that fits a screen."""
    shown = str(got) if isinstance(got, str) else repr(got)
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


def located(error: ParleyError, source: str, line: int) -> DataError:
    """The error of a parser with the place it happened at."""
    return DataError(
        f"a broken line: {error.what}",
        where=FileLine(source, line),
        got=error.got,
        fix="mend the line, or get the published file again",
    )


def require_none_broken(broken: Sequence[DataError]) -> None:
    """Checks that a corpus was read without an error.

    Raises:
        BrokenCorpusError: something is broken; the message holds the first of the errors and their number. What the corpus
            was asked for by is `corpus_named`'s to say.
    """
    if broken:
        first = broken[0]
        raise BrokenCorpusError(
            f"{first.what} ({len(broken)} broken in all)",
            where=first.where,
            got=first.got,
            fix="; ".join(filter(None, (first.fix, f"`{_UNNAMED}` lists them all"))),
        )


@contextmanager
def corpus_named(name: str, data_root: Path | None) -> Iterator[None]:
    """A block in which the error of a broken corpus gives the whole command that lists what is wrong with it.

    Args:
        name: what the corpus was asked for by.
        data_root: where it was said to lie; None when nothing was said.
    """
    try:
        yield
    except BrokenCorpusError as error:
        fix = (error.fix or "").replace(_UNNAMED, data_command("check", name, data_root))
        raise BrokenCorpusError(error.what, where=error.where, got=error.got, fix=fix) from None


def data_command(verb: str, name: str, data_root: Path | None) -> str:
    """What to type so that `parley data` does something with a corpus, such as "parley data check mine --data-root data"."""
    root = [] if data_root is None else ["--data-root", str(data_root)]
    return shlex.join(["parley", "data", verb, name, *root])
