"""What SMN, DAM and MRFN share: word vectors, the memory of encoded words, the loss, and the weights' start.

A matching model gives log-odds that a reply fits a context: one for SMN and DAM, one for each of its six views for MRFN. Its
score is the mean probability of its views, in (0, 1).

Departures of all three:
  * # Released: padding reaches scores, by biases and by the GRU over turns. Ours: it cannot, because similarities and
    feature maps are zero there and the GRU reads real turns alone; `padding="released"` is the released.
  * # Released: GRU cells of TensorFlow and Theano reset the state before the hidden product. Ours: after it, as torch's do,
    because they share the fast recurrence of `policies/core/gru.py`.

Shapes: as in `batches.py`; D width of an encoding, M different (turn, reply), V views.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PAD_ID, PairVocabulary
from parley.policies.ranking.matching.batches import Block, Reader, at, with_zero
from parley.policies.ranking.matching.settings import MatcherSizes

BARRED = -(2.0**32) + 1
"""What stands for minus infinity before a softmax; finite, so that a row in which all is barred is uniform."""
EMBEDDING_DEVIATION = 0.1
"""Word vectors that nobody trained before start normal with this deviation."""
_UNKNOWN_SEED = 20190


class ParameterCount(NamedTuple):
    """How large a model is."""

    total: int
    without_words: int
    """Without its word vectors, which depend on the corpus."""


class Matcher(nn.Module, ABC):
    """One matching model's parameters.

    Args:
        vocabulary: the words that it knows.
        sizes: its widths.
    """

    unknown: Tensor
    """Vectors of unknown words that are told apart; never trained."""
    words_at_once = 1 << 13
    """Words of contexts and candidates that are scored together, at most; bounds the memory of their encodings."""
    most_cells = 1 << 14
    """Places of a bucket of texts, at most."""

    def __init__(self, vocabulary: PairVocabulary, sizes: MatcherSizes) -> None:
        super().__init__()
        self.vocabulary, self.sizes = vocabulary, sizes
        self.reader = Reader(vocabulary, sizes)
        self.embedding = nn.Embedding(len(vocabulary), sizes.embed, padding_idx=PAD_ID)
        self.embedding.weight.requires_grad_(sizes.tuned)
        generator = torch.Generator().manual_seed(_UNKNOWN_SEED)
        unknown_UE = torch.randn(sizes.unknowns, sizes.embed, generator=generator) * EMBEDDING_DEVIATION
        self.register_buffer("unknown", unknown_UE, persistent=False)

    @abstractmethod
    def forward(self, block: Block) -> Tensor:
        """Log-odds (P, V) that each pair's reply fits its context, by each view."""

    @abstractmethod
    def encode(self, words_WE: Tensor, block: Block, letters_WD: Tensor | None) -> Sequence[Tensor]:
        """Encodes texts by themselves.

        Args:
            words_WE: the vectors of all words of all texts, zero at padding.
            block: the texts.
            letters_WD: what the model makes of each word's letters, if it reads them.

        Returns:
            Encodings (W, D), each of a width of its own.
        """

    def encode_letters(self, block: Block) -> Tensor | None:
        """What the model makes of the letters of each different word (S, D), if it reads them."""
        return None

    def memory(self, block: Block) -> list[Tensor]:
        """The encodings of all words of all texts (W + 1, D), the last row zero."""
        words, known = block.tensor(block.words_W), len(self.vocabulary)
        vectors_WE = self.embedding(words.clamp(max=known - 1))
        if self.sizes.unknowns:
            own = self.unknown[(words - known).clamp(min=0)]
            vectors_WE = torch.where((words < known).unsqueeze(1), vectors_WE, own)
        vectors_WE = self.drop(vectors_WE) * (words != PAD_ID).unsqueeze(1)
        letters_SD = self.encode_letters(block)
        letters_WD = None if letters_SD is None else at(letters_SD, block.tensor(block.spelt_W))
        return [with_zero(each) for each in self.encode(vectors_WE, block, letters_WD)]

    def drop(self, values: Tensor) -> Tensor:
        """Dropout of what the model reads, where it has any."""
        return values

    def scores(self, log_odds_PV: Tensor) -> Tensor:
        """Scores (P,) float64: the mean probability of the views; in float64, because near 1 float32 has few numbers."""
        return log_odds_PV.double().sigmoid().mean(1)

    def loss(self, log_odds_PV: Tensor, labels_P: Tensor, cap: float = 0.0) -> Tensor:
        """Cross-entropies of pairs (P,) in nats, summed over the views.

        Args:
            log_odds_PV: as `forward` gives them.
            labels_P: 1 for replies that fit, else 0, float.
            cap: nats above which a view's loss of a pair is cut; 0: none is.
        """
        labels_PV = labels_P.unsqueeze(1).expand_as(log_odds_PV)
        nats_PV = F.binary_cross_entropy_with_logits(log_odds_PV, labels_PV, reduction="none")
        return (nats_PV.clamp(max=cap) if cap else nats_PV).sum(1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draws initial weights: recurrences orthogonal, other matrices by Glorot, biases zero, norms one.

        Convolutions over similarities start uniform in plus or minus 0.01, as released.
        """
        for name, value in self.named_parameters():
            own, _, part = name.rpartition(".")
            if name == "embedding.weight":
                value.data.normal_(0, EMBEDDING_DEVIATION, generator=generator)
                value.data[PAD_ID] = 0
            elif isinstance(self.get_submodule(own), nn.LayerNorm):
                value.data.fill_(part == "weight")
            elif value.ndim < 2:
                value.data.zero_()
            elif "weight_hh" in part:
                for gate in value.data.chunk(3):
                    nn.init.orthogonal_(gate, generator=generator)
            elif isinstance(self.get_submodule(own), nn.Conv2d | nn.Conv3d):
                value.data.uniform_(-0.01, 0.01, generator=generator)
            else:
                nn.init.xavier_uniform_(value.data, generator=generator)

    def take_vectors(self, vectors_VE: np.ndarray) -> None:
        """Starts from word vectors that were trained before, of the vocabulary's words in their order."""
        self.embedding.weight.data.copy_(torch.from_numpy(vectors_VE))
        self.embedding.weight.data[PAD_ID] = 0

    def count(self) -> ParameterCount:
        """How many parameters it has; vectors that training keeps are counted too."""
        total = sum(value.numel() for value in self.parameters())
        return ParameterCount(total, total - self.embedding.weight.numel())
