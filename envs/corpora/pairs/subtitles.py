"""Readers of OpenSubtitles: the text and XML files of OPUS, and a published sample that is coded in word numbers.

OPUS (Lison & Tiedemann 2016, "OpenSubtitles2016: Extracting Large Parallel Corpora from Movie and TV Subtitles"): files in any
folder below `opensubtitles`. `.txt` and `.en` (Moses) hold one utterance a line; `.xml` holds sentences `<s>`, with or without
words `<w>`; each may be compressed (`.gz`); a file called README or LICENSE is none of them. Speakers are not known, so
neighbouring lines are pairs, as in He & Glass 2018.

    at least 20 files   each is a film, and belongs to the split that its path's hash names, 90 : 5 : 5
    fewer               each is many films in a row, and is cut into blocks of 1,000 lines, files of less than 20,000 lines into
                        blocks of a twentieth, none of less than 50; of every 20 blocks 18 are training, the next validation,
                        the last test

No pair, and so no context, crosses from one block to the next; a film that lies across their border is in both.

The sample of Li et al. 2017 ("Adversarial Learning for Neural Dialogue Generation"): `t_given_s_SPLIT.txt` of lines
"source|target" of word numbers, counted from 1 in `movie_25000`, whose first word stands for every unknown one.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine, broken_rule, located, read_lines, require_utf8, split_lines
from parley.envs.corpora.pairs.text import PairText, SplitText, split_of
from parley.envs.corpora.pairs.tokens import UNKNOWN, tokenise
from parley.envs.corpora.root import read_file
from parley.envs.corpora.sources import SPLITS

SUFFIXES = (".txt", ".txt.gz", ".en", ".en.gz", ".xml", ".xml.gz")
NO_FILMS = ("readme", "license", "licence")
"""What files are called that lie beside the films and are none."""
FEWEST_FILMS = 20
"""Files from which on each is a film."""
BLOCK, SHORTEST_BLOCK, BLOCKS = 1000, 50, 20
"""Lines of a block of a file of many films, most and least, and the blocks after which its splits start anew."""
DICTIONARY = "movie_25000"
SAMPLES = {"train": "t_given_s_train.txt", "val": "t_given_s_dev.txt", "test": "t_given_s_test.txt"}


def read_opus(folder: Path) -> PairText:
    """Reads every film below the folder; lines without a word are left out."""
    text, films = PairText(), _films(folder)
    for path in films:
        try:
            lines = list(_film(path))
        except DataError as error:
            text.broken.append(error)
            continue
        whole = [(split_of(path.relative_to(folder).as_posix()), range(len(lines)))]
        for name, places in whole if len(films) >= FEWEST_FILMS else _blocks(len(lines)):
            _read(path, lines, places, text.splits[name], text.broken)
    return text


def read_sample(folder: Path) -> PairText:
    """Reads the sample; the words are those of the dictionary, as they are."""
    text = PairText()
    words = read_lines(folder / DICTIONARY)
    words[0] = UNKNOWN
    for name, file in SAMPLES.items():
        split = text.splits[name]
        for number, line in enumerate(read_lines(folder / file), 1):
            try:
                source, target = parse_coded(line, words)
            except DataError as error:
                text.broken.append(located(error, str(folder / file), number))
            else:
                split.link(split.add(source), split.add(target))
    return text


def parse_coded(line: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Reads one line of the sample.

    Args:
        line: "source|target", each of word numbers with spaces between them.
        words: the dictionary.

    Returns:
        The words of source and target, at least one each.

    Raises:
        DataError: the line has another form, or a number is not in the dictionary.
    """
    sides = [side.split() for side in line.split("|")]
    if len(sides) != 2 or not all(sides) or not all(word.isdecimal() and word.isascii() for side in sides for word in side):
        raise broken_rule("a line is numbers, | and numbers", line)
    source, target = ([int(word) for word in side] for side in sides)
    if not all(1 <= number <= len(words) for number in (*source, *target)):
        raise broken_rule(f"a word is a number from 1 to {len(words):,}", line)
    return [words[number - 1] for number in source], [words[number - 1] for number in target]


def _read(path: Path, lines: Sequence[str], places: range, split: SplitText, broken: list[DataError]) -> None:
    """Adds some lines of a file to a split, each paired with the next."""
    rows = []
    for place in places:
        try:
            require_utf8(lines[place])
        except DataError as error:
            broken.append(located(error, str(path), place + 1))
            continue
        # Subtitles put a dash before each of two speakers on one screen.
        if words := tokenise(lines[place].lstrip("-\N{EN DASH}\N{EM DASH} ")):
            rows.append(split.add(words))
    for source, reply in pairwise(rows):
        split.link(source, reply)


def _blocks(num_lines: int) -> Iterator[tuple[str, range]]:
    """The blocks of a file of many films: the split and the lines of each."""
    size = min(BLOCK, max(SHORTEST_BLOCK, -(-num_lines // BLOCKS)))
    for number, start in enumerate(range(0, num_lines, size)):
        place = number % BLOCKS
        yield SPLITS[max(0, place - (BLOCKS - len(SPLITS)))], range(start, min(start + size, num_lines))


def _films(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())
    return sorted(path for path in files if not path.name.lower().startswith(NO_FILMS))


def _film(path: Path) -> Iterator[str]:
    content = read_file(path)
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            fix = "get the file again"
            raise DataError("a film cannot be unpacked", where=path, got=str(error), fix=fix) from None
    if path.name.endswith((".xml", ".xml.gz")):
        yield from _sentences(content, path)
    else:
        yield from split_lines(content)


def _sentences(content: bytes, path: Path) -> Iterator[str]:
    try:
        film = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        where = FileLine(str(path), error.position[0])
        raise DataError("a film is not XML", where=where, got=str(error), fix="get the file again") from None
    for sentence in film.iter("s"):
        words = [word.text or "" for word in sentence.iter("w")]
        yield " ".join(words or sentence.itertext())
