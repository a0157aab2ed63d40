"""What discriminators read: contexts turn by turn, and replies that people or machines wrote.

A turn and a whole reply end with `</s>`, which is a word like any other; the beginning of a reply does not. So a discriminator
knows whether a reply is over. Words are ids of one vocabulary, without marks around them, `<eot>` between the turns of a
context.

Shapes: B contexts, K turns, N words of a turn, R replies, T words of a reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from parley.envs.core.seeds import stream
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import EOS_ID, PAD_ID, PairVocabulary
from parley.policies.core.fitting.batches import Tensors
from parley.policies.generation.discriminator.settings import DiscriminatorSizes

Ids = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class JudgedReplies:
    """A context and replies to it of which is known who wrote them.

    Args:
        source: words of the context, `<eot>` between its turns.
        replies: words of each, without `</s>`.
        human: whether a person wrote each.
        seed: draws the prefixes that stand for the replies, where these are asked for.
    """

    source: Ids
    replies: Sequence[Ids]
    human: Sequence[bool]
    seed: int


@dataclass(frozen=True)
class ContextBatch(Tensors):
    """Contexts, the newest turn last."""

    words_BKN: Tensor
    """int64, padded on the right."""
    lengths_BK: Tensor
    """Words of each turn, `</s>` counted, int64; 0 where a context has no such turn."""


@dataclass(frozen=True, kw_only=True)
class JudgedBatch(Tensors):
    """Contexts, each with some labelled replies."""

    contexts: ContextBatch
    rows_R: Tensor
    """The context of each reply, int64."""
    words_RT: Tensor
    """int64, padded on the right."""
    lengths_R: Tensor
    """Words of each reply that count, int64."""
    human_R: Tensor
    """1 where a person wrote it, else 0, int64."""

    @property
    def targets_BT(self) -> Tensor:
        """What is predicted (R, 1)."""
        return self.human_R.unsqueeze(1)

    @property
    def real_BT(self) -> Tensor:
        """All of it."""
        return torch.ones_like(self.targets_BT, dtype=torch.bool)


class ReplyExamples:
    """Contexts with labelled replies, to fit a discriminator to or to measure it on.

    Args:
        items: one for each context.
        vocabulary: of the model.
        sizes: of the model.
        prefixes: whether a reply is replaced by its first t words, `</s>` counted, t uniform from 1 to its length: partial
            sequences, one of each reply (Li et al. 2017, section 3.2).
    """

    def __init__(
        self, items: Sequence[JudgedReplies], vocabulary: PairVocabulary, sizes: DiscriminatorSizes, *, prefixes: bool = False
    ) -> None:
        self._items, self._vocabulary, self._sizes, self._prefixes = items, vocabulary, sizes, prefixes
        self.num_targets = np.array([len(item.replies) for item in items], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._items)

    def batch(self, indices: np.ndarray) -> JudgedBatch:
        """The contexts at `indices` (B,) with all their replies, one context's after another's."""
        items = [self._items[int(index)] for index in indices]
        words_RT, lengths_R = reply_batch([reply for item in items for reply in item.replies], self._sizes)
        if self._prefixes:
            draws_R = [draw for item in items for draw in stream(item.seed, "prefix").random(len(item.replies))]
            lengths_R = (torch.tensor(draws_R, dtype=torch.float64) * lengths_R).long() + 1
        return JudgedBatch(
            contexts=context_batch([item.source for item in items], self._vocabulary, self._sizes),
            rows_R=torch.arange(len(items)).repeat_interleave(torch.from_numpy(self.num_targets[indices])),
            words_RT=words_RT,
            lengths_R=lengths_R,
            human_R=torch.tensor([int(human) for item in items for human in item.human]),
        )


def context_batch(sources: Sequence[Ids], vocabulary: PairVocabulary, sizes: DiscriminatorSizes) -> ContextBatch:
    """Contexts as a model reads them, on the CPU.

    Args:
        sources: words of each, `<eot>` between turns.
        vocabulary: of the model; without `<eot>` every context is one turn.
        sizes: of the model.
    """
    eot, none = vocabulary.index.get(EOT, -1), torch.zeros(0, dtype=torch.int64)
    rows: list[Tensor] = []
    for source in sources:
        ids = np.asarray(source, dtype=np.int64)
        turns = [each[each != eot] for each in np.split(ids, np.flatnonzero(ids == eot))][-sizes.turns :]
        rows += [none] * (sizes.turns - len(turns))
        rows += [torch.tensor([*turn[max(0, len(turn) + 1 - sizes.words) :], EOS_ID]) for turn in turns]
    words_PN = pad_sequence(rows, batch_first=True, padding_value=PAD_ID)
    lengths_P = torch.tensor([len(row) for row in rows])
    return ContextBatch(words_PN.view(len(sources), sizes.turns, -1), lengths_P.view(len(sources), -1))


def reply_batch(replies: Sequence[Ids], sizes: DiscriminatorSizes) -> tuple[Tensor, Tensor]:
    """Whole replies as a model reads them, on the CPU.

    Args:
        replies: words of each, without `</s>`; longer ones than the model reads lose their end.
        sizes: of the model.

    Returns:
        Words (R, T) int64, `</s>` behind each reply and padding behind that, and lengths (R,) int64, `</s>` counted.
    """
    rows = [torch.tensor([*map(int, reply[: sizes.words - 1]), EOS_ID]) for reply in replies]
    return pad_sequence(rows, batch_first=True, padding_value=PAD_ID), torch.tensor([len(row) for row in rows])
