"""LSTM steps over many rows that share their beginning and most of their words.

Gates stand in the order input, forget, output, candidate, so that one sigmoid covers three of them in place. What a word adds
to the gates of a layer that reads words is one row of a table; what a state adds is one product.

Shapes: n rows, B inputs, M words of an input, V words of the vocabulary, H hidden, X width of what is read
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from parley.policies.core.products import Weight, tanh_


def by_kind(weight_4Hx: Tensor) -> Tensor:
    """Rows of torch's gate order (input, forget, candidate, output) in ours."""
    enter, forget, candidate, leave = weight_4Hx.detach().chunk(4)
    return torch.cat([enter, forget, leave, candidate])


def advance(gates_n4H: Tensor, cell_nH: Tensor, hidden_nH: Tensor) -> None:
    """One LSTM step.

    Args:
        gates_n4H: what was read and the state add up to; destroyed.
        cell_nH: the cells, moved on in place.
        hidden_nH: where the new states go.
    """
    width = cell_nH.shape[1]
    gates_n4H[:, : 3 * width].sigmoid_()
    enter, forget, leave, candidate = gates_n4H.split(width, dim=1)
    cell_nH.mul_(forget).addcmul_(enter, tanh_(candidate))
    tanh_(hidden_nH.copy_(cell_nH)).mul_(leave)


@dataclass(frozen=True)
class Past:
    """What an LSTM made of B inputs: from here on candidates go their own ways.

    Args:
        words_BM: the inputs.
        states_BMH: states after each word.
        cells_BMH: cells before each word.
        recurrent_BM4H: what the state before each word adds to the gates.
    """

    words_BM: Tensor
    states_BMH: Tensor
    cells_BMH: Tensor
    recurrent_BM4H: Tensor

    def of(self, row: int) -> Past:
        """That of one input, B = 1; a copy, which does not keep the others alive."""
        return Past(*(getattr(self, field.name)[row : row + 1].clone() for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Past]) -> Past:
        """That of several inputs."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))


class WordLstm:
    """A layer that reads words.

    Args:
        layer: torch's; one direction, one level.
        embedding_VE: what it reads.
        dtypes: precisions in which candidates are read.
    """

    def __init__(self, layer: torch.nn.LSTM, embedding_VE: Tensor, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> None:
        weights = {name: by_kind(weight) for name, weight in layer.named_parameters()}
        self.input_4HE = weights["weight_ih_l0"]
        self.hidden_H4H = weights["weight_hh_l0"].t().contiguous()
        self._hidden = {dtype: Weight(weights["weight_hh_l0"], dtype) for dtype in dtypes}
        self.bias_4H = weights["bias_ih_l0"] + weights["bias_hh_l0"]
        self.table_V4H = torch.addmm(self.bias_4H, embedding_VE.detach(), self.input_4HE.t())

    def unroll(self, words_BM: Tensor, embedded_BME: Tensor) -> tuple[Tensor, Past]:
        """Reads whole inputs.

        Returns:
            States (B, M, H), differentiable in the embeddings, and what candidates need.
        """
        gates_BM4H = torch.nn.functional.linear(embedded_BME, self.input_4HE, self.bias_4H)
        width = len(self.hidden_H4H)
        hidden_BH = cell_BH = gates_BM4H.new_zeros(len(gates_BM4H), width)
        states, recurrents, cells = [], [], []
        for gates_B4H in gates_BM4H.unbind(1):
            recurrents.append(hidden_BH @ self.hidden_H4H)
            cells.append(cell_BH)
            enter, forget, leave, candidate = (gates_B4H + recurrents[-1]).split(width, dim=1)
            cell_BH = forget.sigmoid() * cell_BH + enter.sigmoid() * candidate.tanh()
            hidden_BH = leave.sigmoid() * cell_BH.tanh()
            states.append(hidden_BH)
        states_BMH, cells_BMH, recurrent_BM4H = (torch.stack(part, 1) for part in (states, cells, recurrents))
        return states_BMH, Past(words_BM, states_BMH.detach(), cells_BMH.detach(), recurrent_BM4H.detach())

    def reread(self, past: Past, swapped: Swapped, dtype: torch.dtype = torch.float32) -> Tensor:
        """Candidates, read on from their swaps.

        Args:
            past: what the layer made of the incumbents.
            swapped: the candidates.
            dtype: of the products; all else is float32.

        Returns:
            States (K, n, H) after word `swapped.first` and each later one; zero before a row's own swap.
        """
        rows, length = swapped.words_nM.shape
        width, first = len(self.hidden_H4H), swapped.first
        states_KnH = self.table_V4H.new_zeros(length - first, rows, width)
        cell_nH, gates_n4H = self.table_V4H.new_empty(rows, width), self.table_V4H.new_empty(rows, 4 * width)
        begun = 0
        for word, running in zip(range(first, length), swapped.running, strict=True):
            gates = gates_n4H[:running]
            torch.index_select(self.table_V4H, 0, swapped.words_nM[:running, word], out=gates)
            if begun:
                before_nH, owners = states_KnH[word - first - 1, :begun], swapped.owners_n[:begun]
                if dtype != torch.float32:
                    # Rounded is only by how much candidates differ from their inputs, for which the product is known.
                    before_nH = before_nH - past.states_BMH[owners, word - 1]
                    gates[:begun] += past.recurrent_BM4H[owners, word]
                gates[:begun] += self._hidden[dtype](before_nH)
            if running > begun:
                owners = swapped.owners_n[begun:running]
                # Rows that begin here come from the same state, whose product is known.
                gates[begun:] += past.recurrent_BM4H[owners, word]
                cell_nH[begun:running] = past.cells_BMH[owners, word]
            advance(gates, cell_nH[:running], states_KnH[word - first, :running])
            begun = running
        return states_KnH if swapped.back_n is None else states_KnH[:, swapped.back_n]


@dataclass(frozen=True)
class Swapped:
    """n inputs, each one of B with one word swapped; rows that begin earlier first.

    Args:
        words_nM: their words.
        owners_n: which of the B inputs each comes from.
        positions_n: where the swaps are, in the order in which they were given.
        first: the first position swapped.
        running: rows that have begun at each word from `first` on.
        back_n: where each given row is now; None when they came in order.
    """

    words_nM: Tensor
    owners_n: Tensor
    positions_n: Tensor
    first: int
    running: list[int]
    back_n: Tensor | None

    @classmethod
    def of(cls, words_BM: Tensor, positions_BG: Tensor, swaps_BG: Tensor) -> Swapped:
        """Inputs (B, M), each with `swaps_BG` put at `positions_BG`, one at a time."""
        positions_n, group = positions_BG.flatten(), positions_BG.shape[1]
        owners_n = torch.arange(len(words_BM), device=words_BM.device).repeat_interleave(group)
        words_nM = words_BM[owners_n].scatter_(1, positions_n[:, None], swaps_BG.flatten()[:, None])
        sorted_n, order_n = positions_n.sort(stable=True)
        begun_M = torch.searchsorted(sorted_n, torch.arange(words_BM.shape[1], device=words_BM.device), right=True).tolist()
        first, back_n = int(sorted_n[0]), None
        if bool((positions_n[1:] < positions_n[:-1]).any()):
            words_nM, owners_n, back_n = words_nM[order_n], owners_n[order_n], order_n.argsort()
        return cls(words_nM, owners_n, positions_n, first, begun_M[first:], back_n)

    def barred(self) -> Tensor | None:
        """What must not be read of the incumbents' M - 1 first words and the K read again: (n, M - 1 + K), in given order.

        Minus infinity from a row's swap on among the former and before it among the latter, else 0. None when all begin at
        once: then the `first` words before belong to all.
        """
        if self.running[0] == len(self.words_nM):
            return None
        places_M = torch.arange(self.words_nM.shape[1], device=self.words_nM.device)
        before_nM = places_M < self.positions_n[:, None]
        barred_nX = torch.cat([~before_nM[:, :-1], before_nM[:, self.first :]], dim=1)
        return torch.zeros(barred_nX.shape, device=barred_nX.device).masked_fill_(barred_nX, -torch.inf)
