"""A GRU whose recurrence is one autograd node: several times fewer kernel launches than the stock layer on CPU.

The equations are those of `torch.nn.GRU` (Cho et al. 2014, in the variant with the reset gate after the hidden
product), so weights are interchangeable with it and a test holds the two equal. What differs is the bookkeeping: the
input product is left to the caller (who may take it from a table), both directions of a bidirectional layer advance
together as one batched product, and the backward pass forms the weight gradient in one product over all steps.

Shapes: D directions (1 or 2), B rows, T steps, H hidden units; S steps of all rows, of different lengths; n, I, J a product's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from policies.products import Adder, outer_sum, tanh_

Add = Callable[[Tensor, Tensor], None]
"""Adds products of its second argument to the first."""
SUMS_ROWS = 512
"""Rows of steps for which sums are begun together where nothing is kept of them."""


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
        add = [Adder(weight, start_DBH.dtype) for weight in weight_D3HH.to(dtype)]
        states = start_DBH.new_empty(*gates_DS3H.shape[:2], weight_D3HH.shape[-1])
        keep = any(ctx.needs_input_grad)
        before, begin = start_DBH, 0
        for steps in [counts] if keep else runs(counts):
            here = slice(begin, begin := begin + sum(steps))
            sums_DS4H = _begun(gates_DS3H[:, here], bias_D3H)
            before = advance(sums_DS4H, add, before, states[:, here], steps)
        if keep:
            ctx.save_for_backward(weight_D3HH, start_DBH, states, sums_DS4H)
            ctx.counts, ctx.dtype = counts, dtype
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_DSH: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        weight_D3HH, start_DBH, states, sums_DS4H = ctx.saved_tensors
        counts, dtype = ctx.counts, ctx.dtype
        hidden = weight_D3HH.shape[-1]
        candidate, reset, update, inner = sums_DS4H.split(hidden, -1)
        after = [start_DBH, *states.split(counts, 1)]
        earlier = torch.cat([start_DBH[:, :0], *(state[:, :rows] for state, rows in zip(after, counts, strict=False))], 1)
        # What the gradient of a state is multiplied by, to be that of the candidate's sum and of the three hidden products.
        of_candidate = _OF_TANH(1 - update, candidate)
        parts = _OF_SIGMOID(of_candidate * inner, reset), _OF_SIGMOID(earlier - candidate, update), of_candidate * reset
        hidden_grad = torch.cat(parts, -1)
        add = [Adder(weight.t(), start_DBH.dtype) for weight in weight_D3HH.to(dtype)]
        grads, start_grad = grad_DSH.clone(memory_format=torch.contiguous_format), torch.zeros_like(start_DBH)
        stepwise = [part.split(counts, 1) for part in (grads, update, hidden_grad, hidden_grad.unflatten(-1, (3, hidden)))]
        before = [start_grad, *stepwise[0]][: len(counts)]
        for previous, grad, kept, products, by_gate in zip(*(part[::-1] for part in (before, *stepwise)), strict=True):
            by_gate.mul_(grad.unsqueeze(-2))
            previous = previous[:, : grad.shape[1]].addcmul_(grad, kept)
            for d, add_to in enumerate(add):
                add_to(previous[d], products[d])
        inputs_grad = torch.cat([hidden_grad[..., : 2 * hidden], of_candidate.mul_(grads)], -1)
        hidden_grad = hidden_grad.to(dtype)
        weight_grad = torch.stack([outer_sum(*pair) for pair in zip(hidden_grad, earlier.to(dtype), strict=True)])
        weight_grad = weight_grad.to(weight_D3HH.dtype)
        # A product with ones sums the columns at matrix speed.
        ones = hidden_grad.new_ones(len(hidden_grad), 1, hidden_grad.shape[1])
        bias_grad = torch.bmm(ones, hidden_grad).squeeze(1).to(weight_D3HH.dtype)
        return inputs_grad, weight_grad, bias_grad, start_grad, None, None


_OF_SIGMOID, _OF_TANH = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


def _begun(gates_DS3H: Tensor, bias_D3H: Tensor) -> Tensor:
    """What steps add up (D, S, 4H) before the products of states: candidate, reset gate, update gate, hidden product."""
    hidden = bias_D3H.shape[-1] // 3
    gate_bias, inner_bias = bias_D3H.unsqueeze(1).split([2 * hidden, hidden], -1)
    sums = gates_DS3H.new_empty(*gates_DS3H.shape[:2], 4 * hidden)
    sums[..., :hidden] = gates_DS3H[..., 2 * hidden :]
    torch.add(gates_DS3H[..., : 2 * hidden], gate_bias, out=sums[..., hidden : 3 * hidden])
    sums[..., 3 * hidden :] = inner_bias
    return sums


def advance(sums_DS4H: Tensor, add: Sequence[Add], before_DBH: Tensor, states_DSH: Tensor, counts: list[int]) -> Tensor:
    """Moves states on over steps; not differentiable.

    Args:
        sums_DS4H: what steps add up before the products of states, in order candidate, reset gate, update gate, hidden product
            of the candidate; becomes candidate, gates, and hidden product.
        add: adds the hidden products of states (n, H) to the last three (n, 3H), for each direction.
        before_DBH: states before the first step.
        states_DSH: where those after each step are written.
        counts: rows of each step, none more than the one before it.

    Returns:
        The states after the last step.
    """
    hidden = states_DSH.shape[-1]
    products = zip(*(sums[:, hidden:].split(counts) for sums in sums_DS4H), strict=True)
    parts = (*sums_DS4H.split(hidden, -1), sums_DS4H[..., hidden : 3 * hidden], states_DSH)
    views = zip(*(part.split(counts, 1) for part in parts), strict=True)
    for into, (candidate, reset, update, inner, gates, state) in zip(products, views, strict=True):
        before_DBH = before_DBH[:, : state.shape[1]]
        for d, add_to in enumerate(add):
            add_to(into[d], before_DBH[d])
        gates.sigmoid_()
        before_DBH = torch.lerp(tanh_(candidate.addcmul_(reset, inner)), before_DBH, update, out=state)
    return before_DBH


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


def runs(counts: list[int], most: int = SUMS_ROWS) -> Iterator[list[int]]:
    """Rows of some steps at a time, of one step at least: so much is begun together, and never all.

    Args:
        counts: rows of each step.
        most: of all steps of a run, unless it is one.
    """
    first, rows = 0, 0
    for step, count in enumerate(counts):
        if rows and rows + count > most:
            yield counts[first:step]
            first, rows = step, 0
        rows += count
    yield counts[first:]
