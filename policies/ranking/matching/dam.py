"""The deep attention matching network (Zhou et al. 2018, ACL, section 3).

    block(Q, K)  = norm(y + W2 relu(W1 y)),  y = norm(Q + softmax(Q K^T / sqrt(E)) K)         one head
    U_0, R_0     = word vectors;  U_l = block_l(U_l-1, U_l-1),  R_l likewise                   l = 1..5
    U'_l, R'_l   = block'_l(U_l, R_l), block''_l(R_l, U_l)                                     l = 0..5
    Q[k, i, j]   = [U'_l[i] . R'_l[j] / sqrt(E)]_l, [U_l[i] . R_l[j] / sqrt(E)]_l              12 channels of turn k
    p(fits)      = sigmoid(w pool(elu(conv(pool(elu(conv(Q)))))) + b)      over turns, words and words: 3 x 3 x 3, largest of 3

The products of attention between turn and reply are the similarities of the second kind, so that they are formed once. The
first convolution is formed turn by turn, from the similarities of a turn and of the turns before and after it: a volume of all
turns of a pair would be as high as the longest of them, and most are short.

Departures, those of `matcher.py` apart:
  * # Released: nine turns. Li et al. 2019: ten, and so are ours; `turns=9` is the released.
  * # Released: TensorFlow begins the pooling of ten turns one before the first. Ours: at the first, as it does with nine.
  * # Released: biases of the feed-forward layers are one number each. Ours: one for each unit.
  * # Released: `loss_cap` also cuts off what it bounds; so does ours.

Shapes: B pairs, K turns, N words of a turn, J words of a reply, L levels (5 + 1), U turns of all pairs, Y similarities,
Z pooled cells, F maps; others as in `matcher.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.layers import Linear, activated, dense, dense_onto, products_onto, scaled_products
from parley.policies.ranking.matching.batches import Block, Padded, at, buckets, with_zero
from parley.policies.ranking.matching.matcher import BARRED, Matcher
from parley.policies.ranking.matching.settings import DamSizes

POOL = 3
"""Width of the poolings."""
_FEW = 64
"""Rows of turns and replies that are padded rather than cut: few, for a padded cell costs more here than elsewhere."""


class AttentiveBlock(nn.Module):
    """The layers above an attention: residual, norm, two layers, residual, norm.

    Args:
        width: of the words.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.inner, self.outer = (Linear(width, width) for _ in range(2))

    def forward(self, sums_WE: Tensor) -> Tensor:
        """Return the block's output for sums of words and the words they attend to."""
        mixed_WE = self.first_norm(sums_WE)
        inner_WE = activated(mixed_WE, self.inner.weight, self.inner.bias, "relu")
        return self.second_norm(dense_onto(mixed_WE, inner_WE, self.outer.weight, self.outer.bias))


class DAM(Matcher):
    """The parameters of one DAM; the arguments are those of `Matcher`."""

    sizes: DamSizes
    most_match_cells = 1 << 16
    """Cells of a bucket of turns and replies, channels not counted."""
    most_volume = 1 << 16
    """Pooled cells of a bucket of pairs, channels not counted."""

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
            sums = []
            for rows, words_RNE in zip(texts.rows, words, strict=True):
                barred_RNN = ~(rows.read_RN.unsqueeze(2) & rows.read_RN.unsqueeze(1))
                alike_RNN = scaled_products(words_RNE, words_RNE.transpose(1, 2), self.scale).masked_fill(barred_RNN, BARRED)
                sums.append(products_onto(words_RNE, alike_RNN.softmax(2), words_RNE))
            levels.append(layer(texts.joined(sums)))
        return levels

    def forward(self, block: Block) -> Tensor:
        met_M2, sessions_PK = block.matches
        sizes_M2 = block.rooms_T[met_M2]
        chosen = list(buckets(sizes_M2, self.most_match_cells, _FEW))
        turns, replies = (Padded(block, texts_M, chosen) for texts_M in met_M2.T)
        alike = self.similarities(self.memory(block), turns, replies)
        alike_YC = torch.cat([*(alike_RNJC.flatten(0, 2) for alike_RNJC in alike), alike[0].new_zeros(1, alike[0].shape[3])])
        grids = _Grids(sizes_M2, chosen, [alike_RNJC.shape[1:3] for alike_RNJC in alike])
        # In float32 under autocast too: oneDNN's gradients of a three-dimensional convolution in bfloat16 may be NaN.
        with torch.autocast(block.device.type, enabled=False):
            return self._decided(block, alike_YC.float(), grids, sessions_PK)

    def _decided(self, block: Block, alike_YC: Tensor, grids: _Grids, sessions_PK: np.ndarray) -> Tensor:
        """Return the log-odds (P, 1) of pairs.

        Args:
            block: of the pairs.
            alike_YC: the similarities of all matches, and a zero row.
            grids: positions of the similarities of each match.
            sessions_PK: the match of each turn of each pair.
        """
        near_PK3 = np.pad(sessions_PK, ((0, 0), (1, 1)), constant_values=len(grids.sizes_G2) - 1)
        near_PK3 = np.lib.stride_tricks.sliding_window_view(near_PK3, 3, axis=1)
        is_turn_PK = sessions_PK < len(grids.sizes_G2) - 1
        near_U3, sizes_U2 = near_PK3[is_turn_PK], grids.sizes_G2[sessions_PK[is_turn_PK]]
        weight = self.first.weight.transpose(1, 2).flatten(1, 2)
        chosen, pooled = list(buckets(sizes_U2, self.most_match_cells, _FEW)), []
        for bucket in chosen:
            height, width = sizes_U2[bucket].max(0)
            # One row more than the turn has, because the turns beside it may be longer.
            places_U3NJ = grids.places(near_U3[bucket], height + 1, width)
            near = at(alike_YC, block.tensor(np.moveaxis(places_U3NJ, 1, 3))).flatten(3).permute(0, 3, 1, 2)
            real = block.tensor(places_U3NJ[:, 1:2, :-1] < len(alike_YC) - 1)
            maps = F.conv2d(near, weight, self.first.bias, padding=1)[:, :, :-1]
            pooled.append(F.max_pool2d(maps.where(real, -torch.inf), POOL, ceil_mode=True).permute(0, 2, 3, 1))
        nowhere = pooled[0].new_full((1, self.sizes.first_maps), -torch.inf)
        pooled_ZF = torch.cat([*(bucket.flatten(0, 2) for bucket in pooled), nowhere])
        pools = _Grids(-(-sizes_U2 // POOL), chosen, [bucket.shape[1:3] for bucket in pooled])
        units_PK = np.full((len(sessions_PK), -(-sessions_PK.shape[1] // POOL) * POOL), len(sizes_U2))
        units_PK[:, : sessions_PK.shape[1]][is_turn_PK] = np.arange(len(sizes_U2))
        sizes_PK2 = pools.sizes_G2[units_PK]
        sizes_P3 = np.column_stack([-(-is_turn_PK.sum(1) // POOL), sizes_PK2.max(1)])
        decided, order = [], []
        for pairs in buckets(sizes_P3, self.most_volume):
            num_turns, height, width = sizes_P3[pairs].max(0)
            places = pools.places(units_PK[pairs, : num_turns * POOL], height, width)
            volumes = at(pooled_ZF, block.tensor(places)).unflatten(1, (num_turns, POOL)).amax(2).movedim(4, 1)
            decided.append(self._decide(volumes))
            order.append(pairs)
        return torch.cat(decided)[block.tensor(np.argsort(np.concatenate(order)))]

    def similarities(self, levels: Sequence[Tensor], turns: Padded, replies: Padded) -> list[Tensor]:
        """Return the similarities (R, N, J, 2L) of each bucket; values at padding have no meaning.

        Args:
            levels: the memory.
            turns: of each match.
            replies: that they meet.
        """
        similarities = []
        # A bucket goes through all levels before the next, so that its data stays in the processor's cache.
        words = (zip(*map(side.spread, levels), strict=True) for side in (turns, replies))
        for here, there, of_bucket, in_bucket in zip(turns.rows, replies.rows, *words, strict=True):
            barred_RNJ = ~(here.read_RN.unsqueeze(2) & there.read_RN.unsqueeze(1))
            crossed, within = [], []
            for turn, reply, of_turn, of_reply in zip(of_bucket, in_bucket, self.of_turns, self.of_replies, strict=True):
                alike_RNJ, with_reply, with_turn = self._attend(turn, reply, barred_RNJ)
                within.append(alike_RNJ)
                crossed.append(scaled_products(of_turn(with_reply), of_reply(with_turn).transpose(1, 2), self.scale))
            similarities.append(torch.stack(crossed + within, 3))
        return similarities

    def _attend(self, here_RNE: Tensor, there_RJE: Tensor, barred_RNJ: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return word similarities (R, N, J), and words plus the words they attend to (R, N, E), (R, J, E)."""
        alike_RNJ = scaled_products(here_RNE, there_RJE.transpose(1, 2), self.scale)
        logits_RNJ = alike_RNJ.masked_fill(barred_RNJ, BARRED)
        sums_RNE = products_onto(here_RNE, logits_RNJ.softmax(2), there_RJE)
        return alike_RNJ, sums_RNE, products_onto(there_RJE, logits_RNJ.softmax(1).transpose(1, 2), here_RNE)

    def _decide(self, volumes: Tensor) -> Tensor:
        """Return the log-odds (B, 1) of volumes of the first convolution, minus infinity at empty cells."""
        real = volumes[:, :1] > -torch.inf
        # The largest value stays the largest under an ELU.
        volumes = self.second(F.elu(volumes.masked_fill(~real, 0)))
        volumes = F.max_pool3d(volumes.where(real, -torch.inf), POOL, ceil_mode=True)
        volumes = F.elu(volumes.masked_fill(volumes.isneginf(), 0))
        kept = [slice(side) for side in volumes.shape[2:]]
        weight = self.output.weight.view(-1, self.sizes.second_maps, *self.whole)[:, :, *kept]
        return dense(volumes.flatten(1), weight.flatten(1), self.output.bias)


class _Grids:
    """Grids of cells, one after the other; an empty cell stands after all of them.

    Args:
        sizes_G2: rows and columns of each grid.
        chosen: the grids of each bucket.
        shapes: rows and columns that all grids of a bucket have, padding counted.
    """

    def __init__(self, sizes_G2: np.ndarray, chosen: Sequence[np.ndarray], shapes: Sequence[Sequence[int]]) -> None:
        self.sizes_G2 = np.pad(sizes_G2, ((0, 1), (0, 0)))
        """Rows and columns of each; the last one has none."""
        self._starts_G, self._widths_G, self._end = (*np.zeros((2, len(self.sizes_G2)), dtype=np.int64), 0)
        for bucket, (height, width) in zip(chosen, shapes, strict=True):
            self._starts_G[bucket] = self._end + np.arange(len(bucket)) * (height * width)
            self._widths_G[bucket] = width
            self._end += len(bucket) * height * width

    def places(self, grids: np.ndarray, height: int, width: int) -> np.ndarray:
        """Return the positions of the cells of some grids (..., height, width); the end for missing cells."""
        grid, i_N1, j_J = grids[..., None, None], np.arange(height)[:, None], np.arange(width)
        real = (i_N1 < self.sizes_G2[grid, 0]) & (j_J < self.sizes_G2[grid, 1])
        return np.where(real, self._starts_G[grid] + i_N1 * self._widths_G[grid] + j_J, self._end)
