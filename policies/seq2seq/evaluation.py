"""How well a model predicts recorded replies or sentences: nats per word, `</s>` counted.

The negative of the test figure is the threshold that trigger search calls T_out (a sequence-to-sequence model) or T_in (a
language model): He & Glass 2018, section 4.

Shapes: M targets of a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from policies.seq2seq.batches import Batch, Examples, in_order
from policies.seq2seq.loss import BLOCK
from policies.seq2seq.model import Predictor

BatchT = TypeVar("BatchT", bound=Batch)
_ROWS = 256


@dataclass(frozen=True)
class Fitness:
    """Figures of one model on one split."""

    nll_sums: np.ndarray
    """(n,) negative log-likelihood of each example in nats, shortest examples first."""
    num_targets: np.ndarray
    """(n,) words of each, `</s>` counted."""

    @property
    def nll(self) -> float:
        """Nats per word."""
        return float(self.nll_sums.sum() / self.num_targets.sum())

    @property
    def perplexity(self) -> float:
        """exp(nats per word)."""
        return math.exp(self.nll)


@torch.no_grad()
def evaluate(model: Predictor[BatchT], examples: Examples[BatchT]) -> Fitness:
    """Scores a model on a split in float32; dropout is off while it runs."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    sums, counts = [], []
    for batch in in_order(examples, _ROWS):
        here = batch.to(device)
        states_MH, real_BT = model.target_states(here), here.real_BT
        nll_M = torch.cat(
            [
                F.cross_entropy(model.output(states), targets, reduction="none")
                for states, targets in zip(states_MH.split(BLOCK), here.targets_BT[real_BT].split(BLOCK), strict=True)
            ]
        )
        nll_BT = nll_M.new_zeros(real_BT.shape).masked_scatter_(real_BT, nll_M)
        sums.append(nll_BT.double().sum(1).cpu().numpy())
        counts.append(real_BT.sum(1).cpu().numpy())
    model.train(was_training)
    return Fitness(np.concatenate(sums), np.concatenate(counts))
