"""Batches of negotiation dialogues: sorted by length, cut, and padded only to their own longest member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from parley.envs.negotiation.vocabulary import PAD_ID
from parley.policies.core.fitting.batches import Tensors

if TYPE_CHECKING:
    from parley.envs.negotiation.corpora.compiled import Split


@dataclass(frozen=True)
class NegotiationBatch(Tensors):
    """B dialogues padded to T tokens, as int64 tensors."""

    contexts_B6: Tensor
    tokens_BT: Tensor
    lengths_B: Tensor
    outputs_B6: Tensor


def make_batch(dialogues: Split, indices: np.ndarray) -> NegotiationBatch:
    """The dialogues at `indices` (B,), padded to the longest of them."""
    lengths = dialogues.lengths[indices]
    tokens = np.full((len(indices), int(lengths.max())), PAD_ID, dtype=np.int64)
    for row, index in enumerate(indices):
        tokens[row, : lengths[row]] = dialogues.tokens(int(index))
    return NegotiationBatch(
        torch.from_numpy(dialogues.contexts[indices].astype(np.int64)),
        torch.from_numpy(tokens),
        torch.from_numpy(lengths.astype(np.int64)),
        torch.from_numpy(dialogues.outputs[indices].astype(np.int64)),
    )


def by_length(dialogues: Split, batch_size: int) -> list[np.ndarray]:
    """Indices of batches of dialogues of like length, shortest first; the last may be smaller."""
    order = np.argsort(dialogues.lengths, kind="stable")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def shuffled(dialogues: Split, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Indices of the batches of one epoch: dialogues of like length, the batches in random order."""
    groups = by_length(dialogues, batch_size)
    return [groups[index] for index in generator.permutation(len(groups))]
