"""The sequential matching network (Wu et al. 2017, arXiv 1612.01627, section 3), its last-state variant.

    h_1..h_n  = GRU over the words e_1..e_n of a turn or reply
    M1, M2    = [u_i . r_j], [h_ui A h_rj]                              two similarities of turn and reply
    v_k       = tanh(W pool(relu(conv([M1; M2]))) + b)                  8 maps of 3 x 3, largest of 3 x 3
    s_K       = GRU over v_1..v_K,  p(fits) = softmax(W' s_K + b')

A window of the convolution is one whose first row and column are words; what it holds behind them is zero.

Departures, those of `matcher.py` apart:
  * # Released: Theano pads in front of words and turns, TensorFlow behind them. Ours: behind.
  * # Released: convolutions of TensorFlow start by He, those of Theano uniform in +-0.01. Ours: as Theano's.

Shapes: R rows of turns, N words of a turn, J words of a reply, H state; others as in `matcher.py`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.pairs.vocabulary import PairVocabulary
from policies.gru import GRU
from policies.matching.batches import Block, Rows
from policies.matching.matcher import Encoded, Matcher, at, each_match, state_at, states
from policies.matching.settings import SmnSizes
from policies.products import Linear, dense

WINDOW = 3
"""Width of the convolution and of the pooling."""


class SMN(Matcher):
    """One SMN's parameters; the arguments are those of `Matcher`."""

    sizes: SmnSizes
    words_at_once = 1 << 16
    most_match_cells = 1 << 16

    def __init__(self, vocabulary: PairVocabulary, sizes: SmnSizes) -> None:
        super().__init__(vocabulary, sizes)
        self.gru = GRU(sizes.embed, sizes.gru)
        self.bilinear = Linear(sizes.gru, sizes.gru, bias=False)
        self.conv = nn.Conv2d(2, sizes.maps, WINDOW)
        self.side = (sizes.words - WINDOW + 1) // WINDOW
        """Pooled cells on each side of a whole similarity."""
        self.match = Linear(sizes.maps * self.side**2, sizes.match)
        self.session = GRU(sizes.match, sizes.session)
        self.output = Linear(sizes.session, 2)

    def encode(self, words_RNE: Tensor, rows: Rows, letters: Tensor | None) -> Encoded:
        begun = None if rows.begun is None else rows.begun.exact
        states_RNH = states(self.gru, words_RNE, begun) * rows.read_RN.unsqueeze(2)
        return words_RNE, states_RNH, self.bilinear(states_RNH)

    def forward(self, block: Block) -> Tensor:
        words, hidden, keys = self.memory(block)

        def match(turns: Rows, replies: Rows) -> Tensor:
            here, there = turns.places_RN, replies.places_RN
            by_words_RNJ = at(words, here) @ at(words, there).transpose(1, 2)
            by_states_RNJ = at(keys, here) @ at(hidden, there).transpose(1, 2)
            pooled = self.pool(torch.stack([by_words_RNJ, by_states_RNJ], 1), turns.real_RN, replies.real_RN)
            rows, columns = pooled.shape[2:]
            weight = self.match.weight.view(-1, self.sizes.maps, self.side, self.side)[:, :, :rows, :columns]
            return torch.tanh(dense(pooled.flatten(1), weight.flatten(1), self.match.bias))

        vectors_PKD, newest_P = each_match(block, match, self.most_match_cells)
        logits_P2 = self.output(state_at(self.session, vectors_PKD, newest_P))
        return logits_P2[:, 1:] - logits_P2[:, :1]

    def pool(self, alike_R2NJ: Tensor, turn_RN: Tensor, reply_RJ: Tensor) -> Tensor:
        """The pooled feature maps of similarities (R, maps, n, j), zero where no window begins at words."""
        # A whole similarity has no window that ends behind it.
        windows = [min(length, self.sizes.words - WINDOW + 1) for length in alike_R2NJ.shape[2:]]
        below, right = (most + WINDOW - 1 - length for most, length in zip(windows, alike_R2NJ.shape[2:], strict=True))
        maps = torch.relu(self.conv(F.pad(alike_R2NJ, (0, right, 0, below))))
        maps = maps * (turn_RN[:, None, : windows[0], None] & reply_RJ[:, None, None, : windows[1]])
        return F.max_pool2d(maps, WINDOW, ceil_mode=True)[:, :, : self.side, : self.side]
