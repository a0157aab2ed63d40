"""The loop of every supervised training, exactly resumable, and its use for models that predict words (`Fit`).

`FittingLoop` trains epochs at a full rate, then some at a falling one. Subclasses define a step, the measurement after an
epoch, and the falling rate: `Fit` here, and the training of negotiators in `policies/negotiator/speaker.py`. Training resumes
exactly: order and dropout depend on (seed, epoch, batch) alone, and the state is saved after every epoch and, in long epochs,
every few minutes.

Published recipe (He & Glass 2018, section 5.3 and the released code): SGD at rate 1 with momentum 0.9, weight decay 1e-5,
batches of 64, clip 5; 10 epochs at a fixed rate, then 10 with a rate that falls before each; the last model is kept.

Fast recipe (ours): Adam, larger batches of replies of like length, products in bfloat16; the full rate ends when the
validation loss stops falling, and the best model decays and is kept.

Departures:
  * # Paper: the rate is halved. Released: times 0.6. Ours: the paper's, `decay` names it.
  * # Released: embeddings, encoder and decoder are clipped one by one, and momentum starts afresh with every epoch.
    Ours: the whole gradient is clipped, momentum is kept.
  * # Released: the loss of a batch is the mean over its targets. Ours: its sum over the mean number of targets of a batch,
    because otherwise a word of a batch of short replies would weigh more than others.

A model may also continue from its weights, with another objective than its own (`Objective`); adversarial training does both
(`policies/core/margin.py`). Its first weights are then kept unless an epoch is better.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import nn

from parley.envs.core.seeds import derive_seed, stream
from parley.policies.core.checkpoint import (
    Precision,
    Progress,
    autocast,
    copied_weights,
    eager,
    keep_freed,
    load_training,
    require_bounded,
    save_training,
)
from parley.policies.core.fitting.batches import Batch, Examples, Loss, OutputLoss, Predictor, epoch_order, evaluate
from parley.policies.core.layers import ENOUGH, clock_of, cost_of_bfloat16, multiplies_bfloat16, total_share
from parley.policies.core.settings import FitConfig

log = logging.getLogger(__name__)

SAVE_EVERY_S = 180.0
"""Seconds of work of a long epoch that may be lost."""
CLOCKED = 6
"""Number of batches on which the precisions are clocked; the first is not counted."""
PRECISIONS: tuple[Precision, Precision] = ("bfloat16", "float32")
FULL = "full"
"""The stage at the full rate."""


class Recipe(Protocol):
    """The part of a recipe (`settings.FitConfig`) that the loop reads."""

    @property
    def learning_rate(self) -> float:
        """Step size at the full rate."""

    @property
    def clip(self) -> float:
        """Largest norm of the whole gradient."""

    @property
    def max_epochs(self) -> int:
        """Largest number of epochs."""

    @property
    def full_epochs(self) -> int:
        """Largest number of epochs at the full rate."""

    @property
    def patience(self) -> int:
        """Epochs without a better one after which the full rate ends."""

    @property
    def precision(self) -> Precision:
        """Precision of matrix products; "auto" is measured when training begins."""


class EpochRow(Protocol):
    """The results of one epoch."""

    @property
    def number(self) -> int:
        """Counted from 1."""

    @property
    def stage(self) -> str:
        """The full rate, or a falling one."""

    @property
    def seconds(self) -> float:
        """Seconds of work, measuring included."""

    def as_row(self) -> dict[str, Any]:
        """Return flat JSON types for event logs and plots; "stage" among them."""


ModelT = TypeVar("ModelT", bound=nn.Module)
RecipeT = TypeVar("RecipeT", bound=Recipe)
FiguresT = TypeVar("FiguresT")
EpochT = TypeVar("EpochT", bound=EpochRow)


@dataclass(frozen=True)
class StepLoss:
    """The losses of one update.

    Args:
        bounded: nats that no model has which still learns, if above `parley.policies.core.checkpoint.DIVERGED`.
        total: the loss that an epoch reports, summed over the step's targets.
        targets: of the step.
    """

    bounded: float
    total: float
    targets: int


class FittingLoop(ABC, Generic[ModelT, RecipeT, FiguresT, EpochT]):
    """One supervised training, epoch by epoch.

    Args:
        model: that is trained.
        config: the recipe.
        seed: master seed.
        state_path: file of the exact training state; an existing one is resumed.
        save_every_s: seconds of an epoch after which the state is kept within it.
        fresh: whether weights are drawn; otherwise training goes on from those that the model has.
        carried: numbers that a step changes beside the weights; part of the state.
    """

    falling: ClassVar[str]
    """Name of the stage at a falling rate."""
    precision: Precision
    """Precision of matrix products, never "auto": chosen when training begins, and kept by a resumed training."""

    def __init__(
        self,
        model: ModelT,
        config: RecipeT,
        seed: int,
        state_path: Path,
        save_every_s: float,
        *,
        fresh: bool = True,
        carried: dict[str, float] | None = None,
    ) -> None:
        keep_freed()
        self.model, self.config, self.seed = model, config, seed
        self.state_path, self.save_every_s = state_path, save_every_s
        self._is_fresh, self._carried = fresh, {} if carried is None else carried
        self.history: list[dict[str, Any]] = []
        self._stage, self._rate = FULL, config.learning_rate
        self.best_loss, self._since_best = math.inf, 0
        self.batches_done, self._total, self._targets, self._seconds = 0, 0.0, 0, 0.0
        if state_path.exists():
            self._resume()
            return
        if fresh:
            device = next(model.parameters()).device
            # Drawn on the CPU, so that a seed means the same weights on every device.
            model.cpu()
            self.initialise(torch.Generator().manual_seed(derive_seed(seed, "initialise")))
            model.to(device)
        else:
            self.best_loss = self.criterion(self.validate())
        self._optimiser = self.new_optimiser(self._rate)
        self._best = copied_weights(model)
        self.precision = self._fastest_precision() if config.precision == "auto" else config.precision

    @abstractmethod
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the model's weights."""

    @abstractmethod
    def new_optimiser(self, rate: float) -> torch.optim.Optimizer:
        """Return the optimiser of the stage that has begun."""

    @abstractmethod
    def groups(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        """Return the indices of the examples of each batch of an epoch, in order."""

    @abstractmethod
    def step(self, group: np.ndarray) -> StepLoss:
        """Make one update on the examples at some indices."""

    @abstractmethod
    def validate(self) -> FiguresT:
        """Return the model's figures after an epoch."""

    @abstractmethod
    def criterion(self, figures: FiguresT) -> float:
        """Return the number that decides which model is best, lower: better."""

    @abstractmethod
    def epoch(self, number: int, loss: float, figures: FiguresT, seconds: float, best: bool) -> EpochT:
        """Return the results of an epoch; `loss` is the mean over its targets, in nats."""

    @property
    def falling_epochs(self) -> int:
        """Largest number of epochs at a falling rate."""
        return 0

    def fall(self, epochs: int) -> float:
        """Return the rate of the next epoch after so many at a falling one, and set it in the optimiser or a new one."""
        raise AssertionError("there is no epoch at a falling rate")

    def begin_epoch(self, number: int) -> None:  # most have nothing to prepare
        """Prepare an epoch, counted from 0, of which `batches_done` are made already."""

    @property
    def takes_best(self) -> bool:
        """True if an epoch of this stage may be the best."""
        return True

    @property
    def is_unchanged(self) -> bool:
        """True if no epoch was better than the weights that the model began with, which are kept."""
        keeps_best = getattr(self.config, "keep", "best") == "best"
        return keeps_best and not self._is_fresh and not any(row["best"] for row in self.history)

    def take_back(self, *, at_end: bool) -> None:
        """Restore the best weights, before the rate falls and at the end, if the recipe keeps them."""
        if getattr(self.config, "keep", "best") == "best":
            self.model.load_state_dict(self._best)

    def dropout_seed(self, epoch: int, batch: int) -> int | None:
        """Return torch's seed before a batch, epochs counted from 0 and batches from 1; None leaves it as it is."""
        return derive_seed(self.seed, "dropout", epoch, batch)

    def run(self, on_epoch: Callable[[EpochT], None], on_batch: Progress | None = None) -> ModelT:
        """Train to the end of the recipe and return the model, in evaluation mode.

        Raises:
            ConfigError: the loss has left all bounds; the last saved state is an earlier one.
            CheckpointError: a state cannot be written.
        """
        while self.batches_done or self._advance_stage():
            self._train_epoch(on_batch)
            started = time.monotonic()
            figures = self.validate()
            loss = self.criterion(figures)
            # The effect of the last update shows only here.
            require_bounded(loss, f"validation after epoch {len(self.history) + 1}", self._rate, self.config.clip)
            best = self.takes_best and loss < self.best_loss
            if best:
                self.best_loss, self._since_best, self._best = loss, 0, copied_weights(self.model)
            else:
                self._since_best += 1
            seconds = self._seconds + time.monotonic() - started
            done = self.epoch(len(self.history) + 1, self._total / self._targets, figures, seconds, best)
            self.history.append(done.as_row())
            self.batches_done, self._total, self._targets, self._seconds = 0, 0.0, 0, 0.0
            self._save()
            on_epoch(done)
        self.take_back(at_end=True)
        return self.model.eval()

    def _advance_stage(self) -> bool:
        """Set the rate of the next epoch; return False when the recipe is finished."""
        done = len(self.history)
        if self._stage == FULL:
            if done < self.config.full_epochs and self._since_best < self.config.patience:
                return True
            self._stage = self.falling
            self.take_back(at_end=False)
        fallen = sum(row["stage"] == self.falling for row in self.history)
        if fallen >= self.falling_epochs or done >= self.config.max_epochs:
            return False
        self._rate = self.fall(fallen)
        return True

    def _train_epoch(self, on_batch: Progress | None) -> None:
        """Train the rest of an epoch."""
        number = len(self.history)
        self.begin_epoch(number)
        self.model.train()
        device = next(self.model.parameters()).device
        groups = self.groups(stream(self.seed, "order", number))
        before, saved = self._seconds, time.monotonic()
        started = saved
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for done, group in enumerate(groups[self.batches_done :], start=self.batches_done + 1):
                if (seed := self.dropout_seed(number, done)) is not None:
                    torch.manual_seed(seed)
                loss = self.step(group)
                where = f"epoch {number + 1}, batch {done} of {len(groups)}"
                require_bounded(loss.bounded, where, self._rate, self.config.clip)
                self.batches_done, self._total, self._targets = done, self._total + loss.total, self._targets + loss.targets
                self._seconds = before + time.monotonic() - started
                if on_batch is not None:
                    on_batch(number + 1, done, len(groups))
                if time.monotonic() - saved >= self.save_every_s and done < len(groups):
                    self._save()
                    saved = time.monotonic()

    def descend(self, loss: torch.Tensor) -> None:
        """Make a step of the optimiser down the clipped gradient of a loss."""
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self._optimiser.step()

    def _fastest_precision(self) -> Precision:
        """Return the precision of the faster step; float32 if the difference is small (`policies/core/layers.py`)."""
        device = next(self.model.parameters()).device
        if not multiplies_bfloat16(device):
            return "float32"
        groups = self.groups(stream(self.seed, "order", 0))
        shapes = [list(value.shape) for value in self.model.parameters()]
        examples = max(map(len, groups))
        what = {"training": type(self).__name__, "examples": examples, "shapes": shapes, "batches": CLOCKED}
        # A last batch may be smaller than the others.
        clocked = list(islice(cycle(group for group in groups if 2 * len(group) > examples), CLOCKED))
        cost = cost_of_bfloat16(device, what, partial(self._measure_bfloat16, clocked, device))
        return "bfloat16" if cost < ENOUGH else "float32"

    def _measure_bfloat16(self, groups: Sequence[np.ndarray], device: torch.device) -> float:
        """Return the cost of bfloat16 by steps on some batches in both precisions, and undo them."""

        def step(precision: Precision, group: np.ndarray) -> None:
            self.precision = precision
            self.step(group)

        self.model.train()
        before = dict(self._carried)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            half, single = ([partial(step, name, group) for group in groups] for name in PRECISIONS)
            share = total_share(half, single, clock_of(device))
        self.model.load_state_dict(self._best)
        self._carried.update(before)
        self._optimiser = self.new_optimiser(self._rate)
        return share

    def _save(self) -> None:
        counters = {
            "precision": self.precision,
            "stage": self._stage,
            "rate": self._rate,
            "best_loss": self.best_loss,
            "since_best": self._since_best,
            "batches_done": self.batches_done,
            "nll": self._total,
            "targets": self._targets,
            "seconds": self._seconds,
            "carried": self._carried,
            "history": self.history,
        }
        save_training(self.state_path, self.model, self._best, self._optimiser, counters)

    def _resume(self) -> None:
        saved = load_training(self.state_path, self.model)
        counters, self._best = saved.counters, saved.best
        self._stage, self._rate, self.history = counters["stage"], counters["rate"], counters["history"]
        # States of older versions lack it; they were float32 except on processors with AMX.
        self.precision = counters.get("precision", "float32" if self.config.precision == "auto" else self.config.precision)
        self._optimiser = self.new_optimiser(self._rate)
        saved.restore(self._optimiser)
        self._carried.update(counters.get("carried", {}))
        self.best_loss, self._since_best = counters["best_loss"], counters["since_best"]
        self.batches_done, self._total = counters["batches_done"], counters["nll"]
        self._targets, self._seconds = counters["targets"], counters["seconds"]
        log.info("resumed after epoch %d, batch %d from %s", len(self.history), self.batches_done, self.state_path)


BatchT = TypeVar("BatchT", bound=Batch)
ADAGRAD_START = 0.1
"""Initial sum of squared gradients of Adagrad, as in TensorFlow."""


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch."""

    number: int
    stage: str
    """"full" at the full rate, "decay" after it."""
    learning_rate: float
    train_nll: float
    """Mean training loss per word in nats, dropout on, while the weights moved."""
    validation_nll: float
    """Nats per word, `</s>` counted; for another objective, its validation value."""
    seconds: float
    best: bool
    """True if it is the best model so far by validation loss."""

    def as_row(self) -> dict[str, Any]:
        """Return flat JSON types for event logs and plots."""
        return asdict(self)


class Objective(Generic[BatchT]):
    """The objective of a training: by default the model's own loss."""

    def __init__(self, model: Predictor[Any]) -> None:
        self.model = model
        self.carried: dict[str, float] = {}
        """Numbers that a step changes, which a resumed training goes on from."""

    def loss(self, batch: BatchT, output_loss: OutputLoss) -> Loss:
        """Return the loss of a batch, see `Predictor.loss`."""
        return self.model.loss(batch, output_loss)

    def validation(self, examples: Examples[BatchT]) -> float:
        """Return the number that decides which model is best, in nats per word, lower: better, without dropout."""
        return evaluate(self.model, examples).nll


class Fit(FittingLoop[Predictor[Any], FitConfig, float, Epoch], Generic[BatchT]):
    """A supervised training of a model that predicts words.

    Args:
        model: its weights are drawn here unless a saved state exists or `fresh` says otherwise.
        train: examples to learn from.
        validation: examples that decide which model is best.
        config: the recipe.
        seed: master seed.
        state_path: file of the exact training state; an existing one is resumed.
        save_every_s: seconds of an epoch after which the state is kept within it.
        fresh: whether weights are drawn; otherwise training goes on from those that the model has.
        objective: the objective; the model's own loss when not given.
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
        """Return one optimiser for both stages, with torch's fused kernels if there are any."""
        config, parameters = self.config, list(self.model.parameters())
        if config.optimiser == "adam":
            return eager(torch.optim.Adam)(parameters, lr=rate, weight_decay=config.weight_decay, fused=True)
        if config.optimiser == "adagrad":
            has_fused = parameters[0].device.type == "cpu"
            return eager(torch.optim.Adagrad)(
                parameters, lr=rate, weight_decay=config.weight_decay, initial_accumulator_value=ADAGRAD_START, fused=has_fused
            )
        return eager(torch.optim.SGD)(
            parameters, lr=rate, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
        )

    def groups(self, generator: np.random.Generator) -> Sequence[np.ndarray]:
        return epoch_order(self.train, self.config.batch_size, generator, self.config.bucketed)

    def step(self, group: np.ndarray) -> StepLoss:
        """Make one update; the loss is the sum over the targets, before the update."""
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
        """Return the full rate times `decay` once more than there were such epochs."""
        rate = self.config.learning_rate * self.config.decay ** (epochs + 1)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        return rate
