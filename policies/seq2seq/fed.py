"""A decoder of LSTM layers whose attention is fed back, as one autograd node.

The equations are those of `StackedSeq2Seq.step` (`stacked.py`); a test holds the two equal, gradients too. As in
`policies/seq2seq/attention.py`, whatever does not depend on the step before is formed for all steps at once: by the caller on
the way forward, here on the way back, gradients of weights above all.

Shapes: B rows, N source words, T steps, L layers, H hidden units, J = 2 H (two vectors of that width, side by side).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from parley.policies.core.lstm import advance, product_dtype, retreat


class _FedRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        gates_TB4H: Tensor,
        states_BNH: Tensor,
        barred_BN: Tensor | None,
        hidden_LBH: Tensor,
        cell_LBH: Tensor,
        kept_LTBH: Tensor | None,
        fed_HJ: Tensor,
        weight_L4HJ: Tensor,
        bias_L4H: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        steps, rows, wide = gates_TB4H.shape
        layers, width = len(weight_L4HJ), wide // 4
        feed_JH, weights_LJ4H = fed_HJ.to(dtype).t().contiguous(), weight_L4HJ.to(dtype).transpose(1, 2).contiguous()
        given = gates_TB4H.dtype
        kind = torch.float32 if given == torch.bfloat16 else given
        states_BNH, cell_LBH, hidden_LBH = states_BNH.to(kind), cell_LBH.to(kind), hidden_LBH.to(kind)
        gates = states_BNH.new_empty(layers, steps, rows, wide)
        gates[:] = bias_L4H.to(kind)[:, None, None]
        gates[0] += gates_TB4H
        # What each layer reads beside the word: the layer below, or what is fed back, and its own state before.
        read = gates.new_empty(layers, steps, rows, 2 * width)
        cells, squashed = gates.new_empty(layers, steps + 1, rows, width), gates.new_empty(layers, steps, rows, width)
        cells[:, 0], read[:, 0, :, width:] = cell_LBH, hidden_LBH
        # Attention and the upmost state, before the first step and after each one.
        asked = gates.new_empty(steps + 1, rows, 2 * width)
        asked[0, :, width:] = hidden_LBH[-1]
        shares = gates.new_empty(steps + 1, rows, states_BNH.shape[1])
        _attend(states_BNH, barred_BN, shares[0], asked[0])
        fed, said = gates.new_empty(steps, rows, width), gates.new_empty(rows, width)
        for t in range(steps):
            torch.tanh(asked[t].to(dtype) @ feed_JH, out=fed[t])
            below = fed[t]
            for layer in range(layers):
                torch.mul(below, 1 if kept_LTBH is None else kept_LTBH[layer, t], out=read[layer, t, :, :width])
                own = gates[layer, t]
                own += read[layer, t].to(dtype) @ weights_LJ4H[layer]
                advance(own, cells[layer, t], cells[layer, t + 1], squashed[layer, t], said)
                if t + 1 < steps:
                    read[layer, t + 1, :, width:] = said
                below = said
            asked[t + 1, :, width:] = said
            _attend(states_BNH, barred_BN, shares[t + 1], asked[t + 1])
        ctx.save_for_backward(
            states_BNH, kept_LTBH, fed_HJ, weight_L4HJ, bias_L4H, gates, read, cells, squashed, asked, shares, fed
        )
        ctx.dtype, ctx.given = dtype, given
        return asked[1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TBJ: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        states_BNH, kept_LTBH, fed_HJ, weight_L4HJ, bias_L4H = ctx.saved_tensors[:5]
        gates, read, cells, squashed, asked, shares, fed = ctx.saved_tensors[5:]
        (layers, steps, _, wide), dtype = gates.shape, ctx.dtype
        width = wide // 4
        weights, feed = weight_L4HJ.to(dtype), fed_HJ.to(dtype)
        gates_grad, fed_grads = torch.empty_like(gates), torch.empty_like(fed)
        context_grads, score_grads = torch.empty_like(asked[:, :, :width]), torch.empty_like(shares)
        hidden_grads, cell_grads = torch.zeros_like(cells[:, 0]), torch.zeros_like(cells[:, 0])
        asked_grad = torch.zeros_like(asked[0])
        for t in range(steps, -1, -1):
            if t:
                asked_grad += grad_TBJ[t - 1]
            context_grads[t] = asked_grad[:, :width]
            share_grad = torch.bmm(states_BNH, context_grads[t].unsqueeze(2)).squeeze(2)
            torch.mul(shares[t], share_grad - (shares[t] * share_grad).sum(1, keepdim=True), out=score_grads[t])
            above = asked_grad[:, width:] + torch.bmm(score_grads[t].unsqueeze(1), states_BNH).squeeze(1)
            if not t:
                hidden_grads[-1] += above
                break
            for layer in range(layers - 1, -1, -1):
                above = above + hidden_grads[layer]
                at, own = (layer, t - 1), gates_grad[layer, t - 1]
                retreat(gates[at], cells[at], squashed[at], above, cell_grads[layer], own)
                read_grad = (own.to(dtype) @ weights[layer]).to(gates.dtype)
                hidden_grads[layer] = read_grad[:, width:]
                above = read_grad[:, :width] if kept_LTBH is None else read_grad[:, :width] * kept_LTBH[at]
            torch.ops.aten.tanh_backward.grad_input(above, fed[t - 1], grad_input=fed_grads[t - 1])
            asked_grad = (fed_grads[t - 1].to(dtype) @ feed).to(gates.dtype)
        products = torch.bmm(shares.permute(1, 2, 0), context_grads.transpose(0, 1))
        states_grad = torch.baddbmm(products, score_grads.permute(1, 2, 0), asked[:, :, width:].transpose(0, 1))
        fed_grad = fed_grads.to(dtype).flatten(0, 1).t() @ asked[:-1].to(dtype).flatten(0, 1)
        weight_grad = torch.bmm(gates_grad.to(dtype).flatten(1, 2).transpose(1, 2), read.to(dtype).flatten(1, 2))
        return (
            gates_grad[0].to(ctx.given),
            states_grad,
            None,
            hidden_grads,
            cell_grads,
            None,
            fed_grad.to(fed_HJ.dtype),
            weight_grad.to(weight_L4HJ.dtype),
            gates_grad.sum((1, 2)).to(bias_L4H.dtype),
            None,
        )


def _attend(states_BNH: Tensor, barred_BN: Tensor | None, shares_BN: Tensor, asked_BJ: Tensor) -> None:
    """Sets the shares that the right half of `asked` gives the states, and in the left half their mean."""
    width = states_BNH.shape[2]
    scores = torch.bmm(states_BNH, asked_BJ[:, width:].unsqueeze(2)).squeeze(2)
    if barred_BN is not None:
        scores += barred_BN
    torch.softmax(scores, 1, out=shares_BN)
    asked_BJ[:, :width] = torch.bmm(shares_BN.unsqueeze(1), states_BNH).squeeze(1)


def recur_fed(
    gates_TB4H: Tensor,
    states_BNH: Tensor,
    barred_BN: Tensor | None,
    start: tuple[Tensor, Tensor],
    kept_LTBH: Tensor | None,
    fed_HJ: Tensor,
    weight_L4HJ: Tensor,
    bias_L4H: Tensor,
) -> Tensor:
    """Runs a decoder over products of its words that are already formed.

    Args:
        gates_TB4H: products of the words with the lowest layer's weights, without biases.
        states_BNH: what is attended to, by its products with the upmost state.
        barred_BN: added to those; None for nothing.
        start: hidden states and cells (L, B, H) before the first step.
        kept_LTBH: what each layer's reading of the layer below, or of what is fed back, is multiplied with; None for nothing.
        fed_HJ: weights of attention and upmost state in what is fed back.
        weight_L4HJ: weights of what a layer reads below it and of its own state, side by side.
        bias_L4H: both biases, added up.

    Returns:
        Attention and upmost state (T, B, 2 H) after every step, side by side, in float32 under autocast.
    """
    dtype = product_dtype(weight_L4HJ)
    with torch.autocast(weight_L4HJ.device.type, enabled=False):
        found: Tensor = _FedRecurrence.apply(
            gates_TB4H, states_BNH, barred_BN, *start, kept_LTBH, fed_HJ, weight_L4HJ, bias_L4H, dtype
        )
        return found
