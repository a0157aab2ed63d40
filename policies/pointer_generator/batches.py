"""What the pointer-generator network is fed: pairs cut to length, in ids that tell every word from every other.

Ids are those of a corpus opened with every word. The network knows the first V of them, which are the most frequent; to the
others it is blind (`<unk>`), but it can point at them, because equal ids are equal words. No list of a batch's unknown words
is kept: in training it is enough to know which words of the source a target is equal to.

A source is its first N - 1 words and `</s>`; a target is `<s>`, its first T - 1 words and `</s>`.

Departures:
  * # Released: a source has no end mark. Ours: `</s>`, which is copied like a word, so that a network fitted to few pairs
    learns where to stop as it learns to copy.

Shapes: B rows, N source words, T target words, V words that the network knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envs.pairs.vocabulary import BOS_ID, EOS_ID, UNK_ID
from policies.pointer_generator.settings import PointerSizes
from policies.seq2seq.batches import Pairs, Sentences, framed


@dataclass(frozen=True)
class Rewrites:
    """A batch of sentences and what was written in their place."""

    source_BN: Tensor
    """int64 of any size, padded on the right."""
    lengths_B: Tensor
    """Real words per source, `</s>` included, int64."""
    target: Sentences
    """The paraphrases."""

    @property
    def targets_BT(self) -> Tensor:
        """What is predicted; padding included."""
        return self.target.targets_BT

    @property
    def real_BT(self) -> Tensor:
        """True where there is something to predict."""
        return self.target.real_BT

    def to(self, device: torch.device) -> Rewrites:
        """The same batch on a device."""
        return Rewrites(self.source_BN.to(device), self.lengths_B.to(device), self.target.to(device))


class RewriteExamples:
    """The pairs of a split.

    Args:
        split: of a corpus opened with every word.
        sizes: how long sources and targets may be.
    """

    def __init__(self, split: Pairs, sizes: PointerSizes) -> None:
        self._utterances, self._pairs, self._sizes = split.utterances, split.pairs, sizes
        self.num_targets = np.minimum(np.diff(split.utterances.offsets)[split.pairs[:, 1]], sizes.max_reply - 1) + 1

    def __len__(self) -> int:
        return len(self.num_targets)

    def batch(self, indices: np.ndarray) -> Rewrites:
        """The pairs at `indices` (B,), sources and targets padded to the longest of each."""
        pairs = self._pairs[indices]
        source, lengths = framed(self._utterances, pairs[:, 0], self._sizes.max_source, None, EOS_ID)
        target, _ = framed(self._utterances, pairs[:, 1], self._sizes.max_reply, BOS_ID, EOS_ID)
        return Rewrites(torch.from_numpy(source), torch.from_numpy(lengths), Sentences(torch.from_numpy(target)))


def known(ids: Tensor, size: int) -> Tensor:
    """The ids as a network that knows the first `size` words reads them: the others are `<unk>`."""
    return ids.masked_fill(ids >= size, UNK_ID)
