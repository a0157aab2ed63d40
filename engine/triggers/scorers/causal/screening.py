"""Which few swaps of a list may be the best in a causal model, told roughly: float32 decides among them.

All candidates are read with products in bfloat16, those of the head left out; the keys and values of what is shared are
float32's. The `FEW` that then look best are read again in float32. How far bfloat16 was off on these tells how far it may be
off on the others: those that may still be better by that are read too, until none is left. So nothing rough is ever told, and
only which swap is taken can differ from the exact search, where bfloat16 is further off on the best one than on those read.

On a GPU small models lose by it: there are two passes to start in place of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import nn

from parley.engine.triggers.scorers.causal.reader import CausalReader
from parley.engine.triggers.scorers.causal.swaps import SwapList
from parley.engine.triggers.scorers.lstm.screening import require_bfloat16
from parley.envs.core.errors import ConfigError

FEW = 8
"""Candidates of a list that float32 reads in any case."""
SPREADS = 4.0
"""How many standard deviations of its differences bfloat16 may be off."""
SLACK = 0.1
"""Nats above what is to be beaten from which on candidates are left out before it is known how far bfloat16 is off."""


def rough_reader(model: Any) -> CausalReader:
    """Reads by a model in bfloat16.

    Raises:
        ConfigError: the model is not in float32, has no layers that bfloat16 would help, or the device no such products.
    """
    where, fix = "search.screening", "leave out search.screening"
    if model.dtype != torch.float32:
        raise ConfigError("only models in float32 are screened in bfloat16", where=where, got=str(model.dtype), fix=fix)
    if sum(type(module) is nn.Linear for module in model.modules()) < 2:
        what = "only the products of torch's linear layers are formed in bfloat16, and the model has others"
        raise ConfigError(what, where=where, got=type(model).__name__, fix=fix)
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        raise ConfigError("models on several devices are not screened", where=where, got=type(model).__name__, fix=fix)
    require_bfloat16(model.device, model.config.hidden_size)
    return CausalReader(model, rough=True)


class ScreenedSwapList(SwapList):
    """The candidates of a visit, the best of them found roughly first."""

    def best(self) -> tuple[int, float]:
        """The candidate of least loss among those that may be the best, and that, in float32; as of `SwapList` otherwise."""
        distinct, rough = self.distinct, dict[int, float]()
        if len(distinct) <= FEW:
            return super().best()

        def screen(piece: Sequence[int]) -> None:
            assert self.scorer.rough is not None
            read = self.read(piece, min([self.beat, *rough.values()]), SLACK)
            rough.update((each.candidate, each.loss) for each in self.alone(read, self.scorer.rough))

        self.in_pieces(screen, distinct)
        self._decide(rough, self.beat + SLACK)
        return self.best_choice, self.best_loss

    def _decide(self, rough: dict[int, float], limit: float) -> None:
        """Reads candidates in float32, those that look best first, as long as others may be better.

        Args:
            rough: what they cost roughly.
            limit: rough losses above are left out.
        """
        left = sorted((candidate for candidate in rough if rough[candidate] <= limit), key=lambda each: (rough[each], each))
        differences: list[float] = []
        asked = left[:FEW]
        while asked:
            losses: list[tuple[int, float]] = []

            def read(piece: Sequence[int], losses: list[tuple[int, float]] = losses) -> None:
                losses.extend(zip(piece, self.ends(piece).tolist(), strict=True))

            self.in_pieces(read, self.by_position(asked))
            self.take(losses)
            differences.extend(rough[candidate] - loss for candidate, loss in losses)
            left = left[len(asked) :]
            limit = self.best_loss + fmean(differences) + SPREADS * pstdev(differences)
            asked = [candidate for candidate in left if rough[candidate] <= limit]
