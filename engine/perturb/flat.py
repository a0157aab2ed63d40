"""All words of many contexts as one list, and back: strategies that need no model work on them in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, islice

import numpy as np

from envs.pairs.turns import Turns, Utterance


@dataclass(frozen=True)
class FlatContexts:
    """Contexts laid end to end.

    Args:
        contexts: turns, oldest first.
    """

    contexts: Sequence[Turns]

    @cached_property
    def utterances(self) -> list[Utterance]:
        """The utterances of all turns of all contexts."""
        return list(chain.from_iterable(chain.from_iterable(self.contexts)))

    @cached_property
    def words(self) -> list[str]:
        """The words of all utterances (N)."""
        return list(chain.from_iterable(self.utterances))

    @cached_property
    def ends(self) -> list[int]:
        """Where each utterance ends among the words."""
        return list(accumulate(map(len, self.utterances)))

    @cached_property
    def context_ends(self) -> np.ndarray:
        """Where each context ends among the words (contexts,) int64."""
        lengths = [sum([sum(map(len, turn)) for turn in turns]) for turns in self.contexts]
        return np.cumsum(lengths, dtype=np.int64)

    @property
    def num_words(self) -> np.ndarray:
        """Of each context (contexts,) int64."""
        return np.diff(self.context_ends, prepend=0)

    def num_in_contexts(self, places: np.ndarray) -> np.ndarray:
        """How many of some words lie in each context.

        Args:
            places: their places among the words, ascending.

        Returns:
            (contexts,) int64.
        """
        return np.diff(np.searchsorted(places, self.context_ends), prepend=0)

    def cut(self, words: Sequence[str]) -> list[Turns]:
        """Contexts of the same shape.

        Args:
            words: as many as `words`.
        """
        starts = [0, *self.ends]
        return self.shaped(tuple(words[start:end]) for start, end in zip(starts, self.ends, strict=False))

    def shaped(self, utterances: Iterable[Utterance]) -> list[Turns]:
        """Contexts with as many utterances in each turn.

        Args:
            utterances: as many as `utterances`.
        """
        following = iter(utterances)
        return [tuple([tuple(islice(following, len(turn))) for turn in turns]) for turns in self.contexts]
