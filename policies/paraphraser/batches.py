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

from typing import TYPE_CHECKING

from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import EOS_ID, UNK_ID
from parley.policies.paraphraser.settings import PointerSizes
from parley.policies.seq2seq.batches import PairExamples
from parley.policies.seq2seq.settings import Seq2SeqSizes

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.compiled import PairSplit


class RewriteExamples(PairExamples):
    """The pairs of a split.

    Args:
        split: of a corpus opened with every word.
        sizes: how long sources and targets may be.
    """

    def __init__(self, split: PairSplit, sizes: PointerSizes) -> None:
        super().__init__(split, Seq2SeqSizes(max_source=sizes.max_source, max_reply=sizes.max_reply), EOS_ID)


def known(ids: Tensor, size: int) -> Tensor:
    """The ids as a network that knows the first `size` words reads them: the others are `<unk>`."""
    return ids.masked_fill(ids >= size, UNK_ID)
