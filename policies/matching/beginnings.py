"""Recurrences over texts that begin alike: each distinct beginning is read once.

The replies that a search asks about differ in a few words from one another. What a GRU knows after the words before the first
difference is the same for all of them, so it is computed once, and only what follows is computed for each. Nothing is kept from
one call to the next.

Shapes: R rows, N places, B distinct beginnings of all lengths, H state.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from policies.gru import GRU
from policies.products import Weight, dense, tanh_


class BegunSteps(NamedTuple):
    """Beginnings in the order of their lengths."""

    counts: list[int]
    """How many there are of each length."""
    places_B: Tensor
    """A place (of R x N) that shows each."""
    parents_B: Tensor
    """The place of each's beginning that is one word shorter, among all; of those of one word 0."""
    which_RN: Tensor
    """The beginning of each row up to each place; B behind its text."""


class Beginnings:
    """What rows of texts share.

    Args:
        codes_RN: equal at places that hold the same word, negative behind a text.
        device: where tensors are made.
    """

    def __init__(self, codes_RN: np.ndarray, device: torch.device) -> None:
        self._device = device
        self._order_R = np.lexsort(codes_RN.T[::-1])
        codes_RN = codes_RN[self._order_R]
        self._real_RN = codes_RN >= 0
        # Rows in order: one begins like the last, or like none before.
        self._differs_RN = np.ones(codes_RN.shape, dtype=bool)
        np.logical_or.accumulate(codes_RN[1:] != codes_RN[:-1], axis=1, out=self._differs_RN[1:])

    @cached_property
    def exact(self) -> BegunSteps:
        """Those of equal words."""
        return self.steps(0)

    def steps(self, ahead: int) -> BegunSteps:
        """Those of equal words that so many equal words follow, or the end of the text."""
        num_rows, size = self._real_RN.shape
        differs_RN = self._differs_RN[:, np.minimum(np.arange(size) + ahead, size - 1)]
        new_RN = differs_RN & self._real_RN
        counts_N = new_RN.sum(0)
        number_RN = new_RN.cumsum(0) - 1 + counts_N.cumsum() - counts_N
        columns_B, rows_B = new_RN.T.nonzero()
        parents_B = np.where(columns_B > 0, number_RN[rows_B, columns_B - 1], 0)
        which_RN = np.empty((num_rows, size), dtype=np.int64)
        which_RN[self._order_R] = np.where(self._real_RN, number_RN, len(rows_B))
        places_B = self._order_R[rows_B] * size + columns_B
        made = (torch.from_numpy(each).to(self._device) for each in (places_B, parents_B, which_RN))
        return BegunSteps(counts_N.tolist(), *made)


def begun_states(gru: GRU, inputs_RND: Tensor, steps: BegunSteps) -> Tensor:
    """The states of a GRU (B + 1, H) after each beginning, from zero; the last row is zero. Not differentiable.

    Args:
        gru: with its weights.
        inputs_RND: equal where beginnings are.
        steps: the beginnings.
    """
    size = gru.hidden_size
    gates_B3H = dense(inputs_RND.flatten(0, 1)[steps.places_B], gru.weight_ih_l0, gru.bias_ih_l0)
    weight = Weight(gru.weight_hh_l0)
    states_BH = inputs_RND.new_zeros(len(gates_B3H) + 1, size)
    end = 0
    for step, count in enumerate(steps.counts):
        start, end = end, end + count
        gates = gates_B3H[start:end]
        before = states_BH[steps.parents_B[start:end]] if step else states_BH.new_zeros(count, size)
        product = weight(before).add_(gru.bias_hh_l0)
        reset_update = gates[:, : 2 * size].add_(product[:, : 2 * size]).sigmoid_()
        candidate = tanh_(gates[:, 2 * size :].addcmul_(reset_update[:, :size], product[:, 2 * size :]))
        torch.lerp(candidate, before, reset_update[:, size:], out=states_BH[start:end])
    return states_BH
