"""One split of a compiled corpus of candidates: arrays that any number of processes read, and groups made of them when asked.

Shapes: G groups, T turns of all contexts, C candidates of all groups, N distinct utterances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from parley.envs.corpora.pairs.compiled import Ragged
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.corpora.words import WordList
from parley.envs.ranking.groups import CandidateGroup, CandidateKind

KINDS = tuple(CandidateKind)
"""What the places in `CandidateSplit.kinds` stand for."""


@dataclass(frozen=True, eq=False)
class CandidateSplit(Sequence[CandidateGroup]):
    """Groups of one split, in the order of the corpus.

    Args:
        name: "train", "val" or "test".
        vocabulary: every word of the corpus.
        utterances: word ids of every utterance; N rows, all different, so that equal indices are equal words.
        contexts: utterances of each group's turns, oldest first; G rows.
        candidates: utterances of each group's candidates; G rows, C in all.
        labels: whether each candidate is right (C,) bool.
        kinds: places in `KINDS` (C,) uint8.
        attackable: whether an attack may change it (C,) bool.
        numbers: what the keys of groups name them by (G,) int64, ascending.
        dialogues: the dialogue that each context is of (G,) int64.
        is_cut: whether more turns came before, which the options leave out (G,) bool.
    """

    name: str
    vocabulary: WordList
    utterances: Ragged
    contexts: Ragged
    candidates: Ragged
    labels: np.ndarray
    kinds: np.ndarray
    attackable: np.ndarray
    numbers: np.ndarray
    dialogues: np.ndarray
    is_cut: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> CandidateGroup: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CandidateGroup]: ...
    def __getitem__(self, index: int | slice) -> CandidateGroup | Sequence[CandidateGroup]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        # Negative numbers count from the end, as everywhere.
        row = range(len(self))[index]
        its = slice(int(self.candidates.offsets[row]), int(self.candidates.offsets[row + 1]))
        return CandidateGroup(
            self.key(row),
            tuple(self.said(turn) for turn in self.contexts[row]),
            tuple(self.said(reply) for reply in self.candidates[row]),
            tuple(self.labels[its].tolist()),
            tuple(KINDS[kind] for kind in self.kinds[its]),
            tuple(self.attackable[its].tolist()),
        )

    def key(self, row: int) -> str:
        """What names a group, `row` from 0 to G - 1."""
        return f"{self.name}-{self.numbers[row]:07d}"

    def said(self, utterance: int) -> Utterance:
        """The words of an utterance, from 0 to N - 1."""
        return tuple(self.vocabulary.decode(self.utterances[utterance].tolist()))

    def first(self, limit: int) -> CandidateSplit:
        """So many groups at the beginning; all where the limit is 0."""
        return self.chosen(np.arange(limit)) if 0 < limit < len(self) else self

    def first_none(self) -> CandidateSplit:
        """No group, of the same utterances."""
        return self.chosen(np.zeros(0, dtype=np.int64))

    def chosen(self, rows: np.ndarray) -> CandidateSplit:
        """Some of the groups, of the same utterances.

        Args:
            rows: (n,) int, ascending.
        """
        whose = np.repeat(np.arange(len(self)), self.candidates.lengths)
        kept = np.isin(whose, rows)
        return replace(
            self,
            contexts=_rows(self.contexts, rows),
            candidates=_rows(self.candidates, rows),
            labels=self.labels[kept],
            kinds=self.kinds[kept],
            attackable=self.attackable[kept],
            numbers=self.numbers[rows],
            dialogues=self.dialogues[rows],
            is_cut=self.is_cut[rows],
        )

    def positives(self) -> np.ndarray:
        """The right candidates (n, 2) int64: group and utterance of each."""
        whose = np.repeat(np.arange(len(self)), self.candidates.lengths)
        return np.stack([whose[self.labels], self.candidates.values[self.labels]], axis=1)


def _rows(ragged: Ragged, rows: np.ndarray) -> Ragged:
    kept = np.isin(np.repeat(np.arange(len(ragged)), ragged.lengths), rows)
    return Ragged(ragged.values[kept], np.concatenate([[0], np.cumsum(ragged.lengths[rows])]))
