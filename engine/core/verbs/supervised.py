"""Jobs that fit a model in one process: their settings, how a fit is run and measured, and how its model is stored.

Trainings on RLlib: what is left of the updates of one, saved and gone on with exactly.

Jobs that train a policy to choose among actions against a frozen model (RLlib), saving and resuming exactly.
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
from parley.engine.core.stats.statistics import NOTHING, Estimate, clustered_rate, ratio_of_sums
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import ConfigT, Job, PreparedT, Reporter, Steps, Summary
from parley.engine.core.verbs.trainings import Scalars
from parley.envs.core.config import Configuration, NonNegativeInt, PositiveInt
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs, nothing_to_measure

if TYPE_CHECKING:
    from torch import nn

    from parley.engine.core.rllib.reproducible import ActionRunner, ChooserModule
    from parley.envs.corpora.pairs.vocabulary import PairVocabulary
    from parley.policies.core.fitting.batches import Fitness, TextSizes
    from parley.policies.core.fitting.loop import Epoch, EpochRow, Fit, FittingLoop


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
        from parley.policies.core.fitting.batches import evaluate, text_sizes

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


@contextmanager
def built(settings: Any) -> Iterator[Any]:
    """The `ReproducibleAlgorithm` of an RLlib configuration, stopped at the end."""
    algorithm = settings.build_algo()
    try:
        yield algorithm
    finally:
        algorithm.stop()
        # RLlib's modules stand in cycles of references, too few of them for Python to look before dozens of trainings.
        gc.collect()


def make_updates(
    algorithm: Any, run: RunFolder, updates: int, save_every: int, reporter: Reporter, note: Callable[[int, Scalars], str]
) -> None:
    """Makes the updates of a training that the run's saved state does not hold.

    Args:
        algorithm: as it was built.
        run: where its states are saved.
        updates: of the whole training.
        save_every: updates between saved states; the last one is saved too.
        reporter: who looks on.
        note: writes down the newest update, by its number, before it is saved; returns its figures in words.
    """
    from parley.engine.core.rllib import reproducible as state

    saved = run.path / STATE
    if saved.exists():
        reporter.say(f"resumed after update {state.restore(algorithm, saved)}")
    with Scalars(run.path, algorithm.training_iteration) as scalars:
        while algorithm.training_iteration < updates:
            algorithm.train()
            number = algorithm.training_iteration
            told = note(number, scalars)
            if number % save_every == 0 or number == updates:
                state.save(algorithm, saved)
            reporter.advance(number, told)


UPDATE = "update"
"""Kind of the event of an update."""
START = "start"
"""Folder of the policy that learning begins with."""


class ChoiceJob(Job[ConfigT, PreparedT, Summary]):
    """A job that trains such a policy and stores it as `checkpoint`.

    Attributes:
        title: what is done, while it is.
        told: the figures of an update in words, by their names.
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
        """Makes what is left of the updates; the policy has the learned weights then.

        Args:
            run: where it stands.
            config: with `learning`, `seed` and `save_every`.
            policy: as it begins.
            save: stores it in a folder.
            make_env: what is played, by the configuration; runners make it by themselves, because frozen models are not sent.
            runner: plays it.
            module: of the policy.
            reporter: who looks on.

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
