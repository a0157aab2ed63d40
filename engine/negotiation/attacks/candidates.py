"""Data of a search for adversarial sentences: exchanges, candidates, scores, steps and results.

Shapes: n dialogues, r candidates, L words of a sentence (its `<eos>` included).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION_ID, UNK_ID, Vocabulary

RESOLUTION = 1e-4
"""Losses closer than this count as equal, so that rounding does not choose between candidates."""


def special_words(vocabulary: Vocabulary) -> tuple[int, ...]:
    """Return the tokens that are no words of a language, without `<eos>`."""
    return (UNK_ID, SELECTION_ID, PAD_ID, vocabulary.you_id, vocabulary.them_id)


def offered_words(vocabulary: Vocabulary, allow_special: bool) -> np.ndarray:
    """Return the word ids (m,) that may enter a sentence: never `<eos>`, special tokens only if allowed."""
    kept_out = {EOS_ID} if allow_special else {EOS_ID, *special_words(vocabulary)}
    return np.array([i for i in range(len(vocabulary)) if i not in kept_out], dtype=np.int64)


def first_of_groups(order: np.ndarray, groups: np.ndarray, most: int) -> np.ndarray:
    """Return the first `most` rows of each group, of rows ordered by group; fewer in small groups."""
    ranked = groups[order]
    return order[np.arange(len(order)) - np.searchsorted(ranked, ranked) < most]


@dataclass(frozen=True)
class Candidates:
    """r candidates: in dialogue `dialogues`, the word at `positions` of the sentence becomes `words`; each (r,) int64."""

    dialogues: np.ndarray
    positions: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.dialogues)

    def __getitem__(self, rows: np.ndarray | slice) -> Candidates:
        return Candidates(self.dialogues[rows], self.positions[rows], self.words[rows])


@dataclass(frozen=True)
class Scores:
    """Scores of r candidates; each (r,).

    Args:
        broken: True if the constraint is broken.
        loss: the loss of the objective; the gap to the constraint if that is broken.
        adversary: points of the adversary, mean over replies; 0 if the constraint is broken.
        target: points of the target, likewise.
    """

    broken: np.ndarray
    loss: np.ndarray
    adversary: np.ndarray
    target: np.ndarray

    @cached_property
    def advantage(self) -> np.ndarray:
        """Return the adversary's points less the target's (r,)."""
        return self.adversary - self.target

    def key(self, row: int) -> tuple[bool, float, float]:
        """Return the key by which candidates are compared; lower is better."""
        return bool(self.broken[row]), float(self._rounded[row]), -float(self.advantage[row])

    def ranked(self, groups: np.ndarray) -> np.ndarray:
        """Return all rows, group by group in rising order, lowest key first; ties keep their order."""
        return np.lexsort((-self.advantage, self._rounded, self.broken, groups))

    def best(self, groups: np.ndarray, most: int = 1) -> np.ndarray:
        """Return the `most` rows with the lowest keys of each group, groups in rising order; fewer in small groups."""
        return first_of_groups(self.ranked(groups), groups, most)

    @cached_property
    def _rounded(self) -> np.ndarray:
        return np.round(self.loss / RESOLUTION)


@dataclass(frozen=True)
class ExchangeBatch:
    """n dialogues in which the adversary is about to speak.

    Args:
        contexts: counts and own values of the adversary (index 0) and the target (index 1): (2, n, 6).
        tokens: the dialogue so far in the target's view, padded (n, T).
        lengths: number of tokens so far (n,).
    """

    contexts: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class ReplacementStep:
    """A sentence after one more replaced word, and its score.

    Args:
        position: position of the replaced word; -1 for the unchanged sentence.
        word: its new word; -1 for the unchanged sentence.
        broken: True if the target would not end the talk (reactive searches with the hard constraint).
        loss: the loss of the objective, or the gap in logits if the constraint is broken.
        points: points of the adversary and the target by the target's choice, mean over replies; 0:0 if broken.
        reads: candidates that the target's reader has scored so far.
        decisions: choices that the target was asked for so far.
    """

    position: int
    word: int
    broken: bool
    loss: float
    points: tuple[float, float]
    reads: int
    decisions: int

    @property
    def advantage(self) -> float:
        """Return the adversary's points less the target's."""
        return self.points[0] - self.points[1]


@dataclass(frozen=True)
class ReplacementResult:
    """The result of a search.

    Args:
        sentence: word ids, `<eos>` last (L,).
        steps: the unchanged sentence, then one step for each word replaced.
        reached: True if it meets the goal and, if set, the hard constraint.
        ends: True if `<selection>` is the target's likeliest answer.
        end_probability: probability of that answer, at the target's temperature.
        reads: candidates that the target's reader scored.
        decisions: choices that the target was asked for.
        kept_out: candidates that were too perplexing for a query.
    """

    sentence: np.ndarray
    steps: tuple[ReplacementStep, ...]
    reached: bool
    ends: bool
    end_probability: float
    reads: int
    decisions: int
    kept_out: int = 0
