"""A trigram model of a corpus: how usual words are, and how likely one is between its neighbours.

Source: interpolated Kneser-Ney smoothing with one discount of each order (Chen & Goodman 1999, "An empirical study of smoothing
techniques for language modeling", section 4.1.6).

It judges edits: of two words in one place, whatever else the utterance says, it tells which is likelier there, which a network
would do better and hundreds of times more slowly. Words that occur once in the training text, and those that do not occur, are
one unknown word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import numpy as np

from parley.envs.corpora.pairs.turns import Utterance

ORDER = 3
_UNKNOWN, _BEGIN, _END = 0, 1, 2
BEGIN, END = "<begin>", "<end>"
"""What stands in a window before an utterance's first word, and behind its last."""
_EDGES = {BEGIN: _BEGIN, END: _END}
Window = Sequence[str]
"""Neighbouring words: two that are only read, and at least one behind them that is judged; with `BEGIN` and `END`."""
_FIRST = 3
"""The number of the most frequent word."""


def window(words: Utterance, start: int, end: int, others: Sequence[str], first: int = 0, last: int | None = None) -> Window:
    """Some words in the place of others, two before and two behind them, none of another utterance.

    Args:
        words: among which they stand.
        start: where what they replace begins.
        end: and ends.
        others: what stands there instead; the words themselves for the window as it was.
        first: where the utterance begins among the words.
        last: and where it ends; with the words when not given.
    """
    last = len(words) if last is None else last
    left = (BEGIN, BEGIN, *words[max(first, start - 2) : start])[-2:]
    right = (*words[end : min(last, end + 2)], END)[:2]
    return (*left, *others, *right)


class NGrams:
    """The model.

    Args:
        utterances: of the corpus' training split, words; read once.

    Shapes: K distinct n-grams of an order, N words.
    """

    def __init__(self, utterances: Iterable[Utterance]) -> None:
        said = list(utterances)
        self.counts = Counter(chain.from_iterable(said))
        """How often each word of the corpus occurs."""
        # Words that occur once are not told apart.
        known = [word for word, count in self.counts.most_common() if count > 1]
        self._ids = {word: i for i, word in enumerate(known, _FIRST)}
        self._size = len(known) + _FIRST
        self.num_words = self.counts.total()
        """Of the training split."""
        text = self._text(said)
        self._levels = [_OrderCounts(_grams(text, order, self._size)) for order in range(ORDER, 0, -1)][::-1]
        # Kneser and Ney: a shorter n-gram counts by how many words stand before it, not by how often it is said.
        for order, (shorter, longer) in enumerate(pairwise(self._levels), 1):
            shorter.count_by(longer.keys % self._size**order)
        for level in self._levels:
            level.sum_contexts(self._size)

    def log_probabilities(self, utterances: Sequence[Utterance]) -> list[np.ndarray]:
        """Of each utterance's words and its end, natural logarithms (words + 1,) float64."""
        text = self._text(utterances)
        scores = np.log(self._probabilities(text, np.flatnonzero(text != _BEGIN)))
        edges = np.cumsum([len(words) + 1 for words in utterances])
        return np.split(scores, edges[:-1]) if len(utterances) else []

    def ratios(self, windows: Sequence[Window], others: Sequence[Window]) -> np.ndarray:
        """Perplexities of some windows, each divided by that of another (windows,) float64; above 1: less fluent."""
        return np.asarray(np.exp(self._surprise(windows) - self._surprise(others)))

    def _surprise(self, windows: Sequence[Window]) -> np.ndarray:
        """Nats a word of each window (windows,) float64."""
        find = self._ids.get
        numbers: list[int] = []
        for words in windows:
            numbers += [_EDGES[word] if word in _EDGES else find(word, _UNKNOWN) for word in words]
        text = np.array(numbers, dtype=np.int64)
        counts = np.fromiter(map(len, windows), dtype=np.int64, count=len(windows)) - 2
        starts = np.cumsum(counts + 2) - counts
        places = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        nats = -np.log(self._probabilities(text, places))
        return np.add.reduceat(nats, np.cumsum(counts) - counts) / counts if len(counts) else np.zeros(0)

    def _text(self, utterances: Sequence[Utterance]) -> np.ndarray:
        """Numbers of all words, two beginnings before and an end behind each utterance (N,) int64."""
        find = self._ids.get
        numbers: list[int] = []
        for words in utterances:
            numbers += (_BEGIN, _BEGIN, *[find(word, _UNKNOWN) for word in words], _END)
        return np.array(numbers, dtype=np.int64)

    def _probabilities(self, text: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Of the words at some places, each with two others before it."""
        found = np.full(len(places), 1.0 / self._size)
        keys, power = np.zeros(len(places), dtype=np.int64), 1
        for order, level in enumerate(self._levels):
            keys = keys + text[places - order] * power
            power *= self._size
            found = level.interpolated(keys, keys // self._size, found)
        return found


class _OrderCounts:
    """The n-grams of one order, with their counts.

    Args:
        grams: a number for each n-gram of the text, the last word its lowest digit.
    """

    def __init__(self, grams: np.ndarray) -> None:
        self.keys, self.counts = np.unique(grams, return_counts=True)

    def count_by(self, endings: np.ndarray) -> None:
        """Counts n-grams by the longer ones that end with them instead; those that end none stay as they are."""
        places = np.searchsorted(self.keys, endings)
        different = np.bincount(places, minlength=len(self.keys))
        self.counts = np.where(different > 0, different, self.counts)

    def sum_contexts(self, size: int) -> None:
        """Prepares look-ups: what all words behind a context count, how many they are, and the discount."""
        ones, twos = np.count_nonzero(self.counts == 1), np.count_nonzero(self.counts == 2)
        self._discount = ones / (ones + 2 * twos) if twos else 0.5
        self._contexts, where = np.unique(self.keys // size, return_inverse=True)
        self._totals = np.bincount(where, weights=self.counts)
        self._followers = np.bincount(where)

    def interpolated(self, keys: np.ndarray, contexts: np.ndarray, shorter: np.ndarray) -> np.ndarray:
        """Probabilities of n-grams' last words (N,), given those after one word less."""
        place = np.minimum(np.searchsorted(self._contexts, contexts), len(self._contexts) - 1)
        seen = self._contexts[place] == contexts
        total = np.where(seen, self._totals[place], 1.0)
        row = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        count = np.where(self.keys[row] == keys, self.counts[row], 0)
        left = self._discount * np.where(seen, self._followers[place], 0)
        return np.where(seen, (np.maximum(count - self._discount, 0.0) + left * shorter) / total, shorter)


def _grams(text: np.ndarray, order: int, size: int) -> np.ndarray:
    """A number for each n-gram of an order that ends at a word or an end of an utterance."""
    places = np.flatnonzero(text != _BEGIN)
    keys = np.zeros(len(places), dtype=np.int64)
    for back in range(order):
        keys += text[places - back] * size**back
    return keys
