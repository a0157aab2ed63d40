"""A GRU whose recurrence is one autograd node: several times fewer kernel launches than the stock layer on CPU.

The equations are those of `torch.nn.GRU` (Cho et al. 2014, in the variant with the reset gate after the hidden
product), so weights are interchangeable with it and a test holds the two equal. What differs is the bookkeeping: the
input product is left to the caller (who may take it from a table), both directions of a bidirectional layer advance
together as one batched product, and the backward pass forms the weight gradient in one product over all steps.

Shapes: D directions (1 or 2), B rows, T steps, H hidden units.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


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
        ctx, gates_DTB3H: Tensor, weight_D3HH: Tensor, bias_D3H: Tensor, start_DBH: Tensor, dtype: torch.dtype
    ) -> Tensor:
        directions, steps, rows, _ = gates_DTB3H.shape
        hidden = weight_D3HH.shape[-1]
        weight_DH3H = weight_D3HH.to(dtype).transpose(1, 2).contiguous()
        bias_D13H = bias_D3H.unsqueeze(1).to(dtype)
        states = start_DBH.new_empty(directions, steps + 1, rows, hidden)
        states[:, 0] = start_DBH
        keep = any(ctx.needs_input_grad)
        slots = steps if keep else 1
        gates = start_DBH.new_empty(directions, slots, rows, 3 * hidden)
        products = start_DBH.new_empty(directions, slots, rows, hidden)
        for t in range(steps):
            slot = t if keep else 0
            previous, gate, inner = states[:, t], gates[:, slot], products[:, slot]
            product = torch.baddbmm(bias_D13H, previous.to(dtype), weight_DH3H)
            reset_update, candidate = gate[..., : 2 * hidden], gate[..., 2 * hidden :]
            torch.add(gates_DTB3H[:, t, :, : 2 * hidden], product[..., : 2 * hidden], out=reset_update).sigmoid_()
            inner.copy_(product[..., 2 * hidden :])
            torch.addcmul(gates_DTB3H[:, t, :, 2 * hidden :], gate[..., :hidden], inner, out=candidate).tanh_()
            torch.lerp(candidate, previous, gate[..., hidden : 2 * hidden], out=states[:, t + 1])
        if keep:
            ctx.save_for_backward(weight_D3HH, states, gates, products)
            ctx.dtype = dtype
        return states[:, 1:]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_DTBH: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        weight_D3HH, states, gates, products = ctx.saved_tensors
        dtype = ctx.dtype
        directions, steps, rows, hidden = products.shape
        weight = weight_D3HH.to(dtype)
        inputs_grad = torch.empty_like(gates)
        hidden_grad = torch.empty(gates.shape, dtype=dtype, device=gates.device)
        grad = torch.zeros_like(states[:, 0])
        for t in range(steps - 1, -1, -1):
            reset, update, candidate = gates[:, t].split(hidden, dim=-1)
            grad = grad + grad_DTBH[:, t]
            part, through = inputs_grad[:, t], hidden_grad[:, t]
            d_reset, d_update, d_candidate = part.split(hidden, dim=-1)
            d_candidate.copy_(torch.ops.aten.tanh_backward(torch.addcmul(grad, grad, update, value=-1), candidate))
            d_update.copy_(torch.ops.aten.sigmoid_backward((states[:, t] - candidate).mul_(grad), update))
            d_reset.copy_(torch.ops.aten.sigmoid_backward(d_candidate * products[:, t], reset))
            through[..., : 2 * hidden] = part[..., : 2 * hidden]
            through[..., 2 * hidden :] = d_candidate * reset
            grad = torch.addcmul(torch.bmm(through, weight).to(grad.dtype), grad, update)
        flat = hidden_grad.view(directions, steps * rows, 3 * hidden)
        before = states[:, :-1].to(dtype).reshape(directions, steps * rows, hidden)
        weight_grad = torch.stack([flat[d].t() @ before[d] for d in range(directions)]).to(weight_D3HH.dtype)
        # A product with ones sums the columns at matrix speed.
        ones = flat.new_ones(directions, 1, steps * rows)
        bias_grad = torch.bmm(ones, flat).squeeze(1).to(weight_D3HH.dtype)
        return inputs_grad, weight_grad, bias_grad, grad, None


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
    device = gates_DTB3H.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_D3HH.dtype
    return _GruRecurrence.apply(gates_DTB3H.to(start_DBH.dtype), weight_D3HH, bias_D3H, start_DBH, dtype)


def flip_by_length(values_TB: Tensor, lengths_B: Tensor) -> Tensor:
    """Reverses the first `lengths` steps of every row of (T, B, ...), leaving the rest in place."""
    steps = torch.arange(values_TB.shape[0], device=values_TB.device).unsqueeze(1)
    source = torch.where(steps < lengths_B, lengths_B - 1 - steps, steps)
    return values_TB[source, torch.arange(values_TB.shape[1], device=values_TB.device)]
