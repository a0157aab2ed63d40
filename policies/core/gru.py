"""A GRU whose recurrence is one autograd node: several times fewer kernel launches than the stock layer on a CPU.

The equations are those of `torch.nn.GRU` (Cho et al. 2014, in the variant with the reset gate after the hidden product), so
weights are interchangeable and a test holds the two equal. The caller forms the input products (or takes them from a table),
and the backward pass forms the weight gradient in one product over all steps. Directions of a layer are read one after the
other: a near cache holds the weights of one.

Shapes: B rows, T steps, H hidden units; S steps of all rows, of different lengths; n, I, J a product's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from parley.policies.core.layers import Adder, outer_sum, tanh_

Add = Callable[[Tensor, Tensor], None]
"""A function that adds products of its second argument to the first."""
SUMS_ROWS = 512
"""Rows of steps whose sums are begun together if none is kept."""


class GRU(nn.GRU):
    """torch's GRU as a holder of weights, their types declared; `recur` does its work."""

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
        ctx, gates_S3H: Tensor, weight_3HH: Tensor, bias_3H: Tensor, start_BH: Tensor, counts: list[int], dtype: torch.dtype
    ) -> Tensor:
        add = Adder(weight_3HH.to(dtype), start_BH.dtype)
        states = start_BH.new_empty(len(gates_S3H), weight_3HH.shape[1])
        keep = any(ctx.needs_input_grad)
        before, begin = start_BH, 0
        for steps in [counts] if keep else runs(counts):
            here = slice(begin, begin := begin + sum(steps))
            sums_S4H = _begun(gates_S3H[here], bias_3H)
            with torch.inference_mode():
                before = advance(sums_S4H, add, before, states[here], steps)
        if keep:
            ctx.save_for_backward(weight_3HH, start_BH, states, sums_S4H)
            ctx.counts, ctx.dtype = counts, dtype
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_SH: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        weight_3HH, start_BH, states, sums_S4H = ctx.saved_tensors
        counts, hidden = ctx.counts, weight_3HH.shape[1]
        candidate, reset, update, inner = sums_S4H.split(hidden, 1)
        after = [start_BH, *states.split(counts)]
        earlier = torch.cat([start_BH[:0], *(state[:rows] for state, rows in zip(after, counts, strict=False))])
        # Factors from the gradient of a state to those of the candidate's sum and of the three hidden products.
        of_candidate = _OF_TANH(1 - update, candidate)
        hidden_grad = sums_S4H.new_empty(len(sums_S4H), 3 * hidden)
        of_reset, of_update, of_inner = hidden_grad.split(hidden, 1)
        _OF_SIGMOID(torch.mul(of_candidate, inner, out=of_reset), reset, grad_input=of_reset)
        _OF_SIGMOID(torch.sub(earlier, candidate, out=of_update), update, grad_input=of_update)
        torch.mul(of_candidate, reset, out=of_inner)
        add = Adder(weight_3HH.t().to(ctx.dtype), start_BH.dtype)
        grads, start_grad = grad_SH.clone(memory_format=torch.contiguous_format), torch.zeros_like(start_BH)
        with torch.inference_mode():
            parts = (grads, grads.unsqueeze(1), update, hidden_grad, hidden_grad.unflatten(1, (3, hidden)))
            stepwise = [part.split(counts) for part in parts]
            before = [start_grad, *stepwise[0]][: len(counts)]
            backwards = (part[::-1] for part in (before, *stepwise))
            for previous, grad, grad_n1H, kept, products, by_gate in zip(*backwards, strict=True):
                by_gate.mul_(grad_n1H)
                previous = previous[: grad.shape[0]].addcmul_(grad, kept)
                add(previous, products)
        products = hidden_grad.to(ctx.dtype)
        weight_grad = outer_sum(products, earlier.to(ctx.dtype)).to(weight_3HH.dtype)
        # A product with ones sums the columns at matrix speed.
        bias_grad = (products.new_ones(len(products)) @ products).to(weight_3HH.dtype)
        # Of the input products the third is the candidate's own.
        torch.mul(of_candidate, grads, out=of_inner)
        return hidden_grad, weight_grad, bias_grad, start_grad, None, None


_OF_SIGMOID, _OF_TANH = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


def _begun(gates_S3H: Tensor, bias_3H: Tensor) -> Tensor:
    """Return sums (S, 4H) before the products of states: candidate, reset gate, update gate, hidden product."""
    hidden = len(bias_3H) // 3
    gate_bias, inner_bias = bias_3H.split([2 * hidden, hidden])
    sums = gates_S3H.new_empty(len(gates_S3H), 4 * hidden)
    sums[:, :hidden] = gates_S3H[:, 2 * hidden :]
    torch.add(gates_S3H[:, : 2 * hidden], gate_bias, out=sums[:, hidden : 3 * hidden])
    sums[:, 3 * hidden :] = inner_bias
    return sums


def advance(sums_S4H: Tensor, add: Add, before_BH: Tensor, states_SH: Tensor, counts: list[int]) -> Tensor:
    """Return the states after all steps; not differentiable.

    Args:
        sums_S4H: sums of steps before the products of states, in order candidate, reset gate, update gate, hidden product
            of the candidate; becomes candidate, gates, and hidden product.
        add: adds the hidden products of states (n, H) to the last three (n, 3H).
        before_BH: states before the first step.
        states_SH: receives the states after each step.
        counts: rows of each step, none more than the one before it.

    Returns:
        The states after the last step.
    """
    hidden = states_SH.shape[1]
    parts = (*sums_S4H.split(hidden, 1), sums_S4H[:, hidden:], sums_S4H[:, hidden : 3 * hidden], states_SH)
    views = zip(*(part.split(counts) for part in parts), counts, strict=True)
    for candidate, reset, update, inner, products, gates, state, rows in views:
        before_BH = before_BH[:rows]
        add(products, before_BH)
        gates.sigmoid_()
        before_BH = torch.lerp(tanh_(candidate.addcmul_(reset, inner)), before_BH, update, out=state)
    return before_BH


def recur(gates_TB3H: Tensor, weight_3HH: Tensor, bias_3H: Tensor, start_BH: Tensor) -> Tensor:
    """Return the states of a GRU over given input products.

    Args:
        gates_TB3H: input products W_ih x + b_ih per step, in torch's order reset, update, new.
        weight_3HH: hidden weights, as `torch.nn.GRU.weight_hh_l0`.
        bias_3H: hidden biases.
        start_BH: states before the first step, in the precision that states are kept in.

    Returns:
        The state after every step (T, B, H). Under autocast the hidden products are formed in its lower precision
        while states and gates stay in the precision of the start.
    """
    steps, rows = gates_TB3H.shape[:2]
    states = recur_packed(gates_TB3H.flatten(0, 1), weight_3HH, bias_3H, start_BH, [rows] * steps)
    return states.unflatten(0, (steps, rows))


def recur_packed(gates_S3H: Tensor, weight_3HH: Tensor, bias_3H: Tensor, start_BH: Tensor, counts: list[int]) -> Tensor:
    """Return the states of a GRU over rows of different lengths, the longest first, none of them padded.

    Args:
        gates_S3H: the products of all rows for the first step, behind them those for the second, and so on.
        weight_3HH: as there.
        bias_3H: as there.
        start_BH: as there.
        counts: rows of each step, B for the first; none has more than the one before it.

    Returns:
        The states (S, H), in the order of the products.
    """
    device = gates_S3H.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_3HH.dtype
    return _GruRecurrence.apply(gates_S3H.to(start_BH.dtype), weight_3HH, bias_3H, start_BH, counts, dtype)


def runs(counts: list[int], most: int = SUMS_ROWS) -> Iterator[list[int]]:
    """Yield runs of steps, each of one step at least, whose rows are begun together.

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
