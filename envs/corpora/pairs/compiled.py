"""Compiled corpora of pairs: text turned once into memory-mapped Arrow files, so that every worker reads the same pages.

A compiled corpus is a folder as `envs/corpora/arrow.py` keeps them; its key names the versions of compiler and reader, the
content of the source and the size of the vocabulary. A form with every word holds those of all splits and no `<unk>` of
its own: models are fitted to the other, text is recovered from this one.

    train.arrow, val.arrow, test.arrow                     words (list of int32), one utterance a row
    train-pairs.arrow, val-pairs.arrow, test-pairs.arrow   pair (2 int64), rows of source and reply
    train-links.arrow, val-links.arrow, test-links.arrow   the same of turns of contexts that are no pairs, where there are some
    vocabulary.json                                        the most frequent words of the training split, or every word
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from parley.envs.core.errors import ConfigError, DataError
from parley.envs.corpora.arrow import compiled_folder, is_whole, map_batch, publish, write_batch
from parley.envs.corpora.lines import corpus_named
from parley.envs.corpora.pairs.corpora import find_pairs
from parley.envs.corpora.pairs.sources import PairSource
from parley.envs.corpora.pairs.text import PairText
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.envs.corpora.root import data_root as resolve_data_root
from parley.envs.corpora.sources import SPLITS

COMPILER_VERSION = 1
"""Grows when the same source would be compiled differently."""

EVERY_WORD = "every word"
"""Stands in the key for the size of a vocabulary without a limit."""

_VOCABULARY = "vocabulary.json"
_FILES = (*(f"{split}{part}.arrow" for split in SPLITS for part in ("", "-pairs")), _VOCABULARY)
_LINKS = tuple(f"{split}-links.arrow" for split in SPLITS)
"""Files of corpora whose contexts have turns that are no pairs."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """N rows of different lengths, end to end in one read-only array.

    Args:
        values: (T,) int32.
        offsets: (N + 1,) int64; row i is `values[offsets[i] : offsets[i + 1]]`.
    """

    values: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Row i (length,) int64, i from 0 to N - 1."""
        return self.values[self.offsets[i] : self.offsets[i + 1]].astype(np.int64)

    def first(self, num: int) -> Ragged:
        """The first rows."""
        return Ragged(self.values[: self.offsets[num]], self.offsets[: num + 1])

    @cached_property
    def lengths(self) -> np.ndarray:
        """Length of each row (N,) int64."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class PairSplit:
    """One split of a corpus of pairs; N utterances, P pairs of them.

    Args:
        utterances: word ids of every utterance, uncropped and without specials but `<unk>` and, within a turn of several
            utterances, `<eou>`; each utterance stands once.
        pairs: (P, 2) int64, indices of source and reply in `utterances`.
        links: (L, 2) int64, indices of utterances and of what followed them where that is no pair but part of contexts.
    """

    utterances: Ragged
    pairs: np.ndarray
    links: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.pairs)

    def first(self, limit: int) -> PairSplit:
        """So many pairs at the beginning, and the utterances up to the last of them; all where the limit is 0."""
        if not 0 < limit < len(self):
            return self
        pairs = self.pairs[:limit]
        num = int(pairs.max()) + 1
        return PairSplit(self.utterances.first(num), pairs, self.links[(self.links < num).all(1)])


@dataclass(frozen=True, eq=False)
class PairCorpus:
    """A compiled corpus of pairs, opened.

    Args:
        name: the corpus' name.
        folder: the compiled files; its last part is the key of the content.
        vocabulary: the most frequent words of the training split, or every word of all splits.
        splits: "train", "val" and "test".
    """

    name: str
    folder: Path
    vocabulary: PairVocabulary
    splits: dict[str, PairSplit]

    def first(self, limit: int) -> PairCorpus:
        """The same with so many pairs of each split at most; all of them where the limit is 0."""
        return replace(self, splits={name: split.first(limit) for name, split in self.splits.items()})

    def whole(self) -> PairCorpus:
        """The same with all pairs again."""
        return _open(self.name, self.folder)


def load_pairs(
    name: str,
    data_root: Path | None = None,
    *,
    vocabulary: int | None = None,
    every_word: bool = False,
    cache: Path | None = None,
) -> PairCorpus:
    """Opens a corpus of pairs, compiling it first when its content has not been compiled before.

    Args:
        name: a registered name, a `source<TAB>reply` file or folder (see `envs/corpora/pairs/tabbed.py`), or
            `path/file.py:NAME`.
        data_root: where the corpora lie; see `parley.envs.corpora.root.data_root` for the default.
        vocabulary: entries of the vocabulary, specials included; the corpus' own number by default.
        every_word: whether the vocabulary holds every word of all splits instead, so that text can be recovered.
        cache: where compiled corpora lie; see `parley.envs.corpora.root.cache_root` for the default.

    Raises:
        ConfigError: no such corpus, or a vocabulary without room for a word.
        DataError: files are missing, a line is broken, there is no pair to train on, or the compiled form cannot be written.
    """
    with corpus_named(name, data_root):
        return open_pairs(find_pairs(name), data_root, vocabulary=vocabulary, every_word=every_word, cache=cache)


def open_pairs(
    source: PairSource,
    data_root: Path | None = None,
    *,
    vocabulary: int | None = None,
    every_word: bool = False,
    cache: Path | None = None,
) -> PairCorpus:
    """The same for a corpus in hand instead of a name."""
    assert vocabulary is None or not every_word, "a vocabulary of every word has its own size"
    size = source.vocabulary if vocabulary is None else vocabulary
    if size <= len(SPECIALS):
        fix = f"give at least {len(SPECIALS) + 1}, for {len(SPECIALS)} entries are special tokens"
        raise ConfigError("the vocabulary has no room for a word", got=size, fix=fix)
    root = resolve_data_root(data_root)
    extent = EVERY_WORD if every_word else size
    folder = compiled_folder(cache, source.name, "pairs", COMPILER_VERSION, source.name, source.fingerprint(root), extent)
    if not is_whole(folder, (*_FILES, *(name for name in _LINKS if (folder / name).exists()))):
        text = source.read(root).require_whole()
        if nothing := nothing_to_learn(source, text, root):
            raise nothing
        counted = SPLITS if every_word else ("train",)
        utterances = chain.from_iterable(text.splits[split].utterances() for split in counted)
        _compile(text, PairVocabulary.build(utterances, None if every_word else size), folder)
    return _open(source.name, folder)


def nothing_to_learn(source: PairSource, text: PairText, root: Path) -> DataError | None:
    """The error of a corpus without a pair to train on; None where there is one."""
    if text.splits["train"].num_pairs:
        return None
    what, fix = f"the corpus {source.name!r} has no pair to train on", "give it more lines, or name another corpus"
    return DataError(what, where=source.folder(root), fix=fix)


def nothing_to_measure(name: str, num_pairs: Mapping[str, int]) -> DataError | None:
    """The error of a corpus that lacks a pair to train on, to stop by or to measure on; None where there are some of each."""
    empty = [split for split, num in num_pairs.items() if not num]
    if not empty:
        return None
    return DataError(
        f"the corpus {name!r} has nothing to train and measure on",
        got=f"empty: {', '.join(empty)}",
        fix="name a corpus with more pairs, other shares (FILE#shares=70:15:15), or a folder of three files",
    )


def _open(name: str, folder: Path) -> PairCorpus:
    splits = {}
    for split in SPLITS:
        words = map_batch(folder / f"{split}.arrow").column("words")
        utterances = Ragged(words.values.to_numpy(zero_copy_only=True), words.offsets.to_numpy(zero_copy_only=True))
        linked = [part for part in ("-pairs", "-links") if (folder / f"{split}{part}.arrow").exists()]
        splits[split] = PairSplit(utterances, *(_pairs(folder / f"{split}{part}.arrow") for part in linked))
    return PairCorpus(name, folder, PairVocabulary.load(folder / _VOCABULARY), splits)


def _pairs(path: Path) -> np.ndarray:
    pairs: np.ndarray = map_batch(path).column("pair").flatten().to_numpy(zero_copy_only=True)
    return pairs.reshape(-1, 2)


def _compile(text: PairText, vocabulary: PairVocabulary, folder: Path) -> None:
    parts = ("pairs", "links") if any(len(split.links) for split in text.splits.values()) else ("pairs",)

    def write(draft: Path) -> None:
        for split in SPLITS:
            found = text.splits[split]
            words = pa.LargeListArray.from_arrays(pa.array(found.offsets), pa.array(found.encode(vocabulary)))
            write_batch(draft / f"{split}.arrow", pa.RecordBatch.from_pydict({"words": words}))
            for part in parts:
                pairs = pa.FixedSizeListArray.from_arrays(pa.array(getattr(found, part).reshape(-1)), 2)
                write_batch(draft / f"{split}-{part}.arrow", pa.RecordBatch.from_pydict({"pair": pairs}))
        vocabulary.save(draft / _VOCABULARY)

    publish(folder, write)
