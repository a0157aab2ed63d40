"""A decoder LSTM that attends to its source at every step, as one autograd node.

The equations are those of `Seq2Seq.step` with Luong's score (`model.py`); a test holds the two equal. As in
`policies/core/lstm.py`, whatever does not depend on the step before is formed for all steps at once: by the caller on the way
forward, here on the way back.

Shapes: B rows, N source words, T steps, H hidden units.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from parley.policies.core.lstm import advance, product_dtype, retreat


class _AttendedRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        gates_TB4H: Tensor,
        keys_BNH: Tensor,
        states_BNH: Tensor,
        barred_BN: Tensor | None,
        weight_4HJ: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        steps, rows, wide = gates_TB4H.shape
        hidden = wide // 4
        weight_J4H = weight_4HJ.to(dtype).t().contiguous()
        gates = gates_TB4H.float() if gates_TB4H.dtype == torch.bfloat16 else gates_TB4H.clone()
        keys_BNH, states_BNH = keys_BNH.to(gates.dtype), states_BNH.to(gates.dtype)
        # What a step reads beside its word: context and hidden state, side by side.
        read = gates.new_zeros(steps + 1, rows, 2 * hidden)
        cells = gates.new_zeros(steps + 1, rows, hidden)
        squashed = torch.empty_like(cells[1:])
        shares = gates.new_empty(steps, rows, keys_BNH.shape[1])
        for t in range(steps):
            scores = torch.bmm(keys_BNH, read[t, :, hidden:].unsqueeze(2)).squeeze(2)
            if barred_BN is not None:
                scores += barred_BN
            torch.softmax(scores, 1, out=shares[t])
            read[t, :, :hidden] = torch.bmm(shares[t].unsqueeze(1), states_BNH).squeeze(1)
            gates[t] += read[t].to(dtype) @ weight_J4H
            advance(gates[t], cells[t], cells[t + 1], squashed[t], read[t + 1, :, hidden:])
        ctx.save_for_backward(keys_BNH, states_BNH, weight_4HJ, gates, read, cells, squashed, shares)
        ctx.dtype, ctx.given = dtype, gates_TB4H.dtype
        return read[1:, :, hidden:].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        keys_BNH, states_BNH, weight_4HJ, gates, read, cells, squashed, shares = ctx.saved_tensors
        steps, rows, wide = gates.shape
        hidden = wide // 4
        weight = weight_4HJ.to(ctx.dtype)
        gates_grad = torch.empty_like(gates)
        low_grad = gates_grad if ctx.dtype == gates.dtype else torch.empty_like(gates, dtype=ctx.dtype)
        context_grads, score_grads = torch.empty_like(cells[1:]), torch.empty_like(shares)
        hidden_grad, cell_grad = grad_TBH[-1].clone(), torch.zeros_like(cells[0])
        for t in range(steps - 1, -1, -1):
            retreat(gates[t], cells[t], squashed[t], hidden_grad, cell_grad, gates_grad[t])
            low_grad[t] = gates_grad[t]
            read_grad = low_grad[t] @ weight
            context_grads[t] = read_grad[:, :hidden]
            share_grad = torch.bmm(states_BNH, context_grads[t].unsqueeze(2)).squeeze(2)
            torch.mul(shares[t], share_grad - (shares[t] * share_grad).sum(1, keepdim=True), out=score_grads[t])
            if t:
                hidden_grad = torch.bmm(score_grads[t].unsqueeze(1), keys_BNH).squeeze(1)
                hidden_grad += read_grad[:, hidden:]
                hidden_grad += grad_TBH[t - 1]
        keys_grad = torch.bmm(score_grads.permute(1, 2, 0), read[:-1, :, hidden:].transpose(0, 1))
        states_grad = torch.bmm(shares.permute(1, 2, 0), context_grads.transpose(0, 1))
        weight_grad = None
        if ctx.needs_input_grad[4]:
            flat = read[:-1].to(ctx.dtype).view(steps * rows, -1)
            weight_grad = (low_grad.view(steps * rows, wide).t() @ flat).to(weight_4HJ.dtype)
        return gates_grad.to(ctx.given), keys_grad, states_grad, None, weight_grad, None


def recur_attending(
    gates_TB4H: Tensor, keys_BNH: Tensor, states_BNH: Tensor, barred_BN: Tensor | None, weight_4HJ: Tensor
) -> Tensor:
    """Runs a decoder from zero over products of its words that are already formed.

    Args:
        gates_TB4H: products of the words and both biases, per step.
        keys_BNH: what a hidden state is multiplied with for the scores.
        states_BNH: what the context is a mean of.
        barred_BN: added to the scores; None for nothing.
        weight_4HJ: weights (4H, 2H) of context and hidden state, side by side.

    Returns:
        The hidden state after every step (T, B, H), in float32 under autocast.
    """
    dtype = product_dtype(weight_4HJ)
    with torch.autocast(weight_4HJ.device.type, enabled=False):
        return _AttendedRecurrence.apply(gates_TB4H, keys_BNH, states_BNH, barred_BN, weight_4HJ, dtype)
