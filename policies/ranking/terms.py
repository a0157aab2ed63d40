"""Cosines of weighted word counts, fitted on training contexts: how far a candidate uses the context's rare words.

    TF-IDF   weight = count x idf,  idf = log((1 + N) / (1 + n)) + 1
    BM25     weight = idf x count (k + 1) / (count + k (1 - b + b length / average)),  idf = log(1 + (N - n + 0.5) / (n + 0.5))
             (Robertson & Zaragoza 2009, "The probabilistic relevance framework", section 3.4)

N counts the distinct turns of the training contexts, n those that hold the word; k and b are those by which wrong replies are
found (`envs/ranking/bm25.py`). The plain sum of BM25 weights grows with a candidate's length, the cosine does not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Self

from parley.envs.core.errors import DataError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.bm25 import LENGTH_SHARE, SATURATION
from parley.envs.ranking.groups import Context


class TermCosine(ABC):
    """The cosine of a context's and a candidate's weighted counts.

    Args:
        turns_with: of each word, the number of turns that hold it.
        num_turns: in all.
        average_length: words of a turn.
    """

    def __init__(self, turns_with: Mapping[str, int], num_turns: int, average_length: float) -> None:
        self._turns_with, self._num_turns, self._average = turns_with, num_turns, average_length

    @classmethod
    def fit(cls, contexts: Iterable[Context]) -> Self:
        """Counts the words of contexts, each distinct turn once.

        Args:
            contexts: of a training split.

        Raises:
            DataError: they hold no word.
        """
        turns = {turn for context in contexts for turn in context if turn}
        if not turns:
            fix = "give the contexts of a training split"
            raise DataError("there are no words to fit a ranker on", where=cls.__name__, got="no turn that has a word", fix=fix)
        turns_with = Counter(chain.from_iterable(map(set, turns)))
        return cls(turns_with, len(turns), sum(map(len, turns)) / len(turns))

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        """Cosines, from 0 to 1; 0 for a candidate, or behind a context, without a word."""
        said = self._weights(tuple(chain.from_iterable(context)))
        return [_cosine(said, self._weights(reply)) for reply in candidates]

    def _weights(self, words: Utterance) -> dict[str, float]:
        return {word: self._weight(count, len(words), self._turns_with.get(word, 0)) for word, count in Counter(words).items()}

    @abstractmethod
    def _weight(self, count: int, length: int, turns_with: int) -> float:
        """Of a word in a text."""


class TfIdf(TermCosine):
    """Counts, weighed by how rare words are."""

    def _weight(self, count: int, length: int, turns_with: int) -> float:
        return count * (math.log((1 + self._num_turns) / (1 + turns_with)) + 1)


class Bm25(TermCosine):
    """The weights of BM25, under which repeating a word pays less and less."""

    def _weight(self, count: int, length: int, turns_with: int) -> float:
        rarity = math.log(1 + (self._num_turns - turns_with + 0.5) / (turns_with + 0.5))
        damping = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / self._average)
        return rarity * count * (SATURATION + 1) / (count + damping)


def _cosine(said: Mapping[str, float], replied: Mapping[str, float]) -> float:
    """Sums that do not depend on the order of words, so that shuffled candidates tie."""
    product = math.fsum(weight * said[word] for word, weight in replied.items() if word in said)
    norms = math.fsum(weight * weight for weight in said.values()) * math.fsum(weight * weight for weight in replied.values())
    return product / math.sqrt(norms) if norms else 0.0
