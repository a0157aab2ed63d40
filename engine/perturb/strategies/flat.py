"""All words of many contexts as one tuple, and back: strategies that need no model work on them in one pass.

What is done once an utterance or oftener is done by the standard library's iterators and by numpy: to read the words and to
build the tuples again is most of what a quick strategy costs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Sized
from functools import cached_property
from itertools import chain, compress, pairwise, repeat
from typing import NamedTuple, TypeVar

import numpy as np

from parley.envs.corpora.pairs.turns import Turn, Turns, Utterance

_SHORT = 64
"""Words."""
PieceT = TypeVar("PieceT")


class Edits(NamedTuple):
    """What a strategy changes: other words in the place of some of `FlatContexts.words`."""

    starts: np.ndarray
    """Where what is replaced begins (M,) int64, ascending."""
    ends: np.ndarray
    """Where it ends, within its utterance and not beyond the next start (M,) int64; where it begins: the others are inserted
    before that word."""
    others: Sequence[Utterance]
    """What stands there instead (M); nothing: the words are left out. As many words as before replace one another in order."""

    @classmethod
    def of_words(cls, places: np.ndarray, others: Sequence[Utterance]) -> Edits:
        """Edits of single words.

        Args:
            places: of those words, ascending (M,) int64.
            others: what stands in the place of each (M).
        """
        return cls(places, places + 1, others)


class FlatContexts:
    """Contexts laid end to end.

    Args:
        contexts: turns, oldest first.
    """

    def __init__(self, contexts: Sequence[Turns]) -> None:
        self.contexts = contexts

    @classmethod
    def laid(cls, words: Utterance, edges: np.ndarray, turn_edges: np.ndarray, shape_edges: np.ndarray) -> FlatContexts:
        """Contexts of which `words`, `edges`, `turn_edges` and `shape_edges` are known."""
        flat = cls.__new__(cls)
        flat.__dict__.update(words=words, edges=edges, turn_edges=turn_edges, shape_edges=shape_edges)
        return flat

    @cached_property
    def contexts(self) -> Sequence[Turns]:
        """The contexts."""
        return self.cut(self.words)

    @cached_property
    def turns(self) -> Turns:
        """The turns of all contexts."""
        return tuple(chain.from_iterable(self.contexts))

    @cached_property
    def utterances(self) -> Turn:
        """The utterances of all turns."""
        return tuple(chain.from_iterable(self.turns))

    @cached_property
    def words(self) -> Utterance:
        """The words of all utterances (N)."""
        words: list[str] = []
        for utterance in self.utterances:
            words += utterance
        return tuple(words)

    @cached_property
    def edges(self) -> np.ndarray:
        """Where utterances begin among the words, and where the last one ends (utterances + 1,) int64."""
        return _edges(self.utterances)

    @cached_property
    def context_edges(self) -> np.ndarray:
        """Where contexts begin among the words, and where the last one ends (contexts + 1,) int64."""
        return self.edges[self.turn_edges[self.shape_edges]]

    @property
    def is_short(self) -> bool:
        """Whether there is one short utterance alone, which is sooner read without numpy."""
        return len(self.edges) == 2 and len(self.words) <= _SHORT

    @property
    def num_words(self) -> np.ndarray:
        """Of each context (contexts,) int64."""
        return np.diff(self.context_edges)

    @cached_property
    def turn_edges(self) -> np.ndarray:
        """Where turns begin among the utterances (turns + 1,)."""
        return _edges(self.turns)

    @cached_property
    def shape_edges(self) -> np.ndarray:
        """Where contexts begin among the turns (contexts + 1,)."""
        return _edges(self.contexts)

    def num_in_contexts(self, places: np.ndarray) -> np.ndarray:
        """How many of some words lie in each context.

        Args:
            places: their places among the words, ascending.

        Returns:
            (contexts,) int64.
        """
        if len(self.shape_edges) == 2:
            return np.array([len(places)])
        return np.diff(np.searchsorted(places, self.context_edges))

    def are_in(self, listed: Container[str]) -> np.ndarray:
        """Which of the words a list holds (N,) bool."""
        return np.frombuffer(bytearray(map(listed.__contains__, self.words)), dtype=bool)

    def numbered(self, numbers: Mapping[str, int]) -> np.ndarray:
        """The numbers of the words, 0 where they have none (N,) int64."""
        return np.fromiter(map(numbers.get, self.words, repeat(0)), dtype=np.int64, count=len(self.words))

    def ends_of(self, places: np.ndarray) -> np.ndarray:
        """Where the utterances of some of the words end.

        Args:
            places: of those words (M,) int64.

        Returns:
            (M,) int64.
        """
        return self.edges[np.searchsorted(self.edges, places, side="right")]

    def cut(self, words: Utterance, edges: np.ndarray | None = None) -> list[Turns]:
        """Contexts with as many utterances in each turn.

        Args:
            words: of all utterances.
            edges: where utterances begin among them, as `edges`; as they did when not given.
        """
        return self.shaped(tuple(_cut(words, self.edges if edges is None else edges)))

    def edits_of(self, found: Iterable[tuple[int, int, Utterance] | None]) -> Edits:
        """Edits from what a rule says of each utterance.

        Args:
            found: for each of `utterances` where an edit begins and ends in it and what stands there instead; None: no edit.
        """
        edges = zip(self.edges[:-1].tolist(), found, strict=True)
        moved = [(edge + edit[0], edge + edit[1], edit[2]) for edge, edit in edges if edit is not None]
        starts, ends, others = zip(*moved, strict=True) if moved else ((), (), ())
        return Edits(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), others)

    def replaced(self, edits: Edits) -> list[Turns]:
        """Contexts with other words in the place of some."""
        starts, ends, others = edits
        if not len(starts):
            return list(self.contexts)
        words = list(self.words)
        longer = np.fromiter(map(len, others), dtype=np.int64, count=len(others)) - (ends - starts)
        as_long = longer == 0
        in_place = zip(starts[as_long].tolist(), ends[as_long].tolist(), compress(others, as_long.tolist()), strict=True)
        for start, end, instead in in_place:
            words[start:end] = instead
        moving = np.flatnonzero(~as_long)
        starts, ends, longer = starts[moving], ends[moving], longer[moving]
        written: list[str] = []
        done = 0
        for start, end, i in zip(starts.tolist(), ends.tolist(), moving.tolist(), strict=True):
            written += words[done:start]
            written += others[i]
            done = end
        written += words[done:]
        return self.cut(tuple(written), self.edges + running(longer)[np.searchsorted(starts, self.edges)])

    def shaped(self, utterances: Turn) -> list[Turns]:
        """Contexts with as many utterances in each turn.

        Args:
            utterances: as many as `utterances`.
        """
        return _cut(tuple(_cut(utterances, self.turn_edges)), self.shape_edges)


def running(counts: np.ndarray) -> np.ndarray:
    """Sums of the first none, one, two, ..., all of some counts (counts + 1,) int64."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _edges(pieces: Sequence[Sized]) -> np.ndarray:
    return running(np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces)))


def _cut(pieces: tuple[PieceT, ...], edges: np.ndarray) -> list[tuple[PieceT, ...]]:
    """The pieces between neighbouring edges."""
    counts = np.diff(edges)
    if len(counts) and counts[0] and (counts == counts[0]).all():
        # As most contexts are: as many turns each, of one utterance each.
        return list(zip(*[iter(pieces)] * int(counts[0]), strict=True))
    return [pieces[start:end] for start, end in pairwise(edges.tolist())]
