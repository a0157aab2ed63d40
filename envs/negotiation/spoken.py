"""The words of a game whose sides do not share one closed vocabulary: text, of which each side reads what it knows.

A word has an id of the game: those of side 0's vocabulary first, so that its ids are the game's; then those of side 1's; then
whatever else is said. Either side speaks and hears in ids of its own vocabulary, and hears `<unk>` for a word that it lacks.
A word that the speaker's own vocabulary lacks is spoken as the size of that vocabulary plus the game's id.

Shapes: any; ids are int64.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parley.envs.negotiation.vocabulary import Vocabulary


class SpokenWords:
    """Words that grow by what is said, and how each side numbers them.

    Args:
        vocabularies: of side 0 and side 1.
    """

    def __init__(self, vocabularies: tuple[Vocabulary, Vocabulary]) -> None:
        self._vocabularies = vocabularies
        self.words = list(vocabularies[0].words)
        """Every word by the game's id."""
        self._index = dict(vocabularies[0].index)
        self._spoken = [self.ids(vocabulary.words) for vocabulary in vocabularies]
        self._heard = [np.empty(0, dtype=np.int64)] * 2

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """The game's ids (n,) of words; those that are new join them."""
        found = []
        for word in words:
            if word not in self._index:
                self._index[word] = len(self.words)
                self.words.append(word)
            found.append(self._index[word])
        return np.array(found, dtype=np.int64)

    def spoken(self, side: int, ids: np.ndarray) -> np.ndarray:
        """The game's ids of what a side says in ids of its own."""
        own = self._spoken[side]
        return np.where(ids < len(own), own[np.minimum(ids, len(own) - 1)], ids - len(own))

    def heard(self, side: int, ids: np.ndarray) -> np.ndarray:
        """A side's own ids of what is said in the game's."""
        table = self._heard[side]
        if len(table) < len(self.words):
            new = self._vocabularies[side].encode(self.words[len(table) :])
            table = self._heard[side] = np.concatenate([table, new])
        return table[ids]
