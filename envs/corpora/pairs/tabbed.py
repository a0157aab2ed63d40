"""Reader of your own pairs: files of lines "source<TAB>reply", or of records with columns, named by their path.

    source <TAB> reply                        one turn before the reply
    turn <TAB> ... <TAB> source <TAB> reply   several, the oldest first; `<eot>` between turns does as well
    source <TAB> reply ||| reply              several replies, each a pair with the same source

CSV, TSV, JSON, JSON Lines and Parquet are read by their columns (`envs/corpora/own_files.py`); a context may be a list of turns
there, and a reply a list of replies. `path/file` is one file, of which each line belongs to the split that the hash of its
source names, 90 : 5 : 5 or as its name says, so that no source is in two of them. `path/folder` holds a file each for `train`,
`val` and `test`. A context that repeats the end of the line before, its reply included, is made of the same utterances, as in
a dialogue that was cut into pairs. `parley reply` writes such files.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.own_files import EVEN_SHARES, OwnFile, looks_like_csv, split_files
from parley.envs.corpora.pairs.sources import FilePairs
from parley.envs.corpora.pairs.text import PairText, split_of
from parley.envs.corpora.pairs.turns import Turn, parse_turns, turn_words
from parley.envs.corpora.sources import SPLITS

SUFFIX = ".tsv"
VOCABULARY = 30_000
BETWEEN_REPLIES = "|||"
MAX_WORDS = 10_000
"""Words of a side; a line with more of them is not one utterance."""


Said = list[list[str]]
"""Utterances as words."""


class TabbedPairs(FilePairs):
    """A corpus of lines or records as above."""

    READER_VERSION: ClassVar[int] = FilePairs.READER_VERSION + 2


def tabbed_pairs(file: Path | OwnFile) -> TabbedPairs:
    """Return the corpus of a file or a folder of files.

    Args:
        file: a file, or a folder; what is not there is a file where its name has a suffix.

    Raises:
        ConfigError: two files of the folder are for one split.
        DataError: the file cannot be read, or it is not known which columns hold what.
    """
    own = file if isinstance(file, OwnFile) else OwnFile(file)
    path = own.path
    is_file = path.is_file() or (bool(path.suffix) and not path.is_dir())
    files = {} if is_file else {split: path / f"{split}{SUFFIX}" for split in SPLITS} | split_files(path)
    names = [path.name] if is_file else [file.name for file in files.values()]
    there = [own.of(file) for file in (files.values() or [path]) if file.is_file()]
    told = next((f", {file.told}" for file in there if file.kind), "")
    if is_file and own.shares != EVEN_SHARES:
        told += f", {':'.join(map(str, own.shares))} to train, val and test"
    return TabbedPairs(
        name=path.stem if is_file else path.resolve().name,
        summary=f"pairs of your own{told}",
        licence="your own",
        obtain="",
        vocabulary=VOCABULARY,
        wanted=tuple((glob.escape(name),) for name in names),
        reader=partial(_read_one, own=own) if is_file else partial(_read_three, own=own, files=files),
        place=path.parent if is_file else path,
        tools=own.key,
    )


def parse_line(line: str) -> tuple[list[list[str]], list[list[str]]]:
    """Reads one line.

    Returns:
        The words of each turn of the context, oldest first, and of each reply; `<eou>` stands between utterances of a turn.

    Raises:
        DataError: no tab, or a turn or a reply without a word or with too many.
    """
    require_utf8(line)
    *columns, last = line.split("\t")
    if not columns:
        raise broken_rule("a tab belongs between source and reply, and there is none", line)
    context = [_words("the source", turn, line) for column in columns for turn in parse_turns(column)]
    replies = [_words("the reply", parsed, line) for text in last.split(BETWEEN_REPLIES) for parsed in parse_turns(text)]
    return context, replies


def parse_texts(context: Sequence[str], replies: Sequence[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Read the texts of a record as `parse_line` reads those of a line.

    Raises:
        DataError: a turn or a reply has no word, or too many.
    """
    turns = [_words("the context", turn, text) for text in context for turn in parse_turns(text)]
    return turns, [_words("the reply", turn, text) for text in replies for turn in parse_turns(text)]


def _words(name: str, turn: Turn, line: str) -> list[str]:
    words = turn_words(tuple(utterance for utterance in turn if utterance))
    if not words:
        raise broken_rule(f"{name} has no word", line)
    if len(words) > MAX_WORDS:
        raise broken_rule(f"{name} has {len(words):,} words, and {MAX_WORDS:,} are the most of an utterance", line)
    return words


def _read_one(folder: Path, own: OwnFile) -> PairText:
    text = PairText()
    _read(own, text, None)
    return text


def _read_three(folder: Path, own: OwnFile, files: dict[str, Path]) -> PairText:
    text = PairText()
    for split, path in files.items():
        _read(own.of(path), text, split)
    return text


def _read(own: OwnFile, text: PairText, only: str | None) -> None:
    """Read a file into one split, or each line into that of its source's hash."""
    last, utterances, rows = "", Said(), list[int]()
    for entry in _lines(own, text.broken) if own.kind is None else _records(own, text.broken):
        if entry is None:
            utterances, rows = [], []
            continue
        context, replies = entry
        name = split_of(" ".join(context[-1]), own.shares) if only is None else only
        split = text.splits[name]
        if name == last and context == utterances[-len(context) :]:
            context_rows = rows[-len(context) :]
        else:
            context_rows = [split.add(turn) for turn in context]
            split.follow(context_rows)
        answers = [split.add(reply) for reply in replies]
        for answer in answers:
            split.link(context_rows[-1], answer)
        last, utterances, rows = name, [*context, replies[0]], [*context_rows, answers[0]]


def _lines(own: OwnFile, broken: list[DataError]) -> Iterator[tuple[Said, Said] | None]:
    """Read lines in turn; None comes in the place of a broken one."""
    if other := looks_like_csv(own.path):
        broken.append(other)
        return
    for number, line in enumerate(read_lines(own.path), 1):
        try:
            yield parse_line(line)
        except DataError as error:
            broken.append(located(error, str(own.path), number, "mend the line, or leave it out"))
            yield None


def _records(own: OwnFile, broken: list[DataError]) -> Iterator[tuple[Said, Said] | None]:
    """Read records in turn; None comes in the place of a broken one."""
    for exchange in own.exchanges(broken):
        if exchange is None:
            yield None
            continue
        try:
            pair = parse_texts(exchange.context, exchange.replies)
        except DataError as error:
            broken.append(located(error, str(own.path), exchange.line, "mend the record, or leave it out"))
            yield None
        else:
            yield pair
