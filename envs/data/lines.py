"""Lines of corpus files: how they are read, and how a broken one is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.core.errors import DataError, ParleyError
from envs.data.root import read_file

_MAX_SHOWN = 160


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
        fix="mend the line, or get the published file again; `parley data check` lists every broken line",
    )


def require_none_broken(broken: Sequence[DataError]) -> None:
    """Checks that a corpus was read without an error.

    Raises:
        DataError: something is broken; the message holds the first of the errors and their number.
    """
    if broken:
        first = broken[0]
        raise DataError(
            f"{first.what} ({len(broken)} broken in all)",
            where=first.where,
            got=first.got,
            fix="`parley data check` lists them all",
        )
