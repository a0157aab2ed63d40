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
training does both (`policies/margin.py`). The weights that it began with are then kept unless an epoch is better.

Training resumes exactly: order and dropout depend on (seed, epoch, batch) alone, and the state is kept after every epoch
and, in long epochs, every few minutes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from envs.core.seeds import derive_seed, stream
from policies.fitting.batches import Batch, Examples, epoch_order
from policies.fitting.evaluation import evaluate
from policies.fitting.loss import OutputLoss
from policies.fitting.predictor import Loss, Predictor
from policies.fitting.settings import FitConfig
from policies.training import Progress, autocast, copied_weights, load_training, require_bounded, save_training

log = logging.getLogger(__name__)

BatchT = TypeVar("BatchT", bound=Batch)
SAVE_EVERY_S = 180.0
"""How much work of a long epoch may be lost."""


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
    """What training brings down: a model's own loss.

    Args:
        model: that is trained.
    """

    def __init__(self, model: Predictor[Any]) -> None:
        self.model = model

    def loss(self, batch: BatchT, output_loss: OutputLoss) -> Loss:
        """The loss of a batch, see `Predictor.loss`."""
        return self.model.loss(batch, output_loss)

    def validation(self, examples: Examples[BatchT]) -> float:
        """What decides which model is best, in nats per word, lower: better; dropout is off while it is measured."""
        return evaluate(self.model, examples).nll


class Fit(Generic[BatchT]):
    """One supervised training, epoch by epoch.

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
        self.model, self.train, self.validation = model, train, validation
        self.objective = objective or Objective(model)
        self.config, self.seed, self.state_path, self.save_every_s = config, seed, state_path, save_every_s
        self.history: list[dict[str, Any]] = []
        self._loss = OutputLoss(model.output)
        self._stage, self._rate = "full", config.learning_rate
        self.best_loss, self._since_best = math.inf, 0
        self.batches_done, self._nll, self._targets, self._seconds = 0, 0.0, 0, 0.0
        self._targets_per_batch = int(train.num_targets.sum()) * min(config.batch_size / len(train), 1.0)
        if state_path.exists():
            self._resume()
        else:
            if fresh:
                model.initialise(torch.Generator().manual_seed(derive_seed(seed, "initialise")))
            else:
                self.best_loss = self.objective.validation(validation)
            self._optimiser = self._new_optimiser()
            self._best = copied_weights(model)

    def run(self, on_epoch: Callable[[Epoch], None], on_batch: Progress | None = None) -> Predictor[Any]:
        """Trains to the end of the recipe and returns the model, in evaluation mode.

        Raises:
            ConfigError: the loss has left all bounds; the last saved state is an earlier one.
            CheckpointError: a state cannot be written.
        """
        while self.batches_done or self._advance_stage():
            self._train_epoch(on_batch)
            started = time.monotonic()
            validation = self.objective.validation(self.validation)
            require_bounded(validation, f"validation after epoch {len(self.history) + 1}", self._rate, self.config.clip)
            best = validation < self.best_loss
            if best:
                self.best_loss, self._since_best, self._best = validation, 0, copied_weights(self.model)
            else:
                self._since_best += 1
            seconds = self._seconds + time.monotonic() - started
            train_nll = self._nll / self._targets
            epoch = Epoch(len(self.history) + 1, self._stage, self._rate, train_nll, validation, seconds, best)
            self.history.append(epoch.as_row())
            self.batches_done, self._nll, self._targets, self._seconds = 0, 0.0, 0, 0.0
            self._save()
            on_epoch(epoch)
        self._take_back()
        return self.model.eval()

    def _advance_stage(self) -> bool:
        """Sets the rate of the next epoch; false when the recipe is finished."""
        done = len(self.history)
        if self._stage == "full":
            if done < self.config.full_epochs and self._since_best < self.config.patience:
                return True
            self._stage = "decay"
            self._take_back()
        decayed = sum(row["stage"] == "decay" for row in self.history)
        if decayed >= self.config.decay_epochs or done >= self.config.max_epochs:
            return False
        self._rate = self.config.learning_rate * self.config.decay ** (decayed + 1)
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate
        return True

    def _take_back(self) -> None:
        if self.config.keep == "best":
            self.model.load_state_dict(self._best)

    def _new_optimiser(self) -> torch.optim.Optimizer:
        config, parameters = self.config, self.model.parameters()
        # The fused kernels read and write every weight once.
        if config.optimiser == "adam":
            return torch.optim.Adam(parameters, lr=self._rate, weight_decay=config.weight_decay, fused=True)
        return torch.optim.SGD(
            parameters, lr=self._rate, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
        )

    def _train_epoch(self, on_batch: Progress | None) -> None:
        """Makes the rest of an epoch."""
        self.model.train()
        device = next(self.model.parameters()).device
        number = len(self.history)
        groups = epoch_order(self.train, self.config.batch_size, stream(self.seed, "order", number), self.config.bucketed)
        before, saved = self._seconds, time.monotonic()
        started = saved
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for done, group in enumerate(groups[self.batches_done :], start=self.batches_done + 1):
                torch.manual_seed(derive_seed(self.seed, "dropout", number, done))
                batch = self.train.batch(group).to(device)
                targets = int(self.train.num_targets[group].sum())
                nll = self._step(batch)
                where = f"epoch {number + 1}, batch {done} of {len(groups)}"
                require_bounded(nll / targets, where, self._rate, self.config.clip)
                self.batches_done, self._nll, self._targets = done, self._nll + nll, self._targets + targets
                self._seconds = before + time.monotonic() - started
                if on_batch is not None:
                    on_batch(number + 1, done, len(groups))
                if time.monotonic() - saved >= self.save_every_s and done < len(groups):
                    self._save()
                    saved = time.monotonic()

    def _step(self, batch: BatchT) -> float:
        """One update; the sum of the targets' losses before it, in nats."""
        with autocast(batch.targets_BT.device, self.config.precision):
            loss = self.objective.loss(batch, self._loss)
        self._optimiser.zero_grad(set_to_none=True)
        (loss.total / self._targets_per_batch).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self._optimiser.step()
        return float(loss.nll.detach())

    def _save(self) -> None:
        counters = {
            "stage": self._stage,
            "rate": self._rate,
            "best_loss": self.best_loss,
            "since_best": self._since_best,
            "batches_done": self.batches_done,
            "nll": self._nll,
            "targets": self._targets,
            "seconds": self._seconds,
            "history": self.history,
        }
        save_training(self.state_path, self.model, self._best, self._optimiser, counters)

    def _resume(self) -> None:
        saved = load_training(self.state_path, self.model)
        counters, self._best = saved.counters, saved.best
        self._rate = counters["rate"]
        self._optimiser = self._new_optimiser()
        saved.restore(self._optimiser)
        self._stage, self.history = counters["stage"], counters["history"]
        self.best_loss, self._since_best = counters["best_loss"], counters["since_best"]
        self.batches_done, self._nll = counters["batches_done"], counters["nll"]
        self._targets, self._seconds = counters["targets"], counters["seconds"]
        log.info("resumed after epoch %d, batch %d from %s", len(self.history), self.batches_done, self.state_path)
