"""Words spelled out: from the characters of a word to those of the next (He & Glass 2018, appendix B).

The corpus on which every input can be tried: V = 33, the five special tokens, 26 letters, and the apostrophe and full stop of
words like "n't" and "u.s." The text is the sample of the Penn Treebank that NLTK distributes, one parsed file an article.

    source   the characters of a word, in half of the pairs with one of them replaced by another letter
    reply    the characters of the word after it

Departures:
  * # Paper: the task's pairs are not described beyond that. Ours: the next word, because a perplexity of 2.8 a character
    fits no task in which the reply is known from the source; both words in one sentence.
  * Tokens with anything else in them (numbers, punctuation, hyphens) are left out, and with them the pairs they are part of.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.lines import FileLine
from parley.envs.corpora.pairs.sources import FilePairs
from parley.envs.corpora.pairs.text import PairText, SplitText
from parley.envs.corpora.root import read_file

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FLIPPED = 0.5
"""Share of sources with a character replaced."""
TREEBANK = "treebank"
"""What NLTK calls the sample."""

_PARSED = Path("corpora", TREEBANK, "combined")
_WORD = re.compile(r"[a-z'.]*[a-z][a-z'.]*")
# A leaf "(tag word)", or a bracket of the tree around the leaves.
_PART = re.compile(r"\(\s*(?P<tag>[^\s()]+)\s+(?P<word>[^\s()]+)\s*\)|[()]")
_EMPTY = "-NONE-"
_FILES_PER_ROUND, _VALIDATION, _TEST = 20, 9, 19


@dataclass(frozen=True, kw_only=True)
class TreebankCharacters(FilePairs):
    """Words of the Penn Treebank sample, spelled out; the files lie where NLTK looks for them."""

    def folder(self, root: Path) -> Path:
        """The parsed files in the first of NLTK's folders that holds them, else where they belong."""
        places = [folder / _PARSED for folder in nltk_folders()]
        return next((place for place in places if place.is_dir()), places[0])

    def require_files(self, root: Path) -> None:
        """Checks that NLTK's sample is there.

        Raises:
            DataError: it is not; the message says how to get it.
        """
        if self.missing(root):
            raise DataError(
                f"the corpus {self.name!r} needs NLTK's sample of the Penn Treebank",
                where=self.folder(root),
                got="no parsed files",
                fix=f"python -m nltk.downloader {TREEBANK}; or name a folder that holds {_PARSED} in NLTK_DATA",
            )


def nltk_folders() -> list[Path]:
    """Where NLTK looks for its data, in its order: `NLTK_DATA`, the user's folder, those of this Python and of the system."""
    named = [Path(part) for part in os.environ.get("NLTK_DATA", "").split(os.pathsep) if part]
    here = Path(sys.prefix)
    shared = [Path("/usr/share"), Path("/usr/local/share"), Path("/usr/lib"), Path("/usr/local/lib")]
    return [*named, *(place / "nltk_data" for place in (Path.home(), here, here / "share", here / "lib", *shared))]


def read_treebank(folder: Path) -> PairText:
    """Reads every parsed file of the folder; each twentieth is for validation, another for the test."""
    text = PairText()
    for number, path in enumerate(sorted(folder.glob("*.mrg"))):
        split = {_VALIDATION: "val", _TEST: "test"}.get(number % _FILES_PER_ROUND, "train")
        try:
            sentences = parse_trees(read_file(path).decode("latin-1"), str(path))
        except DataError as error:
            text.broken.append(error)
            continue
        generator = stream(0, "characters", path.name)
        for words in sentences:
            _add(text.splits[split], words, generator)
    return text


def parse_trees(content: str, source: str) -> list[list[str]]:
    """The words of each tree, lower-cased, without the empty categories of the annotation.

    Args:
        content: bracketed trees, one after another.
        source: the file, for messages.

    Raises:
        DataError: the brackets do not match.
    """
    sentences: list[list[str]] = []
    depth, words = 0, list[str]()
    for part in _PART.finditer(content):
        if part["word"] is not None:
            if part["tag"] != _EMPTY:
                words.append(part["word"].lower())
            continue
        depth += 1 if part[0] == "(" else -1
        if depth == 0:
            sentences.append(words)
            words = []
        if depth < 0:
            break
    if depth:
        read = content.rstrip() if depth > 0 else content[: part.start()]
        raise DataError(
            "the brackets of a parsed file do not match",
            where=FileLine(source, read.count("\n") + 1),
            got="a bracket too few" if depth > 0 else "a closing bracket too many",
            fix=f"get the file again: python -m nltk.downloader {TREEBANK}",
        )
    return sentences


def flip(word: str, generator: np.random.Generator) -> str:
    """The word with one of its characters replaced by another letter."""
    place = int(generator.integers(len(word)))
    others = LETTERS.replace(word[place], "")
    return word[:place] + others[int(generator.integers(len(others)))] + word[place + 1 :]


def _add(split: SplitText, words: list[str], generator: np.random.Generator) -> None:
    rows = [split.add(list(word)) if _WORD.fullmatch(word) else None for word in words]
    for (word, source), (_, reply) in pairwise(zip(words, rows, strict=True)):
        if source is None or reply is None:
            continue
        if generator.random() < FLIPPED:
            source = split.add(list(flip(word, generator)))
        split.link(source, reply)


PTB_CHARACTERS = TreebankCharacters(
    name="ptb_characters",
    summary="a word's characters, and the next word's, in a sample of the Penn Treebank (appendix B of He & Glass 2018)",
    licence="LDC, distributed by NLTK for non-commercial use",
    obtain=f"python -m nltk.downloader {TREEBANK}",
    vocabulary=33,
    wanted=(("*.mrg",),),
    reader=read_treebank,
)
