"""A GRU whose recurrence is one autograd node: several times fewer kernel launches than the stock layer on CPU.

The equations are those of `torch.nn.GRU` (Cho et al. 2014, in the variant with the reset gate after the hidden
product), so weights are interchangeable with it and a test holds the two equal. What differs is the bookkeeping: the
input product is left to the caller (who may take it from a table), both directions of a bidirectional layer advance
together as one batched product, and the backward pass forms the weight gradient in one product over all steps.

Shapes: D directions (1 or 2), B rows, T steps, H hidden units; S steps of all rows, of different lengths; n, I, J a product's.
"""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from policies.products import product


class GRU(nn.GRU):
    """torch's layer as a holder of weights, their types declared; `recur` does its work."""

    weight_ih_l0: Tensor
    weight_hh_l0: Tensor
    bias_ih_l0: Tensor
    bias_hh_l0: Tensor
    weight_ih_l0_reverse: Tensor
    weight_hh_l0_reverse: Tensor
    bias_ih_l0_reverse: Tensor
    bias_hh_l0_reverse: Tensor


class _GruRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx, gates_DS3H: Tensor, weight_D3HH: Tensor, bias_D3H: Tensor, start_DBH: Tensor, counts: list[int], dtype: torch.dtype
    ) -> Tensor:
        directions, size, _ = gates_DS3H.shape
        hidden = weight_D3HH.shape[-1]
        times = _Product(weight_D3HH.to(dtype), bias_D3H.to(dtype))
        states = start_DBH.new_empty(directions, size, hidden)
        keep = any(ctx.needs_input_grad)
        slots = size if keep else max(counts, default=0)
        gates = start_DBH.new_empty(directions, slots, 3 * hidden)
        products = start_DBH.new_empty(directions, slots, hidden)
        previous, begin = start_DBH, 0
        for rows in counts:
            here, slot = slice(begin, begin + rows), slice(begin, begin + rows) if keep else slice(rows)
            given, gate, inner = gates_DS3H[:, here], gates[:, slot], products[:, slot]
            previous = previous[:, :rows]
            product = times(previous.to(dtype))
            reset_update, candidate = gate[..., : 2 * hidden], gate[..., 2 * hidden :]
            torch.add(given[..., : 2 * hidden], product[..., : 2 * hidden], out=reset_update).sigmoid_()
            inner.copy_(product[..., 2 * hidden :])
            torch.addcmul(given[..., 2 * hidden :], gate[..., :hidden], inner, out=candidate).tanh_()
            previous = torch.lerp(candidate, previous, gate[..., hidden : 2 * hidden], out=states[:, here])
            begin += rows
        if keep:
            ctx.save_for_backward(weight_D3HH, start_DBH, states, gates, products)
            ctx.counts, ctx.dtype = counts, dtype
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_DSH: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        weight_D3HH, start_DBH, states, gates, products = ctx.saved_tensors
        counts, dtype = ctx.counts, ctx.dtype
        directions, size, hidden = products.shape
        times = _Product(weight_D3HH.to(dtype).transpose(1, 2).contiguous())
        inputs_grad = torch.empty_like(gates)
        hidden_grad = torch.empty(gates.shape, dtype=dtype, device=gates.device)
        of_sigmoid, of_tanh = torch.ops.aten.sigmoid_backward.grad_input, torch.ops.aten.tanh_backward.grad_input
        ends = list(accumulate(counts))
        begins = [end - rows for end, rows in zip(ends, counts, strict=True)]
        before = [start_DBH, *(states[:, begin : begin + rows] for begin, rows in zip(begins, counts[1:], strict=False))]
        grad = torch.zeros_like(start_DBH[:, : counts[-1] if counts else None])
        for previous, begin, end in zip(before[::-1], begins[::-1], ends[::-1], strict=False):
            here = slice(begin, end)
            # Rows that end here have no gradient from later steps.
            later, grad = grad, grad_DSH[:, here].clone()
            grad[:, : later.shape[1]] += later
            reset, update, candidate = gates[:, here].split(hidden, dim=-1)
            part, through = inputs_grad[:, here], hidden_grad[:, here]
            d_reset, d_update, d_candidate = part.split(hidden, dim=-1)
            of_tanh(torch.addcmul(grad, grad, update, value=-1), candidate, grad_input=d_candidate)
            of_sigmoid((previous - candidate).mul_(grad), update, grad_input=d_update)
            of_sigmoid(d_candidate * products[:, here], reset, grad_input=d_reset)
            through[..., : 2 * hidden] = part[..., : 2 * hidden]
            through[..., 2 * hidden :] = d_candidate * reset
            grad = torch.addcmul(times(through).to(grad.dtype), grad, update)
        earlier = torch.cat(before, 1)[:, :size].to(dtype)
        weight_grad = torch.stack([hidden_grad[d].t() @ earlier[d] for d in range(directions)]).to(weight_D3HH.dtype)
        # A product with ones sums the columns at matrix speed.
        ones = hidden_grad.new_ones(directions, 1, size)
        bias_grad = torch.bmm(ones, hidden_grad).squeeze(1).to(weight_D3HH.dtype)
        return inputs_grad, weight_grad, bias_grad, grad, None, None


class _Product:
    """Products of rows (D, n, I) with the weight of each direction, not differentiable.

    Args:
        weight_DJI: as `torch.nn.functional.linear` takes it, a weight for each direction.
        bias_DJ: added to them.
    """

    def __init__(self, weight_DJI: Tensor, bias_DJ: Tensor | None = None) -> None:
        self._weight_DJI, self._bias_DJ = weight_DJI, bias_DJ
        self._weight_DIJ = None if len(weight_DJI) == 1 else weight_DJI.transpose(1, 2).contiguous()

    def __call__(self, rows_DnI: Tensor) -> Tensor:
        if self._weight_DIJ is None:
            return product(rows_DnI[0], self._weight_DJI[0], None if self._bias_DJ is None else self._bias_DJ[0]).unsqueeze(0)
        if self._bias_DJ is None:
            return torch.bmm(rows_DnI, self._weight_DIJ)
        return torch.baddbmm(self._bias_DJ.unsqueeze(1), rows_DnI, self._weight_DIJ)


def recur(gates_DTB3H: Tensor, weight_D3HH: Tensor, bias_D3H: Tensor, start_DBH: Tensor) -> Tensor:
    """Runs a GRU over input products that are already formed.

    Args:
        gates_DTB3H: input products W_ih x + b_ih per step, in torch's order reset, update, new.
        weight_D3HH: hidden weights of each direction, as `torch.nn.GRU.weight_hh_l0`.
        bias_D3H: hidden biases.
        start_DBH: states before the first step, in the precision that states are kept in.

    Returns:
        The state after every step (D, T, B, H). Under autocast the hidden products are formed in its lower precision
        while states and gates stay in the precision of the start.
    """
    steps, rows = gates_DTB3H.shape[1:3]
    found = recur_packed(gates_DTB3H.flatten(1, 2), weight_D3HH, bias_D3H, start_DBH, [rows] * steps)
    return found.unflatten(1, (steps, rows))


def recur_packed(gates_DS3H: Tensor, weight_D3HH: Tensor, bias_D3H: Tensor, start_DBH: Tensor, counts: list[int]) -> Tensor:
    """As `recur`, over rows of different lengths, the longest first, none of them padded.

    Args:
        gates_DS3H: the products of all rows for the first step, behind them those for the second, and so on.
        weight_D3HH: as there.
        bias_D3H: as there.
        start_DBH: as there.
        counts: rows of each step, B for the first; none has more than the one before it.

    Returns:
        The states (D, S, H), in the order of the products.
    """
    device = gates_DS3H.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_D3HH.dtype
    return _GruRecurrence.apply(gates_DS3H.to(start_DBH.dtype), weight_D3HH, bias_D3H, start_DBH, counts, dtype)


def flip_by_length(values_TB: Tensor, lengths_B: Tensor) -> Tensor:
    """Reverses the first `lengths` steps of every row of (T, B, ...), leaving the rest in place."""
    steps = torch.arange(values_TB.shape[0], device=values_TB.device).unsqueeze(1)
    source = torch.where(steps < lengths_B, lengths_B - 1 - steps, steps)
    return values_TB[source, torch.arange(values_TB.shape[1], device=values_TB.device)]
