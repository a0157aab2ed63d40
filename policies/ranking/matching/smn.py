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

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.gru import GRU
from parley.policies.core.layers import Linear, dense
from parley.policies.ranking.matching.batches import Block, Padded, at, buckets
from parley.policies.ranking.matching.matcher import Matcher
from parley.policies.ranking.matching.settings import SmnSizes

WINDOW = 3
"""Width of the convolution and of the pooling."""


class SMN(Matcher):
    """The parameters of one SMN; the arguments are those of `Matcher`."""

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

    def encode(self, words_WE: Tensor, block: Block, letters_WD: Tensor | None) -> Sequence[Tensor]:
        states_WH = block.texts.states(self.gru, words_WE) * block.read_W.unsqueeze(1)
        return words_WE, states_WH, self.bilinear(states_WH)

    def forward(self, block: Block) -> Tensor:
        words, hidden, keys = self.memory(block)
        met_M2, _ = block.matches
        chosen = list(buckets(block.rooms_T[met_M2], self.most_match_cells))
        turns, replies = (Padded(block, texts_M, chosen) for texts_M in met_M2.T)
        sides = (turns.spread(words), replies.spread(words), turns.spread(keys), replies.spread(hidden))
        matches = []
        for here, there, *rows in zip(turns.rows, replies.rows, *sides, strict=True):
            alike = [turn_RND @ reply_RJD.transpose(1, 2) for turn_RND, reply_RJD in (rows[:2], rows[2:])]
            pooled = self.pool(torch.stack(alike, 1), here.real_RN, there.real_RN)
            height, width = pooled.shape[2:]
            weight = self.match.weight.view(-1, self.sizes.maps, self.side, self.side)[:, :, :height, :width]
            matches.append(dense(pooled.flatten(1), weight.flatten(1), self.match.bias))
        vectors_MD = torch.tanh(torch.cat(matches))[block.tensor(np.argsort(np.concatenate(chosen)))]
        places_Z, sessions = block.sessions
        logits_P2 = self.output(sessions.last_states(self.session, at(vectors_MD, places_Z)))
        return logits_P2[:, 1:] - logits_P2[:, :1]

    def pool(self, alike_R2NJ: Tensor, turn_RN: Tensor, reply_RJ: Tensor) -> Tensor:
        """Return the pooled feature maps of similarities (R, maps, n, j), zero where no window begins at words."""
        # A whole similarity has no window that ends behind it.
        windows = [min(length, self.sizes.words - WINDOW + 1) for length in alike_R2NJ.shape[2:]]
        below, right = (most + WINDOW - 1 - length for most, length in zip(windows, alike_R2NJ.shape[2:], strict=True))
        maps = torch.relu(self.conv(F.pad(alike_R2NJ, (0, right, 0, below))))
        maps = maps * (turn_RN[:, None, : windows[0], None] & reply_RJ[:, None, None, : windows[1]])
        return F.max_pool2d(maps, WINDOW, ceil_mode=True)[:, :, : self.side, : self.side]
