"""Phrases of a table among the words of many contexts: all places walk down one tree of words at once."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from parley.engine.perturb.strategies.flat import FlatContexts
from parley.envs.corpora.pairs.turns import Utterance


class Matches(NamedTuple):
    """Phrases that were found, by the places where they begin."""

    starts: np.ndarray
    """Where each begins among the words (M,) int64, ascending."""
    ends: np.ndarray
    """Where it ends, within its utterance (M,) int64."""
    phrases: np.ndarray
    """Which of `Phrases.listed` it is (M,) int64."""

    def where(self, kept: np.ndarray) -> Matches:
        """Those of a mask (M,) bool."""
        return Matches(*(each[kept] for each in self))


class _Level(NamedTuple):
    """The beginnings of all phrases that are so many words long, numbered from 0."""

    keys: np.ndarray
    """The number of what is before the last word, times one more than there are words, plus the last word's, counted from 1
    (B,) int64, ascending."""
    phrases: np.ndarray
    """Which phrase each is as it stands; -1: none (B,) int64."""


class Phrases:
    """What is looked for.

    Args:
        listed: phrases of at least one word, none twice.
    """

    def __init__(self, listed: Collection[Utterance]) -> None:
        self.listed = tuple(listed)
        self._words = {word: i for i, word in enumerate(dict.fromkeys(chain.from_iterable(self.listed)), 1)}
        self._beginnings = frozenset(phrase[0] for phrase in self.listed)
        lengths = np.fromiter(map(len, self.listed), dtype=np.int64, count=len(self.listed))
        flat = np.fromiter(map(self._words.__getitem__, chain.from_iterable(self.listed)), dtype=np.int64, count=lengths.sum())
        firsts, numbers = np.cumsum(lengths) - lengths, np.zeros(len(lengths), dtype=np.int64)
        self._levels: list[_Level] = []
        for length in range(1, lengths.max(initial=0) + 1):
            longer = np.flatnonzero(lengths >= length)
            keys = numbers[longer] * (len(self._words) + 1) + flat[firsts[longer] + length - 1]
            kinds, numbers[longer] = np.unique(keys, return_inverse=True)
            whole, phrases = np.flatnonzero(lengths == length), np.full(len(kinds), -1)
            phrases[numbers[whole]] = whole
            self._levels.append(_Level(kinds, phrases))
        self._first = np.full(len(self._words) + 1, -1)
        if self._levels:
            self._first[self._levels[0].keys] = np.arange(len(self._levels[0].keys))

    def longest(self, flat: FlatContexts) -> Matches:
        """From each place of some contexts where a phrase begins the longest one, whether or not it meets others."""
        if self._beginnings.isdisjoint(flat.words):
            nowhere = np.zeros(0, dtype=np.int64)
            return Matches(nowhere, nowhere, nowhere)
        if flat.is_short:
            return self._of_one(flat.words)
        # Words of no phrase stand behind the last one too, so that no phrase leads beyond it.
        words = np.zeros(len(flat.words) + len(self._levels), dtype=np.int64)
        words[: len(flat.words)] = flat.numbered(self._words)
        numbers = self._first[words]
        starts = np.flatnonzero(numbers >= 0)
        numbers = numbers[starts]
        ends = starts + 1
        phrases = self._levels[0].phrases[numbers] if self._levels else numbers
        walking = np.arange(len(starts))
        for length, level in enumerate(self._levels[1:], 2):
            keys = numbers * (len(self._words) + 1) + words[starts[walking] + (length - 1)]
            numbers = np.searchsorted(level.keys, keys)
            met = np.flatnonzero(level.keys[np.minimum(numbers, len(level.keys) - 1)] == keys)
            met = met[starts[walking[met]] + length <= flat.ends_of(starts[walking[met]])]
            walking, numbers = walking[met], numbers[met]
            whole = level.phrases[numbers]
            phrases[walking[whole >= 0]] = whole[whole >= 0]
            ends[walking[whole >= 0]] = starts[walking[whole >= 0]] + length
        return Matches(starts, ends, phrases).where(phrases >= 0)

    def _of_one(self, words: Utterance) -> Matches:
        """`longest` for one short utterance, sooner than by numpy."""
        begins = [start for start, word in enumerate(words) if word in self._beginnings]
        found = [(start, self.first_of(words[start : start + len(self._levels)])) for start in begins]
        met = [(start, start + len(self.listed[phrase]), phrase) for start, phrase in found if phrase is not None]
        starts, ends, phrases = np.array(met, dtype=np.int64).reshape(-1, 3).T
        return Matches(starts, ends, phrases)

    @cached_property
    def _places(self) -> dict[Utterance, int]:
        return {phrase: i for i, phrase in enumerate(self.listed)}

    def first_of(self, words: Utterance) -> int | None:
        """Which is the longest phrase that some words begin with; None: they begin with none."""
        beginnings = (self._places.get(words[:length]) for length in range(len(words), 0, -1))
        return next((phrase for phrase in beginnings if phrase is not None), None)
