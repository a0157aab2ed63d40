"""What jobs that fit a model in one process share: seed, threads and device, and how a fit is run, told and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.jobs.job import Reporter
from engine.metrics.statistics import NOTHING, Estimate, ratio_of_sums
from engine.store.run_folder import RunFolder
from envs.core.config import check
from envs.pairs.compiled import nothing_to_measure

if TYPE_CHECKING:
    from policies.fitting.evaluation import Fitness
    from policies.fitting.fit import Epoch, Fit

RESUME_SAFE = ("data_root", "device", "threads")
"""Settings that change how a model is fitted and not what it is; a resumed run may differ in them."""


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig:
    """How a model is fitted."""

    seed: int = 1
    """Master seed."""
    limit: int = 0
    """Examples of each split at most, the first ones, so that a large corpus can be tried; 0 for all."""
    threads: int = 1
    """CPU threads that the training computes with."""
    device: str = "cpu"
    """Torch device, such as cpu or cuda."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""

    def __post_init__(self) -> None:
        check(self, "seed", self.seed >= 0, "at least 0")
        check(self, "limit", self.limit >= 0, "at least 0")
        check(self, "threads", self.threads >= 1, "at least 1")


def no_figures() -> dict[str, float]:
    """Nothing is measured after an epoch but what the fit itself says."""
    return {}


def perplexities(epoch: Epoch) -> str:
    """What is said of an epoch whose losses are nats per word."""
    return f"training perplexity {np.exp(epoch.train_nll):.2f}, validation {np.exp(epoch.validation_nll):.2f}"


def run_fit(
    fit: Fit[Any],
    folder: RunFolder,
    reporter: Reporter,
    measure: Callable[[], Mapping[str, float]] = no_figures,
    say: Callable[[Epoch], str] = perplexities,
) -> None:
    """Makes what is left of a fit; every epoch becomes an event of the run.

    Args:
        fit: fresh, or resumed from its state.
        folder: of the run.
        reporter: who watches.
        measure: figures of the model after an epoch, by name; they are part of the event.
        say: an epoch in words.
    """
    if fit.history or fit.batches_done:
        reporter.say(f"resumed after epoch {len(fit.history)}, batch {fit.batches_done}")
    at_work = 0

    def on_epoch(epoch: Epoch) -> None:
        figures = measure()
        folder.event("epoch", **epoch.as_row(), **figures)
        told = "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in figures.items())
        reporter.say(f"epoch {epoch.number:2d} ({epoch.stage}): {say(epoch)}{told}, {epoch.seconds:.0f} s")

    def on_batch(epoch: int, done: int, total: int) -> None:
        nonlocal at_work
        if epoch != at_work:
            at_work = epoch
            reporter.stage(f"epoch {epoch}", total, "batches")
        reporter.advance(done)

    fit.run(on_epoch, on_batch)


def require_splits(corpus: str, splits: Mapping[str, Sized]) -> None:
    """Checks that there is something to train on, to stop by and to measure.

    Raises:
        DataError: a split is empty.
    """
    if nothing := nothing_to_measure(corpus, {name: len(items) for name, items in splits.items()}):
        raise nothing


def estimates(split: str, fitness: Fitness) -> dict[str, Estimate]:
    """Loss and perplexity of a split."""
    return {
        f"{split}_nll": ratio_of_sums(fitness.nll_sums, fitness.num_targets),
        f"{split}_ppl": ratio_of_sums(fitness.nll_sums, fitness.num_targets, transform=np.exp),
    }


def context_gain(own: Fitness, exchanged: Fitness) -> Estimate:
    """What contexts tell a model: nats per word that replies cost more behind the contexts of others.

    Args:
        own: the model on a split.
        exchanged: on the same replies in the same order, each behind another's context.

    Returns:
        Nothing where there is no other context, of a split of one example.
    """
    if len(own.num_targets) < 2:
        return NOTHING
    return ratio_of_sums(exchanged.nll_sums - own.nll_sums, own.num_targets)
