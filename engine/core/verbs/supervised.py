"""Jobs that fit a model in one process: their settings, how a fit is run and measured, and how its model is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, clustered_rate, ratio_of_sums
from parley.engine.core.verbs.device import require_device, threads
from parley.engine.core.verbs.job import ConfigT, Job, Reporter, Steps, Summary
from parley.envs.core.ranges import Configuration, NonNegativeInt, PositiveInt
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs, nothing_to_measure

if TYPE_CHECKING:
    from parley.envs.corpora.pairs.vocabulary import PairVocabulary
    from parley.policies.core.fitting.evaluation import Fitness, TextSizes
    from parley.policies.core.fitting.fit import Epoch, Fit
    from parley.policies.core.fitting.loop import EpochRow, FittingLoop

STATE = "training.safetensors"
"""The file of a run that a training goes on from."""
RESUME_SAFE = ("data_root",)
"""Settings that do not change what a model becomes; a resumed run may differ in them.

Threads and device are none of them: sums may differ in the last digit, and a training carries that on.
"""
STORED = ("test_nll", "validation_nll", "test_kl")
"""Figures that a checkpoint says of its model."""
EPOCHS = Steps("epoch", "epochs")
"""A fit ends when it stops to gain, or goes on at falling rates."""


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig(Configuration):
    """How a model is fitted."""

    seed: NonNegativeInt = 1
    """Master seed."""
    limit: NonNegativeInt = 0
    """Examples of each split at most, the first ones, so that a large corpus can be tried; 0 for all."""
    threads: PositiveInt = 1
    """CPU threads that the training computes with."""
    device: str = "cpu"
    """Torch device, such as cpu or cuda."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""


@dataclass(frozen=True, kw_only=True)
class PairFitConfig(SupervisedConfig):
    """What a model of pairs is fitted to."""

    corpus: str = "helpdesk"
    """Registered corpus of pairs (parley data list), a source<TAB>reply file or folder, or path/file.py:NAME."""


class FittedCorpus(Protocol):
    """What is known of any corpus that a model is fitted to."""

    @property
    def name(self) -> str:
        """The registered name."""

    @property
    def folder(self) -> Path:
        """The compiled files; its last part is the key of the content."""


class CorpusFitConfig(Protocol):
    """What is asked of the settings of any fit to a corpus."""

    @property
    def corpus(self) -> str:
        """Its name."""

    @property
    def seed(self) -> int:
        """Master seed."""

    @property
    def threads(self) -> int:
        """CPU threads."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """A model and the examples of a corpus, ready for the fit.

    Args:
        config: how it is fitted.
        corpus: where the examples come from.
        model: trained in place.
        splits: its examples by split: train, val, test.
        fit: makes the fit, or what is left of it, by the file of its state.
        save: stores the model in a folder, with how it came about.
        provenance: that, but for the corpus, the seed and figures.
        what: the model in words.
        words: its vocabulary in words.
        vocabulary: of the targets, where text is to be measured in words and characters.
        measure: figures of the model after each epoch, by name.
        finish: figures of the fitted model beside its losses, by what was measured on the test split.
    """

    config: CorpusFitConfig
    corpus: FittedCorpus
    model: Any
    splits: Mapping[str, Any]
    fit: Callable[[Path], Fit[Any]]
    save: Callable[[Any, Path, Mapping[str, Any]], None]
    provenance: Mapping[str, Any]
    what: str
    words: str
    vocabulary: PairVocabulary | None = None
    measure: Callable[[], Mapping[str, float]] = dict
    finish: Callable[[Fitness], Mapping[str, Estimate]] = lambda test: {}


class FitJob(Job[ConfigT, Fitting, Summary]):
    """A job that fits a model to a corpus and stores it as `checkpoint`; each says in `prepare` what is fitted to what."""

    files = (CHECKPOINT, SUMMARY)
    resume_safe: tuple[str, ...] = RESUME_SAFE
    steps = EPOCHS

    def work(self, run: RunFolder, prepared: Fitting, reporter: Reporter) -> Summary:
        """Fits the model, resuming exactly where it was, measures and stores it."""
        from parley.policies.core.fitting.evaluation import evaluate, text_sizes

        config, model = prepared.config, prepared.model
        with threads(config.threads):
            fit = prepared.fit(run.path / STATE)
            run_fit(fit, run, reporter, prepared.measure)
            reporter.stage("measuring the model", 0, "")
            test, validation = (evaluate(model, prepared.splits[split]) for split in ("test", "val"))
            found = estimates("test", test) | estimates("validation", validation) | dict(prepared.finish(test))
            if prepared.vocabulary is not None:
                found |= text_estimates(test, text_sizes(prepared.splits["test"], prepared.vocabulary))
        metrics = {name: found[name] for name in self.legend if name in found}
        about = {"corpus": config.corpus, "corpus_key": prepared.corpus.folder.name, "seed": config.seed}
        how = {"precision": fit.precision, "epochs": len(fit.history)}
        # Searches read off these how likely a usual word is.
        figures = {name: estimate.value for name, estimate in metrics.items() if name in STORED}
        prepared.save(model, run.path / CHECKPOINT, {**prepared.provenance, **about, **how, **figures})
        description = f"Supervised training, seed {config.seed}, {prepared.words}."
        return Summary(f"{prepared.what}, on {prepared.corpus.name}", description, metrics)


def open_pairs(config: PairFitConfig, **options: Any) -> PairCorpus:
    """The corpus of a fit, once it is known that there is a device to fit on.

    Args:
        config: of the fit.
        options: of `load_pairs`.

    Raises:
        ConfigError: torch cannot compute on the device, or no corpus is called so.
        DataError: the corpus is missing or broken, or a split is empty.
    """
    require_device(config.device, "--device")
    corpus = load_pairs(config.corpus, config.data_root, **options).first(config.limit)
    require_splits(corpus.name, corpus.splits)
    return corpus


def perplexities(epoch: Epoch) -> str:
    """What is said of an epoch whose losses are nats per word."""
    return f"training perplexity {np.exp(epoch.train_nll):.2f}, validation {np.exp(epoch.validation_nll):.2f}"


def run_fit(
    fit: FittingLoop[Any, Any, Any, Any],
    folder: RunFolder,
    reporter: Reporter,
    measure: Callable[[], Mapping[str, float]] = dict,
    say: Callable[[Any], str] = perplexities,
) -> None:
    """Makes what is left of a fit; every epoch becomes an event of the run.

    Args:
        fit: fresh, or resumed from its state.
        folder: of the run.
        reporter: who watches.
        measure: figures of the model after an epoch, by name; they are part of the event.
        say: an epoch in words.
    """
    tell_precision(fit, folder, reporter)
    if fit.history or fit.batches_done:
        reporter.say(f"resumed after epoch {len(fit.history)}, batch {fit.batches_done}")
    at_work = 0

    def on_epoch(epoch: EpochRow) -> None:
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


def tell_precision(fit: FittingLoop[Any, Any, Any, Any], folder: RunFolder, reporter: Reporter) -> None:
    """Says in which precision a fit forms its products that begins and was left the choice, here and in an event of the run."""
    if fit.config.precision == "auto" and not fit.history and not fit.batches_done:
        folder.event("precision", precision=fit.precision)
        reporter.say(f"products in {fit.precision}, as is fastest here; fit.precision={fit.precision} pins it")


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


def text_estimates(fitness: Fitness, sizes: TextSizes) -> dict[str, Estimate]:
    """Perplexity of the test split per word and per character, and the share of `<unk>`."""
    return {
        "test_ppl_word": ratio_of_sums(fitness.nll_sums, sizes.num_words, transform=np.exp),
        "test_ppl_char": ratio_of_sums(fitness.nll_sums, sizes.num_characters, transform=np.exp),
        "test_unknown": clustered_rate(sizes.num_unknown, trials=sizes.num_words),
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
