"""Training of DynoNets: the fit of other predictors, with an update after each turn of a batch, as released.

The loss of a turn is the mean over its sides of the mean over what each does, in nats per word (released); sides that have
no such turn count as 0. The state goes on from turn to turn without gradient, so the weights may change between them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from parley.policies.core.fitting.fit import Fit
from parley.policies.core.fitting.loop import StepLoss
from parley.policies.dynonet.batches import SideBatch, SideTurn
from parley.policies.dynonet.model import ChatMemory, DynoNet


class DynoNetFit(Fit[SideBatch]):
    """One supervised training of a DynoNet."""

    model: DynoNet

    def step(self, group: np.ndarray) -> StepLoss:
        """An update for each turn; the loss is the sum over all targets, each before its update."""
        batch = self.train.batch(group).to(next(self.model.parameters()).device)
        memory, total, highest = self.model.blank(*batch.features_RNF.shape[:2]), 0.0, 0.0
        for turn in batch.turns:
            loss, nll_M, memory = turn_loss(self.model, memory, batch, turn, len(group))
            self.descend(loss)
            total += float(nll_M.sum())
            highest = max(highest, float(loss.detach()))
        return StepLoss(highest, total, int(self.train.num_targets[group].sum()))


def turn_loss(
    model: DynoNet, memory: ChatMemory, batch: SideBatch, turn: SideTurn, num_sides: int
) -> tuple[Tensor, Tensor, ChatMemory]:
    """What a turn's update brings down.

    Args:
        model: in training.
        memory: of the sides before the turn.
        batch: of `num_sides` sides.
        turn: one of its turns.
        num_sides: of the batch.

    Returns:
        The loss, the negative log-likelihoods (M,) of the turn's targets, and the memory after it.
    """
    nll_M, memory = model.turn(memory, batch, turn)
    rows_M = turn.said.heard.places.rows()
    sums = torch.stack([nll_M.new_zeros(turn.rows).index_add(0, rows_M, each) for each in (nll_M, torch.ones_like(nll_M))])
    return (sums[0] / sums[1]).sum() / num_sides, nll_M.detach(), memory
