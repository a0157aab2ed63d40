"""Phrases of a table, found among the words of many contexts by their first words."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from engine.perturb.flat import FlatContexts
from envs.pairs.turns import Utterance


class Phrases:
    """What is looked for.

    Args:
        listed: phrases of at least one word.
    """

    def __init__(self, listed: Collection[Utterance]) -> None:
        self._listed = listed
        lengths: dict[str, set[int]] = {}
        for phrase in listed:
            lengths.setdefault(phrase[0], set()).add(len(phrase))
        self._lengths = {word: sorted(each, reverse=True) for word, each in lengths.items()}

    def starts(self, flat: FlatContexts) -> tuple[np.ndarray, np.ndarray]:
        """The places among the words where a phrase may begin, ascending, and where the utterances of each end."""
        places = np.flatnonzero(flat.are_in(self._lengths))
        return places, flat.edges[np.searchsorted(flat.edges, places, side="right")]

    def end(self, words: Utterance, start: int, limit: int) -> int:
        """Where the longest phrase from a place of `starts` on ends, at a limit or before it; the place itself if none does."""
        for length in self._lengths[words[start]]:
            end = start + length
            if end <= limit and words[start:end] in self._listed:
                return end
        return start
