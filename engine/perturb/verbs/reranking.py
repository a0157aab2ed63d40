"""Reranking-RL: `parley train reranking` (Niu & Bansal 2018, arXiv 1809.02079, section 2.1).

The loss is in `policies/core/margin.py`.

A response model goes on from its checkpoint by likelihood and by a reward for replies that other contexts would not call forth.
The reward can be gamed: by rare words, by length, by nonsense. So replies are measured before the training and after every
epoch, on the same contexts and draws, and a warning is printed where they look worse.

Choices:
  * # Paper: silent about w, steps and when training ends; it adopts the mixed objective of Paulus et al. 2018, which is
    self-critical (less the reward of the greedy reply) with .9984 on the reward. Ours: preset `niu2018` is that; the default is
    what was released, which leaves sentences. The epoch of the best mixture on the validation split is kept, or the start.
  * Controls: `--set reranking.weight=0` is likelihood for as many steps, and `--set reranking.shuffled=true` exchanges the
    rewards of a batch.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import RECORDED, RERANKING
from parley.engine.core.stats.statistics import Estimate, clustered_rate, distinct, mean_count, perplexity, ratio_of_sums
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import EPOCHS
from parley.engine.perturb.lexicon.tagger import NGrams
from parley.engine.perturb.verbs.adversarial import (
    ContinuedConfig,
    ContinuedJob,
    PreparedContinuation,
    TrainingPlan,
    fine_tuning,
    open_model,
)
from parley.engine.perturb.verbs.models import RERANKED
from parley.envs.core.config import PositiveInt
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.corpora.pairs.turns import Turn, turn_of, turn_words
from parley.envs.corpora.pairs.vocabulary import UNK, PairVocabulary
from parley.policies.core.settings import RerankingSettings

if TYPE_CHECKING:
    from parley.engine.perturb.verbs.audit import LikelihoodModel
    from parley.policies.core.margin import ExamplesByContext, Watched

COMMON_SHARE = 0.95
"""The most frequent words, up to this share of the training replies, are not rare."""
GAMED = "gamed"
"""Kind of the event of an epoch whose replies look worse by `MOST_GROWTH`, by figure."""
MOST_GROWTH = 2.0
"""Of the perplexity and length of replies and their shares of rare words and `<unk>`, against the model that it began with."""
LEAST_SHARE = 0.005
"""Smaller shares of rare words and `<unk>` before count as this: growth from none is seen, and one such word is none."""


@dataclass(frozen=True, kw_only=True)
class TrainRerankingConfig(ContinuedConfig):
    """The model that is rewarded, and the reward."""

    lm: str = ""
    """Run of parley train lm, on this corpus, that judges replies; trigrams of the training replies when empty."""
    num_watched: PositiveInt = 1000
    """Contexts of a split to which replies are said when it is measured, at most; the seed's choice."""
    reranking: RerankingSettings = field(default_factory=RerankingSettings)
    """The reward, and how much it counts."""


@dataclass(frozen=True, kw_only=True)
class PreparedReranking(PreparedContinuation):
    """The checked inputs of a training by rewards.

    Args:
        judge: of replies.
    """

    config: TrainRerankingConfig
    judge: ReplyFigures


class ReplyFigures:
    """Measures replies.

    Args:
        recorded: replies of the training split.
        likelihood: a judge of utterances; trigrams of those replies when not given.
    """

    def __init__(self, recorded: Sequence[Turn], likelihood: LikelihoodModel | None = None) -> None:
        self._likelihood = likelihood or NGrams([utterance for turn in recorded for utterance in turn])
        counts = Counter(word for turn in recorded for utterance in turn for word in utterance)
        ranked = counts.most_common()
        before = np.cumsum([0, *(times for _, times in ranked)])[:-1]
        self._common = {word for (word, _), sum_ in zip(ranked, before, strict=True) if sum_ < COMMON_SHARE * counts.total()}
        self._common.add(UNK)

    def figures(self, replies: Sequence[Turn], units: np.ndarray) -> dict[str, Estimate]:
        """Return the figures of replies, by name, with intervals over their dialogues (n,)."""
        words = [turn_words(reply) for reply in replies]
        utterances = [utterance for reply in replies for utterance in reply]
        nats = self._likelihood.log_probabilities(utterances)
        lost, num_read = np.array([(-scores.sum(), len(scores)) for scores in nats]).reshape(-1, 2).T
        sizes = [sum(map(len, reply)) for reply in replies]
        unknown = [sum(utterance.count(UNK) for utterance in reply) for reply in replies]
        rare = [sum(word not in self._common for utterance in reply for word in utterance) for reply in replies]
        return {
            "reply_words": mean_count([len(scores) for scores in words], units),
            "rare_words": clustered_rate(rare, units, sizes),
            "unknown_words": clustered_rate(unknown, units, sizes),
            "distinct_1": distinct(words, 1),
            "distinct_2": distinct(words, 2),
            "reply_ppl": perplexity("replies", lost, num_read, np.repeat(units, [*map(len, replies)])),
        }


def figures(watched: Watched, vocabulary: PairVocabulary, judge: ReplyFigures) -> dict[str, Estimate]:
    """Return the figures of a model, by the names of the legend but for the split.

    Args:
        watched: on a split.
        vocabulary: of the model.
        judge: of its greedy replies.
    """
    fitness, greedy = watched.fitness, watched.greedy
    return {
        "nll": mean_count(fitness.nll_sums, fitness.units, fitness.num_targets),
        "specificity": ratio_of_sums(greedy.others - greedy.own, greedy.num_words, watched.units),
        "reward": ratio_of_sums(watched.sampled.others, watched.sampled.num_words, watched.units),
        "greedy_reward": ratio_of_sums(greedy.others, greedy.num_words, watched.units),
        **judge.figures([turn_of(vocabulary.decode(reply)) for reply in greedy.replies], watched.units),
    }


def looks_gamed(before: Mapping[str, Any], figures_now: Mapping[str, float], recorded: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of replies that grew by more than `MOST_GROWTH`, by name.

    Length and rare words are not reported while recorded replies have more: the model then comes nearer to them.

    Args:
        before: of the first model; figures that are missing or None are not compared.
        figures_now: of the current model.
        recorded: of the recorded replies to the same contexts.
    """
    least = {"reply_ppl": 0.0, "reply_words": 0.0, "rare_words": LEAST_SHARE, "unknown_words": LEAST_SHARE}
    compared = [name for name in least if name in figures_now and before.get(name) is not None]
    limits = {name: MOST_GROWTH * max(before[name], least[name]) for name in compared}
    limits |= {name: max(limits[name], recorded[name]) for name in ("reply_words", "rare_words") if name in limits}
    return {name: figures_now[name] for name, limit in limits.items() if figures_now[name] > limit > 0}


def niu2018() -> TrainRerankingConfig:
    """Use the paper's reward: of whole replies, self-critical, w .9984 (Paulus et al. 2018); it leaves no sentences."""
    return TrainRerankingConfig(reranking=RerankingSettings(weight=0.9984, baseline="greedy"))


def no_baseline() -> TrainRerankingConfig:
    """Use the reward of niu2018 without a baseline, and w .05."""
    return TrainRerankingConfig()


def released() -> TrainRerankingConfig:
    """Use the reward as released: per word, behind two rotations of the batch, less the reward of the greedy reply."""
    return TrainRerankingConfig(
        reranking=RerankingSettings(weight=0.5, others="rotated", num_others=2, per="word", baseline="greedy")
    )


def demo() -> TrainRerankingConfig:
    """Seconds, on the model of parley train seq2seq demo."""
    settings = replace(released().reranking, weight=0.2)
    return TrainRerankingConfig(reranking=settings, fit=replace(fine_tuning(), learning_rate=1e-3, max_epochs=2))


class TrainReranking(ContinuedJob[TrainRerankingConfig, PreparedReranking]):
    """`parley train reranking`."""

    words = ("train", "reranking")
    run_name = "reranking"
    config = TrainRerankingConfig
    presets = {"released": released, "niu2018": niu2018, "no-baseline": no_baseline, "demo": demo}
    legend = RERANKING
    what = "Reranking-RL"

    def prepare(self, config: TrainRerankingConfig, path: Path, reporter: Reporter) -> PreparedReranking:
        from parley.engine.perturb.verbs.audit import language_model

        opened = open_model(config)
        likelihood = language_model(config.lm, opened["corpus"], config.device, config.fit.batch_size) if config.lm else None
        judge = ReplyFigures([example.reply for example in opened["splits"]["train"]], likelihood)
        return PreparedReranking(**opened, judge=judge)

    def plan(self, run: RunFolder, prepared: PreparedReranking, reporter: Reporter) -> TrainingPlan:
        """Plan the training by likelihood and a reward for specific replies; the figures of replies are watched."""
        from parley.policies.core.margin import ExamplesByContext, RerankingObjective

        config, responder, judge = prepared.config, prepared.responder, prepared.judge
        network: Any = responder.model
        vocabulary: PairVocabulary = network.vocabulary
        made: dict[str, ExamplesByContext] = {
            split: ExamplesByContext(responder, *zip(*((one.context, one.reply, one.unit) for one in examples), strict=True))
            for split, examples in prepared.splits.items()
        }
        settings = config.reranking
        objective = RerankingObjective(responder, made["train"], settings, seed=config.seed, num_watched=config.num_watched)

        def measured() -> dict[str, Estimate]:
            watched = objective.measure(made["test"])
            recorded = judge.figures([prepared.splits["test"][index].reply for index in watched.chosen], watched.units)
            measured_figures = figures(watched, vocabulary, judge) | {
                name + RECORDED: figure for name, figure in recorded.items()
            }
            return {"test_nll": measured_figures.pop("nll"), **measured_figures}

        def watch() -> dict[str, float]:
            assert objective.watched is not None, "the validation split is measured first"
            measured_figures = figures(objective.watched, vocabulary, judge)
            # Replies without a word have no share of rare ones.
            values = {name: figure.value for name, figure in measured_figures.items() if figure.n}
            return {"mixture": objective.mixture(objective.watched), "recorded_nll": values.pop("nll"), **values}

        def measure() -> dict[str, float]:
            watched_figures, epochs = watch(), [event for event in run.events() if event["kind"] == EPOCHS.kind]
            if not epochs:
                return watched_figures
            before = epochs[0]
            assert objective.watched is not None, "what was found is of it"
            answered = [prepared.splits["validation"][index].reply for index in objective.watched.chosen]
            recorded = {name: figure.value for name, figure in judge.figures(answered, objective.watched.units).items()}
            if worse := looks_gamed(before, watched_figures, recorded):
                run.event(GAMED, number=len(epochs), **worse)
                how = ", ".join(f"{name} {value:.3g} (before {before[name]:.3g})" for name, value in worse.items())
                reporter.say(f"the reward may be gamed: {how}; lower reranking.weight or fit.learning_rate, or end earlier")
            return watched_figures

        return TrainingPlan(
            train=made["train"],
            validation=made["validation"],
            objective=objective,
            figures=measured,
            about={"role": RERANKED, "weight": settings.weight, "others": settings.others, "per": settings.per},
            title=f"Reranking-RL, w {settings.weight:g}{', shuffled' if settings.shuffled else ''}",
            measure=measure,
            say=lambda epoch: f"training perplexity {np.exp(epoch.train_nll):.2f}{', best' * epoch.best}",
        )

    def next_commands(self, config: TrainRerankingConfig, path: Path) -> tuple[str, ...]:
        root, model = root_words(config.data_root), display_path(path)
        against = ["parley", "train", "adversarial", "--model", model, "--strategies", "antonym", *root]
        measured = ["parley", "evaluate", "robustness", "--model", model, "--published", "niu2018-rl", *root]
        return shlex.join(measured), shlex.join(against)


TRAIN_RERANKING = TrainReranking()
