"""Supervised training of sequence-to-sequence and language models, by the published recipe or a faster one.

Published recipe (He & Glass 2018, section 3 and the released code): SGD at rate 1 with momentum 0.9, weight decay 1e-5,
batches of 64, clip 5; 10 epochs at a fixed rate, then 10 with a rate that falls before each; the last model is kept.

Fast recipe (ours): Adam, larger batches of replies of like length, products in bfloat16; the full rate ends when the
validation loss stops falling, and the best model decays and is kept.

Departures:
  * # Paper: the rate is halved. Released: times 0.6. Ours: the paper's, `decay` names it.
  * # Released: embeddings, encoder and decoder are clipped one by one, and momentum starts afresh with every epoch.
    Ours: the whole gradient is clipped, momentum is kept.
  * # Released: the loss of a batch is the mean over its targets. Ours: its sum over the mean number of targets of a batch,
    because otherwise a word of a batch of short replies would weigh more than others.

A model may also go on from weights that it has, and bring down another objective than its own (`Objective`); adversarial
training does both (`policies/core/margin.py`). The weights that it began with are then kept unless an epoch is better.

The loop itself is `loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from parley.policies.core.fitting.batches import Batch, Examples, epoch_order
from parley.policies.core.fitting.evaluation import evaluate
from parley.policies.core.fitting.loop import SAVE_EVERY_S, FittingLoop, StepLoss
from parley.policies.core.fitting.loss import OutputLoss
from parley.policies.core.fitting.predictor import Loss, Predictor
from parley.policies.core.fitting.settings import FitConfig
from parley.policies.core.training import autocast

BatchT = TypeVar("BatchT", bound=Batch)
ADAGRAD_START = 0.1
"""Sum of squared gradients that Adagrad starts from, as TensorFlow's does."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch did."""

    number: int
    stage: str
    """"full" at the full rate, "decay" after it."""
    learning_rate: float
    train_nll: float
    """Mean training loss per word in nats, dropout on, while the weights moved."""
    validation_nll: float
    """Nats per word, `</s>` counted; of an objective of another kind what it measures instead."""
    seconds: float
    best: bool
    """Whether it is the best model so far by validation loss."""

    def as_row(self) -> dict[str, Any]:
        """Flat JSON types for event logs and plots."""
        return asdict(self)


class Objective(Generic[BatchT]):
    """What training brings down: a model's own loss."""

    def __init__(self, model: Predictor[Any]) -> None:
        self.model = model
        self.carried: dict[str, float] = {}
        """Numbers that a step changes, which a resumed training goes on from."""

    def loss(self, batch: BatchT, output_loss: OutputLoss) -> Loss:
        """The loss of a batch, see `Predictor.loss`."""
        return self.model.loss(batch, output_loss)

    def validation(self, examples: Examples[BatchT]) -> float:
        """What decides which model is best, in nats per word, lower: better; dropout is off while it is measured."""
        return evaluate(self.model, examples).nll


class Fit(FittingLoop[Predictor[Any], FitConfig, float, Epoch], Generic[BatchT]):
    """One supervised training of a model that predicts words.

    Args:
        model: its weights are drawn here unless a saved state exists or `fresh` says otherwise.
        train: examples to learn from.
        validation: examples that decide which model is best.
        config: the recipe.
        seed: master seed.
        state_path: where the exact training state is kept; an existing one is resumed.
        save_every_s: seconds of an epoch after which the state is kept within it.
        fresh: whether weights are drawn; otherwise training goes on from those that the model has.
        objective: what is brought down; the model's own loss when not given.
    """

    falling = "decay"

    def __init__(
        self,
        model: Predictor[Any],
        train: Examples[BatchT],
        validation: Examples[BatchT],
        config: FitConfig,
        seed: int,
        state_path: Path,
        save_every_s: float = SAVE_EVERY_S,
        *,
        fresh: bool = True,
        objective: Objective[BatchT] | None = None,
    ) -> None:
        self.train, self.validation = train, validation
        self.objective = objective or Objective(model)
        self._loss = OutputLoss(model.output)
        self._targets_per_batch = int(train.num_targets.sum()) * min(config.batch_size / len(train), 1.0)
        super().__init__(model, config, seed, state_path, save_every_s, fresh=fresh, carried=self.objective.carried)

    def initialise(self, generator: torch.Generator) -> None:
        self.model.initialise(generator)

    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        """One optimiser for both stages; the fused kernels read and write every weight once, where torch has them."""
        config, parameters = self.config, list(self.model.parameters())
        if config.optimiser == "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=config.weight_decay, fused=True)
        if config.optimiser == "adagrad":
            has_fused = parameters[0].device.type == "cpu"
            return torch.optim.Adagrad(
                parameters, lr=rate, weight_decay=config.weight_decay, initial_accumulator_value=ADAGRAD_START, fused=has_fused
            )
        return torch.optim.SGD(parameters, lr=rate, momentum=config.momentum, weight_decay=config.weight_decay, fused=True)

    def groups(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        return epoch_order(self.train, self.config.batch_size, generator, self.config.bucketed)

    def step(self, group: np.ndarray) -> StepLoss:
        """One update; the loss is the sum over the targets, before the update."""
        batch = self.train.batch(group).to(next(self.model.parameters()).device)
        targets = int(self.train.num_targets[group].sum())
        with autocast(batch.targets_BT.device, self.precision):
            loss = self.objective.loss(batch, self._loss)
        self.descend(loss.total / self._targets_per_batch)
        nll = float(loss.nll.detach())
        return StepLoss(nll / targets, nll, targets)

    def validate(self) -> float:
        return self.objective.validation(self.validation)

    def criterion(self, figures: float) -> float:
        return figures

    def epoch(self, number: int, loss: float, figures: float, seconds: float, best: bool) -> Epoch:
        return Epoch(number, self._stage, self._rate, loss, figures, seconds, best)

    @property
    def falling_epochs(self) -> int:
        return self.config.decay_epochs

    def fall(self, epochs: int) -> float:
        """The full rate times `decay` once more than there were such epochs."""
        rate = self.config.learning_rate * self.config.decay ** (epochs + 1)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        return rate

    def take_back(self, *, at_end: bool) -> None:
        if self.config.keep == "best":
            super().take_back(at_end=at_end)
