"""Training against perturbations: `parley train adversarial`, and the frame of trainings from a checkpoint.

Source: Niu & Bansal 2018 (arXiv 1809.02079), section 4 and appendix A.5. A response model goes on from its checkpoint: on
perturbed contexts and the recorded replies for strategies that should not change the answer, with a margin between a context
and its perturbation for those that should (`policies/core/margin.py`). `models.py` perturbs the examples.

Choices:
  * # Paper: silent about which epoch is kept. Ours: the best by the objective itself, on a validation split that was perturbed
    like the training split, and the checkpoint that it began with if no epoch is better. The likelihood of clean replies
    alone would prefer the model that it began with, which is the best by just that.

A `ContinuedJob` goes on from a response model's checkpoint. It defines what the model learns (`plan`).
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
from parley.engine.core.stats.statistics import Estimate, clustered_rate, mean, mean_count
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
    """Return three epochs of Adam at the released rate; the best weights by the objective are kept.

    The paper says neither rate nor epochs.
    """
    return FitConfig(learning_rate=2e-4, max_epochs=3, patience=3, decay_epochs=0, precision="float32")


@dataclass(frozen=True, kw_only=True)
class ContinuedConfig(SupervisedConfig):
    """The model that is trained further, and its corpus."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folder of the response model to begin with (parley train seq2seq, parley train vhred)."""
    corpus: str = ""
    """Corpus to train on; the one that the model was fitted to when empty."""
    limit: NonNegativeInt = 0
    """Examples of each split at most, the seed's choice of them; 0 for all."""
    fit: FitConfig = field(default_factory=fine_tuning)
    """The recipe."""

    def corpus_of(self, provenance: Mapping[str, Any]) -> str:
        """Return the corpus to train on: the configured one, or the one that the model was fitted to.

        Raises:
            ConfigError: neither names one.
        """
        corpus = self.corpus or provenance.get("corpus")
        if not isinstance(corpus, str):
            fix = "--corpus NAME"
            raise ConfigError("the checkpoint does not say which corpus it was fitted to", where=self.model, fix=fix)
        return corpus

    def examples(self, corpus: str, turns: int) -> dict[str, Sequence[Example]]:
        """Return the splits of a corpus as text, with contexts of at most so many turns.

        Raises:
            DataError: one of them holds no example.
        """
        words = load_pairs(corpus, self.data_root, every_word=True)
        examples: dict[str, Sequence[Example]] = {
            split: drawn(read_examples(words, name, turns), self.limit, self.seed, corpus) for split, name in SPLITS.items()
        }
        require_splits(corpus, examples)
        return examples


@dataclass(frozen=True, kw_only=True)
class PreparedContinuation:
    """The checked inputs of a training from a checkpoint.

    Args:
        config: of the training.
        responder: the model, trained in place.
        base: provenance of the model.
        corpus: name of the training corpus.
        splits: its examples by split.
    """

    config: ContinuedConfig
    responder: TrainableResponder
    base: Mapping[str, Any]
    corpus: str
    splits: Mapping[str, Sequence[Example]]


def open_model(config: ContinuedConfig) -> dict[str, Any]:
    """Open the model and the dialogues; return the arguments of `PreparedTraining` by name.

    Raises:
        CheckpointError: there is no such model, or it is damaged.
        ConfigError: torch cannot compute on the device, or no corpus is named.
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
class TrainingPlan:
    """The examples, objective and figures of a training.

    Args:
        train: training examples.
        validation: examples that choose the best epoch.
        objective: of the fit.
        figures: returns the figures of the current model, by the names of the legend.
        about: further provenance of the checkpoint.
        title: of the result.
        extra: entries of the summary.
        measure: returns the figures before the first and after each epoch, for the events of the run.
        say: describes an epoch.
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
ContinuedT = TypeVar("ContinuedT", bound=PreparedContinuation)


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
    def plan(self, run: RunFolder, prepared: ContinuedT, reporter: Reporter) -> TrainingPlan:
        """Return what the model learns; it is on its device."""

    def work(self, run: RunFolder, prepared: ContinuedT, reporter: Reporter) -> Summary:
        from parley.policies.core.fitting.loop import Fit

        config, responder = prepared.config, prepared.responder
        with threads(config.threads):
            responder.model.to(config.device)
            plan = self.plan(run, prepared, reporter)
            before = plan.figures()
            fit = Fit(
                responder.model,
                plan.train,
                plan.validation,
                config.fit,
                config.seed,
                run.path / STATE,
                fresh=False,
                objective=plan.objective,
            )
            if not fit.history and not fit.batches_done and (figures := plan.measure()):
                run.event(EPOCHS.kind, number=0, **figures)
                reporter.say("before" + "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in figures.items()))
            run_fit(fit, run, reporter, plan.measure, say=plan.say)
            after = plan.figures()
        kept: dict[str, Any] = {name: prepared.base[name] for name in ("vocabulary", "turns") if name in prepared.base}
        losses: dict[str, Any] = {name: after[name].value for name in ("test_nll", "validation_nll") if name in after}
        how: dict[str, Any] = {"seed": config.seed, "epochs": len(fit.history), "precision": fit.precision, **losses}
        about = {"base": config.model, "corpus": prepared.corpus, **kept, **plan.about, **how}
        responder.save(run.path / CHECKPOINT, about)
        both = after | {name + BEFORE: figure for name, figure in before.items()}
        return Summary(
            f"{config.model}, {plan.title}",
            f"{self.what} on {prepared.corpus}, {len(plan.train):,} examples, seed {config.seed}.",
            {name: both[name] for name in self.legend if name in both},
            plan.extra,
        )


@dataclass(frozen=True, kw_only=True)
class TrainAdversarialConfig(ContinuedConfig):
    """The model that is trained, and the perturbations."""

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
        """Return the names of the strategies."""
        return catalogue.names(self.strategies)


PERTURBED = "perturbed"
"""Kind of the event that counts the examples of a split by strategy, and those that stayed unchanged."""


@dataclass(frozen=True, kw_only=True)
class PreparedAdversarial(PreparedContinuation):
    """The checked inputs of a training.

    Args:
        strategies: that perturb the examples of each split.
    """

    config: TrainAdversarialConfig
    strategies: Mapping[str, Sequence[Strategy]]

    @property
    def targets(self) -> MarginTargets:
        """Return whose replies get margins."""
        if self.config.targets == "auto":
            return "mixed" if self.base.get("role") == RERANKED else "greedy"
        return self.config.targets

    @property
    def alpha(self) -> float:
        """Return the weight of margins, lowered by the share of rewards in the model's own objective."""
        return self.config.alpha * (1 - self.base.get("weight", 0.0) if self.targets == "mixed" else 1.0)


def _strategies(
    config: TrainAdversarialConfig,
    corpus: str,
    admitted_words: Container[str],
    common: Sequence[str],
    examples: Sequence[Example],
) -> list[Strategy]:
    """Build the strategies that perturb a split, limited to words that the model knows."""
    from parley.engine.perturb.catalogue import Resources, build
    from parley.engine.perturb.verbs.models import AsRecorded, RandomSource, perturbation_seed

    root = data_root(config.data_root)
    resources = Resources(config.perturb, admitted_words, common, root, config.device, corpus)
    controls: dict[str, Callable[[], Strategy]] = {
        RANDOM_SOURCE: lambda: RandomSource([example.context for example in examples]),
        NONE: AsRecorded,
    }
    strategies = [
        controls[name]() if name in controls else build((name,), config.perturb, resources)[0] for name in config.strategy_names
    ]
    for strategy in strategies:
        # Lexicons and networks open at first use: here, before a run is made.
        strategy.perturb([examples[0].context], [perturbation_seed(config.seed, strategy.name, examples[0].key)])
    return strategies


def _figures(
    responder: TrainableResponder,
    objective: MarginObjective,
    splits: Mapping[str, Sequence[Example]],
    made: Mapping[str, AdversarialSplit],
) -> dict[str, Estimate]:
    """Return the figures of the legend for the current model."""
    from parley.policies.core.fitting.batches import evaluate

    estimates = {}
    for split in ("test", "validation"):
        recorded: Any = splits[split], [example.unit for example in splits[split]]
        for kind, (read, units) in {"": recorded, "_perturbed": (made[split].should_not_change, made[split].retained)}.items():
            if read:
                examples: Any = responder.examples([example.context for example in read], [example.reply for example in read])
                examples.units = np.array(units)
                fitness = evaluate(responder.model, examples)
                estimates[f"{split}_nll{kind}"] = mean_count(fitness.nll_sums, fitness.units, fitness.num_targets)
    gaps = objective.gaps(made["test"].should_change)
    if len(gaps):
        dialogues, is_met = made["test"].contrasted, gaps >= objective.margin
        estimates |= {"margin": mean(gaps, dialogues), "margin_met": clustered_rate(is_met, dialogues)}
    return estimates


def _describe_epoch(epoch: Epoch) -> str:
    """Describe an epoch; its validation figure is the objective's."""
    text = f"training perplexity {np.exp(epoch.train_nll):.2f}, objective on the validation split {epoch.validation_nll:.4f}"
    return f"{text}{', best' if epoch.best else ''}"


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


class TrainAdversarial(ContinuedJob[TrainAdversarialConfig, PreparedAdversarial]):
    """`parley train adversarial`."""

    words = ("train", "adversarial")
    run_name = "adversarial"
    config = TrainAdversarialConfig
    presets = {"niu2018": niu2018, "demo": demo}
    legend = AGAINST
    what = "Adversarial training"

    def prepare(self, config: TrainAdversarialConfig, path: Path, reporter: Reporter) -> PreparedAdversarial:
        opened = open_model(config)
        corpus, vocabulary = opened["corpus"], opened["responder"].model.vocabulary
        admitted_words = admitted(vocabulary)
        common = usual_words(vocabulary, load_pairs(corpus, config.data_root, every_word=True).vocabulary)
        strategies = {
            split: _strategies(config, corpus, admitted_words, common, examples) for split, examples in opened["splits"].items()
        }
        return PreparedAdversarial(**opened, strategies=strategies)

    def plan(self, run: RunFolder, prepared: PreparedAdversarial, reporter: Reporter) -> TrainingPlan:
        """Plan the training on perturbed contexts with recorded replies, and on margins between contexts."""
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT
        from parley.policies.core.margin import AdversarialExamples, MarginObjective

        config, responder = prepared.config, prepared.responder
        if config.perturb.lexicon == "built-in":
            reporter.say(ANNOUNCEMENT)
        made = {split: _perturbed_split(run, prepared, split, reporter) for split in prepared.splits}
        train, validation = (AdversarialExamples(responder, made[split].examples) for split in ("train", "validation"))
        objective = MarginObjective(responder, train, alpha=prepared.alpha, margin=config.margin, targets=prepared.targets)
        names = [strategy.name for strategy in prepared.strategies["train"]]
        settings = {"strategies": names, "targets": prepared.targets, "alpha": prepared.alpha, "margin": config.margin}
        return TrainingPlan(
            train=train,
            validation=validation,
            objective=objective,
            figures=lambda: _figures(responder, objective, prepared.splits, made),
            about={"role": ADVERSARIAL, **settings},
            title=f"trained against {config.strategies}",
            extra={"untouched": {name: made["train"].unchanged[name] for name in made["train"].met}},
            say=_describe_epoch,
        )

    def next_commands(self, config: TrainAdversarialConfig, path: Path) -> tuple[str, ...]:
        base = checkpoint_folder(config.model)
        reranked = base is not None and provenance(base).get("role") == RERANKED
        met = [name for part in config.strategies.split(",") if (name := part.strip()) not in (RANDOM_SOURCE, NONE)]
        evaluation = RobustnessConfig(
            model=config.model,
            trained=display_path(path),
            strategies=",".join(met) or RobustnessConfig.strategies,
            corpus=config.corpus,
            data_root=config.data_root,
            perturb=config.perturb,
            published="niu2018-rl" if reranked else "none",
        )
        return (command_line(("evaluate", "robustness"), {"": RobustnessConfig}, evaluation, run=None),)


def _perturbed_split(run: RunFolder, prepared: PreparedAdversarial, split: str, reporter: Reporter) -> AdversarialSplit:
    """Perturb a split, and record how in an event."""
    from parley.engine.perturb.verbs.models import make_adversarial_split

    title = f"perturbing the {split} split"
    made = make_adversarial_split(prepared.splits[split], prepared.strategies[split], prepared.config.seed, reporter, title)
    counts = {name: {"met": met, "untouched": made.unchanged[name]} for name, met in made.met.items()}
    run.event(PERTURBED, split=split, strategies=counts)
    text = ", ".join(f"{name} {count['met']:,} ({count['untouched']:,} untouched)" for name, count in counts.items())
    reporter.say(f"{split} split: {text}")
    return made


TRAIN_ADVERSARIAL = TrainAdversarial()
