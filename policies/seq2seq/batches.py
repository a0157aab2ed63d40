"""What the models are fed: pairs and sentences cut to length, specials added, batched and padded on the right.

A source is its first N - 1 words and `<eou>`, of a model that reads several turns its last N - 1 words, for the newest matter
most; a reply is `<s>`, its first T - 1 words and `</s>`; a sentence of a language model is made like a reply. A backward model
reads replies, their first words, and predicts contexts, of several turns the last words. The batches of an epoch depend on the
generator given alone.

Shapes: B rows, N source words, T reply words or words of a sentence (`<s>` not counted), M targets in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, EOU_ID, PAD_ID
from parley.policies.core.fitting.batches import Tensors
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit, Ragged


@dataclass(frozen=True)
class Sentences(Tensors):
    """A batch for a language model: `<s>`, words, `</s>`, then padding."""

    words_BT1: Tensor
    """(B, T + 1) int64."""

    @property
    def words_in_BT(self) -> Tensor:
        """What is read."""
        return self.words_BT1[:, :-1]

    @property
    def targets_BT(self) -> Tensor:
        """What is predicted; padding included."""
        return self.words_BT1[:, 1:]

    @property
    def real_BT(self) -> Tensor:
        """True where there is something to predict."""
        return self.targets_BT != PAD_ID


@dataclass(frozen=True, kw_only=True)
class Answered(Tensors):
    """A batch of replies, behind what they are predicted from."""

    reply: Sentences

    @property
    def targets_BT(self) -> Tensor:
        """What is predicted; padding included."""
        return self.reply.targets_BT

    @property
    def real_BT(self) -> Tensor:
        """True where there is something to predict."""
        return self.reply.real_BT


@dataclass(frozen=True, kw_only=True)
class Exchanges(Answered):
    """A batch for a sequence-to-sequence model."""

    source_BN: Tensor
    """int64, padded on the right."""
    lengths_B: Tensor
    """Real words per source, the mark at its end included, int64."""

    @property
    def contexts(self) -> list[bytes]:
        """The words of each source as the model reads them; equal where the sources are."""
        return [row[:length].tobytes() for row, length in zip(self.source_BN.numpy(), self.lengths_B, strict=True)]


class SentenceExamples:
    """The texts of a split, for a language model.

    Args:
        utterances: of the split; for a model of several turns as `parley.envs.corpora.pairs.contexts.contexts` makes them.
        sizes: how long a text may be.
    """

    def __init__(self, utterances: Ragged, sizes: LanguageModelSizes) -> None:
        self._utterances, self._width, self._newest = utterances, sizes.max_length, sizes.turns > 1
        self.num_targets = np.minimum(np.diff(utterances.offsets), sizes.max_length - 1) + 1

    def __len__(self) -> int:
        return len(self.num_targets)

    def batch(self, indices: np.ndarray) -> Sentences:
        """The texts at `indices` (B,), padded to the longest of them."""
        words, _ = framed(self._utterances, indices, self._width, BOS_ID, EOS_ID, newest=self._newest)
        return Sentences(torch.from_numpy(words))


class PairExamples:
    """The pairs of a split, for a sequence-to-sequence model.

    Args:
        split: pairs of context and reply, and their utterances; for a model of several turns as
            `parley.envs.corpora.pairs.contexts.windows` makes them.
        sizes: how long sources and replies may be, and which of them is predicted.
        end: the mark at the end of a source.
    """

    def __init__(self, split: PairSplit, sizes: Seq2SeqSizes, end: int = EOU_ID) -> None:
        self._utterances, self._sizes, self._end = split.utterances, sizes, end
        self._pairs = split.pairs[:, ::-1] if sizes.backward else split.pairs
        self.num_targets = np.minimum(np.diff(split.utterances.offsets)[self._pairs[:, 1]], sizes.max_reply - 1) + 1

    def __len__(self) -> int:
        return len(self.num_targets)

    def exchanged(self) -> PairExamples:
        """The same replies in the same order, each behind the source of another pair, half of them away."""
        other, (sources_P, replies_P) = copy(self), self._pairs.T
        other._pairs = np.stack([np.roll(sources_P, len(self) // 2), replies_P], axis=1)
        return other

    def batch(self, indices: np.ndarray) -> Exchanges:
        """The pairs at `indices` (B,), sources and replies padded to the longest of each."""
        pairs = self._pairs[indices]
        sizes, several = self._sizes, self._sizes.turns > 1
        newest = several and not sizes.backward
        source, lengths = framed(self._utterances, pairs[:, 0], sizes.max_source, None, self._end, newest=newest)
        newest = several and sizes.backward
        reply, _ = framed(self._utterances, pairs[:, 1], sizes.max_reply, BOS_ID, EOS_ID, newest=newest)
        return Exchanges(
            source_BN=torch.from_numpy(source), lengths_B=torch.from_numpy(lengths), reply=Sentences(torch.from_numpy(reply))
        )


def framed_source(words: Sequence[int] | np.ndarray, sizes: Seq2SeqSizes) -> list[int]:
    """One source as `PairExamples` reads it: cut to length, `<eou>` behind it."""
    kept = sizes.max_source - 1
    return [*map(int, words[-kept:] if sizes.turns > 1 and not sizes.backward else words[:kept]), EOU_ID]


def framed(
    utterances: Ragged, indices: np.ndarray, longest: int, first: int | None, last: int, *, newest: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Utterances cut to length with specials around them.

    Args:
        utterances: to take from.
        indices: (B,) which ones.
        longest: words kept, the special behind them included, the one in front not.
        first: the special in front, if any.
        last: the special behind.
        newest: whether the last words of a longer utterance are kept instead of the first.

    Returns:
        Ids (B, longest of them) int64, padded on the right, and lengths (B,) int64; both with the specials.
    """
    starts = np.asarray(utterances.offsets[indices], dtype=np.int64)
    ends = np.asarray(utterances.offsets[indices + 1], dtype=np.int64)
    kept = np.minimum(ends - starts, longest - 1)
    if newest:
        starts = ends - kept
    lead = 0 if first is None else 1
    lengths = kept + lead + 1
    columns = np.arange(lengths.max()) - lead
    # Positions past an utterance's end are read somewhere and replaced below; there may be no word at all to read.
    values = utterances.values if len(utterances.values) else np.full(1, PAD_ID)
    places = np.clip(starts[:, None] + columns, 0, len(values) - 1)
    ids = np.where(columns < kept[:, None], values[places], PAD_ID).astype(np.int64)
    ids[np.arange(len(ids)), kept + lead] = last
    if first is not None:
        ids[:, 0] = first
    return ids, lengths
