"""Draws words from distributions over a vocabulary, each decided by one uniform number.

The word is the one at which the summed probabilities, in the order of the ids, pass the number. The sums are formed over blocks
of words first, so that a distribution is read once, and every draw then looks into one block.

Shapes: n distributions, V words, R draws, K blocks of W words.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 128
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
    num_blocks = -(-size // _BLOCK)
    shares_nW = logits_nV.new_zeros(num, num_blocks * _BLOCK)
    torch.sub(logits_nV, logits_nV.amax(1, keepdim=True), out=shares_nW[:, :size])
    shares_nW[:, :size].exp_()
    shares_nKW = shares_nW.view(num, num_blocks, _BLOCK)
    passed_nK = shares_nKW.sum(2).double().cumsum(1)
    if rows_R is None:
        rows_R = torch.arange(num, device=logits_nV.device)
    passed_RK = passed_nK[rows_R]
    bars_R1 = (draws_R * passed_RK[:, -1] * _BELOW_ONE).unsqueeze(1)
    blocks_R1 = torch.searchsorted(passed_RK, bars_R1, right=True)
    within_RW = shares_nKW[rows_R, blocks_R1.squeeze(1)].double().cumsum(1)
    before_R1 = torch.where(blocks_R1 > 0, passed_RK.gather(1, (blocks_R1 - 1).clamp(min=0)), 0.0)
    # The block's sum in float32 may lie a little above its words'.
    rest_R1 = torch.minimum(bars_R1 - before_R1, within_RW[:, -1:] * _BELOW_ONE)
    return (blocks_R1 * _BLOCK + torch.searchsorted(within_RW, rest_R1, right=True)).squeeze(1)
