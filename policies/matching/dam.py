"""The deep attention matching network (Zhou et al. 2018, ACL, section 3).

    block(Q, K)  = norm(y + W2 relu(W1 y)),  y = norm(Q + softmax(Q K^T / sqrt(E)) K)         one head
    U_0, R_0     = word vectors;  U_l = block_l(U_l-1, U_l-1),  R_l likewise                   l = 1..5
    U'_l, R'_l   = block'_l(U_l, R_l), block''_l(R_l, U_l)                                     l = 0..5
    Q[k, i, j]   = [U'_l[i] . R'_l[j] / sqrt(E)]_l, [U_l[i] . R_l[j] / sqrt(E)]_l              12 channels of turn k
    p(fits)      = sigmoid(w pool(elu(conv(pool(elu(conv(Q)))))) + b)      over turns, words and words: 3 x 3 x 3, largest of 3

The products of attention between turn and reply are the similarities of the second kind, so that they are formed once.

Departures, those of `matcher.py` apart:
  * # Released: nine turns. Li et al. 2019: ten, and so are ours; `turns=9` is the released.
  * # Released: TensorFlow begins the pooling of ten turns one before the first. Ours: at the first, as it does with nine.
  * # Released: biases of the feed-forward layers are one number each. Ours: one for each unit.
  * # Released: `loss_cap` also cuts off what it bounds; so does ours.

Shapes: B pairs, K turns, N words of a turn, J words of a reply, L levels (5 + 1); others as in `matcher.py`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.pairs.vocabulary import PairVocabulary
from policies.matching.batches import Block, Rows, buckets
from policies.matching.matcher import BARRED, Encoded, Matcher, at, with_zero
from policies.matching.settings import DamSizes
from policies.products import Linear, dense

POOL = 3
"""Width of the poolings."""
_FEW = 24
"""Rows of turns and replies that are padded rather than cut: fewer than elsewhere, for a padded cell costs more here."""


class AttentiveBlock(nn.Module):
    """What stands above an attention: residual, norm, two layers, residual, norm.

    Args:
        width: of the words.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.inner, self.outer = (Linear(width, width) for _ in range(2))

    def forward(self, words_WE: Tensor, attended_WE: Tensor) -> Tensor:
        """Words with what they attend to."""
        mixed_WE = self.first_norm(words_WE + attended_WE)
        return self.second_norm(mixed_WE + self.outer(torch.relu(self.inner(mixed_WE))))


class DAM(Matcher):
    """One DAM's parameters; the arguments are those of `Matcher`."""

    sizes: DamSizes
    is_recurrent = False
    most_match_cells = 1 << 16
    """Cells of the similarities of a bucket of turns and replies, channels not counted."""
    most_volume = 1 << 16
    """Cells of the volumes of a bucket of pairs, channels not counted."""

    def __init__(self, vocabulary: PairVocabulary, sizes: DamSizes) -> None:
        super().__init__(vocabulary, sizes)
        self.own = nn.ModuleList(AttentiveBlock(sizes.embed) for _ in range(sizes.stack))
        self.of_turns = nn.ModuleList(AttentiveBlock(sizes.embed) for _ in range(sizes.stack + 1))
        self.of_replies = nn.ModuleList(AttentiveBlock(sizes.embed) for _ in range(sizes.stack + 1))
        self.first = nn.Conv3d(2 * (sizes.stack + 1), sizes.first_maps, 3, padding=1)
        self.second = nn.Conv3d(sizes.first_maps, sizes.second_maps, 3, padding=1)
        self.whole = tuple(math.ceil(math.ceil(side / POOL) / POOL) for side in (sizes.turns, sizes.words, sizes.words))
        """Cells of a whole volume after both poolings."""
        self.output = Linear(sizes.second_maps * math.prod(self.whole), 1)
        self.scale = sizes.embed**-0.5

    def encode(self, words_RNE: Tensor, rows: Rows, letters: Tensor | None) -> Encoded:
        barred_RNN = ~(rows.read_RN.unsqueeze(2) & rows.read_RN.unsqueeze(1))
        levels = [words_RNE]
        for block in self.own:
            words = levels[-1]
            alike_RNN = (words @ words.transpose(1, 2) * self.scale).masked_fill(barred_RNN, BARRED)
            levels.append(block(words, alike_RNN.softmax(2) @ words))
        return levels

    def forward(self, block: Block) -> Tensor:
        levels = self.memory(block)
        met_M2, sessions_PK = block.matches
        sizes_M2 = block.rooms_T[met_M2]
        found, order = [], []
        for chosen in buckets(sizes_M2, self.most_match_cells, _FEW):
            found.append(self.similarities(levels, *(block.rows(texts) for texts in met_M2[chosen].T)))
            order.append(chosen)
        alike_XC = with_zero(torch.cat(found))
        ordered = np.concatenate(order)
        cells_M = sizes_M2.prod(1)[ordered]
        # Behind the newest turn of a pair there is no cell.
        starts_M, sides_M2 = np.zeros(len(met_M2) + 1, dtype=np.int64), np.pad(sizes_M2, ((0, 1), (0, 0)))
        starts_M[ordered] = cells_M.cumsum() - cells_M
        longest_P = sides_M2[sessions_PK, 0].max(1)
        sizes_P3 = np.stack([(sessions_PK < len(met_M2)).sum(1), longest_P, block.rooms_T[block.pairs_P2[:, 1]]], axis=1)
        decided, order = [], []
        for chosen in buckets(sizes_P3, self.most_volume):
            turns, rows, columns = sizes_P3[chosen].max(0)
            here_BK11 = sessions_PK[chosen, :turns, None, None]
            i_N1, j_J = np.arange(rows)[:, None], np.arange(columns)
            real_BKNJ = (i_N1 < sides_M2[here_BK11, 0]) & (j_J < sides_M2[here_BK11, 1])
            places_BKNJ = np.where(real_BKNJ, starts_M[here_BK11] + i_N1 * sides_M2[here_BK11, 1] + j_J, len(alike_XC) - 1)
            volumes = at(alike_XC, block.tensor(places_BKNJ)).movedim(4, 1)
            decided.append(self.decide(volumes, block.tensor(real_BKNJ).unsqueeze(1)))
            order.append(chosen)
        return torch.cat(decided)[block.tensor(np.argsort(np.concatenate(order)))]

    def similarities(self, levels: list[Tensor], turns: Rows, replies: Rows) -> Tensor:
        """The cells (X, 2L) of similarities, row by row.

        Args:
            levels: the memory.
            turns: R rows.
            replies: those that they meet.
        """
        barred_RNJ = ~(turns.read_RN.unsqueeze(2) & replies.read_RN.unsqueeze(1))
        is_whole = not bool(barred_RNJ.any())
        crossed, own = [], []
        for level, of_turn, of_reply in zip(levels, self.of_turns, self.of_replies, strict=True):
            turns_RNE, replies_RJE = at(level, turns.places_RN), at(level, replies.places_RN)
            alike_RNJ = turns_RNE @ replies_RJE.transpose(1, 2) * self.scale
            logits_RNJ = alike_RNJ if is_whole else alike_RNJ.masked_fill(barred_RNJ, BARRED)
            to_replies_RNE = logits_RNJ.softmax(2) @ replies_RJE
            to_turns_RJE = logits_RNJ.softmax(1).transpose(1, 2) @ turns_RNE
            told_RNE = _layered(of_turn, turns_RNE, to_replies_RNE, turns.real_RN)
            told_RJE = _layered(of_reply, replies_RJE, to_turns_RJE, replies.real_RN)
            crossed.append(told_RNE @ told_RJE.transpose(1, 2) * self.scale)
            own.append(alike_RNJ)
        alike_RNJC = torch.stack(crossed + own, 3)
        real_RNJ = turns.real_RN.unsqueeze(2) & replies.real_RN.unsqueeze(1)
        return alike_RNJC.flatten(0, 2) if bool(real_RNJ.all()) else alike_RNJC[real_RNJ]

    def decide(self, volumes: Tensor, real: Tensor) -> Tensor:
        """The log-odds (B, 1) of volumes of similarities."""
        for conv in (self.first, self.second):
            # The largest value stays the largest under an ELU.
            volumes, real = _pooled(conv(volumes), real)
            volumes = F.elu(volumes)
        kept = [slice(side) for side in volumes.shape[2:]]
        weight = self.output.weight.view(-1, self.sizes.second_maps, *self.whole)[:, :, *kept]
        return dense(volumes.flatten(1), weight.flatten(1), self.output.bias)


def _pooled(maps: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The largest real value of each window, zero where it has none, and where it has one."""
    largest = F.max_pool3d(torch.where(real, maps, -torch.inf), POOL, ceil_mode=True)
    kept = F.max_pool3d(real.to(maps.dtype), POOL, ceil_mode=True) > 0
    return largest.masked_fill(~kept, 0), kept


def _layered(layer: nn.Module, words_RNE: Tensor, attended_RNE: Tensor, real_RN: Tensor) -> Tensor:
    """What a block makes of words (R, N, E), zero at padding, which it does not read."""
    if bool(real_RN.all()):
        made: Tensor = layer(words_RNE, attended_RNE)
        return made
    flat = real_RN.flatten()
    places_RN = torch.where(flat, flat.cumsum(0) - 1, flat.sum()).view_as(real_RN)
    return at(with_zero(layer(words_RNE[real_RN], attended_RNE[real_RN])), places_RN)
