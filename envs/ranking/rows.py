"""Reader of rows "label TAB turn TAB ... TAB turn TAB response": Ubuntu V1, Douban, E-commerce, and files of your own.

Records of CSV, TSV, JSON, JSON Lines and Parquet are rows where a column holds labels (`envs/corpora/own_files.py`).

Neighbouring rows with one context are a group; groups may have different sizes and several right replies. A label is 1 or 0.
Text comes in words with blanks between, as these corpora are published; Chinese without blanks is cut by jieba, if most of a
file is written so. What is read otherwise than it stands is reported line by line (`CandidateText.mended`):

- an empty turn is left out;
- a negative with the words of a positive of its group is left out: its two labels contradict each other; so is the group,
  if fewer than two replies are left, as in training files of one right and one wrong reply;
- Chinese without blanks in a file that otherwise comes in words is read as it stands, each run of characters as one word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, read_lines, require_utf8
from parley.envs.corpora.own_files import OwnFile
from parley.envs.corpora.pairs.chinese import comes_in_words, cut
from parley.envs.corpora.pairs.text import split_of
from parley.envs.corpora.pairs.tokens import tokenise
from parley.envs.ranking.groups import CandidateKind
from parley.envs.ranking.text import CandidateText, ListedReply

_LABELS = {"0": False, "1": True}


class Row(NamedTuple):
    """One line of a file."""

    line: int
    """Counted from 1."""
    label: bool
    context: tuple[str, ...]
    """Turns, oldest first, as they are written."""
    response: str


def parse_row(line: str, number: int) -> Row:
    """Reads one line.

    Args:
        line: of the file.
        number: which, counted from 1.

    Raises:
        DataError: the line is not UTF-8, there are fewer than three fields, or the label is another than 0 and 1.
    """
    require_utf8(line)
    fields = line.split("\t")
    if len(fields) < 3:
        raise broken_rule("a row is a label, a turn or more, and a response, with tabs between", line)
    label, *context, response = fields
    if label not in _LABELS:
        raise broken_rule("a label is 0 or 1", line)
    return Row(number, _LABELS[label], tuple(context), response)


def read_rows(files: Mapping[str | None, Path | OwnFile]) -> CandidateText:
    """Reads one file for each split, or one for all.

    Args:
        files: by split; under None the file of which each group belongs to the split that its context names by its shares.

    Raises:
        ConfigError: some is Chinese without blanks, and jieba is not installed.
    """
    text = CandidateText()
    for only, file in files.items():
        _Reader(file if isinstance(file, OwnFile) else OwnFile(file), text, only).read()
    return text


_APART = "\N{IDEOGRAPHIC FULL STOP}"


class _Reader:
    """Of one file."""

    def __init__(self, own: OwnFile, text: CandidateText, only: str | None) -> None:
        self._own, self._path, self._text, self._only = own, own.path, text, only
        self._words: Callable[[str], list[str]] = tokenise

    def read(self) -> None:
        rows = self._rows()
        texts = [each for row in rows for each in (*row.context, row.response)]
        in_words = [comes_in_words(each) for each in texts]
        if {*in_words} == {None}:
            # Each is too short to tell; all of them together may not be.
            in_words = [comes_in_words(_APART.join(texts))]
        if in_words.count(False) > in_words.count(True):
            self._words = cut
        for _, members in groupby(rows, key=lambda row: row.context):
            self._group(list(members))

    def _rows(self) -> list[Row]:
        rows: list[Row] = []
        if self._own.kind is not None:
            for exchange in self._own.exchanges(self._text.broken):
                if exchange is not None:
                    rows += [Row(exchange.line, bool(exchange.label), exchange.context, reply) for reply in exchange.replies]
            return rows
        for number, line in enumerate(read_lines(self._path), 1):
            try:
                row = parse_row(line, number)
            except DataError as error:
                self._text.broken_line(error.what, self._path, number, line)
                continue
            # Ten rows hold one context once.
            rows.append(row._replace(context=rows[-1].context) if rows and rows[-1].context == row.context else row)
        return rows

    def _group(self, rows: list[Row]) -> None:
        first = rows[0]
        context = [self._said(turn, first.line) for turn in first.context]
        kinds = {True: CandidateKind.POSITIVE, False: CandidateKind.NEGATIVE}
        replies = [ListedReply(row.line, self._said(row.response, row.line), row.label, kinds[row.label]) for row in rows]
        name = self._only or split_of("\t".join(first.context), self._own.shares)
        self._text.listed(name, self._path, first.line, context, replies)

    def _said(self, text: str, line: int) -> list[str]:
        if self._words is tokenise and comes_in_words(text) is False:
            what = "Chinese without blanks, in a file that comes in words, is read as it stands"
            self._text.mended_line(what, self._path, line, text)
        elif self._words is cut and comes_in_words(text):
            what = "Chinese in words, in a file that comes without blanks, may be cut further"
            self._text.mended_line(what, self._path, line, text)
        return self._words(text)
