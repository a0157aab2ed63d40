"""The output layer and the loss in one: negative log-likelihoods of targets, and their gradients, from one pass.

The logits of a batch are the largest thing in training by far (targets x vocabulary). Here they exist once, in memory that
is kept from step to step: the softmax takes their place in the forward pass and the gradient of the loss that of the
softmax, so that the backward pass only scales what is there.

Shapes: M targets, H hidden, V words.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from parley.policies.core.lstm import product_dtype

BLOCK = 2048
"""Targets at a time; bounds the memory for logits to `BLOCK` x V numbers."""


class _NLL(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]  # torch has no type for ctx
        ctx,
        states_MH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor,
        targets_M: Tensor,
        shares_M: Tensor | None,
        low_VH: Tensor,
        kept_MV: Tensor,
    ) -> Tensor:
        dtype = kept_MV.dtype
        low_VH.copy_(weight_VH)
        states, bias = states_MH.to(dtype), bias_V.to(dtype)
        total = torch.zeros((), device=states_MH.device)
        states_grad = torch.empty_like(states_MH)
        weight_grads, bias_grads = [], []
        for start in range(0, len(targets_M), BLOCK):
            block = slice(start, start + BLOCK)
            targets = targets_M[block]
            share_MV = kept_MV[: len(targets)]
            torch.addmm(bias, states[block], low_VH.t(), out=share_MV)
            torch.softmax(share_MV, 1, out=share_MV)
            places = torch.arange(len(targets), device=targets.device), targets
            chosen = share_MV[places]
            nats = chosen.float().log()
            share_MV[places] = chosen - 1
            if shares_M is not None:
                nats = nats * shares_M[block]
                share_MV *= shares_M[block].to(dtype).unsqueeze(1)
            total -= nats.sum()
            states_grad[block] = share_MV @ low_VH
            weight_grads.append((share_MV.t() @ states[block]).to(weight_VH.dtype))
            # A product with ones sums the columns at matrix speed.
            bias_grads.append((share_MV.new_ones(1, len(targets)) @ share_MV).squeeze(0).to(bias_V.dtype))
        ctx.save_for_backward(
            states_grad, functools.reduce(Tensor.add_, weight_grads), functools.reduce(Tensor.add_, bias_grads)
        )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]  # as above
        states_grad, weight_grad, bias_grad = ctx.saved_tensors
        return states_grad.mul_(grad), weight_grad.mul_(grad), bias_grad.mul_(grad), None, None, None, None


class OutputLoss:
    """The loss of one output layer.

    Args:
        output: from states to logits.
    """

    def __init__(self, output: nn.Linear) -> None:
        self.output = output
        self._kept: tuple[Tensor, Tensor] | None = None

    def __call__(self, states_MH: Tensor, targets_M: Tensor, shares_M: Tensor | None = None) -> Tensor:
        """Sum of the targets' negative log-likelihoods in nats; its gradient can be asked for once.

        Args:
            states_MH: what the layer reads.
            targets_M: ids, int64.
            shares_M: what each target is multiplied by in the sum, without a gradient; 1 when not given.

        Returns:
            A scalar. Under autocast the products are formed in its lower precision.
        """
        weight_VH, dtype = self.output.weight, product_dtype(self.output.weight)
        if self._kept is None or self._kept[0].dtype != dtype:
            # Fresh memory is dear: the system clears it page by page.
            kept_MV = weight_VH.new_empty((BLOCK, len(weight_VH)), dtype=dtype)
            self._kept = torch.empty_like(weight_VH, dtype=dtype), kept_MV
        with torch.autocast(states_MH.device.type, enabled=False):
            return _NLL.apply(states_MH, weight_VH, self.output.bias, targets_M, shares_M, *self._kept)
