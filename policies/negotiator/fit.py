"""Supervised training of the negotiation agent, by the released recipe or a faster one.

Released recipe (Lewis et al. 2017, their read-me command): SGD at rate 1 with Nesterov momentum 0.1, batches of 16,
clip 0.5, 30 epochs at a constant rate; the model of least validation selection loss is taken back and annealed with
plain SGD, the rate divided by 5 before each epoch while it stays at or above 0.01; the last annealed model is kept.

Fast recipe (ours): Adam, larger batches, the same criterion and the same annealing.

Training resumes exactly at the last finished epoch: order and dropout of an epoch depend on (seed, epoch) alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from parley.envs.core.seeds import derive_seed
from parley.policies.core.fitting.loop import FULL, FittingLoop, StepLoss
from parley.policies.core.training import autocast
from parley.policies.negotiator.batches import make_batch, shuffled
from parley.policies.negotiator.evaluation import NegotiatorFitness, evaluate
from parley.policies.negotiator.model import Negotiator, supervised_loss, word_nll
from parley.policies.negotiator.settings import NegotiatorFitConfig

if TYPE_CHECKING:
    from parley.envs.negotiation.corpora.compiled import Split


@dataclass(frozen=True)
class NegotiatorEpoch:
    """What one epoch did."""

    number: int
    stage: str
    """"full" at the full rate, "anneal" after it."""
    learning_rate: float
    train_perplexity: float
    """exp(mean training word loss), padding targets included, dropout on."""
    validation: NegotiatorFitness
    seconds: float
    best: bool
    """Whether it is the best model so far by validation selection loss."""

    def as_row(self) -> dict[str, Any]:
        """Flat JSON types for event logs and plots."""
        row = asdict(self)
        return {**{k: v for k, v in row.items() if k != "validation"}, **row["validation"]}


class NegotiatorFit(FittingLoop[Negotiator, NegotiatorFitConfig, NegotiatorFitness, NegotiatorEpoch]):
    """One supervised training of a negotiator.

    Args:
        model: freshly built; its weights are initialised here unless a saved state exists.
        train: dialogues to learn from.
        validation: dialogues that decide which model is best.
        config: the recipe.
        seed: master seed.
        state_path: where the exact training state is kept after every epoch; an existing one is resumed.
    """

    falling = "anneal"

    def __init__(
        self, model: Negotiator, train: Split, validation: Split, config: NegotiatorFitConfig, seed: int, state_path: Path
    ) -> None:
        self.train, self.validation = train, validation
        # Dropout is seeded once an epoch, so that one goes on from its beginning alone.
        super().__init__(model, config, seed, state_path, save_every_s=math.inf)

    def initialise(self, generator: torch.Generator) -> None:
        self.model.initialise(generator)

    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        """A fresh optimiser; the released code anneals with plain SGD: no momentum."""
        if self.config.optimiser == "adam":
            return torch.optim.Adam(self.model.parameters(), lr=rate)
        momentum = self.config.momentum if self._stage == FULL else 0.0
        return torch.optim.SGD(self.model.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0)

    def groups(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        """Batches of like length in random order."""
        return shuffled(self.train, self.config.batch_size, generator)

    def dropout_seed(self, epoch: int, batch: int) -> int | None:
        """A seed before the first batch of an epoch alone."""
        return derive_seed(self.seed, "dropout", epoch) if batch == 1 else None

    def step(self, group: np.ndarray) -> StepLoss:
        """One update; what an epoch reports is the words' share of the loss, padding targets included."""
        batch = make_batch(self.train, group).to(next(self.model.parameters()).device)
        with autocast(batch.tokens_BT.device, self.precision):
            logits_BTV, choice_B6K = self.model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        nll_BT = word_nll(logits_BTV.float(), batch.tokens_BT)
        loss, words, _ = supervised_loss(choice_B6K.float(), nll_BT, batch.outputs_B6, self.config.selection_weight)
        self.descend(loss)
        whole, of_words = torch.stack([loss.detach(), words.detach()]).tolist()
        targets = batch.tokens_BT[:, 1:].numel()
        return StepLoss(whole, of_words * targets, targets)

    def validate(self) -> NegotiatorFitness:
        return evaluate(self.model, self.validation)

    def criterion(self, figures: NegotiatorFitness) -> float:
        return figures.selection_loss

    def epoch(self, number: int, loss: float, figures: NegotiatorFitness, seconds: float, best: bool) -> NegotiatorEpoch:
        return NegotiatorEpoch(number, self._stage, self._rate, math.exp(loss), figures, seconds, best)

    @property
    def falling_epochs(self) -> int:
        return self.config.anneal_epochs

    def fall(self, epochs: int) -> float:
        """The rate divided once more, and an optimiser that remembers nothing."""
        rate = self._rate / self.config.anneal_divisor
        self._optimiser = self.new_optimiser(rate)
        return rate

    @property
    def takes_best(self) -> bool:
        """Annealing begins at the best model of the full rate, and its last one is kept."""
        return self._stage == FULL

    def take_back(self, *, at_end: bool) -> None:
        if not at_end:
            super().take_back(at_end=False)
