"""Supervised training of a negotiation agent: `parley train negotiator`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import count
from parley.engine.core.stats.training import NEGOTIATOR
from parley.engine.core.verbs.device import require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.supervised import EPOCHS, RESUME_SAFE, STATE, SupervisedConfig, tell_precision
from parley.engine.negotiation.verbs.language import corpus_words
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.root import root_words
from parley.envs.negotiation.corpora.compiled import Corpus, load_corpus
from parley.policies.negotiator.settings import NegotiatorFitConfig, NegotiatorSizes

if TYPE_CHECKING:
    from parley.policies.negotiator.evaluation import NegotiatorFitness


@dataclass(frozen=True, kw_only=True)
class TrainNegotiatorConfig(SupervisedConfig):
    """What is fitted to what."""

    corpus: str = "embedded"
    """Registered corpus (parley data list) or path/file.py:NAME."""
    fit: NegotiatorFitConfig = field(default_factory=NegotiatorFitConfig)
    """The recipe."""


def demo() -> TrainNegotiatorConfig:
    """A small agent for the embedded corpus, fitted in about a minute of one core until it agrees in most dialogues."""
    sizes = NegotiatorSizes(
        embed_word=64,
        embed_context=32,
        hidden_context=32,
        hidden_language=96,
        hidden_attention=64,
        hidden_selection=64,
        dropout=0.0,
        # At the published 0.1 the narrow layers' signals are so small that the selection module starts late.
        init_range=0.3,
    )
    # Agreement waits for the choice to be learned, long after the words are: it weighs more, and annealing is where it is won.
    recipe = NegotiatorFitConfig(
        sizes=sizes,
        batch_size=32,
        learning_rate=4e-3,
        selection_weight=4.0,
        max_epochs=8,
        patience=8,
        anneal_divisor=3.0,
        anneal_floor=0.1,
    )
    return TrainNegotiatorConfig(fit=recipe)


def lewis2017() -> TrainNegotiatorConfig:
    """The agent of Lewis et al. 2017 by their released recipe (SGD, 30 epochs and 2 of annealing), on Deal or No Deal."""
    recipe = NegotiatorFitConfig(optimiser="sgd", learning_rate=1.0, momentum=0.1, batch_size=16, max_epochs=32, patience=30)
    return TrainNegotiatorConfig(corpus="dealornodeal", fit=recipe)


def fast() -> TrainNegotiatorConfig:
    """The same agent on Deal or No Deal, fitted with Adam in half the epochs."""
    recipe = NegotiatorFitConfig(max_epochs=16, patience=14, learning_rate=2e-3, precision="auto")
    return TrainNegotiatorConfig(corpus="dealornodeal", fit=recipe)


class TrainNegotiator(Job[TrainNegotiatorConfig, tuple[TrainNegotiatorConfig, Corpus], Summary]):
    """`parley train negotiator`."""

    words = ("train", "negotiator")
    run_name = "negotiator"
    config = TrainNegotiatorConfig
    presets = {"fast": fast, "lewis2017": lewis2017, "demo": demo}
    legend = NEGOTIATOR
    files = (CHECKPOINT, SUMMARY)
    resume_safe = RESUME_SAFE
    steps = EPOCHS

    def prepare(self, config: TrainNegotiatorConfig, path: Path, reporter: Reporter) -> tuple[TrainNegotiatorConfig, Corpus]:
        require_device(config.device, "--device")
        return config, load_corpus(config.corpus, config.data_root).first(config.limit)

    def work(self, run: RunFolder, prepared: tuple[TrainNegotiatorConfig, Corpus], reporter: Reporter) -> Summary:
        """Fits a negotiator, resuming exactly at the last finished epoch, and stores it as `checkpoint`."""
        from parley.policies.negotiator.checkpoints import save_model
        from parley.policies.negotiator.evaluation import evaluate
        from parley.policies.negotiator.fit import NegotiatorEpoch, NegotiatorFit
        from parley.policies.negotiator.model import Negotiator

        config, corpus = prepared
        train, validation, test = (corpus.splits[name] for name in ("train", "val", "test"))

        def on_epoch(epoch: NegotiatorEpoch) -> None:
            run.event("epoch", **epoch.as_row())
            fitness = epoch.validation
            reporter.say(
                f"epoch {epoch.number:2d} ({epoch.stage}): training perplexity {epoch.train_perplexity:.2f}, validation "
                f"{fitness.perplexity_reference:.2f}, selection {fitness.selection_perplexity:.3f}, {epoch.seconds:.0f} s"
            )

        def on_batch(epoch: int, done: int, total: int) -> None:
            if done == 1:
                reporter.stage(f"epoch {epoch}", total, "batches")
            reporter.advance(done)

        with threads(config.threads):
            model = Negotiator(corpus.vocabulary, config.fit.sizes).to(config.device)
            fit = NegotiatorFit(model, train, validation, config.fit, config.seed, run.path / STATE)
            tell_precision(fit, run, reporter)
            if fit.history:
                reporter.say(f"resumed after epoch {len(fit.history)}")
            model = fit.run(on_epoch, on_batch)
            about = {"corpus": corpus.name, "corpus_key": corpus.folder.name, "seed": config.seed, "precision": fit.precision}
            save_model(model, run.path / CHECKPOINT, {"role": "supervised", **about})
            metrics = {
                f"{name}_{figure}": count(value, len(split))
                for name, split in (("validation", validation), ("test", test))
                for figure, value in _figures(evaluate(model, split)).items()
            }
        return Summary(f"negotiator on {corpus.name}", f"Supervised training, seed {config.seed}.", metrics)

    def next_commands(self, config: TrainNegotiatorConfig, path: Path) -> tuple[str, ...]:
        folder = display_path(path)
        corpus = corpus_words(config.corpus, config.data_root)
        return (
            shlex.join(["parley", "selfplay", "--adversary", folder, "--target", folder, *root_words(config.data_root)]),
            shlex.join(["parley", "train", "adversary", "--target", folder, *corpus]),
        )


def _figures(fitness: NegotiatorFitness) -> dict[str, float]:
    return {
        "ppl": fitness.perplexity_reference,
        "ppl_per_token": fitness.perplexity,
        "selection_ppl": fitness.selection_perplexity,
        "selection_accuracy": fitness.selection_accuracy,
    }


TRAIN_NEGOTIATOR = TrainNegotiator()
