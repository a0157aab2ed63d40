"""Where the tokens of texts stand when none is padded: step by step, the longest texts first.

Shapes: B texts, T tokens of the longest, N tokens of all, r rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class TokenPlaces(NamedTuple):
    """The first tokens of all texts, behind them the second ones of those that have one, and so on."""

    counts: list[int]
    """Texts of each step."""
    rows_N: Tensor
    """Whose token stands at each place."""
    steps_N: Tensor
    """Which of its tokens."""
    mirrored_N: Tensor
    """Where the token stands that is as far from the last one as this is from the first."""
    at_BT: Tensor
    """Where each token stands; 0 past the last one."""
    last_B: Tensor
    """Where the last tokens stand."""

    @classmethod
    def of(cls, lengths_B: np.ndarray, device: torch.device) -> TokenPlaces:
        """Those of texts of so many tokens each, which may be none, on a device."""
        order_B = np.argsort(-lengths_B, kind="stable")
        steps_N, ranks_N = by_step(lengths_B[order_B])
        rows_N = order_B[ranks_N]
        at_BT = np.zeros((len(lengths_B), lengths_B.max(initial=0)), dtype=np.int64)
        at_BT[rows_N, steps_N] = np.arange(len(rows_N))
        mirrored_N = at_BT[rows_N, lengths_B[rows_N] - 1 - steps_N]
        last_B = at_BT[np.arange(len(at_BT)), lengths_B - 1] if at_BT.size else np.zeros(len(at_BT), dtype=np.int64)
        found = rows_N, steps_N, mirrored_N, at_BT, last_B
        return cls(np.bincount(steps_N).tolist(), *(torch.from_numpy(part).to(device) for part in found))

    def padded(self, read_NH: Tensor, width: int) -> Tensor:
        """What was read of each token at the place that it has in its text (B, width, H), zero behind the last one."""
        return read_NH.new_zeros(len(self.at_BT), width, read_NH.shape[1]).index_put((self.rows_N, self.steps_N), read_NH)


def by_step(lengths_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step and row (N,) of every token: the first ones of all rows, the second ones of those that have one, and so on."""
    step, row = np.nonzero(np.arange(lengths_n.max(initial=0))[:, None] < lengths_n)
    return step, row


def running(lengths: np.ndarray) -> list[int]:
    """How many rows have more than t steps, for t = 0, 1, ...; rows are longest first."""
    return np.searchsorted(-lengths, -np.arange(int(lengths[0])), side="left").tolist()
