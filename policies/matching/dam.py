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
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from envs.pairs.vocabulary import PairVocabulary
from policies.matching.batches import Block, Padded, at, buckets, with_zero
from policies.matching.matcher import BARRED, Matcher
from policies.matching.settings import DamSizes
from policies.products import Linear, dense

POOL = 3
"""Width of the poolings."""
_FEW = 64
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

    def encode(self, words_WE: Tensor, block: Block, letters_WD: Tensor | None) -> Sequence[Tensor]:
        texts, levels = block.padded(self.most_cells), [words_WE]
        for layer in self.own:
            words = texts.spread(with_zero(levels[-1]))
            attended = []
            for rows, words_RNE in zip(texts.rows, words, strict=True):
                barred_RNN = ~(rows.read_RN.unsqueeze(2) & rows.read_RN.unsqueeze(1))
                alike_RNN = (words_RNE @ words_RNE.transpose(1, 2) * self.scale).masked_fill(barred_RNN, BARRED)
                attended.append(alike_RNN.softmax(2) @ words_RNE)
            levels.append(layer(levels[-1], texts.joined(attended)))
        return levels

    def forward(self, block: Block) -> Tensor:
        met_M2, sessions_PK = block.matches
        sizes_M2 = block.rooms_T[met_M2]
        chosen = list(buckets(sizes_M2, self.most_match_cells, _FEW))
        turns, replies = (Padded(block, texts_M, chosen) for texts_M in met_M2.T)
        alike = self.similarities(self.memory(block), turns, replies)
        alike_YC = with_zero(torch.cat([each.flatten(0, 2) for each in alike]))
        # Where the cells of each match start, and how many a row of them has; behind the newest turn of a pair there is none.
        starts_M, widths_M, begin = (*np.zeros((2, len(met_M2) + 1), dtype=np.int64), 0)
        for each, (rows, height, width) in zip(chosen, (part.shape[:3] for part in alike), strict=True):
            starts_M[each], widths_M[each] = begin + np.arange(rows) * (height * width), width
            begin += rows * height * width
        sides_M2 = np.pad(sizes_M2, ((0, 1), (0, 0)))
        longest_P = sides_M2[sessions_PK, 0].max(1)
        sizes_P3 = np.stack([(sessions_PK < len(met_M2)).sum(1), longest_P, block.rooms_T[block.pairs_P2[:, 1]]], axis=1)
        decided, order = [], []
        for pairs in buckets(sizes_P3, self.most_volume):
            num_turns, height, width = sizes_P3[pairs].max(0)
            here_BK11 = sessions_PK[pairs, :num_turns, None, None]
            i_N1, j_J = np.arange(height)[:, None], np.arange(width)
            real_BKNJ = (i_N1 < sides_M2[here_BK11, 0]) & (j_J < sides_M2[here_BK11, 1])
            places_BKNJ = np.where(real_BKNJ, starts_M[here_BK11] + i_N1 * widths_M[here_BK11] + j_J, len(alike_YC) - 1)
            volumes = at(alike_YC, block.tensor(places_BKNJ)).movedim(4, 1)
            # In float32 under autocast too: oneDNN's gradients of a three-dimensional convolution in bfloat16 may be NaN.
            with torch.autocast(block.device.type, enabled=False):
                decided.append(self.decide(volumes.float(), block.tensor(real_BKNJ).unsqueeze(1)))
            order.append(pairs)
        return torch.cat(decided)[block.tensor(np.argsort(np.concatenate(order)))]

    def similarities(self, levels: Sequence[Tensor], turns: Padded, replies: Padded) -> list[Tensor]:
        """The similarities (R, N, J, 2L) of each bucket; what stands at padding means nothing.

        Args:
            levels: the memory.
            turns: of each match.
            replies: that they meet.
        """
        read = [(here.read_RN, there.read_RN) for here, there in zip(turns.rows, replies.rows, strict=True)]
        crossed: list[list[Tensor]] = [[] for _ in read]
        own: list[list[Tensor]] = [[] for _ in read]
        for level, of_turn, of_reply in zip(levels, self.of_turns, self.of_replies, strict=True):
            to_replies, to_turns = [], []
            for place, (here, there) in enumerate(zip(turns.spread(level), replies.spread(level), strict=True)):
                alike_RNJ, to_reply, to_turn = self._attend(here, there, *read[place])
                own[place].append(alike_RNJ)
                to_replies.append(to_reply)
                to_turns.append(to_turn)
            told = turns.spread_own(of_turn(at(level, turns.places_X), turns.joined(to_replies)))
            said = replies.spread_own(of_reply(at(level, replies.places_X), replies.joined(to_turns)))
            for place, (here, there) in enumerate(zip(told, said, strict=True)):
                crossed[place].append(here @ there.transpose(1, 2) * self.scale)
        return [torch.stack(mine + theirs, 3) for mine, theirs in zip(crossed, own, strict=True)]

    def _attend(self, here_RNE: Tensor, there_RJE: Tensor, read_RN: Tensor, read_RJ: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Similarities (R, N, J) of words, what those here attend to (R, N, E), and what those there do (R, J, E)."""
        alike_RNJ = here_RNE @ there_RJE.transpose(1, 2) * self.scale
        logits_RNJ = alike_RNJ.masked_fill(~(read_RN.unsqueeze(2) & read_RJ.unsqueeze(1)), BARRED)
        return alike_RNJ, logits_RNJ.softmax(2) @ there_RJE, logits_RNJ.softmax(1).transpose(1, 2) @ here_RNE

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
