"""An LSTM whose recurrence is one autograd node: fewer kernel launches than steps under autograd, one product for weights.

The equations are those of `torch.nn.LSTM` (gates in the order input, forget, cell, output), so weights are interchangeable
with it and a test holds the two equal. What differs is the bookkeeping: the input products are left to the caller, who forms
them for all steps at once, and the backward pass forms the weight gradient in one product over all steps.

Shapes: B rows, T steps, H hidden units.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from policies.products import dense


class LSTM(nn.LSTM):
    """One layer of torch's as a holder of weights, their types declared, and `read`."""

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
        gates_TB4H = F.linear(inputs_BTE.transpose(0, 1), self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)
        return recur(gates_TB4H, self.weight_hh_l0).transpose(0, 1)


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
    of_sigmoid, of_tanh = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input
    cell_grad_BH += torch.ops.aten.tanh_backward(hidden_grad_BH * leave, squashed_BH)
    of_sigmoid(hidden_grad_BH * squashed_BH, leave, grad_input=d_leave)
    of_sigmoid(cell_grad_BH * candidate, enter, grad_input=d_enter)
    of_sigmoid(cell_grad_BH * cell_BH, forget, grad_input=d_forget)
    of_tanh(cell_grad_BH * enter, candidate, grad_input=d_candidate)
    cell_grad_BH *= forget


class _LstmRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gates_TB4H: Tensor, weight_4HH: Tensor, dtype: torch.dtype) -> Tensor:  # type: ignore[no-untyped-def]  # torch has no type for ctx
        steps, rows, _ = gates_TB4H.shape
        hidden = weight_4HH.shape[1]
        weight_H4H = weight_4HH.to(dtype).t().contiguous()
        gates = gates_TB4H.float() if gates_TB4H.dtype == torch.bfloat16 else gates_TB4H.clone()
        states, cells = gates.new_zeros(steps + 1, rows, hidden), gates.new_zeros(steps + 1, rows, hidden)
        squashed = torch.empty_like(cells[1:])
        for t in range(steps):
            if t:
                gates[t] += states[t].to(dtype) @ weight_H4H
            advance(gates[t], cells[t], cells[t + 1], squashed[t], states[t + 1])
        ctx.save_for_backward(weight_4HH, gates, states, cells, squashed)
        ctx.dtype, ctx.given = dtype, gates_TB4H.dtype
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        weight_4HH, gates, states, cells, squashed = ctx.saved_tensors
        steps, rows, wide = gates.shape
        weight = weight_4HH.to(ctx.dtype)
        gates_grad = torch.empty_like(gates)
        low_grad = gates_grad if ctx.dtype == gates.dtype else torch.empty_like(gates, dtype=ctx.dtype)
        hidden_grad, cell_grad = grad_TBH[-1].clone(), torch.zeros_like(cells[0])
        for t in range(steps - 1, -1, -1):
            retreat(gates[t], cells[t], squashed[t], hidden_grad, cell_grad, gates_grad[t])
            low_grad[t] = gates_grad[t]
            if t:
                hidden_grad = (low_grad[t] @ weight).to(grad_TBH.dtype).add_(grad_TBH[t - 1])
        weight_grad = None
        if ctx.needs_input_grad[1]:
            before = states[:-1].to(ctx.dtype).view(steps * rows, -1)
            weight_grad = (low_grad.view(steps * rows, wide).t() @ before).to(weight_4HH.dtype)
        return gates_grad.to(ctx.given), weight_grad, None


def recur(gates_TB4H: Tensor, weight_4HH: Tensor) -> Tensor:
    """Runs an LSTM from zero over input products that are already formed.

    Args:
        gates_TB4H: input products and both biases, per step.
        weight_4HH: hidden weights, as `torch.nn.LSTM.weight_hh_l0`.

    Returns:
        The hidden state after every step (T, B, H). Under autocast the hidden products are formed in its lower precision
        while states and gates stay in float32.
    """
    dtype = product_dtype(weight_4HH)
    with torch.autocast(weight_4HH.device.type, enabled=False):
        return _LstmRecurrence.apply(gates_TB4H, weight_4HH, dtype)
