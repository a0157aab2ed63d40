"""Training against perturbations: `parley train adversarial`, and the frame of trainings from a checkpoint.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 4 and appendix A.5. A response model goes on from its checkpoint: on
perturbed contexts and the recorded replies for strategies that should not change the answer, with a margin between a context
and its perturbation for those that should (`policies/core/margin.py`). `models.py` perturbs the examples.

Choices:
  * # Paper: silent about which epoch is kept. Ours: the best by the objective itself, on a validation split that was perturbed
    like the training split, and the checkpoint that it began with if no epoch is better. The likelihood of clean replies
    alone would prefer the model that it began with, which is the best by just that.

A `ContinuedJob` goes on from a response model's checkpoint. It defines what the model learns (`further`); the frame does the
rest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import AGAINST, BEFORE
from parley.engine.core.stats.statistics import Estimate, mean, rate, ratio_of_sums
from parley.engine.core.verbs.checkpoints import checkpoint_folder, require_checkpoint, require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary, command_line, drawn
from parley.engine.core.verbs.supervised import (
    EPOCHS,
    RESUME_SAFE,
    STATE,
    SupervisedConfig,
    perplexities,
    require_splits,
    run_fit,
)
from parley.engine.perturb import catalogue
from parley.engine.perturb.strategy import PerturbSettings
from parley.engine.perturb.verbs.config import RobustnessConfig
from parley.engine.perturb.verbs.models import ADVERSARIAL, NONE, RANDOM_SOURCE, RERANKED, admitted, provenance, usual_words
from parley.envs.core.config import NonNegativeFloat, NonNegativeInt, PositiveFloat
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import data_root
from parley.envs.corpora.pairs.compiled import load_pairs
from parley.envs.corpora.pairs.contexts import examples as read_examples
from parley.envs.corpora.pairs.turns import Example
from parley.policies.core.settings import FitConfig

if TYPE_CHECKING:
    from parley.engine.perturb.strategy import Strategy
    from parley.engine.perturb.verbs.models import AdversarialSplit
    from parley.policies.core.fitting.loop import Epoch
    from parley.policies.core.margin import MarginObjective, MarginTargets
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
    """The examples that a model learns from, and their description.

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
        """Return what the model learns; it is on its device."""

    def work(self, run: RunFolder, prepared: ContinuedT, reporter: Reporter) -> Summary:
        """Trains, resuming exactly where it was, measures before and after, and stores the model as `checkpoint`."""
        from parley.policies.core.fitting.loop import Fit

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


@dataclass(frozen=True, kw_only=True)
class TrainAdversarialConfig(ContinuedConfig):
    """Which model is trained, against which perturbations."""

    strategies: str = "random-swap"
    """Strategies separated by commas: names, path/file.py:Name, or all, should-not-change, should-change; or a control:
    random-source, or none, which trains as long on contexts as they are."""
    targets: Literal["auto", "greedy", "truth", "mixed"] = "auto"
    """Should-Change: whose likelihood keeps a margin: the model's own greedy replies', the recorded ones', or the mean of the
    margins of sampled and of recorded ones, times 1 - w of the model; auto is mixed for one of parley train reranking, else
    greedy."""
    alpha: NonNegativeFloat = 1.0
    """Should-Change: weight of the margin beside the likelihood."""
    margin: PositiveFloat = 0.1
    """Should-Change: M, by how much a reply is to be less likely after the perturbation, in nats per word."""
    perturb: PerturbSettings = field(default_factory=PerturbSettings)
    """How contexts are perturbed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        catalogue.require_names(self.strategies, RANDOM_SOURCE, NONE)

    @property
    def strategy_names(self) -> tuple[str, ...]:
        """The strategies one by one."""
        return catalogue.names(self.strategies)


PERTURBED = "perturbed"
"""Kind of the event that says how many examples of a split met which strategy, and how many it left as they were."""


@dataclass(frozen=True, kw_only=True)
class Training(Continued):
    """The checked inputs of a training.

    Args:
        strategies: by which the examples of each split are perturbed.
    """

    config: TrainAdversarialConfig
    strategies: Mapping[str, Sequence[Strategy]]

    @property
    def targets(self) -> MarginTargets:
        """Return the replies whose margins are computed."""
        if self.config.targets == "auto":
            return "mixed" if self.base.get("role") == RERANKED else "greedy"
        return self.config.targets

    @property
    def alpha(self) -> float:
        """Return the weight of margins: less by the share that rewards had in the model's own objective."""
        return self.config.alpha * (1 - self.base.get("weight", 0.0) if self.targets == "mixed" else 1.0)


def _strategies(
    config: TrainAdversarialConfig, corpus: str, known: Container[str], common: Sequence[str], examples: Sequence[Example]
) -> list[Strategy]:
    """The strategies by which a split is perturbed, with words that the model knows only, random ones of the most frequent.

    Raises:
        ConfigError: no such strategy, or one lacks a setting.
        DataError: what one of them leans on is not there.
    """
    from parley.engine.perturb.catalogue import Resources, build
    from parley.engine.perturb.verbs.models import AsRecorded, RandomSource, perturbation_seed

    root = data_root(config.data_root)
    resources = Resources(config.perturb, known, common, root, config.device, corpus)
    controls: dict[str, Callable[[], Strategy]] = {
        RANDOM_SOURCE: lambda: RandomSource([example.context for example in examples]),
        NONE: AsRecorded,
    }
    found = [
        controls[name]() if name in controls else build((name,), config.perturb, resources)[0] for name in config.strategy_names
    ]
    for strategy in found:
        # Lexicons and networks open when they are first asked: here, before a run is made.
        strategy.perturb([examples[0].context], [perturbation_seed(config.seed, strategy.name, examples[0].key)])
    return found


def _figures(
    responder: TrainableResponder,
    objective: MarginObjective,
    splits: Mapping[str, Sequence[Example]],
    made: Mapping[str, AdversarialSplit],
) -> dict[str, Estimate]:
    """Return the figures of the legend for the model as it is."""
    from parley.policies.core.fitting.batches import evaluate

    estimates = {}
    for split in ("test", "validation"):
        kinds = {"": [(each.context, each.reply) for each in splits[split]]}
        kinds["_perturbed"] = [(each.context, each.reply) for each in made[split].should_not_change]
        for kind, read in kinds.items():
            if read:
                fitness = evaluate(responder.model, responder.examples(*zip(*read, strict=True)))
                estimates[f"{split}_nll{kind}"] = ratio_of_sums(fitness.nll_sums, fitness.num_targets)
    gaps = objective.gaps(made["test"].should_change)
    if len(gaps):
        estimates |= {"margin": mean(gaps), "margin_met": rate(int((gaps >= objective.margin).sum()), len(gaps))}
    return estimates


def _objective(epoch: Epoch) -> str:
    """An epoch in words; its validation figure is the objective's."""
    told = f"training perplexity {np.exp(epoch.train_nll):.2f}, objective on the validation split {epoch.validation_nll:.4f}"
    return f"{told}{', best' if epoch.best else ''}"


def niu2018() -> TrainAdversarialConfig:
    """As published: alpha 1, margin 0.1, the model's own greedy replies (Niu & Bansal 2018)."""
    return TrainAdversarialConfig(targets="greedy")


def demo() -> TrainAdversarialConfig:
    """Seconds, on the model of parley train seq2seq demo: a strategy of each kind, the built-in lexicon."""
    return TrainAdversarialConfig(
        strategies="random-swap,antonym",
        perturb=PerturbSettings(lexicon="built-in"),
        fit=replace(fine_tuning(), learning_rate=2e-3, max_epochs=2),
    )


class TrainAdversarial(ContinuedJob[TrainAdversarialConfig, Training]):
    """`parley train adversarial`."""

    words = ("train", "adversarial")
    run_name = "adversarial"
    config = TrainAdversarialConfig
    presets = {"niu2018": niu2018, "demo": demo}
    legend = AGAINST
    what = "Adversarial training"

    def prepare(self, config: TrainAdversarialConfig, path: Path, reporter: Reporter) -> Training:
        """The model, the dialogues and the strategies, each tried once."""
        found = open_model(config)
        corpus, vocabulary = found["corpus"], found["responder"].model.vocabulary
        known = admitted(vocabulary)
        common = usual_words(vocabulary, load_pairs(corpus, config.data_root, every_word=True).vocabulary)
        strategies = {
            split: _strategies(config, corpus, known, common, examples) for split, examples in found["splits"].items()
        }
        return Training(**found, strategies=strategies)

    def further(self, run: RunFolder, prepared: Training, reporter: Reporter) -> Further:
        """Perturbed contexts with the recorded replies, and margins between contexts and their perturbations."""
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT
        from parley.policies.core.margin import AdversarialExamples, MarginObjective

        config, responder = prepared.config, prepared.responder
        if config.perturb.lexicon == "built-in":
            reporter.say(ANNOUNCEMENT)
        made = {split: _lessons(run, prepared, split, reporter) for split in prepared.splits}
        train, validation = (AdversarialExamples(responder, made[split].lessons) for split in ("train", "validation"))
        objective = MarginObjective(responder, train, alpha=prepared.alpha, margin=config.margin, targets=prepared.targets)
        names = [strategy.name for strategy in prepared.strategies["train"]]
        asked = {"strategies": names, "targets": prepared.targets, "alpha": prepared.alpha, "margin": config.margin}
        return Further(
            train=train,
            validation=validation,
            objective=objective,
            figures=lambda: _figures(responder, objective, prepared.splits, made),
            about={"role": ADVERSARIAL, **asked},
            title=f"trained against {config.strategies}",
            extra={"untouched": {name: made["train"].untouched[name] for name in made["train"].met}},
            say=_objective,
        )

    def next_commands(self, config: TrainAdversarialConfig, path: Path) -> tuple[str, ...]:
        """The evaluation under perturbations like those of the training; its controls perturb nothing."""
        base = checkpoint_folder(config.model)
        reranked = base is not None and provenance(base).get("role") == RERANKED
        met = [name for part in config.strategies.split(",") if (name := part.strip()) not in (RANDOM_SOURCE, NONE)]
        asked = RobustnessConfig(
            model=config.model,
            trained=display_path(path),
            strategies=",".join(met) or RobustnessConfig.strategies,
            corpus=config.corpus,
            data_root=config.data_root,
            perturb=config.perturb,
            published="niu2018-rl" if reranked else "none",
        )
        return (command_line(("evaluate", "robustness"), {"": RobustnessConfig}, asked, run=None),)


def _lessons(run: RunFolder, prepared: Training, split: str, reporter: Reporter) -> AdversarialSplit:
    """A split perturbed, with an event that says how."""
    from parley.engine.perturb.verbs.models import make_lessons

    title = f"perturbing the {split} split"
    made = make_lessons(prepared.splits[split], prepared.strategies[split], prepared.config.seed, reporter, title)
    counts = {name: {"met": met, "untouched": made.untouched[name]} for name, met in made.met.items()}
    run.event(PERTURBED, split=split, strategies=counts)
    told = ", ".join(f"{name} {each['met']:,} ({each['untouched']:,} untouched)" for name, each in counts.items())
    reporter.say(f"{split} split: {told}")
    return made


TRAIN_ADVERSARIAL = TrainAdversarial()
