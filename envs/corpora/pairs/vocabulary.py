"""Vocabularies of words or pieces for models of pairs, and the corpus `ptb_characters`.

Ids 0..4 are `<pad>`, `<s>`, `</s>`, `<eou>`, `<unk>`, as in the code that He & Glass (2018) released later. In a vocabulary of
words, the words follow by falling frequency, ties by first occurrence; any other word is `<unk>`.

A vocabulary of pieces spells every word (byte pair encoding, Sennrich et al. 2016, arXiv 1508.07909). A piece that ends a word
ends in a blank, which no word holds, so joined pieces are words again. `MARKS` are pieces and are never split. `compiled.py`
learns pieces from text.
  * # Released (subword-nmt): the end of a word is written "</w>". Ours: a blank, because a text may hold "</w>".

Callers use words: `encode`, `decode`, `spell`, `in`. The units of a word are internal.

`ptb_characters` (He & Glass 2018, appendix B) maps the characters of a word to those of the next word. It is small enough to
try every input: V = 33, the five special tokens, 26 letters, and the apostrophe and full stop of words like "n't" and "u.s."
The text is the sample of the Penn Treebank that NLTK distributes, one parsed file per article.

    source   the characters of a word; in half of the pairs one of them is replaced by another letter
    reply    the characters of the next word

Departures:
  * # Paper: describes the pairs no further. Ours: the next word of the same sentence, because a perplexity of 2.8 per
    character fits no task in which the source determines the reply.
  * Tokens with other characters (numbers, punctuation, hyphens) are left out, and so are their pairs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.arrow import read_file
from parley.envs.corpora.lines import FileLine, WordList
from parley.envs.corpora.pairs.tokens import PATH, URL, FilePairs, PairText, SplitText

if TYPE_CHECKING:
    from tokenizers.models import BPE


LETTERS = "abcdefghijklmnopqrstuvwxyz"
FLIPPED = 0.5
"""Share of sources with a replaced character."""
TREEBANK = "treebank"
"""NLTK's name of the sample."""

_PARSED = Path("corpora", TREEBANK, "combined")
_WORD = re.compile(r"[a-z'.]*[a-z][a-z'.]*")
# A leaf "(tag word)", or a bracket of the tree around the leaves.
_PART = re.compile(r"\(\s*(?P<tag>[^\s()]+)\s+(?P<word>[^\s()]+)\s*\)|[()]")
_EMPTY = "-NONE-"
_FILES_PER_ROUND, _VALIDATION, _TEST = 20, 9, 19


@dataclass(frozen=True, kw_only=True)
class TreebankCharacters(FilePairs):
    """Words of the Penn Treebank sample as characters; the files lie in NLTK's folders."""

    def folder(self, root: Path) -> Path:
        """Return the first of NLTK's folders with the parsed files, else the first folder."""
        folders = [folder / _PARSED for folder in nltk_folders()]
        return next((folder for folder in folders if folder.is_dir()), folders[0])

    def require_files(self, root: Path) -> None:
        if self.missing(root):
            raise DataError(
                f"the corpus {self.name!r} needs NLTK's sample of the Penn Treebank",
                where=self.folder(root),
                got="no parsed files",
                fix=f"python -m nltk.downloader {TREEBANK}; or name a folder that holds {_PARSED} in NLTK_DATA",
            )


def nltk_folders() -> list[Path]:
    """Return NLTK's data folders in its order: `NLTK_DATA`, the user's, this Python's and the system's."""
    named = [Path(part) for part in os.environ.get("NLTK_DATA", "").split(os.pathsep) if part]
    here = Path(sys.prefix)
    shared = [Path("/usr/share"), Path("/usr/local/share"), Path("/usr/lib"), Path("/usr/local/lib")]
    return [*named, *(folder / "nltk_data" for folder in (Path.home(), here, here / "share", here / "lib", *shared))]


def read_treebank(folder: Path) -> PairText:
    """Read every parsed file of the folder; of twenty files, one is for validation and one for the test."""
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
    """Return the words of each tree, lower-cased, without the annotation's empty categories.

    Args:
        content: a sequence of bracketed trees.
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
    """Return the word with one character replaced by another letter."""
    i = int(generator.integers(len(word)))
    letters = LETTERS.replace(word[i], "")
    return word[:i] + letters[int(generator.integers(len(letters)))] + word[i + 1 :]


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


PAD, BOS, EOS, EOU, UNK = "<pad>", "<s>", "</s>", "<eou>", "<unk>"
SPECIALS = (PAD, BOS, EOS, EOU, UNK)
PAD_ID, BOS_ID, EOS_ID, EOU_ID, UNK_ID = range(5)
EOT = "<eot>"
"""Separates turns; a word in vocabularies of models that read several turns."""
MARKS = (*SPECIALS, EOT, URL, PATH)
"""The first entries of every vocabulary of pieces."""
END = " "
"""The last character of pieces that end a word."""
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""Pieces for the bytes of UTF-8; they spell characters that the training text lacks."""


@dataclass(frozen=True)
class PairVocabulary(WordList):
    """The units (words or pieces) that a model of pairs reads and writes.

    Args:
        words: all units, index = id; the special tokens first.
        merges: pairs of pieces to merge, the most frequent first; None if the units are words.

    Raises:
        DataError: for pieces, the marks are not first, or a part or the result of a merge is not a piece.
    """

    merges: tuple[tuple[str, str], ...] | None = None

    SPECIALS: ClassVar[tuple[str, ...]] = SPECIALS
    UNKNOWN_ID: ClassVar[int] = UNK_ID

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.merges is None:
            return
        fix = "train the model again, or copy its vocabulary again"
        if self.words[: len(MARKS)] != MARKS:
            raise DataError(f"a vocabulary of pieces must start with {', '.join(MARKS)}", got=self.words[: len(MARKS)], fix=fix)
        pieces = set(self.words)
        for number, (left, right) in enumerate(self.merges, 1):
            if not {left, right, left + right} <= pieces:
                what = "a merge names pieces that the vocabulary lacks"
                raise DataError(what, where=f"merge {number}", got=(left, right), fix=fix)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], size: int | None) -> PairVocabulary:
        """Build a vocabulary of the most frequent words, with `size` entries in all; None keeps every word."""
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        kept = [word for word, _ in counts.most_common() if word not in SPECIALS]
        return cls((*SPECIALS, *kept[: None if size is None else size - len(SPECIALS)]))

    @classmethod
    def load(cls, path: Path) -> Self:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(stored, list):
            return cls(tuple(stored))
        return cls(tuple(stored["pieces"]), tuple((left, right) for left, right in stored["merges"]))

    def save(self, path: Path) -> None:
        """Write words as a JSON list, one entry per id; pieces as `{"pieces": ..., "merges": ...}`."""
        if self.merges is None:
            super().save(path)
        else:
            path.write_text(
                json.dumps({"pieces": self.words, "merges": self.merges}, ensure_ascii=False, indent=0), encoding="utf-8"
            )

    @cached_property
    def digest(self) -> str:
        return super().digest if self.merges is None else WordList((*self.words, *map("\t".join, self.merges))).digest

    @property
    def title(self) -> str:
        """A short description, such as "10,000 words" or "5,144 pieces of words"."""
        return f"{len(self):,} {'words' if self.merges is None else 'pieces of words'}"

    def __contains__(self, word: object) -> bool:
        """Return whether a word can be written without `<unk>`; marks are no words."""
        if not isinstance(word, str) or word in _MARKS:
            return False
        return word in self.index if self.merges is None else UNK_ID not in self._spelling(word)

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Return the unit ids (n,) int64 of all words; unknown words, or unknown characters of pieces, are `<unk>`."""
        if self.merges is None:
            return super().encode(words)
        return np.array([unit for word in words for unit in self._spelling(word)], dtype=np.int64)

    def spell(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated unit ids (n,) int64, and the start of each word with the end of all, int64."""
        if self.merges is None:
            return super().encode(words), np.arange(len(words) + 1)
        return self.encode(words), np.cumsum([0, *(len(self._spelling(word)) for word in words)], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the words of units; a word of pieces may lack its end before a mark or at the end."""
        if self.merges is None:
            return super().decode(ids)
        words, begun = self.parted(ids)
        return [*words, begun] if begun else words

    def parted(self, ids: Iterable[int]) -> tuple[list[str], str]:
        """Return the words that units completed, and the letters of an unfinished one."""
        if self.merges is None:
            return super().decode(ids), ""
        words: list[str] = []
        begun = b""
        for unit in ids:
            piece = self._spelled[unit]
            if piece is not None:
                begun += piece
            if begun and (piece is None or begun.endswith(_END)):
                words += filter(None, [_letters(begun)])
                begun = b""
            if piece is None:
                words.append(self.words[unit])
        return words, _letters(begun)

    @cached_property
    def ends(self) -> np.ndarray:
        """A mask of units (V,) that end a word or are marks; bool."""
        if self.merges is None:
            return np.ones(len(self), dtype=bool)
        return np.array([piece is None or piece.endswith(_END) for piece in self._spelled])

    @cached_property
    def num_characters(self) -> np.ndarray:
        """Characters of each unit (V,) int64, with one for the blank or mark after a word; `<unk>` has one."""
        if self.merges is None:
            # Words that are all letters, as of `ptb_characters`, spell a word together: no blank stands between them.
            spells = all(len(word) == 1 for word in self.words if word not in _MARKS)
            return np.array([max(1, _length(word) - spells) for word in self.words])
        entries = zip(self.words, self._spelled, strict=True)
        # Only the first byte of a character counts.
        return np.array(
            [_length(word) if piece is None else sum(byte >> 6 != 0b10 for byte in piece) for word, piece in entries]
        )

    def __getstate__(self) -> dict[str, object]:
        # The cache of spellings is not sent to other processes.
        return {"words": self.words, "merges": self.merges}

    def _spelling(self, word: str) -> tuple[int, ...]:
        spelling = self._spellings.get(word)
        if spelling is None:
            spelling = self._spellings[word] = tuple(token.id for token in self._encoder.tokenize(word)) if word else ()
        return spelling

    @cached_property
    def _spellings(self) -> dict[str, tuple[int, ...]]:
        """A cache of spellings: text repeats few words."""
        return {mark: (number,) for number, mark in enumerate(MARKS)}

    @cached_property
    def _encoder(self) -> BPE:
        from tokenizers.models import BPE

        return BPE(
            vocab=dict(self.index),
            merges=list(self.merges or ()),
            unk_token=UNK,
            end_of_word_suffix=END,
            byte_fallback=BYTES[0] in self.index,
        )

    @cached_property
    def _spelled(self) -> list[bytes | None]:
        """The UTF-8 bytes of each piece; None for a mark."""
        codes = {code: bytes([number]) for number, code in enumerate(BYTES)} if BYTES[0] in self.index else {}
        pieces = self.words[len(MARKS) :]
        return [*[None] * len(MARKS), *(codes.get(piece, piece.encode()) for piece in pieces)]


_MARKS = frozenset((*SPECIALS, EOT))
_END = END.encode()


def _length(word: str) -> int:
    return 1 if word in _MARKS else len(word) + 1


def _letters(spelled: bytes) -> str:
    return "".join(spelled.decode(errors="replace").split())
