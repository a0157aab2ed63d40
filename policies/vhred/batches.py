"""What VHRED is fed: the turns of a context, each ended by `<eou>`, and a reply.

A turn is its last `max_turn` - 1 words and `<eou>`, so that an empty one is a turn too; a reply is made as that of a
sequence-to-sequence model (`policies/seq2seq/batches.py`). Of longer contexts the newest turns are read.

Shapes: B rows, K turns, N words of a turn, T words of a reply (`<s>` not counted).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from parley.envs.corpora.pairs.turns import Turn, Turns, turn_words
from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID, PairVocabulary
from parley.policies.core.fitting.batches import Tensors
from parley.policies.seq2seq.batches import Answered, Sentences
from parley.policies.vhred.settings import VhredSizes

Context = Sequence[Sequence[int]]
"""Word ids of turns, oldest first, as `context_ids` makes them."""


@dataclass(frozen=True)
class Dialogues(Tensors):
    """Contexts side by side."""

    words_BKN: Tensor
    """int64; turns oldest first, padded behind their words, and behind the newest turn."""
    lengths_BK: Tensor
    """Words of each turn, `<eou>` included, int64; 0 where there is no turn."""


@dataclass(frozen=True, kw_only=True)
class DialogueBatch(Answered):
    """A batch for VHRED."""

    context: Dialogues

    @property
    def contexts(self) -> list[bytes]:
        """The words of each context as the model reads them; equal where the contexts are."""
        found = []
        for turns_KN, lengths_K in zip(self.context.words_BKN.numpy(), self.context.lengths_BK.numpy(), strict=True):
            ends = lengths_K[lengths_K > 0]
            turns = (words[:end].tobytes() for words, end in zip(turns_KN, ends, strict=False))
            found.append(b"".join([ends.tobytes(), *turns]))
        return found


class DialogueExamples:
    """Replies to be predicted from contexts.

    Args:
        contexts: turns before each reply, oldest first.
        replies: as many.
        vocabulary: the model's words; others are `<unk>`.
        sizes: how many turns are read, and how long they and replies may be.
    """

    def __init__(
        self, contexts: Sequence[Turns], replies: Sequence[Turn], vocabulary: PairVocabulary, sizes: VhredSizes
    ) -> None:
        assert len(contexts) == len(replies)
        self._contexts = [context_ids(context, vocabulary, sizes) for context in contexts]
        self._replies = [vocabulary.encode(turn_words(reply))[: sizes.max_reply - 1].tolist() for reply in replies]
        self.num_targets = np.array([len(reply) + 1 for reply in self._replies], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._replies)

    def exchanged(self) -> DialogueExamples:
        """The same replies in the same order, each behind the context of another, half of them away."""
        other, half = copy(self), len(self) // 2
        other._contexts = self._contexts[len(self) - half :] + self._contexts[: len(self) - half]
        return other

    def batch(self, indices: np.ndarray) -> DialogueBatch:
        """The examples at `indices` (B,), padded to the largest of them."""
        context = side_by_side([self._contexts[index] for index in indices])
        framed = [[BOS_ID, *self._replies[index], EOS_ID] for index in indices]
        return DialogueBatch(context=context, reply=Sentences(torch.from_numpy(_padded(framed))))


def context_ids(context: Turns, vocabulary: PairVocabulary, sizes: VhredSizes) -> list[list[int]]:
    """The newest turns of a context as the model reads them, each cut to its last words and ended by `<eou>`."""
    newest = [vocabulary.encode(turn_words(turn))[-(sizes.max_turn - 1) :] for turn in context[-sizes.turns :]]
    return [[*words.tolist(), EOU_ID] for words in newest]


def side_by_side(contexts: Sequence[Context]) -> Dialogues:
    """Contexts of at least one turn each, padded to the largest."""
    num_turns = max(map(len, contexts))
    lengths = np.zeros((len(contexts), num_turns), dtype=np.int64)
    for row, context in enumerate(contexts):
        lengths[row, : len(context)] = [len(turn) for turn in context]
    words = np.full((len(contexts), num_turns, lengths.max()), PAD_ID, dtype=np.int64)
    for row, context in enumerate(contexts):
        for number, turn in enumerate(context):
            words[row, number, : len(turn)] = turn
    return Dialogues(torch.from_numpy(words), torch.from_numpy(lengths))


def _padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    ids = np.full((len(rows), max(map(len, rows))), PAD_ID, dtype=np.int64)
    for row, words in enumerate(rows):
        ids[row, : len(words)] = words
    return ids
