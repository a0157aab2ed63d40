"""Jobs that train one model in one process: supervised fits (`FitJob`) and RLlib trainings of a chooser (`ChoiceJob`).

Both save their state and resume exactly. A fit measures its model on the test and validation splits and stores it as
`checkpoint`. `make_updates` runs the updates of any RLlib training that are left.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING, Estimate, clustered_rate, mean_count, perplexity, ratio_of_sums
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import UNCHANGED, ConfigT, Job, PreparedT, Reporter, Steps, Summary
from parley.engine.core.verbs.trainings import Scalars
from parley.envs.core.config import Configuration, NonNegativeInt, PositiveInt
from parley.envs.core.storage.copies import CHECKPOINT

if TYPE_CHECKING:
    from torch import nn

    from parley.engine.core.rllib.reproducible import ActionRunner, ChooserModule
    from parley.envs.corpora.pairs.compiled import PairCorpus
    from parley.envs.corpora.pairs.vocabulary import PairVocabulary
    from parley.policies.core.fitting.batches import Fitness, TextSizes
    from parley.policies.core.fitting.loop import Epoch, EpochRow, Fit, FittingLoop


STATE = "training.safetensors"
"""The file of a run that holds the state of a training."""
RESUME_SAFE = ("data_root",)
"""Settings that do not change the fitted model; a resumed run may differ in them.

Threads and device are not among them: sums may differ in the last digit, and a training carries that on.
"""
STORED = ("test_nll", "validation_nll", "test_kl")
"""Figures that a checkpoint stores about its model."""
EPOCHS = Steps("epoch", "epochs")
"""A fit ends when it stops to gain, or continues at falling rates."""


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig(Configuration):
    """Settings of a fit."""

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
    """Settings of a fit to pairs."""

    corpus: str = "helpdesk"
    """Registered corpus of pairs (parley data list), a source<TAB>reply file or folder, or path/file.py:NAME."""


class FittedCorpus(Protocol):
    """Facts about any corpus that a model is fitted to."""

    @property
    def name(self) -> str:
        """The registered name."""

    @property
    def folder(self) -> Path:
        """The compiled files; its last part is the key of the content."""


class CorpusFitConfig(Protocol):
    """Settings that any fit to a corpus has."""

    @property
    def corpus(self) -> str:
        """The name of the corpus."""

    @property
    def seed(self) -> int:
        """The master seed."""

    @property
    def threads(self) -> int:
        """The number of CPU threads."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """A model and the examples of a corpus, ready for the fit.

    Args:
        config: settings of the fit.
        corpus: source of the examples.
        model: the model, trained in place.
        splits: examples by split: train, val, test.
        fit: makes the fit, or resumes it, from the file of its state.
        save: stores the model in a folder, with its provenance.
        provenance: origin of the model, without corpus, seed and figures.
        what: the model in words.
        words: its vocabulary in words.
        vocabulary: vocabulary of the targets, if text is to be measured in words and characters.
        measure: returns figures of the model after each epoch, by name.
        finish: returns figures of the fitted model beside its losses, from those on the test split.
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
    """A job that fits a model to a corpus and stores it as `checkpoint`; `prepare` chooses model and corpus."""

    files = (CHECKPOINT, SUMMARY)
    resume_safe: tuple[str, ...] = RESUME_SAFE
    steps = EPOCHS

    def work(self, run: RunFolder, prepared: Fitting, reporter: Reporter) -> Summary:
        from parley.policies.core.fitting.batches import evaluate, text_sizes

        config, model = prepared.config, prepared.model
        with threads(config.threads):
            fit = prepared.fit(run.path / STATE)
            run_fit(fit, run, reporter, prepared.measure)
            reporter.stage("measuring the model", 0, "")
            test, validation = (evaluate(model, prepared.splits[split]) for split in ("test", "val"))
            all_estimates = estimates("test", test) | estimates("validation", validation) | dict(prepared.finish(test))
            if prepared.vocabulary is not None:
                all_estimates |= text_estimates(test, text_sizes(prepared.splits["test"], prepared.vocabulary))
        metrics = {name: all_estimates[name] for name in self.legend if name in all_estimates}
        about = {"corpus": config.corpus, "corpus_key": prepared.corpus.folder.name, "seed": config.seed}
        how = {"precision": fit.precision, "epochs": len(fit.history)}
        # Searches read these to learn how likely a usual word is.
        figures = {name: estimate.value for name, estimate in metrics.items() if name in STORED}
        prepared.save(model, run.path / CHECKPOINT, {**prepared.provenance, **about, **how, **figures})
        description = f"Supervised training, seed {config.seed}, {prepared.words}."
        return Summary(f"{prepared.what}, on {prepared.corpus.name}", description, metrics)


def open_pairs(config: PairFitConfig, **options: Any) -> PairCorpus:
    """Return the corpus of a fit, after a check of the device.

    Args:
        config: settings of the fit.
        options: options of `load_pairs`.

    Raises:
        ConfigError: torch cannot compute on the device, or no corpus has this name.
        DataError: the corpus is missing or broken, or a split is empty.
    """
    from parley.envs.corpora.pairs.compiled import load_pairs

    require_device(config.device, "--device")
    corpus = load_pairs(config.corpus, config.data_root, **options).first(config.limit)
    require_splits(corpus.name, corpus.splits)
    return corpus


def perplexities(epoch: Epoch) -> str:
    """Return an epoch in words, for losses in nats per word."""
    return f"training perplexity {np.exp(epoch.train_nll):.2f}, validation {np.exp(epoch.validation_nll):.2f}"


def run_fit(
    fit: FittingLoop[Any, Any, Any, Any],
    folder: RunFolder,
    reporter: Reporter,
    measure: Callable[[], Mapping[str, float]] = dict,
    say: Callable[[Any], str] = perplexities,
    kind: str = "epoch",
) -> None:
    """Run the rest of a fit; every epoch becomes an event of the run.

    Args:
        fit: a fresh fit, or one resumed from its state.
        folder: the run.
        reporter: receives messages and progress.
        measure: returns figures of the model after an epoch, by name, for the event.
        say: returns an epoch in words.
        kind: of the events.
    """
    tell_precision(fit, folder, reporter)
    log_last_epoch(fit, folder, measure, kind)
    if fit.history or fit.batches_done:
        reporter.say(f"resumed after epoch {len(fit.history)}, batch {fit.batches_done}")
    present_epoch = 0

    def on_epoch(epoch: EpochRow) -> None:
        figures = measure()
        folder.event(kind, **epoch.as_row(), **figures)
        figures_text = "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in figures.items())
        reporter.say(f"epoch {epoch.number:2d} ({epoch.stage}): {say(epoch)}{figures_text}, {epoch.seconds:.0f} s")

    def on_batch(epoch: int, done: int, total: int) -> None:
        nonlocal present_epoch
        if epoch != present_epoch:
            present_epoch = epoch
            reporter.stage(f"epoch {epoch}", total, "batches")
        reporter.advance(done)

    fit.run(on_epoch, on_batch)
    if fit.is_unchanged:
        folder.event(UNCHANGED, epochs=kind)
        reporter.say(f"no {kind} was better than the model that it began with, which is kept: change fit.learning_rate")


def log_last_epoch(
    fit: FittingLoop[Any, Any, Any, Any],
    folder: RunFolder,
    measure: Callable[[], Mapping[str, float]] = dict,
    kind: str = "epoch",
) -> None:
    """Log the last epoch of a resumed fit, if its process died after it saved the state and before it logged the epoch.

    Args:
        fit: the fit.
        folder: the run.
        measure: as in `run_fit`.
        kind: kind of the events of epochs.
    """
    if fit.history and not fit.batches_done:
        number = fit.history[-1]["number"]
        if all(event.get("number") != number for event in folder.events() if event["kind"] == kind):
            fit.validate()
            folder.event(kind, **fit.history[-1], **measure())


def tell_precision(fit: FittingLoop[Any, Any, Any, Any], folder: RunFolder, reporter: Reporter) -> None:
    """Report and record the precision of a new fit that chooses it automatically."""
    if fit.config.precision == "auto" and not fit.history and not fit.batches_done:
        folder.event("precision", precision=fit.precision)
        reporter.say(f"products in {fit.precision}, as is fastest here; fit.precision={fit.precision} pins it")


def require_splits(corpus: str, splits: Mapping[str, Sized]) -> None:
    """Check that no split is empty.

    Raises:
        DataError: a split is empty.
    """
    from parley.envs.corpora.pairs.compiled import nothing_to_measure

    if nothing := nothing_to_measure(corpus, {name: len(items) for name, items in splits.items()}):
        raise nothing


def estimates(split: str, fitness: Fitness) -> dict[str, Estimate]:
    """Return loss and perplexity of a split."""
    return {
        f"{split}_nll": mean_count(fitness.nll_sums, fitness.units, fitness.num_targets),
        f"{split}_ppl": perplexity(f"the {split} split", fitness.nll_sums, fitness.num_targets, fitness.units),
    }


def text_estimates(fitness: Fitness, sizes: TextSizes) -> dict[str, Estimate]:
    """Return perplexity of the test split per word and per character, and the share of `<unk>`."""
    return {
        "test_ppl_word": perplexity("the test split", fitness.nll_sums, sizes.num_words, fitness.units),
        "test_ppl_char": perplexity("the test split", fitness.nll_sums, sizes.num_characters, fitness.units),
        "test_unknown": clustered_rate(sizes.num_unknown, fitness.units, sizes.num_words),
    }


def context_gain(recorded: Fitness, exchanged: Fitness) -> Estimate:
    """Return the nats per word that replies lose behind the contexts of others; it measures what contexts tell a model.

    Args:
        recorded: fitness on a split.
        exchanged: fitness on the same replies in the same order, each behind another's context.

    Returns:
        The estimate; `NOTHING` for a split of one example, which has no other context.
    """
    if len(recorded.num_targets) < 2:
        return NOTHING
    return ratio_of_sums(exchanged.nll_sums - recorded.nll_sums, recorded.num_targets, recorded.units)


@contextmanager
def built(settings: Any) -> Iterator[Any]:
    """Yield the `ReproducibleAlgorithm` of an RLlib configuration, and stop it at the end."""
    # Modules of the algorithm before form cycles of references, too few for Python to collect before dozens of trainings.
    gc.collect()
    algorithm = settings.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()


def make_updates(
    algorithm: Any, run: RunFolder, updates: int, save_every: int, reporter: Reporter, note: Callable[[int, Scalars], str]
) -> None:
    """Run the updates of a training that the run's saved state does not hold.

    Args:
        algorithm: the algorithm as it was built.
        run: the run that stores its states.
        updates: number of updates of the whole training.
        save_every: updates between saved states; the last one is saved too.
        reporter: receives messages and progress.
        note: records the newest update, by its number, before it is saved; returns its figures in words.
    """
    from parley.engine.core.rllib import reproducible as state

    saved = run.path / STATE
    if saved.exists():
        reporter.say(f"resumed after update {state.restore(algorithm, saved)}")
    with Scalars(run.path, algorithm.training_iteration) as scalars:
        while algorithm.training_iteration < updates:
            algorithm.train()
            number = algorithm.training_iteration
            figures = note(number, scalars)
            if number % save_every == 0 or number == updates:
                state.save(algorithm, saved)
            reporter.advance(number, figures)


UPDATE = "update"
"""Kind of the event of an update."""
START = "start"
"""Folder of the policy at the start of learning."""


class ChoiceJob(Job[ConfigT, PreparedT, Summary]):
    """A job that trains a policy to choose among actions against a frozen model, and stores it as `checkpoint`.

    Attributes:
        title: title of the progress.
        told: format of an update's figures in words, with their names.
    """

    files = (CHECKPOINT, SUMMARY)
    resume_safe = ("data_root", "save_every")
    steps = Steps(UPDATE, "updates", lambda config: config["learning"]["updates"])
    title: ClassVar[str]
    told: ClassVar[str]

    def learn(
        self,
        run: RunFolder,
        config: Any,
        policy: nn.Module,
        save: Callable[[Path], None],
        make_env: Callable[[Any], Any],
        runner: type[ActionRunner],
        module: type[ChooserModule],
        reporter: Reporter,
    ) -> None:
        """Run the updates that are left, and load the learned weights into the policy.

        Args:
            run: the run.
            config: settings with `learning`, `seed` and `save_every`.
            policy: the policy at its start.
            save: stores the policy in a folder.
            make_env: makes the environment from the configuration; each runner makes its own, because frozen models are not
                sent.
            runner: class of the env runner.
            module: class of the RLlib module of the policy.
            reporter: receives messages and progress.

        Raises:
            DivergenceError: a gradient is not finite.
        """
        from parley.engine.core.rllib import reproducible as state
        from parley.engine.core.rllib.reproducible import ActionReinforceConfig

        start = run.path / START
        if not start.is_dir():
            save(start)
        settings = ActionReinforceConfig().choosing(
            learning=config.learning,
            make_env=partial(make_env, config),
            runner=runner,
            module=module,
            checkpoint=str(start),
            seed=config.seed,
        )

        def note(number: int, scalars: Scalars) -> str:
            last: Mapping[str, Any] = algorithm.last
            run.event(UPDATE, number=number, **last)
            scalars.add(number, last)
            return f"{self.told.format_map(last)}, reward {last['reward']:+.2f}"

        with built(settings) as algorithm:
            reporter.stage(self.title, config.learning.updates, "updates")
            make_updates(algorithm, run, config.learning.updates, config.save_every, reporter, note)
            policy.load_state_dict(state.learned_weights(algorithm))
