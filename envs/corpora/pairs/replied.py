"""Files of sources and replies (`tabbed.py` says how their lines and records are read), as pairs to judge.

The published sample of Li et al. 2017 is read as such pairs too: `opensubtitles_sample:human`, `:machine` and `:random` are its
three files of replies to the same 768 sources, its splits put together, because they were sorted by length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines, require_utf8
from parley.envs.corpora.own_files import OwnFile, looks_like_csv
from parley.envs.corpora.pairs.subtitles import DICTIONARY, parse_coded
from parley.envs.corpora.pairs.tabbed import BETWEEN_REPLIES, parse_line, parse_texts
from parley.envs.corpora.pairs.tokens import UNKNOWN
from parley.envs.corpora.pairs.turns import EOT, Utterance
from parley.envs.corpora.root import require_files

SAMPLE = "opensubtitles_sample"
SAMPLE_FILES = {"human": "t_given_s", "machine": "decoded", "random": "random"}
_WORD = re.compile(r"\S+")
_SPLITS = ("train", "dev", "test")
_UNKNOWNS = frozenset({"unknown", "<unk>", "[unk]", "<unknown>", "_unk_", "unk"})
"""How systems write a word that they do not know, lower-cased; "unknown" and "unk" only in capitals."""
CLOSED_FROM, FEWEST_UNKNOWN = 0.002, 3
"""Share of `<unk>` in the words of a file, and how many there are at least, from which on its vocabulary is closed."""


class RepliedPair(NamedTuple):
    """A reply, and what it answers.

    Args:
        context: turns, oldest first, each its words; the last one is the source.
        reply: its words.
    """

    context: tuple[Utterance, ...]
    reply: Utterance


def read_replied(file: Path | OwnFile, *, normalise: bool = True) -> list[RepliedPair]:
    """Read a file.

    Args:
        file: lines or records as in `tabbed.py`, UTF-8.
        normalise: whether words are those of the project's tokeniser, lower-cased, unknown words written `<unk>`; otherwise
            they are what stands between blanks.

    Raises:
        DataError: the file cannot be read or holds no line, or a line is broken; the message names the first one.
    """
    own = file if isinstance(file, OwnFile) else OwnFile(file)
    if own.kind is not None:
        return _read_records(own, normalise=normalise)
    if other := looks_like_csv(own.path):
        raise other
    return _read(own.path, read_lines(own.path), partial(parse_replied, normalise=normalise))


def parse_replied(line: str, *, normalise: bool = True) -> list[RepliedPair]:
    """Reads one line: a pair for each of its replies.

    Args:
        line: as in `tabbed.py`.
        normalise: as in `read_replied`.

    Raises:
        DataError: no tab, or a turn or a reply without a word.
    """
    context, replies = parse_line(_with_unknowns(line)) if normalise else _as_written(line)
    return [RepliedPair(tuple(map(tuple, context)), tuple(reply)) for reply in replies]


def read_sample_replies(root: Path, side: str) -> list[RepliedPair]:
    """Reads one side of the published sample, all of its splits.

    Args:
        root: the folder of all corpora.
        side: "human", "machine" or "random".

    Raises:
        DataError: no such side, a file is missing, or a line is broken.
    """
    folder = root / SAMPLE
    if side not in SAMPLE_FILES:
        known = ", ".join(f"{SAMPLE}:{name}" for name in SAMPLE_FILES)
        raise DataError("the sample has no such side", got=f"{SAMPLE}:{side}", fix=f"known: {known}")
    names = [f"{SAMPLE_FILES[side]}_{split}.txt" for split in _SPLITS]
    remedy = "the folder data/ of github.com/jiweil/Neural-Dialogue-Generation holds them"
    require_files(SAMPLE, folder, [DICTIONARY, *names], remedy)
    dictionary = read_lines(folder / DICTIONARY)
    dictionary[0] = UNKNOWN

    def pairs(line: str) -> list[RepliedPair]:
        source, reply = parse_coded(line, dictionary)
        return [RepliedPair((tuple(source),), tuple(reply))]

    return [pair for name in names for pair in _read(folder / name, read_lines(folder / name), pairs)]


def unknown_share(pairs: Sequence[RepliedPair]) -> float:
    """Share of `<unk>` in the words of a file, sources and replies."""
    num_words, num_unknown = _counted(pairs)
    return num_unknown / max(1, num_words)


def is_closed(pairs: Sequence[RepliedPair]) -> bool:
    """Whether a file is of a closed vocabulary and writes `<unk>` for what is not in it; one by chance is no sign of that."""
    return unknown_share(pairs) >= CLOSED_FROM and _counted(pairs)[1] >= FEWEST_UNKNOWN


def in_one_vocabulary(
    one: Sequence[RepliedPair], other: Sequence[RepliedPair]
) -> tuple[Sequence[RepliedPair], Sequence[RepliedPair]]:
    """Two files with words unknown to one of them unknown to both, so that `<unk>` does not tell who wrote.

    A closed vocabulary is taken to be the words that stand in its file. Where one file has one, words of the other that are not
    in it become `<unk>`. Where both have one, or none, nothing is changed.
    """
    closed = is_closed(one), is_closed(other)
    if closed == (False, True):
        return _all_within(one, other), other
    return (one, _all_within(other, one)) if closed == (True, False) else (one, other)


def _with_unknowns(line: str) -> str:
    """A line with unknown words as `<unk>`, however they are written."""
    return _WORD.sub(lambda word: UNKNOWN if _is_unknown(word[0]) else word[0], line)


def _as_written(line: str) -> tuple[list[list[str]], list[list[str]]]:
    """The words between blanks of each turn and of each reply."""
    require_utf8(line)
    *columns, last = line.split("\t")
    if not columns:
        raise broken_rule("a tab belongs between source and reply, and there is none", line)
    return _split_texts(columns, last.split(BETWEEN_REPLIES), line)


def _split_texts(turns: Sequence[str], texts: Sequence[str], shown: str) -> tuple[list[list[str]], list[list[str]]]:
    context, replies = [text.split() for turn in turns for text in turn.split(EOT)], [text.split() for text in texts]
    for name, side in (("source", context), ("reply", replies)):
        if not all(side):
            raise broken_rule(f"the {name} has no word", shown)
    return context, replies


def _counted(pairs: Sequence[RepliedPair]) -> tuple[int, int]:
    """Words, and how many of them are `<unk>`."""
    said = [words for pair in pairs for words in (*pair.context, pair.reply)]
    return sum(map(len, said)), sum(words.count(UNKNOWN) for words in said)


def _all_within(pairs: Sequence[RepliedPair], closed: Sequence[RepliedPair]) -> list[RepliedPair]:
    """Pairs in the words that stand in a file."""
    known = frozenset(word for pair in closed for words in (*pair.context, pair.reply) for word in words)
    return [_within(pair, known) for pair in pairs]


def _within(pair: RepliedPair, known: frozenset[str]) -> RepliedPair:
    def words(said: Iterable[str]) -> Utterance:
        return tuple(word if word in known else UNKNOWN for word in said)

    return RepliedPair(tuple(map(words, pair.context)), words(pair.reply))


def _is_unknown(word: str) -> bool:
    return word.lower() in _UNKNOWNS and (not word.isalpha() or word in ("UNK", "UNknown", "UNKNOWN"))


def _read(path: Path, lines: Sequence[str], parse: Callable[[str], list[RepliedPair]]) -> list[RepliedPair]:
    found, broken = [], []
    for number, line in enumerate(lines, 1):
        try:
            found += parse(line)
        except DataError as error:
            broken.append(located(error, str(path), number, "mend the line, or leave it out"))
    return _whole(path, found, broken)


def _read_records(own: OwnFile, *, normalise: bool) -> list[RepliedPair]:
    pairs: list[RepliedPair] = []
    broken: list[DataError] = []
    for exchange in own.exchanges(broken):
        if exchange is None:
            continue
        texts = exchange.context, exchange.replies
        try:
            if normalise:
                context, replies = parse_texts(*([_with_unknowns(text) for text in side] for side in texts))
            else:
                context, replies = _split_texts(*texts, repr(texts))
        except DataError as error:
            broken.append(located(error, str(own.path), exchange.line, "mend the record, or leave it out"))
        else:
            pairs += [RepliedPair(tuple(map(tuple, context)), tuple(reply)) for reply in replies]
    return _whole(own.path, pairs, broken)


def _whole(path: Path, pairs: list[RepliedPair], broken: Sequence[DataError]) -> list[RepliedPair]:
    """Return the pairs of a file that is whole.

    Raises:
        DataError: something in it is broken, or it holds nothing.
    """
    if broken:
        first = broken[0]
        raise DataError(f"{first.what} ({len(broken):,} broken in all)", where=first.where, got=first.got, fix=first.fix)
    if not pairs:
        raise DataError("the file holds no line", where=path, fix="lines are source<TAB>reply")
    return pairs
