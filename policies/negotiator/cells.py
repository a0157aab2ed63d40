"""Steps of the negotiator's recurrences over many dialogues at once, products in either precision, nothing differentiated.

Shapes: N tokens, r rows, k of them still running, V words, H what is read beside a word,
S hidden states, A attention.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policies.negotiator.inference import Direction, Tables

SHAPE_ROWS = 32
"""What the rows of products are a multiple of, at least: for each new shape of bfloat16 a kernel is made, which takes
milliseconds. Larger products have a multiple of more, so that there are few shapes of all sizes."""
CELL_ROWS = 128
"""Rows whose gates are moved on together: few enough for those to stay in a near cache."""


class Selection:
    """The selection network's weights in one precision, those of the attention by the half that they multiply."""

    def __init__(self, tables: Tables, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.forward, self.backward = Cell(tables.selection_forward, dtype), Cell(tables.selection_backward, dtype)
        weight = tables.model.attention_hidden.weight.t().to(dtype)
        half = tables.model.sizes.hidden_selection
        self.attend_forward, self.attend_backward = weight[:half].contiguous(), weight[half:].contiguous()
        self.attention_bias = tables.model.attention_hidden.bias.to(dtype)


class Cell:
    """The language GRU or one direction of the selection GRU; states and gates are float32 whatever the products are.

    What a step adds up stands side by side: candidate, reset gate, update gate, hidden product (4S). Inputs give the first
    three, the own state the last three, so that either is one product.
    """

    def __init__(self, direction: Direction, dtype: torch.dtype) -> None:
        self._width = len(direction.hidden_weight)
        new_first = torch.arange(3 * self._width, device=direction.bias.device).roll(self._width)
        bias = direction.bias.clone()
        bias[2 * self._width :] = 0
        words = (direction.word_gates + bias)[:, new_first]
        hidden = direction.bias[2 * self._width :].expand(len(words), -1)
        self._words = torch.cat([words, hidden], dim=1).to(dtype)
        self._input_weight = direction.input_weight[:, new_first].to(dtype).contiguous()
        self._hidden_weight = direction.hidden_weight.to(dtype)
        # Kept between calls: so much fresh memory would cost more than what is done in it.
        self._exact = direction.bias.new_empty(CELL_ROWS, 4 * self._width)

    def inputs(self, tokens_N: Tensor, read_NH: Tensor) -> Tensor:
        """What words, what is read beside them, in the precision of the products, and biases give to a step (N, 4S)."""
        sums = self._words.index_select(0, tokens_N)
        sums[:, : 3 * self._width].addmm_(read_NH, self._input_weight)
        return sums

    def step(self, sums_k4S: Tensor, previous_rS: Tensor, state_kS: Tensor, out_rS: Tensor) -> None:
        """Moves the states of the first k rows on.

        Args:
            sums_k4S: from `inputs`, `padded` rows; overwritten.
            previous_rS: the states in the precision of the products, at least as many rows as the sums.
            state_kS: the states; moved on.
            out_rS: where they are written in the precision of the products; may be `previous_rS`.
        """
        width, rows = self._width, len(state_kS)
        sums_k4S[:, width:].addmm_(previous_rS[: len(sums_k4S)], self._hidden_weight)
        for low in range(0, rows, CELL_ROWS):
            high = min(rows, low + CELL_ROWS)
            sums, state = self._exact[: high - low].copy_(sums_k4S[low:high]), state_kS[low:high]
            gates = sums[:, width : 3 * width].sigmoid_()
            new = sums[:, :width].addcmul_(gates[:, :width], sums[:, 3 * width :]).tanh_()
            torch.lerp(new, state, gates[:, width:], out=state)
            out_rS[low:high] = state


def padded(rows: int) -> int:
    """As many rows as a product of this many has: at most a quarter more, above a few."""
    grain = max(SHAPE_ROWS, 1 << max(0, rows.bit_length() - 3))
    return -(-rows // grain) * grain
