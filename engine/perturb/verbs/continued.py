"""Trainings that go on from a response model's checkpoint: which model, on which dialogues, by which recipe, and their frame.

A `ContinuedJob` says what is learned (`further`); what all of them do is written here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.stats.training import BEFORE
from parley.engine.core.verbs.checkpoints import require_checkpoint
from parley.engine.core.verbs.device import require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.sample import drawn
from parley.engine.core.verbs.supervised import (
    EPOCHS,
    RESUME_SAFE,
    STATE,
    SupervisedConfig,
    perplexities,
    require_splits,
    run_fit,
)
from parley.engine.perturb.verbs.models import provenance
from parley.envs.core.errors import ConfigError
from parley.envs.core.ranges import NonNegativeInt
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import examples as read_examples
from parley.envs.corpora.pairs.turns import Example
from parley.policies.core.fitting.settings import FitConfig

if TYPE_CHECKING:
    from parley.policies.core.fitting.fit import Epoch
    from parley.policies.core.responder import TrainableResponder

SPLITS = {"train": "train", "validation": "val", "test": "test"}


def fine_tuning() -> FitConfig:
    """Three epochs of Adam at the paper's rate from the weights that are there; the best by the objective are kept.

    The paper does not say how many epochs.
    """
    return FitConfig(learning_rate=2e-4, max_epochs=3, patience=3, decay_epochs=0, precision="float32")


@dataclass(frozen=True, kw_only=True)
class ContinuedConfig(SupervisedConfig):
    """Which model is trained further, on what."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folder of the response model to begin with (parley train seq2seq, parley train vhred)."""
    corpus: str = ""
    """Corpus to train on; the one that the model was fitted to when empty."""
    limit: NonNegativeInt = 0
    """Examples of each split at most, the seed's choice of them; 0 for all."""
    fit: FitConfig = field(default_factory=fine_tuning)
    """The recipe."""

    def corpus_of(self, provenance: Mapping[str, Any]) -> str:
        """The corpus to train on, by how the model came about.

        Raises:
            ConfigError: nobody names one.
        """
        corpus = self.corpus or provenance.get("corpus")
        if not isinstance(corpus, str):
            fix = "--corpus NAME"
            raise ConfigError("the checkpoint does not say which corpus it was fitted to", where=self.model, fix=fix)
        return corpus

    def examples(self, corpus: str, turns: int) -> dict[str, Sequence[Example]]:
        """The splits of a corpus as text, contexts of at most so many turns.

        Raises:
            DataError: one of them holds no example.
        """
        words = load_pairs(corpus, self.data_root, every_word=True)
        found: dict[str, Sequence[Example]] = {
            split: drawn(read_examples(words, name, turns), self.limit, self.seed, corpus) for split, name in SPLITS.items()
        }
        require_splits(corpus, found)
        return found


@dataclass(frozen=True, kw_only=True)
class Continued:
    """A model that is trained further, found and checked.

    Args:
        config: what was asked for.
        responder: the model, trained in place.
        base: how it came about.
        corpus: whose dialogues it learns from.
        splits: their examples.
    """

    config: ContinuedConfig
    responder: TrainableResponder
    base: Mapping[str, Any]
    corpus: str
    splits: Mapping[str, Sequence[Example]]


def open_model(config: ContinuedConfig) -> dict[str, Any]:
    """The model and the dialogues: the arguments of `Continued` by name.

    Raises:
        CheckpointError: there is no such model, or it is damaged.
        ConfigError: torch cannot compute on the device, or nobody names a corpus.
        DataError: a split holds no example.
    """
    from parley.policies.core.responders import load_responder

    require_device(config.device, "--device")
    folder = require_checkpoint(config.model, "--model", "parley train seq2seq")
    responder: Any = load_responder(folder)
    base = provenance(folder)
    corpus = config.corpus_of(base)
    splits = config.examples(corpus, responder.turns)
    return {"config": config, "responder": responder, "base": base, "corpus": corpus, "splits": splits}


@dataclass(frozen=True, kw_only=True)
class Further:
    """What a model learns, and how that is told.

    Args:
        train: what it is fitted to.
        validation: what the best epoch is chosen on.
        objective: of the fit.
        figures: of the model as it is, by the names of the legend.
        about: of the checkpoint, beside what all of them tell.
        title: what was done to the model.
        extra: entries of the summary.
        measure: figures before the first and after each epoch, for the events of the run.
        say: an epoch in words.
    """

    train: Any
    validation: Any
    objective: Any
    figures: Callable[[], dict[str, Estimate]]
    about: Mapping[str, Any]
    title: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    measure: Callable[[], Mapping[str, float]] = dict
    say: Callable[[Epoch], str] = perplexities


ContinuedConfigT = TypeVar("ContinuedConfigT", bound=ContinuedConfig)
ContinuedT = TypeVar("ContinuedT", bound=Continued)


class ContinuedJob(Job[ContinuedConfigT, ContinuedT, Summary]):
    """A job that trains a response model further and stores it as `checkpoint`.

    Attributes:
        what: the training in words.
    """

    files = (CHECKPOINT, SUMMARY)
    resume_safe = RESUME_SAFE
    steps = EPOCHS
    what: str

    @abstractmethod
    def further(self, run: RunFolder, prepared: ContinuedT, reporter: Reporter) -> Further:
        """What the model learns; it is on its device."""

    def work(self, run: RunFolder, prepared: ContinuedT, reporter: Reporter) -> Summary:
        """Trains, resuming exactly where it was, measures before and after, and stores the model as `checkpoint`."""
        from parley.policies.core.fitting.fit import Fit

        config, responder = prepared.config, prepared.responder
        with threads(config.threads):
            responder.model.to(config.device)
            asked = self.further(run, prepared, reporter)
            before = asked.figures()
            fit = Fit(
                responder.model,
                asked.train,
                asked.validation,
                config.fit,
                config.seed,
                run.path / STATE,
                fresh=False,
                objective=asked.objective,
            )
            if not fit.history and not fit.batches_done and (found := asked.measure()):
                run.event(EPOCHS.kind, number=0, **found)
                reporter.say("before" + "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in found.items()))
            run_fit(fit, run, reporter, asked.measure, say=asked.say)
            if config.fit.keep == "best" and not any(row["best"] for row in fit.history):
                reporter.say("no epoch was better than the model that it began with, which is kept: lower fit.learning_rate")
            after = asked.figures()
        kept: dict[str, Any] = {name: prepared.base[name] for name in ("vocabulary", "turns") if name in prepared.base}
        losses: dict[str, Any] = {name: after[name].value for name in ("test_nll", "validation_nll") if name in after}
        how: dict[str, Any] = {"seed": config.seed, "epochs": len(fit.history), "precision": fit.precision, **losses}
        about = {"base": config.model, "corpus": prepared.corpus, **kept, **asked.about, **how}
        responder.save(run.path / CHECKPOINT, about)
        both = after | {name + BEFORE: figure for name, figure in before.items()}
        return Summary(
            f"{config.model}, {asked.title}",
            f"{self.what} on {prepared.corpus}, {len(asked.train):,} examples, seed {config.seed}.",
            {name: both[name] for name in self.legend if name in both},
            asked.extra,
        )
