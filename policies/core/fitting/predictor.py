"""What the fitting loop asks of a model: the loss of a batch."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.policies.core.fitting.batches import Batch
from parley.policies.core.fitting.loss import BLOCK, OutputLoss

EMBEDDING_RANGE = 0.1
"""Embeddings start uniform in plus or minus this; the layers start in torch's own range."""
BatchT = TypeVar("BatchT", bound=Batch)


class Loss(NamedTuple):
    """What one step of training brings down."""

    total: Tensor
    """A scalar in nats, summed over the batch; its gradient can be asked for once."""
    nll: Tensor
    """The part of it that is the targets' negative log-likelihoods."""


class Predictor(nn.Module, Generic[BatchT]):
    """A model that predicts words from states: what fitting and measuring need of it."""

    output: nn.Linear
    """From states to logits."""

    def initialise(self, generator: torch.Generator) -> None:
        """Draws initial weights: uniform in plus or minus H^-1/2 as torch does, embeddings in `EMBEDDING_RANGE`."""
        draw_weights(self, self.output.in_features, generator)

    def target_states(self, batch: BatchT) -> Tensor:
        """What `output` reads to predict the batch's real targets (M, H), in the order of the rows."""
        raise NotImplementedError

    def nll(self, batch: BatchT) -> Tensor:
        """Negative log-likelihoods of the batch's real targets (M,) in nats, in the order of the rows; gradients flow back.

        What a model says with more than the softmax of `output` is measured by overriding this, and trained by `loss`.
        """
        targets_M = batch.targets_BT[batch.real_BT]
        blocks = zip(self.target_states(batch).split(BLOCK), targets_M.split(BLOCK), strict=True)
        return torch.cat([F.cross_entropy(self.output(states), targets, reduction="none") for states, targets in blocks])

    def loss(self, batch: BatchT, output_loss: OutputLoss) -> Loss:
        """What training brings down on a batch.

        Args:
            batch: examples.
            output_loss: the loss of this model's output layer.
        """
        nll = output_loss(self.target_states(batch), batch.targets_BT[batch.real_BT])
        return Loss(nll, nll)


def draw_weights(model: nn.Module, width: int, generator: torch.Generator) -> None:
    """Draws a model's weights as `Predictor.initialise` does; `width` is what its output layer reads."""
    for name, parameter in model.named_parameters():
        bound = EMBEDDING_RANGE if "embedding" in name else width**-0.5
        parameter.data.uniform_(-bound, bound, generator=generator)


def real_positions(lengths_B: Tensor, length: int) -> Tensor:
    """A mask (B, length), true at the first `lengths` positions of each row."""
    return torch.arange(length, device=lengths_B.device) < lengths_B.unsqueeze(1)
