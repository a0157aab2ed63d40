"""Supervised training of a pointer-generator network: as any other (`policies/core/fitting/fit.py`), in two phases.

Source: See et al. 2017, section 5: Adagrad, and coverage only in a short last phase. That phase is the decay epochs; the
network that is kept comes from it.

Departures:
  * # Released: the loss of a batch is the mean over pairs of the mean over their words. Ours: `Fit`'s, in which every word
    weighs the same.
"""

from __future__ import annotations

import math

import torch

from parley.policies.core.fitting.fit import Fit
from parley.policies.paraphraser.model import PointerGenerator
from parley.policies.paraphraser.settings import PointerFitConfig
from parley.policies.seq2seq.batches import Exchanges


class PointerFit(Fit[Exchanges]):
    """One supervised training of a pointer-generator network; the arguments are those of `Fit`."""

    model: PointerGenerator
    config: PointerFitConfig

    def _advance_stage(self) -> bool:
        before, covers = self._stage, self.model.sizes.coverage > 0
        goes_on = super()._advance_stage()
        if goes_on and self._stage == "decay" and covers:
            self.model.cover(True)
            if before == "full":
                # Coverage costs likelihood and is there against repetition: networks of the two phases do not compete.
                self.best_loss = math.inf
        return goes_on

    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        """Adagrad where the recipe asks for it."""
        if not self.config.adagrad:
            return super().new_optimiser(rate)
        start, decay = self.config.adagrad, self.config.weight_decay
        return torch.optim.Adagrad(self.model.parameters(), lr=rate, initial_accumulator_value=start, weight_decay=decay)
