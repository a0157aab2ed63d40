"""What SMN, DAM and MRFN share: word vectors, the memory of encoded words, the loss, and the weights' start.

A matching model gives log-odds that a reply fits a context: one for SMN and DAM, one for each of its six views for MRFN. Its
score is the mean probability of its views, in (0, 1).

Departures of all three:
  * # Released: padding reaches scores, by biases and by the GRU over turns. Ours: it cannot, because similarities and
    feature maps are zero there and the GRU reads real turns alone; `padding="released"` is the released.
  * # Released: GRU cells of TensorFlow and Theano reset the state before the hidden product. Ours: after it, as torch's do,
    because they share the fast recurrence of `policies/gru.py`.

Shapes: as in `batches.py`; D width of an encoding, M different (turn, reply), V views.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.pairs.vocabulary import PAD_ID, PairVocabulary
from policies.gru import GRU, recur
from policies.matching.batches import Block, Reader, Rows, buckets
from policies.matching.beginnings import BegunSteps, begun_states
from policies.matching.settings import MatcherSizes
from policies.products import dense

BARRED = -(2.0**32) + 1
"""What stands for minus infinity before a softmax; finite, so that a row in which all is barred is uniform."""
EMBEDDING_DEVIATION = 0.1
"""Word vectors that nobody trained before start normal with this deviation."""
_UNKNOWN_SEED = 20190

Encoded = Sequence[Tensor]
"""Encodings of words, each (..., D) of a width of its own."""


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
    words_at_once = 1 << 14
    """Words of contexts and candidates that are scored together, at most; bounds the memory of their encodings."""
    most_cells = 1 << 14
    """Places of a bucket of texts, at most."""
    is_recurrent = True
    """Whether a GRU reads texts, so that it counts which of them begin alike."""

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
    def encode(self, words_RNE: Tensor, rows: Rows, letters: Tensor | None) -> Encoded:
        """Encodes texts by themselves.

        Args:
            words_RNE: word vectors, zero at padding.
            rows: where they stand.
            letters: what the model makes of each word's letters (R, N, D), if it reads them.

        Returns:
            Encodings (R, N, D).
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
        letters_WD = None if letters_SD is None else with_zero(letters_SD[block.tensor(block.spelt_W)])
        vectors_WE = with_zero(vectors_WE)
        parts: list[Encoded] = []
        places = []
        for texts in block.text_buckets(self.most_cells):
            rows = block.rows(texts, behind=self._together(texts))
            letters = None if letters_WD is None else at(letters_WD, rows.places_RN)
            found = self.encode(at(vectors_WE, rows.places_RN), rows, letters)
            parts.append([each[rows.real_RN] for each in found])
            places.append(rows.places_RN[rows.real_RN])
        back = torch.cat(places).argsort()
        return [with_zero(torch.cat(each)[back]) for each in zip(*parts, strict=True)]

    def _together(self, texts: np.ndarray) -> np.ndarray | None:
        return np.zeros_like(texts) if self.is_recurrent and not torch.is_grad_enabled() else None

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


def each_match(
    block: Block, match: Callable[[Rows, Rows], Tensor], most_cells: int, *, begun: bool = False
) -> tuple[Tensor, Tensor]:
    """Matches every different (turn, reply) once, those of like size side by side.

    Args:
        block: who meets whom.
        match: from rows of turns and of replies to vectors (R, D).
        most_cells: places of turns times places of replies of a bucket.
        begun: whether `match` asks which replies to a turn begin alike.

    Returns:
        The vectors of the turns of each pair (P, K, D), zero behind the newest, and the place of the newest (P,).
    """
    met_M2, sessions_PK = block.matches
    found, order = [], []
    for chosen in buckets(block.rooms_T[met_M2], most_cells):
        turns, replies = met_M2[chosen].T
        found.append(match(block.rows(turns), block.rows(replies, behind=turns if begun else None)))
        order.append(chosen)
    back = block.tensor(np.argsort(np.concatenate(order)))
    return at(with_zero(torch.cat(found)[back]), block.tensor(sessions_PK)), block.last_turns_P


def at(flat_WD: Tensor, places: Tensor) -> Tensor:
    """The rows at some places (..., D); torch gathers them, and spreads their gradients, fastest as embeddings."""
    return F.embedding(places, flat_WD)


def with_zero(flat_WD: Tensor) -> Tensor:
    """The rows and a zero row behind them, which padding points to."""
    return F.pad(flat_WD, (0, 0, 0, 1))


def states(gru: GRU, inputs_RND: Tensor, steps: BegunSteps | None = None) -> Tensor:
    """The states of a GRU (R, N, H) after every place, from zero; what stands behind a place does not change it.

    Args:
        gru: with its weights.
        inputs_RND: what it reads.
        steps: beginnings that rows share, and equal inputs with them; without gradients alone. States behind texts are zero.
    """
    if steps is not None:
        return at(begun_states(gru, inputs_RND, steps), steps.which_RN)
    gates_NR3H = dense(inputs_RND.transpose(0, 1), gru.weight_ih_l0, gru.bias_ih_l0)
    start = inputs_RND.new_zeros(1, len(inputs_RND), gru.hidden_size)
    found = recur(gates_NR3H.unsqueeze(0), gru.weight_hh_l0.unsqueeze(0), gru.bias_hh_l0.unsqueeze(0), start)
    return found[0].transpose(0, 1)


def state_at(gru: GRU, inputs_RND: Tensor, ends_R: Tensor, steps: BegunSteps | None = None) -> Tensor:
    """The state of a GRU (R, H) after the place of each row that is its last; see `states`."""
    rows_R = torch.arange(len(ends_R), device=ends_R.device)
    if steps is not None:
        return at(begun_states(gru, inputs_RND, steps), steps.which_RN[rows_R, ends_R])
    return states(gru, inputs_RND)[rows_R, ends_R]
