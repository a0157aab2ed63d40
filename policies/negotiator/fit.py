"""Supervised training of the negotiation agent, by the released recipe or a faster one.

Released recipe (Lewis et al. 2017, their read-me command): SGD at rate 1 with Nesterov momentum 0.1, batches of 16,
clip 0.5, 30 epochs at a constant rate; the model of least validation selection loss is taken back and annealed with
plain SGD, the rate divided by 5 before each epoch while it stays at or above 0.01; the last annealed model is kept.

Fast recipe (ours): Adam, larger batches, the same criterion and the same annealing.

Training resumes exactly at the last finished epoch: order and dropout of an epoch depend on (seed, epoch) alone.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from envs.core.seeds import derive_seed, stream
from policies.negotiator.batches import Batch, Dialogues, shuffled
from policies.negotiator.evaluation import Fitness, evaluate
from policies.negotiator.model import Negotiator, supervised_loss, word_nll
from policies.negotiator.settings import FitConfig
from policies.training import Progress, autocast, copied_weights, load_training, require_bounded, save_training

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Epoch:
    """What one epoch did."""

    number: int
    stage: str
    """"full" at the full rate, "anneal" after it."""
    learning_rate: float
    train_perplexity: float
    """exp(mean training word loss), padding targets included, dropout on."""
    validation: Fitness
    seconds: float
    best: bool
    """Whether it is the best model so far by validation selection loss."""

    def as_row(self) -> dict[str, Any]:
        """Flat JSON types for event logs and plots."""
        row = asdict(self)
        return {**{k: v for k, v in row.items() if k != "validation"}, **row["validation"]}


class Fit:
    """One supervised training, epoch by epoch.

    Args:
        model: freshly built; its weights are initialised here unless a saved state exists.
        train: dialogues to learn from.
        validation: dialogues that decide which model is best.
        config: the recipe.
        seed: master seed.
        state_path: where the exact training state is kept after every epoch; an existing one is resumed.
    """

    def __init__(
        self,
        model: Negotiator,
        train: Dialogues,
        validation: Dialogues,
        config: FitConfig,
        seed: int,
        state_path: Path,
    ) -> None:
        self.model, self.train, self.validation = model, train, validation
        self.config, self.seed, self.state_path = config, seed, state_path
        self.history: list[dict[str, Any]] = []
        self._epoch = 0
        self._rate = config.learning_rate
        self._stage = "full"
        self._best_loss, self._since_best = math.inf, 0
        self._optimiser = self._new_optimiser()
        if state_path.exists():
            self._resume()
        else:
            model.initialise(torch.Generator().manual_seed(derive_seed(seed, "initialise")))
            self._best = copied_weights(self.model)

    def run(self, on_epoch: Callable[[Epoch], None], on_batch: Progress | None = None) -> Negotiator:
        """Trains to the end of the recipe and returns the model, in evaluation mode.

        Raises:
            ConfigError: the loss has left all bounds; the last saved state is that of the epoch before.
            CheckpointError: a state cannot be written.
        """
        while self._advance_stage():
            started = time.monotonic()
            loss = self._train_epoch(on_batch)
            fitness = evaluate(self.model, self.validation)
            best = self._stage == "full" and fitness.selection_loss < self._best_loss
            if best:
                self._best_loss, self._since_best, self._best = fitness.selection_loss, 0, copied_weights(self.model)
            else:
                self._since_best += 1
            self._epoch += 1
            epoch = Epoch(self._epoch, self._stage, self._rate, math.exp(loss), fitness, time.monotonic() - started, best)
            self.history.append(epoch.as_row())
            self._save()
            on_epoch(epoch)
        return self.model.eval()

    def _advance_stage(self) -> bool:
        """Sets the rate of the next epoch; false when the recipe is finished."""
        full_done = self._epoch >= self.config.full_epochs or self._since_best >= self.config.patience
        if self._stage == "full" and not full_done:
            return True
        if self._stage == "full":
            self._stage = "anneal"
            self.model.load_state_dict(self._best)
        annealed = sum(row["stage"] == "anneal" for row in self.history)
        if annealed >= self.config.anneal_epochs or self._epoch >= self.config.max_epochs:
            return False
        self._rate /= self.config.anneal_divisor
        self._optimiser = self._new_optimiser()
        return True

    def _new_optimiser(self) -> torch.optim.Optimizer:
        if self.config.optimiser == "adam":
            return torch.optim.Adam(self.model.parameters(), lr=self._rate)
        # The released code anneals with plain SGD: no momentum.
        momentum = self.config.momentum if self._stage == "full" else 0.0
        return torch.optim.SGD(self.model.parameters(), lr=self._rate, momentum=momentum, nesterov=momentum > 0)

    def _train_epoch(self, on_batch: Progress | None) -> float:
        self.model.train()
        device = next(self.model.parameters()).device
        num_batches = -(-len(self.train) // self.config.batch_size)
        total = weight = 0.0
        order = stream(self.seed, "order", self._epoch)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(derive_seed(self.seed, "dropout", self._epoch))
            for done, batch in enumerate(shuffled(self.train, self.config.batch_size, order), start=1):
                loss, words = self._step(batch.to(device))
                where = f"epoch {self._epoch + 1}, batch {done} of {num_batches}"
                require_bounded(loss, where, self._rate, self.config.clip)
                targets = batch.tokens_BT[:, 1:].numel()
                total, weight = total + words * targets, weight + targets
                if on_batch is not None:
                    on_batch(self._epoch + 1, done, num_batches)
        return total / weight

    def _step(self, batch: Batch) -> tuple[float, float]:
        """One update; its whole loss and the words' share of it."""
        with autocast(batch.tokens_BT.device, self.config.precision):
            logits_BTV, choice_B6K = self.model(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        nll_BT = word_nll(logits_BTV.float(), batch.tokens_BT)
        loss, words, _ = supervised_loss(choice_B6K.float(), nll_BT, batch.outputs_B6, self.config.selection_weight)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self._optimiser.step()
        whole, of_words = torch.stack([loss.detach(), words.detach()]).tolist()
        return whole, of_words

    def _save(self) -> None:
        counters = {
            "epoch": self._epoch,
            "stage": self._stage,
            "rate": self._rate,
            "best_loss": self._best_loss,
            "since_best": self._since_best,
            "history": self.history,
        }
        save_training(self.state_path, self.model, self._best, self._optimiser, counters)

    def _resume(self) -> None:
        saved = load_training(self.state_path, self.model)
        counters = saved.counters
        self._epoch, self._stage, self._rate = counters["epoch"], counters["stage"], counters["rate"]
        self._best_loss, self._since_best = counters["best_loss"], counters["since_best"]
        self.history, self._best = counters["history"], saved.best
        self._optimiser = self._new_optimiser()
        saved.restore(self._optimiser)
        log.info("resumed after epoch %d from %s", self._epoch, self.state_path)
