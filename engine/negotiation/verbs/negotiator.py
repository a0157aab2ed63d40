"""Supervised training of a negotiation agent: `parley train negotiator`, and the language of agents that learn.

The language of a learner has a corpus that guards it, a perplexity, and a limit above which it counts as lost.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import NEGOTIATOR
from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.core.verbs.checkpoints import require_device, threads
from parley.engine.core.verbs.job import Job, Reporter, Summary
from parley.engine.core.verbs.supervised import EPOCHS, RESUME_SAFE, STATE, SupervisedConfig, log_last_epoch, tell_precision
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.verbs.agents import require_negotiator
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import CHECKPOINT
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.negotiation.corpora.catalogue import Corpus, find_negotiations, load_corpus
from parley.envs.negotiation.domain import Vocabulary
from parley.policies.negotiator.settings import NegotiatorFitConfig, NegotiatorSizes

if TYPE_CHECKING:
    from parley.policies.negotiator.model import NegotiatorFitness


PUBLISHED = "dealornodeal"
"""The corpus of the published agents and of all presets but those of the demonstration."""


class Language:
    """The perplexity of a learner's words and its limit.

    Args:
        corpus: the corpus of the measured dialogues.
        data_root: the folder of corpora.
        base: the learner's model at its start.
        rule: the learning rule.
        limit: as a multiple of the perplexity at the start; 0 for none.

    Raises:
        ConfigError: the corpus is of another game than the learner, or has other words and must guard its language.
        DataError: the corpus is missing or broken.
    """

    def __init__(self, corpus: str, data_root: Path | None, base: Any, rule: ReinforceConfig, limit: float) -> None:
        from parley.policies.negotiator.model import evaluate

        _require_same_game(corpus, base.vocabulary)
        loaded = load_corpus(corpus, data_root)
        fits = loaded.vocabulary.digest == base.vocabulary.digest
        if rule.supervised_weight > 0 or limit > 0:
            require_words(corpus, data_root, base.vocabulary, "or set reinforce.supervised_weight=0 and perplexity_limit=0")
        self._dialogues: Any = loaded.splits["val"] if fits else None
        self._model, self._evaluate, self._rule = base, evaluate, rule
        self.limit = limit * self._perplexity() if limit else math.inf

    def _perplexity(self) -> float:
        try:
            return float(self._evaluate(self._model, self._dialogues).perplexity_reference)
        except OverflowError:
            return math.inf

    def measure(self, weights: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return the perplexity under those weights; nothing if the corpus has other words."""
        if self._dialogues is None:
            return {}
        self._model.load_state_dict(dict(weights))
        return {"perplexity": count(self._perplexity(), len(self._dialogues))}

    def require_known(self, measured: Mapping[str, Estimate]) -> None:
        """Raise an error if the perplexity after the last update is too high for a language.

        Raises:
            DivergenceError: it is not a number, or no model that still learns has it.
        """
        from parley.engine.core.rllib.reproducible import DivergenceError
        from parley.policies.core.checkpoint import DIVERGED

        for estimate in measured.values():
            if not estimate.value < math.exp(DIVERGED):
                raise DivergenceError(
                    "the training has diverged",
                    where=f"after {self._rule.updates} updates",
                    got=f"validation perplexity {estimate.value:g}",
                    fix=f"train again with a smaller reinforce.learning_rate (now {self._rule.learning_rate:g})",
                )


def _require_same_game(corpus: str, words: Vocabulary) -> None:
    """Raise an error if a corpus, whose files may be absent, is of another game than the agents play."""
    game = find_negotiations(corpus).game
    if game != words.game:
        raise ConfigError(
            "the corpus is of another game than the agents",
            where=f"corpus {corpus}",
            got=f"{game!r}, and the agents play {words.game!r}",
            fix=f"name a corpus of {words.game!r} with --corpus, such as the one that the agents were trained on",
        )


def require_words(corpus: str, data_root: Path | None, words: Vocabulary, otherwise: str = "") -> None:
    """Raise an error if the words of a corpus are not those of the agents, whose language it guards.

    Args:
        corpus: its name.
        data_root: the folder of corpora; the usual folders if None.
        words: the vocabulary of the agents.
        otherwise: another fix for the message of the error.

    Raises:
        ConfigError: it has other words than the agents.
        DataError: the corpus is missing or broken.
    """
    _require_same_game(corpus, words)
    vocabulary = load_corpus(corpus, data_root).vocabulary
    if vocabulary.digest != words.digest:
        raise ConfigError(
            "the corpus of the supervised guard has another vocabulary than the agents",
            where=f"corpus {corpus}",
            got=f"{len(vocabulary)} words, digest {vocabulary.digest}; the agents {len(words)}, digest {words.digest}",
            fix=", ".join(filter(None, ("name the corpus that the agents were trained on with --corpus", otherwise))),
        )


def corpus_words(corpus: str, data_root: Path | None) -> list[str]:
    """Return the options of a command that name a corpus, if it is not the presets' own, and the data folder."""
    return [*([] if corpus == PUBLISHED else ["--corpus", corpus]), *root_words(data_root)]


def demo_words(corpus: str) -> list[str]:
    """Return the preset of a command with the budgets of the demonstration, if the corpus is its small one."""
    return ["demo"] if corpus == TrainNegotiatorConfig.corpus else []


def validation_perplexity(spec: str, corpus: str, data_root: Path | None) -> Estimate:
    """Return the perplexity of an agent on a corpus' validation dialogues, by the released formula.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
        DataError: the corpus is missing or broken.
    """
    from parley.policies.negotiator.model import evaluate
    from parley.policies.negotiator.speaker import load_model

    model = load_model(require_negotiator(spec, "the agent"))
    dialogues = load_corpus(corpus, data_root).splits["val"]
    return count(evaluate(model, dialogues).perplexity_reference, len(dialogues))


@dataclass(frozen=True, kw_only=True)
class TrainNegotiatorConfig(SupervisedConfig):
    """Settings of a supervised training of a negotiator."""

    corpus: str = "embedded"
    """Registered corpus (parley data list) or path/file.py:NAME."""
    fit: NegotiatorFitConfig = field(default_factory=NegotiatorFitConfig)
    """The recipe."""


def demo() -> TrainNegotiatorConfig:
    """Fit a small agent to the embedded corpus in about a minute of one core, until it agrees in most dialogues."""
    sizes = NegotiatorSizes(
        embed_word=64,
        embed_context=32,
        hidden_context=32,
        hidden_language=96,
        hidden_attention=64,
        hidden_selection=64,
        dropout=0.0,
        # At the published 0.1 the signals of the narrow layers are too small, and the selection module starts late.
        init_range=0.3,
    )
    # The model learns the choice long after the words, and agreement needs it: so it weighs more and annealing is long.
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
    """Fit the agent of Lewis et al. 2017 to Deal or No Deal by their recipe (SGD, 30 epochs and 2 of annealing)."""
    recipe = NegotiatorFitConfig(optimiser="sgd", learning_rate=1.0, momentum=0.1, batch_size=16, max_epochs=32, patience=30)
    return TrainNegotiatorConfig(corpus="dealornodeal", fit=recipe)


def fast() -> TrainNegotiatorConfig:
    """Fit the same agent to Deal or No Deal with Adam in half the epochs."""
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
        from parley.policies.negotiator.model import Negotiator, evaluate
        from parley.policies.negotiator.speaker import NegotiatorEpoch, NegotiatorFit, save_model

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
            log_last_epoch(fit, run)
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
            shlex.join(["parley", "train", "adversary", *demo_words(config.corpus), "--target", folder, *corpus]),
        )


def _figures(fitness: NegotiatorFitness) -> dict[str, float]:
    return {
        "ppl": fitness.perplexity_reference,
        "ppl_per_token": fitness.perplexity,
        "selection_ppl": fitness.selection_perplexity,
        "selection_accuracy": fitness.selection_accuracy,
    }


TRAIN_NEGOTIATOR = TrainNegotiator()
