"""Reranking-RL: `parley train reranking` (Niu & Bansal 2018, arXiv 1809.02079, section 2.1; the loss: `policies/reranking.py`).

A response model goes on from its checkpoint by likelihood and by a reward for replies that other contexts would not call forth.
The reward can be gamed: by rare words, by length, by nonsense. So what replies look like is measured before the training and
after every epoch, on the same contexts and draws, and told where it has gone wrong.

Choices:
  * # Paper: silent about w, steps and when training ends. Ours: w 0.05, and the epoch of the best mixture on the validation
    split is kept, or the checkpoint that it began with.
  * Controls: `--set reranking.weight=0` is likelihood for as many steps, and `--set reranking.shuffled=true` exchanges the
    rewards of a batch.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.jobs.checkpoints import require_checkpoint
from engine.jobs.device import require_device, threads
from engine.jobs.job import Job, Reporter, Summary
from engine.jobs.perturb.continued import ContinuedConfig, fine_tuning
from engine.jobs.perturb.models import RERANKED, provenance
from engine.jobs.supervised import EPOCHS, RESUME_SAFE, STATE, run_fit
from engine.metrics.replies import distinct
from engine.metrics.statistics import Estimate, mean, ratio_of_sums
from engine.metrics.training import BEFORE, RECORDED, RERANKING
from engine.perturb.ngrams import NGrams
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from envs.core.ranges import PositiveInt
from envs.data.root import root_words
from envs.pairs.turns import Example, Turn, turn_of, turn_words
from envs.pairs.vocabulary import UNK, PairVocabulary
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path
from policies.reranking_settings import RerankingSettings

if TYPE_CHECKING:
    from engine.jobs.perturb.audit_worker import LikelihoodModel
    from policies.fitting.fit import Epoch
    from policies.reranking import ExamplesByContext, RerankingObjective, Watched
    from policies.responder import TrainableResponder

COMMON_SHARE = 0.95
"""Words that make so much of the training replies are not rare."""
GAMED = "gamed"
"""Kind of the event of an epoch whose replies look worse by `MOST_GROWTH`, by figure."""
MOST_GROWTH = 2.0
"""Of the perplexity of replies and of their share of rare words, against the model that the training began with."""


@dataclass(frozen=True, kw_only=True)
class TrainRerankingConfig(ContinuedConfig):
    """Which model is rewarded, and for what."""

    lm: str = ""
    """Run of parley train lm, on this corpus, that judges replies; trigrams of the training replies when empty."""
    num_watched: PositiveInt = 1000
    """Contexts of a split to which replies are said when it is measured, at most; the seed's choice."""
    reranking: RerankingSettings = field(default_factory=RerankingSettings)
    """The reward, and how much it counts."""


class Rewarding(NamedTuple):
    """What is rewarded, found and checked."""

    config: TrainRerankingConfig
    responder: TrainableResponder
    base: Mapping[str, Any]
    corpus: str
    splits: Mapping[str, Sequence[Example]]
    judge: ReplyFigures


class ReplyFigures:
    """Says what replies look like, whoever says them.

    Args:
        recorded: replies of the training split.
        likelihood: how usual utterances are; trigrams of those replies when not given.
    """

    def __init__(self, recorded: Sequence[Turn], likelihood: LikelihoodModel | None = None) -> None:
        self._likelihood = likelihood or NGrams([utterance for turn in recorded for utterance in turn])
        counts = Counter(word for turn in recorded for utterance in turn for word in utterance)
        ranked = counts.most_common()
        before = np.cumsum([0, *(times for _, times in ranked)])[:-1]
        self._common = {word for (word, _), sum_ in zip(ranked, before, strict=True) if sum_ < COMMON_SHARE * counts.total()}
        self._common.add(UNK)

    def figures(self, replies: Sequence[Turn]) -> dict[str, Estimate]:
        """Figures of some replies, by name."""
        words = [turn_words(reply) for reply in replies]
        said = [utterance for reply in replies for utterance in reply]
        nats = self._likelihood.log_probabilities(said)
        rare = [sum(word not in self._common for utterance in reply for word in utterance) for reply in replies]
        return {
            "reply_words": mean([len(each) for each in words]),
            "rare_words": ratio_of_sums(rare, [sum(map(len, reply)) for reply in replies]),
            "distinct_1": distinct(words, 1),
            "distinct_2": distinct(words, 2),
            "reply_ppl": ratio_of_sums([-each.sum() for each in nats], [len(each) for each in nats], transform=np.exp),
        }


def figures(watched: Watched, vocabulary: PairVocabulary, judge: ReplyFigures) -> dict[str, Estimate]:
    """What a model has come to, by the names of the legend but for the split.

    Args:
        watched: on a split.
        vocabulary: of the model.
        judge: of its greedy replies.
    """
    fitness, greedy = watched.fitness, watched.greedy
    return {
        "nll": ratio_of_sums(fitness.nll_sums, fitness.num_targets),
        "specificity": ratio_of_sums(greedy.others - greedy.own, greedy.num_words),
        "reward": ratio_of_sums(watched.sampled.others, watched.sampled.num_words),
        "greedy_reward": ratio_of_sums(greedy.others, greedy.num_words),
        **judge.figures([turn_of(vocabulary.decode(reply)) for reply in greedy.replies]),
    }


def niu2018() -> TrainRerankingConfig:
    """The paper's reward: of a whole reply, behind one context drawn from the training split, without a baseline."""
    return TrainRerankingConfig()


def released() -> TrainRerankingConfig:
    """The released code's: per word, behind two rotations of the batch, less that of the greedy reply."""
    return TrainRerankingConfig(
        reranking=RerankingSettings(weight=0.5, others="rotated", num_others=2, per="word", baseline="greedy")
    )


def demo() -> TrainRerankingConfig:
    """Seconds, on the model of parley train seq2seq demo."""
    settings = replace(released().reranking, weight=0.2)
    return TrainRerankingConfig(reranking=settings, fit=replace(fine_tuning(), learning_rate=1e-3, max_epochs=2))


class TrainReranking(Job[TrainRerankingConfig, Rewarding, Summary]):
    """`parley train reranking`."""

    words = ("train", "reranking")
    run_name = "reranking"
    config = TrainRerankingConfig
    presets = {"niu2018": niu2018, "released": released, "demo": demo}
    legend = RERANKING
    files = (CHECKPOINT, SUMMARY)
    resume_safe = RESUME_SAFE
    steps = EPOCHS

    def prepare(self, config: TrainRerankingConfig, path: Path, reporter: Reporter) -> Rewarding:
        """The model, the dialogues and what judges replies."""
        from engine.jobs.perturb.audit_worker import language_model
        from policies.responders import load_responder

        require_device(config.device, "--device")
        folder = require_checkpoint(config.model, "--model", "parley train seq2seq")
        responder: Any = load_responder(folder)
        base = provenance(folder)
        corpus = config.corpus_of(base)
        likelihood = language_model(config.lm, corpus, config.device, config.fit.batch_size) if config.lm else None
        splits = config.examples(corpus, responder.turns)
        judge = ReplyFigures([each.reply for each in splits["train"]], likelihood)
        return Rewarding(config, responder, base, corpus, splits, judge)

    def work(self, run: RunFolder, prepared: Rewarding, reporter: Reporter) -> Summary:
        """Trains, resuming exactly where it was, and stores the model as `checkpoint`."""
        from policies.fitting.fit import Fit
        from policies.reranking import ExamplesByContext, RerankingObjective

        config, responder = prepared.config, prepared.responder
        network: Any = responder.model
        vocabulary: PairVocabulary = network.vocabulary
        with threads(config.threads):
            responder.model.to(config.device)
            made: dict[str, ExamplesByContext] = {
                split: ExamplesByContext(responder, [each.context for each in examples], [each.reply for each in examples])
                for split, examples in prepared.splits.items()
            }
            objective = RerankingObjective(
                responder, made["train"], config.reranking, seed=config.seed, num_watched=config.num_watched
            )
            first = objective.measure(made["test"])
            before = figures(first, vocabulary, prepared.judge)
            recorded = prepared.judge.figures([prepared.splits["test"][place].reply for place in first.chosen])
            fit = Fit(
                responder.model, made["train"], made["validation"], config.fit, config.seed, run.path / STATE, fresh=False,
                objective=objective,
            )
            self._train(fit, objective, vocabulary, prepared, run, reporter)
            after = figures(objective.measure(made["test"]), vocabulary, prepared.judge)
        reward = {"weight": config.reranking.weight, "others": config.reranking.others, "per": config.reranking.per}
        how = {"seed": config.seed, "epochs": len(fit.history), "precision": fit.precision, "test_nll": after["nll"].value}
        kept = {name: prepared.base[name] for name in ("vocabulary", "turns") if name in prepared.base}
        about = {"role": RERANKED, "base": config.model, "corpus": prepared.corpus, **kept, **reward, **how}
        responder.save(run.path / CHECKPOINT, about)
        both = {"": after, BEFORE: before, RECORDED: recorded}
        found = {("test_nll" if name == "nll" else name) + end: each for end, of in both.items() for name, each in of.items()}
        return Summary(
            f"{config.model}, Reranking-RL, w {config.reranking.weight:g}{', shuffled' if config.reranking.shuffled else ''}",
            f"Reranking-RL on {prepared.corpus}, {len(made['train']):,} examples, seed {config.seed}.",
            {name: found[name] for name in RERANKING if name in found},
        )

    def _train(
        self,
        fit: Any,
        objective: RerankingObjective,
        vocabulary: PairVocabulary,
        prepared: Rewarding,
        run: RunFolder,
        reporter: Reporter,
    ) -> None:
        """Makes the epochs; each event says what replies look like, that of epoch 0 what they did before."""

        def watch() -> dict[str, float]:
            assert objective.watched is not None, "the validation split is measured first"
            found = figures(objective.watched, vocabulary, prepared.judge)
            values = {name: each.value for name, each in found.items()}
            return {"mixture": objective.mixture(objective.watched), "recorded_nll": values.pop("nll"), **values}

        def measure() -> dict[str, float]:
            found = watch()
            first = next(event for event in run.events() if event["kind"] == EPOCHS.kind and event["number"] == 0)
            worse = {name: found[name] for name in ("reply_ppl", "rare_words") if found[name] > MOST_GROWTH * first[name] > 0}
            if worse:
                run.event(GAMED, number=len(fit.history), **worse)
                told = ", ".join(f"{name} {value:.3g} (before {first[name]:.3g})" for name, value in worse.items())
                reporter.say(f"the reward may be gamed: {told}; lower reranking.weight or fit.learning_rate, or end earlier")
            return found

        if not fit.history and not fit.batches_done:
            found = watch()
            run.event(EPOCHS.kind, number=0, **found)
            reporter.say("before" + "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in found.items()))
        run_fit(fit, run, reporter, measure, say=_mixture)
        if prepared.config.fit.keep == "best" and not any(row["best"] for row in fit.history):
            reporter.say("no epoch had a better mixture than the model that it began with, which is kept")

    def next_commands(self, config: TrainRerankingConfig, path: Path) -> tuple[str, ...]:
        root, model = root_words(config.data_root), display_path(path)
        against = ["parley", "train", "adversarial", "--model", model, "--strategies", "antonym", *root]
        measured = ["parley", "evaluate", "robustness", "--model", model, "--published", "niu2018-rl", *root]
        return shlex.join(measured), shlex.join(against)


def _mixture(epoch: Epoch) -> str:
    """An epoch in words."""
    return f"training perplexity {np.exp(epoch.train_nll):.2f}{', best' if epoch.best else ''}"


TRAIN_RERANKING = TrainReranking()
