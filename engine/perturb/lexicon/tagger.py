"""NLTK's averaged perceptron tagger, evaluated in integers, and a trigram model of a corpus.

Source: NLTK's `averaged_perceptron_tagger_eng`, the tagger of Niu & Bansal's (2018) released code. The tags are those of
`nltk.pos_tag`, word for word; only the arithmetic differs:

  * weights are thousandths, so that integers hold them exactly; where two tags tie, NLTK's order of adding floats decides, and
    NLTK's own tagger decides;
  * every feature is a row of one matrix; what a word adds to the scores of its own tag and of its neighbours' is summed once a
    word, for all new words in one pass, not assembled from strings once a position;
  * utterances are tagged side by side, so that a position of all of them is one pass of numpy, and what their words say of it,
    whatever the tags before it are, is summed for all positions at once.

Not here: which data it needs and where they lie (`nltk_lexicon.py`).

Shapes: B utterances, P their words and the marks around them one after the other, A those of P whose tag the words around
decide, F features (the first is none and says nothing), W words met so far, R roles of a word, T tags in falling order (so
that the first of equal scores is the one NLTK prefers), U tags and the two that stand before an utterance.

The trigram model: interpolated Kneser-Ney smoothing with one discount of each order (Chen & Goodman 1999, "An empirical study
of smoothing techniques for language modeling", section 4.1.6).

It judges edits: it gives the probability of a word between its neighbours. A network would judge better, and hundreds of
times more slowly. Words that occur once in the training text, and those that do not occur, are
one unknown word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np

from parley.envs.corpora.pairs.turns import Utterance

ORDER = 3
_UNKNOWN, _BEGIN, _END = 0, 1, 2
BEGIN, END = "<begin>", "<end>"
"""Marks in a window before an utterance's first word and behind its last."""
_EDGES = {BEGIN: _BEGIN, END: _END}
Window = Sequence[str]
"""Neighbouring words: two that are only read, and at least one behind them that is judged; with `BEGIN` and `END`."""
_FIRST = 3
"""The number of the most frequent word."""


def window(
    words: Utterance, start: int, end: int, replacement: Sequence[str], first: int = 0, last: int | None = None
) -> Window:
    """Return some words between two neighbours on each side, none from another utterance.

    Args:
        words: among which they stand.
        start: position of the first replaced word.
        end: position behind the last one.
        replacement: the new words; the old ones for the window before the edit.
        first: start of the utterance among the words.
        last: its end; the end of the words when not given.
    """
    last = len(words) if last is None else last
    left = (BEGIN, BEGIN, *words[max(first, start - 2) : start])[-2:]
    right = (*words[end : min(last, end + 2)], END)[:2]
    return (*left, *replacement, *right)


class NGrams:
    """A trigram model with Kneser-Ney smoothing.

    Args:
        utterances: of the corpus' training split, words; read once.

    Shapes: K distinct n-grams of an order, N words.
    """

    def __init__(self, utterances: Iterable[Utterance]) -> None:
        corpus_utterances = list(utterances)
        self.counts = Counter(chain.from_iterable(corpus_utterances))
        """How often each word of the corpus occurs."""
        # Words that occur once are one unknown word.
        frequent = [word for word, count in self.counts.most_common() if count > 1]
        self._ids = {word: i for i, word in enumerate(frequent, _FIRST)}
        self._size = len(frequent) + _FIRST
        self.num_words = self.counts.total()
        """Of the training split."""
        text = self._text(corpus_utterances)
        self._levels = [_OrderCounts(_grams(text, order, self._size)) for order in range(ORDER, 0, -1)][::-1]
        # Kneser and Ney: a shorter n-gram counts by how many words stand before it, not by how often it is said.
        for order, (shorter, longer) in enumerate(pairwise(self._levels), 1):
            shorter.count_by(longer.keys % self._size**order)
        for level in self._levels:
            level.sum_contexts(self._size)

    def log_probabilities(self, utterances: Sequence[Utterance]) -> list[np.ndarray]:
        """Return natural logarithms of the probabilities of each utterance's words and its end (words + 1,) float64."""
        text = self._text(utterances)
        scores = np.log(self._probabilities(text, np.flatnonzero(text != _BEGIN)))
        edges = np.cumsum([len(words) + 1 for words in utterances])
        return np.split(scores, edges[:-1]) if len(utterances) else []

    def ratios(self, windows: Sequence[Window], references: Sequence[Window]) -> np.ndarray:
        """Return the perplexities of windows divided by those of others (windows,) float64; above 1: less fluent."""
        return np.asarray(np.exp(self._surprise(windows) - self._surprise(references)))

    def _surprise(self, windows: Sequence[Window]) -> np.ndarray:
        """Return the mean surprise of each window's words, in nats (windows,) float64."""
        find = self._ids.get
        numbers: list[int] = []
        for words in windows:
            numbers += [_EDGES[word] if word in _EDGES else find(word, _UNKNOWN) for word in words]
        text = np.array(numbers, dtype=np.int64)
        counts = np.fromiter(map(len, windows), dtype=np.int64, count=len(windows)) - 2
        starts = np.cumsum(counts + 2) - counts
        positions = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        nats = -np.log(self._probabilities(text, positions))
        return np.add.reduceat(nats, np.cumsum(counts) - counts) / counts if len(counts) else np.zeros(0)

    def _text(self, utterances: Sequence[Utterance]) -> np.ndarray:
        """Turn words into numbers, with two beginnings before and an end behind each utterance (N,) int64."""
        find = self._ids.get
        numbers: list[int] = []
        for words in utterances:
            numbers += (_BEGIN, _BEGIN, *[find(word, _UNKNOWN) for word in words], _END)
        return np.array(numbers, dtype=np.int64)

    def _probabilities(self, text: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the probabilities of the words at some places, each given two others before it."""
        probabilities = np.full(len(positions), 1.0 / self._size)
        keys, power = np.zeros(len(positions), dtype=np.int64), 1
        for order, level in enumerate(self._levels):
            keys = keys + text[positions - order] * power
            power *= self._size
            probabilities = level.interpolated(keys, keys // self._size, probabilities)
        return probabilities


class _OrderCounts:
    """The n-grams of one order, with their counts.

    Args:
        grams: a number for each n-gram of the text, the last word its lowest digit.
    """

    def __init__(self, grams: np.ndarray) -> None:
        self.keys, self.counts = np.unique(grams, return_counts=True)

    def count_by(self, endings: np.ndarray) -> None:
        """Count n-grams by the number of longer ones that end with them; those that end none keep their counts."""
        rows = np.searchsorted(self.keys, endings)
        different = np.bincount(rows, minlength=len(self.keys))
        self.counts = np.where(different > 0, different, self.counts)

    def sum_contexts(self, size: int) -> None:
        """Prepare look-ups: the total and number of followers of each context, and the discount."""
        ones, twos = np.count_nonzero(self.counts == 1), np.count_nonzero(self.counts == 2)
        self._discount = ones / (ones + 2 * twos) if twos else 0.5
        self._contexts, where = np.unique(self.keys // size, return_inverse=True)
        self._totals = np.bincount(where, weights=self.counts)
        self._followers = np.bincount(where)

    def interpolated(self, keys: np.ndarray, contexts: np.ndarray, shorter: np.ndarray) -> np.ndarray:
        """Return the probabilities of n-grams' last words (N,), interpolated with those of the shorter contexts."""
        context_row = np.minimum(np.searchsorted(self._contexts, contexts), len(self._contexts) - 1)
        seen = self._contexts[context_row] == contexts
        total = np.where(seen, self._totals[context_row], 1.0)
        row = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        count = np.where(self.keys[row] == keys, self.counts[row], 0)
        left = self._discount * np.where(seen, self._followers[context_row], 0)
        return np.where(seen, (np.maximum(count - self._discount, 0.0) + left * shorter) / total, shorter)


def _grams(text: np.ndarray, order: int, size: int) -> np.ndarray:
    """Return a number for each n-gram of an order that ends at a word or an utterance's end."""
    positions = np.flatnonzero(text != _BEGIN)
    keys = np.zeros(len(positions), dtype=np.int64)
    for back in range(order):
        keys += text[positions - back] * size**back
    return keys


_SCALE = 1000
"""The published weights are rounded to three decimals."""
_SIDE_BY_SIDE = 512
"""Utterances tagged at once: as many as keep what is read of the tables near the processor."""
_ROOM = 1 << 12
"""Words that the tables begin with room for."""
_UNKNOWN_TAGGER = -1
_FREE = -2
"""Marks a word whose tag is not checked."""
_LAST_MARK = 3
"""The last row of the marks around an utterance; rows of words follow."""
_NONE = 0
"""Row of the feature that no weights are known for."""
_ROLES = range(2, -3, -1)
"""Offsets of the word whose tag a word's features score: two after it, ..., itself, ..., two before it."""


class Tagger:
    """A faster `nltk.pos_tag`, with equal tags.

    Args:
        perceptron: an `nltk.tag.PerceptronTagger` with weights of at most three decimals.
    """

    def __init__(self, perceptron: Any) -> None:
        self._perceptron = perceptron
        tags: list[str] = sorted(perceptron.classes, reverse=True)
        self._column = {tag: index for index, tag in enumerate(tags)}
        weights: dict[str, dict[str, float]] = perceptron.model.weights
        self._weights_FT = np.zeros((1 + len(weights), len(tags)), dtype=np.int32)
        rows = np.repeat(np.arange(1, 1 + len(weights)), [len(by_tag) for by_tag in weights.values()])
        steps = np.array([weight for by_tag in weights.values() for weight in by_tag.values()]) * _SCALE
        self._weights_FT[rows, [self._column[tag] for by_tag in weights.values() for tag in by_tag]] = np.rint(steps)
        self._features: dict[str, dict[str, int]] = {}
        for row, feature in enumerate(weights, 1):
            kind, _, value = feature.rpartition(" ")
            self._features.setdefault(kind, {})[value] = row
        # The marks before an utterance have tags of their own, behind the others.
        self._names = [*tags, *perceptron.START]
        self._before_UUT = np.stack([self._before(tag) for tag in self._names])
        self._tags_before: dict[str, list[tuple[int, int]]] = {}
        for index, tag in enumerate(self._names):
            for word, row in self._kind(f"i-1 tag+i word {tag}").items():
                self._tags_before.setdefault(word, []).append((index, row))
        self._ids: dict[str, int] = {}
        self._num_words = 0
        self._roles_RWT = np.zeros((len(_ROLES), _ROOM, len(tags)), dtype=np.int32)
        self._certain_W = np.full(_ROOM, _UNKNOWN_TAGGER)
        self._after_UW = np.full((len(self._names), _ROOM), _NONE)
        marks = [*perceptron.START, *perceptron.END]
        self._learn(marks, marks)
        # The tag before the first word is the first of the two, that before it the second; tags at the end are not used.
        self._certain_W[: len(marks)] = len(tags) + 1, len(tags), 0, 0

    def tag(self, utterances: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return Penn Treebank tags.

        Args:
            utterances: words; a list is tagged much faster than one by one.
        """
        self._take_in(utterances)
        order = sorted(range(len(utterances)), key=lambda row: -len(utterances[row]))
        tags_of: list[list[str]] = [[]] * len(order)
        for start in range(0, len(order), _SIDE_BY_SIDE):
            rows = order[start : start + _SIDE_BY_SIDE]
            for row, tags in zip(rows, self._side_by_side([utterances[row] for row in rows]), strict=True):
                tags_of[row] = tags
        return tags_of

    def are_tags(self, utterances: Sequence[Sequence[str]], tags: Sequence[Sequence[str | None]]) -> list[bool]:
        """Return whether `tag` would give these tags; faster, because the tags before each word are given.

        Args:
            utterances: words.
            tags: as many for each; None where any will do.
        """
        self._take_in(utterances)
        are_right = []
        for start in range(0, len(utterances), _SIDE_BY_SIDE):
            end = start + _SIDE_BY_SIDE
            are_right += self._confirmed(utterances[start:end], tags[start:end])
        return are_right

    def _confirmed(self, utterances: Sequence[Sequence[str]], tags: Sequence[Sequence[str | None]]) -> list[bool]:
        """Return whether each word has its tag, given that all words before it have theirs."""
        ids_P, _, ends_B = self._joined(utterances)
        certain_P = self._certain_W[ids_P]
        wanted_P, is_word_P = certain_P.copy(), ids_P > _LAST_MARK
        all_tags = chain.from_iterable(tags)
        wanted_P[is_word_P] = [_FREE if tag is None else self._column.get(tag, _UNKNOWN_TAGGER) for tag in all_tags]
        where_F = np.flatnonzero(wanted_P == _FREE)
        wanted_P[where_F] = certain_P[where_F]
        where_F = where_F[certain_P[where_F] == _UNKNOWN_TAGGER]
        row_F = np.searchsorted(ends_B, where_F, side="right")
        number_F = np.arange(len(row_F)) - np.searchsorted(row_F, row_F)
        # The first free word of each utterance, then the second: its tag scores the words after it.
        for number in range(int(number_F.max(initial=_UNKNOWN_TAGGER)) + 1):
            where = where_F[number_F == number]
            wanted_P[where] = (self._around(ids_P, where) + self._from_before(wanted_P, ids_P, where)).argmax(axis=1)
        where_A = np.flatnonzero(certain_P == _UNKNOWN_TAGGER)
        score_AT = self._around(ids_P, where_A) + self._from_before(wanted_P, ids_P, where_A)
        is_wrong_P = certain_P != wanted_P
        is_wrong_P[where_A] = score_AT.argmax(axis=1) != wanted_P[where_A]
        is_wrong_B, is_tied_B = np.zeros((2, len(utterances)), dtype=bool)
        is_wrong_B[np.searchsorted(ends_B, np.flatnonzero(is_wrong_P), side="right")] = True
        is_tied_B[np.searchsorted(ends_B, where_A[_are_tied(score_AT)], side="right")] = True
        return [
            all(expected in (tag, None) for (_, tag), expected in zip(self._perceptron.tag(words), row_tags, strict=True))
            if is_tied
            else not is_wrong
            for words, row_tags, is_tied, is_wrong in zip(
                utterances, tags, is_tied_B.tolist(), is_wrong_B.tolist(), strict=True
            )
        ]

    def _joined(self, utterances: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Join words and marks of utterances (P,), with the start (B,) and end (B,) of each utterance."""
        id_of = self._ids.__getitem__
        ids_P = np.array([row for words in utterances for row in (0, 1, *map(id_of, words), 2, _LAST_MARK)])
        ends_B = np.cumsum([len(words) + 4 for words in utterances])
        return ids_P, np.concatenate([[0], ends_B[:-1]]), ends_B

    def _around(self, ids_P: np.ndarray, where_A: np.ndarray) -> np.ndarray:
        """Return the scores of tags from a word and its neighbours, whatever the tags before it are (A, T)."""
        score_AT = self._roles_RWT[0].take(ids_P[where_A - 2], axis=0)
        for role in range(1, len(_ROLES)):
            score_AT += self._roles_RWT[role].take(ids_P[where_A - 2 + role], axis=0)
        return score_AT

    def _from_before(self, tags_P: np.ndarray, ids_P: np.ndarray, where: np.ndarray) -> np.ndarray:
        """Return the scores of tags from the two tags before some words (words, T)."""
        tag_1 = tags_P[where - 1]
        scores = self._before_UUT[tag_1, tags_P[where - 2]]
        scores += self._weights_FT.take(self._after_UW[tag_1, ids_P[where]], axis=0)
        return scores

    def _side_by_side(self, utterances: Sequence[Sequence[str]]) -> list[list[str]]:
        """Tag utterances in parallel: all first words, then all second words."""
        ids_P, starts_B, ends_B = self._joined(utterances)
        tags_P = self._certain_W[ids_P]
        where_A = np.flatnonzero(tags_P == _UNKNOWN_TAGGER)
        row_A = np.searchsorted(ends_B, where_A, side="right")
        place_A = where_A - starts_B[row_A]
        order_A = np.argsort(place_A, kind="stable")
        where_A, row_A = where_A[order_A], row_A[order_A]
        score_AT = self._around(ids_P, where_A)
        for start, end in pairwise([0, *np.cumsum(np.bincount(place_A)).tolist()]):
            if start == end:
                continue
            where = where_A[start:end]
            score = score_AT[start:end]
            score += self._from_before(tags_P, ids_P, where)
            tags_P[where] = score.argmax(axis=1)
        tied = {*row_A[_are_tied(score_AT)].tolist()}
        names = list(map(self._names.__getitem__, tags_P.tolist()))
        return [
            [tag for _, tag in self._perceptron.tag(words)] if row in tied else names[start + 2 : end - 2]
            for row, (words, start, end) in enumerate(zip(utterances, starts_B.tolist(), ends_B.tolist(), strict=True))
        ]

    def _take_in(self, utterances: Sequence[Sequence[str]]) -> None:
        new = [word for word in dict.fromkeys(chain.from_iterable(utterances)) if word not in self._ids]
        if new:
            self._ids.update(zip(new, range(self._num_words, self._num_words + len(new)), strict=True))
            self._learn(new, list(map(self._perceptron.normalize, new)))

    def _learn(self, words: Sequence[str], normal: Sequence[str]) -> None:
        """Add rows for new words, or for the marks around utterances."""
        start, end = self._num_words, self._num_words + len(words)
        while end > len(self._certain_W):
            self._roles_RWT = np.concatenate([self._roles_RWT, np.zeros_like(self._roles_RWT)], axis=1)
            self._certain_W = np.concatenate([self._certain_W, np.full_like(self._certain_W, _UNKNOWN_TAGGER)])
            self._after_UW = np.concatenate([self._after_UW, np.full_like(self._after_UW, _NONE)], axis=1)
        self._num_words = end
        ends = [word[-3:] for word in normal]
        spoken: dict[int, dict[str, Iterable[str]]] = {
            2: {"i-2 word": normal},
            1: {"i-1 word": normal, "i-1 suffix": ends},
            0: {
                "": repeat("bias", len(words)),
                "i suffix": [word[-3:] for word in words],
                "i pref1": [word[:1] for word in words],
                "i word": normal,
            },
            -1: {"i+1 word": normal, "i+1 suffix": ends},
            -2: {"i+2 word": normal},
        }
        for number, role in enumerate(_ROLES):
            self._roles_RWT[number, start:end] = sum(self._weights(kind, values) for kind, values in spoken[role].items())
        certain = self._perceptron.tagdict
        self._certain_W[start:end] = [self._column[certain[word]] if word in certain else _UNKNOWN_TAGGER for word in words]
        before = [(*pair, row) for row, word in enumerate(normal, start) for pair in self._tags_before.get(word, ())]
        places, features, rows = np.array(before, dtype=np.int64).reshape(-1, 3).T
        self._after_UW[places, rows] = features

    def _before(self, tag: str) -> np.ndarray:
        """Return the scores of a tag before a word together with any one before that (U, T)."""
        first = self._weights("i-1 tag", repeat(tag, len(self._names)))
        return first + self._weights("i-2 tag", self._names) + self._weights(f"i tag+i-2 tag {tag}", self._names)

    def _weights(self, kind: str, values: Iterable[str]) -> np.ndarray:
        """Return the weights of features of one kind (values, T)."""
        return self._weights_FT.take(list(map(self._kind(kind).get, values, repeat(_NONE))), axis=0)

    def _kind(self, kind: str) -> Mapping[str, int]:
        return self._features.get(kind, {})


def _are_tied(score_AT: np.ndarray) -> np.ndarray:
    """Mark the words of which several tags have the highest score (A,)."""
    is_tied: np.ndarray = np.count_nonzero(score_AT == score_AT.max(axis=1, keepdims=True), axis=1) > 1
    return is_tied
