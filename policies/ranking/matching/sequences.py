"""GRUs over texts that stand behind one another in a flat tensor: no place is padded, and what is alike is read once.

With gradients, the first words of all texts are read side by side, then the second words of those that have one, and so on.
Without them, each distinct beginning is read once: the replies that a search asks about differ in a few words from one another,
and what a GRU knows after the words before the first difference is the same for all of them. Nothing is kept from one call to
the next.

Shapes: R texts, X places of all of them, B distinct beginnings of all lengths, S steps of texts side by side, H state.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from parley.policies.core.gru import GRU, recur_packed
from parley.policies.core.products import Weight, dense, tanh_

_TOGETHER = 16
"""Texts side by side are so many, or twice so many and so on: a kernel for another number takes longer to make than to run."""


class BegunSteps(NamedTuple):
    """Beginnings in the order of their lengths."""

    counts: list[int]
    """How many there are of each length."""
    places_B: Tensor
    """A place that shows each."""
    parents_B: Tensor
    """The place of each's beginning that is one word shorter, among all; of those of one word 0."""
    which_X: Tensor
    """The beginning of each text up to each place."""


class PackedSteps(NamedTuple):
    """Places of texts side by side, step by step."""

    counts: list[int]
    """Texts of each step, the longest first, and places that nobody asks about."""
    places_S: Tensor
    """Which place is read."""
    which_X: Tensor
    """Where each place is read."""


class Sequences:
    """Texts behind one another.

    Args:
        sizes_R: their places, one or more.
        device: where tensors are made.
        codes_X: numbers of the places, equal where the same is read in texts that may begin alike; None: nothing is alike.
    """

    def __init__(self, sizes_R: np.ndarray, device: torch.device, codes_X: np.ndarray | None = None) -> None:
        self._sizes_R, self._device, self._codes_X = sizes_R, device, codes_X
        self._ends_R = sizes_R.cumsum()
        self._starts_R = self._ends_R - sizes_R

    def states(self, gru: GRU, inputs_XD: Tensor, ahead: int = 0) -> Tensor:
        """The states of a GRU (X, H) after every place, from zero before each text.

        Args:
            gru: with its weights.
            inputs_XD: what it reads.
            ahead: places behind one that what is read at it depends on.
        """
        found, which_X = self._read(gru, inputs_XD, ahead)
        return F.embedding(which_X, found)

    def last_states(self, gru: GRU, inputs_XD: Tensor, ahead: int = 0) -> Tensor:
        """The states (R, H) after the last place of each text, see `states`."""
        found, which_X = self._read(gru, inputs_XD, ahead)
        return F.embedding(which_X[torch.from_numpy(self._ends_R - 1).to(self._device)], found)

    def _read(self, gru: GRU, inputs_XD: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
        if self._codes_X is not None and not torch.is_grad_enabled():
            begun = self.begun(ahead)
            return begun_states(gru, inputs_XD, begun), begun.which_X
        packed = self.packed
        inputs_SD = F.embedding(packed.places_S, inputs_XD)
        if gru.training and inputs_SD.is_cuda:
            # cuDNN starts a few kernels where a loop starts a dozen a step; it differentiates in training alone.
            return gru(PackedSequence(inputs_SD, torch.tensor(packed.counts)))[0].data, packed.which_X
        gates_S3H = dense(inputs_SD, gru.weight_ih_l0, gru.bias_ih_l0)
        start = inputs_XD.new_zeros(packed.counts[0], gru.hidden_size)
        return recur_packed(gates_S3H, gru.weight_hh_l0, gru.bias_hh_l0, start, packed.counts), packed.which_X

    @cached_property
    def packed(self) -> PackedSteps:
        """All places, side by side."""
        order_R = np.argsort(-self._sizes_R, kind="stable")
        # How many texts have a place at each step.
        there_N = len(order_R) - np.searchsorted(self._sizes_R[order_R[::-1]], np.arange(self._sizes_R.max()), side="right")
        counts_N = -(-there_N // _TOGETHER) * _TOGETHER
        begins_N = counts_N.cumsum() - counts_N
        rank_R = np.empty_like(order_R)
        rank_R[order_R] = np.arange(len(order_R))
        columns_X = np.arange(self._ends_R[-1]) - np.repeat(self._starts_R, self._sizes_R)
        which_X = begins_N[columns_X] + np.repeat(rank_R, self._sizes_R)
        places_S = np.zeros(counts_N.sum(), dtype=np.int64)
        places_S[which_X] = np.arange(len(which_X))
        return PackedSteps(counts_N.tolist(), *(torch.from_numpy(each).to(self._device) for each in (places_S, which_X)))

    def begun(self, ahead: int) -> BegunSteps:
        """Distinct beginnings of equal places that so many equal places follow, or the end of the text."""
        order_R, differs_RN, real_RN = self._in_order
        size = real_RN.shape[1]
        differs_RN = differs_RN[:, np.minimum(np.arange(size) + ahead, size - 1)]
        new_RN = differs_RN & real_RN
        counts_N = new_RN.sum(0)
        number_RN = new_RN.cumsum(0) - 1 + counts_N.cumsum() - counts_N
        columns_B, rows_B = new_RN.T.nonzero()
        parents_B = np.where(columns_B > 0, number_RN[rows_B, columns_B - 1], 0)
        places_B = self._starts_R[order_R[rows_B]] + columns_B
        which_X = np.empty(self._ends_R[-1], dtype=np.int64)
        which_X[(self._starts_R[order_R, None] + np.arange(size))[real_RN]] = number_RN[real_RN]
        made = (torch.from_numpy(each).to(self._device) for each in (places_B, parents_B, which_X))
        return BegunSteps(counts_N.tolist(), *made)

    @cached_property
    def _in_order(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Texts in alphabetical order (R,), where each differs from the last one (R, N), and where it is (R, N)."""
        assert self._codes_X is not None, "it is told what is alike"
        columns_N = np.arange(self._sizes_R.max())
        codes_RN = np.full((len(self._sizes_R), len(columns_N)), -1)
        codes_RN[columns_N < self._sizes_R[:, None]] = self._codes_X
        order_R = np.lexsort(codes_RN.T[::-1])
        codes_RN = codes_RN[order_R]
        # Rows in order: one begins like the last, or like none before.
        differs_RN = np.ones(codes_RN.shape, dtype=bool)
        np.logical_or.accumulate(codes_RN[1:] != codes_RN[:-1], axis=1, out=differs_RN[1:])
        return order_R, differs_RN, codes_RN >= 0


def begun_states(gru: GRU, inputs_XD: Tensor, steps: BegunSteps) -> Tensor:
    """The states of a GRU (B, H) after each beginning, from zero. Not differentiable.

    Args:
        gru: with its weights.
        inputs_XD: equal where beginnings are.
        steps: the beginnings.
    """
    size = gru.hidden_size
    gates_B3H = dense(inputs_XD[steps.places_B], gru.weight_ih_l0, gru.bias_ih_l0)
    weight = Weight(gru.weight_hh_l0)
    states_BH = inputs_XD.new_empty(len(gates_B3H), size)
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
