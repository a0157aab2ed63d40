"""Reader of your own pairs: files of lines "source<TAB>reply", named by their path.

`path/file.tsv`, or a file of any other name, is one file, of which each line belongs to the split that its hash names,
90 : 5 : 5, so that equal lines stay together. `path/folder` holds `train.tsv`, `val.tsv` and `test.tsv`. A source that repeats
the reply of the line before it is that same utterance, as in a dialogue that was cut into pairs.
"""

from __future__ import annotations

import glob
from functools import partial
from pathlib import Path

from envs.core.errors import DataError
from envs.data.lines import broken_rule, located, read_lines, require_utf8
from envs.data.sources import SPLITS
from envs.pairs.sources import FilePairs
from envs.pairs.text import PairText, split_of
from envs.pairs.tokens import tokenise

SUFFIX = ".tsv"
VOCABULARY = 30_000
MAX_WORDS = 10_000
"""Words of a side; a line with more of them is not one utterance."""


def tabbed_pairs(path: Path) -> FilePairs:
    """The corpus of a file or a folder of files.

    Args:
        path: a file, or a folder; what is not there is a file where its name has a suffix.
    """
    is_file = path.is_file() or (bool(path.suffix) and not path.is_dir())
    names = (path.name,) if is_file else tuple(f"{split}{SUFFIX}" for split in SPLITS)
    return FilePairs(
        name=path.stem if is_file else path.resolve().name,
        summary="pairs of your own",
        licence="your own",
        obtain="",
        vocabulary=VOCABULARY,
        wanted=tuple((glob.escape(name),) for name in names),
        reader=partial(_read_one, name=path.name) if is_file else _read_three,
        place=path.parent if is_file else path,
    )


def parse_pair(line: str) -> tuple[list[str], list[str]]:
    """Reads one line.

    Returns:
        The words of source and reply, at least one each.

    Raises:
        DataError: not two sides with one tab between them, or a side without a word or with too many.
    """
    require_utf8(line)
    if (num_tabs := line.count("\t")) != 1:
        raise broken_rule(f"one tab belongs between source and reply, and there are {num_tabs or 'none'}", line)
    source, reply = (tokenise(side) for side in line.split("\t"))
    for name, words in (("source", source), ("reply", reply)):
        if not words:
            raise broken_rule(f"the {name} has no word", line)
        if len(words) > MAX_WORDS:
            raise broken_rule(f"the {name} has {len(words):,} words, and {MAX_WORDS:,} are the most of an utterance", line)
    return source, reply


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
    """Reads a file into one split, or each line into that of its hash."""
    last: tuple[str, list[str], int] | None = None
    for number, line in enumerate(read_lines(path), 1):
        try:
            source, reply = parse_pair(line)
        except DataError as error:
            text.broken.append(located(error, str(path), number, "mend the line, or leave it out"))
            last = None
            continue
        name = split_of(line) if only is None else only
        split = text.splits[name]
        continues = last is not None and last[:2] == (name, source)
        row = last[2] if last is not None and continues else split.add(source)
        last = name, reply, split.add(reply)
        split.link(row, last[2])
