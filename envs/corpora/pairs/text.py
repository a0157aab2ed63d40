"""What a reader of pairs hands over: the utterances and pairs of each split, and what was broken.

Utterances are kept as numbers of words, so that five million of them fit into memory while they are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd

import numpy as np

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stable_hash
from parley.envs.corpora.lines import ReadText
from parley.envs.corpora.sources import SPLITS
from parley.envs.corpora.words import WordList


class SplitText:
    """One split while it is read: N utterances, P pairs of them, L links that are no pairs."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._values = array("i")
        self._offsets = array("q", [0])
        self._pairs, self._links = array("q"), array("q")

    def add(self, words: Sequence[str]) -> int:
        """Takes an utterance of at least one word; returns its index."""
        assert words, "an utterance has words"
        self._values.extend(self._numbers.setdefault(word, len(self._numbers)) for word in words)
        self._offsets.append(len(self._values))
        return self.num_utterances - 1

    def link(self, source: int, reply: int) -> None:
        """Makes a pair of two utterances, named by their indices."""
        self._pairs.extend((source, reply))

    def follow(self, turns: Sequence[int]) -> None:
        """Says of each of these utterances, named by their indices, that it followed the one before, without making pairs."""
        for earlier, later in pairwise(turns):
            self._links.extend((earlier, later))

    @property
    def num_utterances(self) -> int:
        """N."""
        return len(self._offsets) - 1

    @property
    def num_pairs(self) -> int:
        """P."""
        return len(self._pairs) // 2

    @property
    def offsets(self) -> np.ndarray:
        """Where each utterance begins in the encoded words, and the end of the last: (N + 1,) int64."""
        return np.array(self._offsets, dtype=np.int64)

    @property
    def pairs(self) -> np.ndarray:
        """Indices of source and reply (P, 2) int64."""
        return np.array(self._pairs, dtype=np.int64).reshape(-1, 2)

    @property
    def links(self) -> np.ndarray:
        """Indices of utterances and of what followed them beside the pairs (L, 2) int64."""
        return np.array(self._links, dtype=np.int64).reshape(-1, 2)

    def utterances(self) -> Iterator[list[str]]:
        """The words of each utterance in turn."""
        words = list(self._numbers)
        for start, end in zip(self._offsets, self._offsets[1:], strict=False):
            yield [words[number] for number in self._values[start:end]]

    def encode(self, vocabulary: WordList) -> np.ndarray:
        """The ids of the words of all utterances, end to end: (T,) int32."""
        return vocabulary.encode(self._numbers)[np.array(self._values, dtype=np.int64)].astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class PairText(ReadText):
    """A corpus of pairs read: its good lines and what is wrong with the others."""

    splits: dict[str, SplitText] = field(default_factory=lambda: {split: SplitText() for split in SPLITS})
    """What was read of "train", "val" and "test"."""
    broken: list[DataError] = field(default_factory=list)


def split_of(key: str, shares: tuple[int, int, int] = (90, 5, 5)) -> str:
    """Return the split that something belongs to by its name or content alone.

    Args:
        key: the name or content.
        shares: of train, val and test.
    """
    train, val, test = (share // gcd(*shares) for share in shares)
    place = stable_hash("split", key) % (train + val + test)
    return SPLITS[(place >= train) + (place >= train + val)]
