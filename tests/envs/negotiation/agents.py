"""Agents small enough to foresee every move of, for the tests of the game and its environments."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parley.envs.core.play import Utterances
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, SPECIALS, Vocabulary
from parley.envs.negotiation.game import SideView

VOCABULARY = Vocabulary((*SPECIALS, "YOU:", "THEM:", "i", "want", "the", "book", "hat", "ball", "no", "deal", "."))


@dataclass(frozen=True)
class Reader:
    """Reads its lines in order, then says `<selection>`, and always chooses the same index."""

    lines: tuple[str, ...] = ("i want the ball .", "deal .")
    selection: int = 0
    vocabulary: Vocabulary = field(default=VOCABULARY, repr=False)
    name: str = "reader"

    def join(self, view: SideView) -> ReaderSession:
        return ReaderSession(self, view)


class ReaderSession:
    def __init__(self, agent: Reader, view: SideView) -> None:
        self.agent, self.view = agent, view

    def speak(self, rows: np.ndarray) -> Utterances:
        said = [self._line(int(row)) for row in rows]
        lengths = np.array([len(words) for words in said], dtype=np.int64)
        tokens = np.zeros((len(said), lengths.max()), dtype=np.int64)
        for i, words in enumerate(said):
            tokens[i, : len(words)] = words
        return Utterances(tokens, lengths)

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return np.full(len(rows), self.agent.selection, dtype=np.int64)

    def _line(self, row: int) -> list[int]:
        spoken = self.view.tokens[row, : self.view.num_tokens[row]]
        turn = int((spoken == self.view.vocabulary.you_id).sum())
        if turn >= len(self.agent.lines):
            return [SELECTION_ID]
        return [*self.view.vocabulary.encode(self.agent.lines[turn].split()).tolist(), EOS_ID]


@dataclass(frozen=True)
class Babbler:
    """Says any token, legal or not, and chooses any index, existing or not; a pure function of the view's draws."""

    vocabulary: Vocabulary = field(default=VOCABULARY, repr=False)
    name: str = "babbler"

    def join(self, view: SideView) -> BabblerSession:
        return BabblerSession(view)


class BabblerSession:
    def __init__(self, view: SideView) -> None:
        self.view = view

    def speak(self, rows: np.ndarray) -> Utterances:
        width = self.view.rules.max_words
        start = self.view.num_tokens[rows]
        draws = self.view.uniforms[rows[:, None], start[:, None] + np.arange(width)]
        tokens = (draws * len(self.view.vocabulary)).astype(np.int64)
        is_end = (tokens == EOS_ID) | (tokens == SELECTION_ID)
        lengths = np.where(is_end.any(axis=1), is_end.argmax(axis=1) + 1, width)
        return Utterances(tokens, lengths)

    def choose(self, rows: np.ndarray) -> np.ndarray:
        return np.array([self.view.generator(int(row)).integers(-1, 40) for row in rows], dtype=np.int64)
