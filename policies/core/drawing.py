"""Draws words from distributions over a vocabulary, each decided by one uniform number.

The word is the one at which the summed probabilities, in the order of the ids, pass the number. The sums are formed over blocks
of words first, so that a distribution is read once, and every draw then looks into one block; few words are one block.

Shapes: n distributions, V words, R draws, K blocks of W words.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK, _SMALL = 128, 512
"""Words of a block; so few words in all are summed without blocks."""
_BELOW_ONE = 1 - 2.0**-40
"""Keeps a draw off the very end of a sum, behind which words of no probability may stand."""


def drawn(logits_nV: Tensor, draws_R: Tensor, rows_R: Tensor | None = None) -> Tensor:
    """Words (R,) int64.

    Args:
        logits_nV: minus infinity for words that are never drawn.
        draws_R: uniform in [0, 1), float64.
        rows_R: the distribution of each draw, int64; each its own where none are named.
    """
    num, size = logits_nV.shape
    device, whole = logits_nV.device, size - size % _BLOCK
    shares_nV = logits_nV.softmax(1)
    if size <= _SMALL:
        passed_nV = shares_nV.cumsum(1, dtype=torch.float64)
        passed_RV = passed_nV if rows_R is None else passed_nV[rows_R]
        return torch.searchsorted(passed_RV, (draws_R * passed_RV[:, -1] * _BELOW_ONE).unsqueeze(1), right=True).squeeze(1)
    blocks_nKW = shares_nV[:, :whole].unflatten(1, (-1, _BLOCK)) if whole else shares_nV.new_zeros(num, 0, _BLOCK)
    rest_n1 = shares_nV[:, whole:].sum(1, keepdim=True)
    passed_nK = torch.cat([blocks_nKW.sum(2), rest_n1], dim=1).double().cumsum(1)
    if rows_R is None:
        rows_R = torch.arange(num, device=device)
    passed_RK = passed_nK[rows_R]
    bars_R1 = (draws_R * passed_RK[:, -1] * _BELOW_ONE).unsqueeze(1)
    blocks_R1 = torch.searchsorted(passed_RK, bars_R1, right=True)
    words_RW = blocks_R1 * _BLOCK + torch.arange(_BLOCK, device=device)
    within_RW = (shares_nV[rows_R.unsqueeze(1), words_RW.clamp(max=size - 1)] * (words_RW < size)).double().cumsum(1)
    before_R1 = torch.where(blocks_R1 > 0, passed_RK.gather(1, (blocks_R1 - 1).clamp(min=0)), 0.0)
    # The block's sum in float32 may lie a little above its words'.
    left_R1 = torch.minimum(bars_R1 - before_R1, within_RW[:, -1:] * _BELOW_ONE)
    return (blocks_R1 * _BLOCK + torch.searchsorted(within_RW, left_R1, right=True)).squeeze(1)
