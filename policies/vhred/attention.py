"""A decoder LSTM with additive attention whose result is fed back, as one autograd node.

The equations are those of `VHRED.step` (`model.py`); a test holds the two equal, gradients too. As in
`policies/seq2seq/attention.py`, whatever does not depend on the step before is formed for all steps at once: by the caller on
the way forward, here on the way back. The scores' layer is the largest thing of a step and is made again on the way back.

Shapes: B rows, N places that are attended to, T steps, H hidden units, M width of a place, A score units, R readout,
J = R + H (what a step reads beside its word), I = H + M (what the readout joins).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from parley.policies.core.lstm import advance, product_dtype, retreat


class _FedBack(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        gates_TB4H: Tensor,
        keys_BNA: Tensor,
        states_BNM: Tensor,
        barred_BN: Tensor,
        kept_BH: Tensor | None,
        weight_4HJ: Tensor,
        query_AH: Tensor,
        score_A: Tensor,
        readout_RI: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        steps, rows, wide = gates_TB4H.shape
        hidden, readout = wide // 4, len(readout_RI)
        weight_J4H, query_HA, readout_IR = (w.to(dtype).t().contiguous() for w in (weight_4HJ, query_AH, readout_RI))
        gates = gates_TB4H.float() if gates_TB4H.dtype == torch.bfloat16 else gates_TB4H.clone()
        keys_BNA, states_BNM = keys_BNA.to(gates.dtype), states_BNM.to(gates.dtype)
        read = gates.new_zeros(steps + 1, rows, readout + hidden)
        cells = gates.new_zeros(steps + 1, rows, hidden)
        squashed = torch.empty_like(cells[1:])
        joined = gates.new_empty(steps, rows, hidden + states_BNM.shape[2])
        queries = gates.new_empty(steps, rows, keys_BNA.shape[2])
        shares = gates.new_empty(steps, rows, keys_BNA.shape[1])
        layer_BNA = torch.empty_like(keys_BNA)
        for t in range(steps):
            gates[t] += read[t].to(dtype) @ weight_J4H
            said_BH = read[t + 1, :, readout:]
            advance(gates[t], cells[t], cells[t + 1], squashed[t], said_BH)
            joined[t, :, :hidden] = said_BH if kept_BH is None else said_BH * kept_BH
            queries[t] = joined[t, :, :hidden].to(dtype) @ query_HA
            torch.add(keys_BNA, queries[t].unsqueeze(1), out=layer_BNA)
            torch.softmax(layer_BNA.tanh_() @ score_A + barred_BN, 1, out=shares[t])
            joined[t, :, hidden:] = torch.bmm(shares[t].unsqueeze(1), states_BNM).squeeze(1)
            read[t + 1, :, :readout] = joined[t].to(dtype) @ readout_IR
        ctx.save_for_backward(
            *(keys_BNA, states_BNM, kept_BH, weight_4HJ, query_AH, score_A, readout_RI),
            *(gates, read, cells, squashed, joined, queries, shares),
        )
        ctx.dtype, ctx.given = dtype, gates_TB4H.dtype
        return read[1:, :, :readout].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_TBR: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        keys_BNA, states_BNM, kept_BH, weight_4HJ, query_AH, score_A, readout_RI = ctx.saved_tensors[:7]
        gates, read, cells, squashed, joined, queries, shares = ctx.saved_tensors[7:]
        steps, _, wide = gates.shape
        hidden, readout, dtype = wide // 4, len(readout_RI), ctx.dtype
        weight, query, join = weight_4HJ.to(dtype), query_AH.to(dtype), readout_RI.to(dtype)
        gates_grad, readout_grads, query_grads = torch.empty_like(gates), torch.empty_like(grad_TBR), torch.empty_like(queries)
        context_grads = torch.empty_like(joined[:, :, hidden:])
        keys_grad, score_grad = torch.zeros_like(keys_BNA), torch.zeros_like(score_A)
        layer_BNA, slope_BNA = torch.empty_like(keys_BNA), torch.empty_like(keys_BNA)
        read_grad, cell_grad = torch.zeros_like(read[0]), torch.zeros_like(cells[0])
        for t in range(steps - 1, -1, -1):
            readout_grads[t] = grad_TBR[t] + read_grad[:, :readout]
            joined_grad = (readout_grads[t].to(dtype) @ join).to(gates.dtype)
            context_grads[t] = joined_grad[:, hidden:]
            share_grad = torch.bmm(states_BNM, context_grads[t].unsqueeze(2)).squeeze(2)
            logit_grad = shares[t] * (share_grad - (shares[t] * share_grad).sum(1, keepdim=True))
            torch.add(keys_BNA, queries[t].unsqueeze(1), out=layer_BNA).tanh_()
            score_grad += logit_grad.flatten() @ layer_BNA.flatten(0, 1)
            torch.mul(logit_grad.unsqueeze(2), score_A, out=slope_BNA)
            torch.ops.aten.tanh_backward.grad_input(slope_BNA, layer_BNA, grad_input=slope_BNA)
            keys_grad += slope_BNA
            torch.sum(slope_BNA, 1, out=query_grads[t])
            hidden_grad = joined_grad[:, :hidden] + query_grads[t].to(dtype) @ query
            if kept_BH is not None:
                hidden_grad *= kept_BH
            hidden_grad += read_grad[:, readout:]
            retreat(gates[t], cells[t], squashed[t], hidden_grad, cell_grad, gates_grad[t])
            read_grad = (gates_grad[t].to(dtype) @ weight).to(gates.dtype)
        states_grad = torch.bmm(shares.permute(1, 2, 0), context_grads.transpose(0, 1))
        products = (
            (gates_grad, read[:-1], weight_4HJ),
            (query_grads, joined[:, :, :hidden], query_AH),
            (readout_grads, joined, readout_RI),
        )
        weight_grad, query_grad, join_grad = (
            (grad.to(dtype).flatten(0, 1).t() @ entered.to(dtype).flatten(0, 1)).to(like.dtype)
            for grad, entered, like in products
        )
        return (
            gates_grad.to(ctx.given),
            keys_grad,
            states_grad,
            None,
            None,
            weight_grad,
            query_grad,
            score_grad,
            join_grad,
            None,
        )


def recur_fed_back(
    gates_TB4H: Tensor,
    keys_BNA: Tensor,
    states_BNM: Tensor,
    barred_BN: Tensor,
    kept_BH: Tensor | None,
    weight_4HJ: Tensor,
    query_AH: Tensor,
    score_A: Tensor,
    readout_RI: Tensor,
) -> Tensor:
    """Runs a decoder from zero over products of its words that are already formed.

    Args:
        gates_TB4H: products of the words and of what is the same at all steps, and the biases.
        keys_BNA: the scores' products with what is attended to.
        states_BNM: what the attention is a mean of.
        barred_BN: minus infinity at places that do not exist, else 0.
        kept_BH: what the hidden states are multiplied with before anything but the next step reads them; None for nothing.
        weight_4HJ: weights of the last readout and hidden state, side by side.
        query_AH: weights of the hidden state in the scores.
        score_A: weights from the scores' layer to a score.
        readout_RI: weights of hidden state and attention, side by side.

    Returns:
        The readout after every step (T, B, R), in float32 under autocast.
    """
    dtype = product_dtype(weight_4HJ)
    with torch.autocast(weight_4HJ.device.type, enabled=False):
        return _FedBack.apply(
            gates_TB4H, keys_BNA, states_BNM, barred_BN, kept_BH, weight_4HJ, query_AH, score_A, readout_RI, dtype
        )
