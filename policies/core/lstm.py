"""An LSTM whose recurrence is one autograd node: fewer kernel launches than steps under autograd, one product for weights.

The equations are those of `torch.nn.LSTM` (gates in the order input, forget, cell, output), so weights are interchangeable
with it and a test holds the two equal. What differs is the bookkeeping: the input products are left to the caller, who forms
them for all steps at once, and the backward pass forms the weight gradient in one product over all steps.

Shapes: B rows, T steps, S steps of all rows, of different lengths, H hidden units.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from parley.policies.core.packing import TokenPlaces
from parley.policies.core.products import Adder, dense


class LSTM(nn.LSTM):
    """torch's as a holder of weights, their types declared; all but `read_whole` read one layer."""

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor

    def read(self, inputs_BTE: Tensor) -> Tensor:
        """The hidden state (B, T, H) after every step from zero, as the layer itself returns it; it must be `batch_first`."""
        if self.training and inputs_BTE.is_cuda:
            # cuDNN starts a few kernels where a loop starts several a step; it differentiates in training alone.
            found: Tensor = self(inputs_BTE)[0]
            return found
        return recur(self._gates(inputs_BTE.transpose(0, 1)), self.weight_hh_l0).transpose(0, 1)

    def read_packed(self, inputs_SE: Tensor, counts: list[int]) -> Tensor:
        """As `read`, over rows of different lengths, none of them padded.

        Args:
            inputs_SE: of all rows in the first step, behind them those in the second, and so on; the longest rows first.
            counts: rows of each step.

        Returns:
            The hidden states (S, H), in the order of the inputs.
        """
        if self.training and inputs_SE.is_cuda:
            found: Tensor = self(PackedSequence(inputs_SE, torch.tensor(counts)))[0].data
            return found
        return recur_packed(self._gates(inputs_SE), self.weight_hh_l0, counts)[0]

    def read_whole(self, inputs_SE: Tensor, places: TokenPlaces, dropout: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
        """As `read_packed`, by as many layers as there are, to the end of each row.

        Args:
            inputs_SE: in the order of the places.
            places: of the inputs of B rows, none of them empty.
            dropout: between two layers.

        Returns:
            The upmost layer's hidden states (S, H), and hidden states and cells (L, B, H) after each row's last step.
        """
        if inputs_SE.is_cuda:
            states, (hidden_LBH, cell_LBH) = self(PackedSequence(inputs_SE, torch.tensor(places.counts)))
            # The longest row is the first one there.
            ranks_B = places.at_BT[:, 0]
            return states.data, hidden_LBH[:, ranks_B], cell_LBH[:, ranks_B]
        below, hidden, cells = inputs_SE, [], []
        for layer in range(self.num_layers):
            read, kept, *biases = (getattr(self, f"{name}_l{layer}") for name in _PARTS)
            found_SH, cells_SH = recur_packed(F.linear(below, read, sum(biases)), kept, places.counts)
            hidden.append(found_SH[places.last_B])
            cells.append(cells_SH[places.last_B])
            below = dropout(found_SH)
        return found_SH, torch.stack(hidden), torch.stack(cells)

    def _gates(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)


_PARTS = "weight_ih", "weight_hh", "bias_ih", "bias_hh"


class LSTMCell(nn.LSTMCell):
    """torch's cell, by the fastest products."""

    def forward(self, rows_BE: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """As torch's."""
        assert state is not None, "a state is always given"
        hidden_BH, cell_BH = state
        gates_B4H = dense(rows_BE, self.weight_ih, self.bias_ih) + dense(hidden_BH, self.weight_hh, self.bias_hh)
        enter, forget, candidate, leave = gates_B4H.chunk(4, dim=1)
        after_BH = forget.sigmoid() * cell_BH + enter.sigmoid() * candidate.tanh()
        return leave.sigmoid() * after_BH.tanh(), after_BH


def product_dtype(like: Tensor) -> torch.dtype:
    """The precision of matrix products: autocast's lower one where it is on, else the tensor's own."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def advance(gates_B4H: Tensor, cell_BH: Tensor, after_BH: Tensor, squashed_BH: Tensor, hidden_BH: Tensor) -> None:
    """One step's element-wise part, in place.

    Args:
        gates_B4H: sums of products and biases; become the gates.
        cell_BH: the cell before the step.
        after_BH: receives the cell after it.
        squashed_BH: receives the tanh of that.
        hidden_BH: receives the hidden state after it.
    """
    hidden = cell_BH.shape[1]
    gates_B4H[:, : 2 * hidden].sigmoid_()
    gates_B4H[:, 2 * hidden : 3 * hidden].tanh_()
    gates_B4H[:, 3 * hidden :].sigmoid_()
    enter, forget, candidate, leave = gates_B4H.split(hidden, dim=1)
    torch.mul(forget, cell_BH, out=after_BH)
    after_BH.addcmul_(enter, candidate)
    torch.tanh(after_BH, out=squashed_BH)
    torch.mul(leave, squashed_BH, out=hidden_BH)


def retreat(
    gates_B4H: Tensor, cell_BH: Tensor, squashed_BH: Tensor, hidden_grad_BH: Tensor, cell_grad_BH: Tensor, grad_B4H: Tensor
) -> None:
    """The backward of `advance`, in place.

    Args:
        gates_B4H: the gates.
        cell_BH: the cell before the step.
        squashed_BH: tanh of the cell after it.
        hidden_grad_BH: gradient of the hidden state after it.
        cell_grad_BH: gradient of the cell after it from later steps; becomes that of the cell before it.
        grad_B4H: receives the gradient of the gates' sums.
    """
    enter, forget, candidate, leave = gates_B4H.split(cell_BH.shape[1], dim=1)
    d_enter, d_forget, d_candidate, d_leave = grad_B4H.split(cell_BH.shape[1], dim=1)
    cell_grad_BH += torch.ops.aten.tanh_backward(hidden_grad_BH * leave, squashed_BH)
    _OF_SIGMOID(hidden_grad_BH * squashed_BH, leave, grad_input=d_leave)
    _OF_SIGMOID(cell_grad_BH * candidate, enter, grad_input=d_enter)
    _OF_SIGMOID(cell_grad_BH * cell_BH, forget, grad_input=d_forget)
    _OF_TANH(cell_grad_BH * enter, candidate, grad_input=d_candidate)
    cell_grad_BH *= forget


_OF_SIGMOID, _OF_TANH = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input


class _LstmRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx, gates_S4H: Tensor, weight_4HH: Tensor, counts: list[int], dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        hidden = weight_4HH.shape[1]
        gates = gates_S4H.float() if gates_S4H.dtype == torch.bfloat16 else gates_S4H.clone()
        add = Adder(weight_4HH.to(dtype), gates.dtype)
        states, cells, squashed = (gates.new_empty(len(gates), hidden) for _ in range(3))
        state, cell = gates[:0, :hidden], gates.new_zeros(counts[0], hidden)
        views = zip(*(part.split(counts) for part in (gates, cells, squashed, states)), strict=True)
        for own, after, squashed_after, said in views:
            rows = len(own)
            if len(state):
                add(own, state[:rows])
            advance(own, cell[:rows], after, squashed_after, said)
            state, cell = said, after
        ctx.save_for_backward(weight_4HH, gates, states, cells, squashed)
        ctx.counts, ctx.dtype, ctx.given = counts, dtype, gates_S4H.dtype
        ctx.set_materialize_grads(False)
        return states, cells

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[no-untyped-def]  # as above
        ctx, grad_SH: Tensor | None, cell_grad_SH: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        weight_4HH, gates, states, cells, squashed = ctx.saved_tensors
        counts, hidden = ctx.counts, states.shape[1]
        enter, forget, candidate, leave = gates.split(hidden, 1)
        states_before, cells_before = (_earlier(part, counts) for part in (states, cells))
        # What the gradients of cells and states are multiplied by, to be those of the gates' sums.
        gates_grad = torch.empty_like(gates)
        d_enter, d_forget, d_candidate, d_leave = gates_grad.split(hidden, 1)
        _OF_SIGMOID(candidate, enter, grad_input=d_enter)
        _OF_SIGMOID(cells_before, forget, grad_input=d_forget)
        _OF_TANH(enter, candidate, grad_input=d_candidate)
        _OF_SIGMOID(squashed, leave, grad_input=d_leave)
        through = torch.ops.aten.tanh_backward(leave, squashed)
        add = Adder(weight_4HH.to(ctx.dtype).t(), gates.dtype)
        if grad_SH is None:
            grads = torch.zeros_like(states)
        else:
            grads = grad_SH.to(gates.dtype, memory_format=torch.contiguous_format, copy=True)
        cell_grad, parts = torch.zeros_like(cells[: counts[0]]), (grads, through, forget, gates_grad)
        steps = list(zip(*(part.split(counts) for part in parts), strict=True))
        asked = [None] * len(steps) if cell_grad_SH is None else cell_grad_SH.split(counts)[::-1]
        for (grad, to_cell, kept, own), previous, cell in zip(steps[::-1], [*steps[-2::-1], None], asked, strict=True):
            rows = len(grad)
            if cell is not None:
                cell_grad[:rows] += cell
            cell_grad[:rows].addcmul_(grad, to_cell)
            own.view(rows, 4, hidden)[:, :3].mul_(cell_grad[:rows].unsqueeze(1))
            own[:, 3 * hidden :].mul_(grad)
            cell_grad[:rows].mul_(kept)
            if previous is not None:
                add(previous[0][:rows], own)
        weight_grad = None
        if ctx.needs_input_grad[1]:
            weight_grad = (gates_grad.to(ctx.dtype).t() @ states_before.to(ctx.dtype)).to(weight_4HH.dtype)
        return gates_grad.to(ctx.given), weight_grad, None, None


def _earlier(after_SH: Tensor, counts: list[int]) -> Tensor:
    """What was there before each step, 0 before the first one."""
    rows = zip(after_SH.split(counts), counts[1:], strict=False)
    return torch.cat([after_SH.new_zeros(counts[0], after_SH.shape[1]), *(after[:num] for after, num in rows)])


def recur(gates_TB4H: Tensor, weight_4HH: Tensor) -> Tensor:
    """Runs an LSTM from zero over input products that are already formed.

    Args:
        gates_TB4H: input products and both biases, per step.
        weight_4HH: hidden weights, as `torch.nn.LSTM.weight_hh_l0`.

    Returns:
        The hidden state after every step (T, B, H). Under autocast the hidden products are formed in its lower precision
        while states and gates stay in float32.
    """
    steps, rows = gates_TB4H.shape[:2]
    return recur_packed(gates_TB4H.flatten(0, 1), weight_4HH, [rows] * steps)[0].unflatten(0, (steps, rows))


def recur_packed(gates_S4H: Tensor, weight_4HH: Tensor, counts: list[int]) -> tuple[Tensor, Tensor]:
    """As `recur`, over rows of different lengths, the longest first, none of them padded.

    Args:
        gates_S4H: the products of all rows for the first step, behind them those for the second, and so on.
        weight_4HH: as there.
        counts: rows of each step, none more than the one before it.

    Returns:
        The hidden states and the cells (S, H), in the order of the products.
    """
    dtype = product_dtype(weight_4HH)
    with torch.autocast(weight_4HH.device.type, enabled=False):
        found: tuple[Tensor, Tensor] = _LstmRecurrence.apply(gates_S4H, weight_4HH, counts, dtype)
        return found
