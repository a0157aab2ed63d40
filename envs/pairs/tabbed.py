"""Reader of your own pairs: files of lines "source<TAB>reply", named by their path.

    source <TAB> reply                        one turn before the reply
    turn <TAB> ... <TAB> source <TAB> reply   several, the oldest first; `<eot>` between turns does as well
    source <TAB> reply ||| reply              several replies, each a pair with the same source

`path/file.tsv`, or a file of any other name, is one file, of which each line belongs to the split that the hash of its source
names, 90 : 5 : 5, so that no source is in two of them. `path/folder` holds `train.tsv`, `val.tsv` and `test.tsv`. A context
that repeats the end of the line before, its reply included, is made of the same utterances, as in a dialogue that was cut into
pairs. `parley reply` writes such files.
"""

from __future__ import annotations

import glob
from functools import partial
from pathlib import Path
from typing import ClassVar

from envs.core.errors import DataError
from envs.data.lines import broken_rule, located, read_lines, require_utf8
from envs.data.sources import SPLITS
from envs.pairs.sources import FilePairs
from envs.pairs.text import PairText, split_of
from envs.pairs.turns import Turn, parse_turns, turn_words

SUFFIX = ".tsv"
VOCABULARY = 30_000
BETWEEN_REPLIES = "|||"
MAX_WORDS = 10_000
"""Words of a side; a line with more of them is not one utterance."""


class TabbedPairs(FilePairs):
    """A corpus of lines as above."""

    READER_VERSION: ClassVar[int] = FilePairs.READER_VERSION + 1


def tabbed_pairs(path: Path) -> TabbedPairs:
    """The corpus of a file or a folder of files.

    Args:
        path: a file, or a folder; what is not there is a file where its name has a suffix.
    """
    is_file = path.is_file() or (bool(path.suffix) and not path.is_dir())
    names = (path.name,) if is_file else tuple(f"{split}{SUFFIX}" for split in SPLITS)
    return TabbedPairs(
        name=path.stem if is_file else path.resolve().name,
        summary="pairs of your own",
        licence="your own",
        obtain="",
        vocabulary=VOCABULARY,
        wanted=tuple((glob.escape(name),) for name in names),
        reader=partial(_read_one, name=path.name) if is_file else _read_three,
        place=path.parent if is_file else path,
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


def _words(name: str, turn: Turn, line: str) -> list[str]:
    words = turn_words(tuple(utterance for utterance in turn if utterance))
    if not words:
        raise broken_rule(f"{name} has no word", line)
    if len(words) > MAX_WORDS:
        raise broken_rule(f"{name} has {len(words):,} words, and {MAX_WORDS:,} are the most of an utterance", line)
    return words


def _read_one(folder: Path, name: str) -> PairText:
    text = PairText()
    _read(folder / name, text, None)
    return text


def _read_three(folder: Path) -> PairText:
    text = PairText()
    for split in SPLITS:
        _read(folder / f"{split}{SUFFIX}", text, split)
    return text


def _read(path: Path, text: PairText, only: str | None) -> None:
    """Reads a file into one split, or each line into that of its source's hash."""
    last, said, rows = "", list[list[str]](), list[int]()
    for number, line in enumerate(read_lines(path), 1):
        try:
            context, replies = parse_line(line)
        except DataError as error:
            text.broken.append(located(error, str(path), number, "mend the line, or leave it out"))
            said, rows = [], []
            continue
        name = split_of(" ".join(context[-1])) if only is None else only
        split = text.splits[name]
        if name == last and context == said[-len(context) :]:
            asked = rows[-len(context) :]
        else:
            asked = [split.add(turn) for turn in context]
            split.follow(asked)
        answers = [split.add(reply) for reply in replies]
        for answer in answers:
            split.link(asked[-1], answer)
        last, said, rows = name, [*context, replies[0]], [*asked, answers[0]]
