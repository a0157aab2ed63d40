"""Supervised training of sequence-to-sequence and language models: `parley train seq2seq`, `parley train lm`.

The file also builds a model's vocabulary: the most frequent words, or pieces learnt by byte pair encoding.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from parley.engine.core.stats.known import PREDICTION, READING, TEXT
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import FitJob, Fitting, PairFitConfig, context_gain, open_pairs, require_splits
from parley.envs.core.config import NonNegativeInt, PositiveInt
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.corpora.pairs.compiled import PairCorpus, PairSplit, pieces_of, spelt
from parley.envs.corpora.pairs.contexts import with_eot
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.settings import FitConfig
from parley.policies.seq2seq import settings
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

if TYPE_CHECKING:
    from parley.policies.core.fitting.batches import Fitness
    from parley.policies.core.fitting.loop import Objective


@dataclass(frozen=True, kw_only=True)
class UnitConfig(PairFitConfig):
    """The corpus of a model of pairs, and the units of its text."""

    subwords: PositiveInt | None = None
    """Merges of byte pair encoding, learnt on the training split: pieces then stand in the place of the most frequent words,
    and sizes count pieces (Niu & Bansal 2018: 5000). Words when not given."""
    subword_bytes: bool = False
    """Spell characters that the training split lacks in bytes; otherwise each is one <unk>."""


@dataclass(frozen=True, kw_only=True)
class PairTrainingConfig(UnitConfig):
    """The corpus of a model, and the settings of its fit."""

    vocabulary: int | None = None
    """Entries of a vocabulary of words, special tokens included; the corpus' own number when not given."""
    fit: FitConfig = field(default_factory=FitConfig)
    """The recipe."""


@dataclass(frozen=True)
class Units:
    """A corpus and what a model reads of it.

    Args:
        corpus: in words; where units are pieces, in every word.
        words: what its ids stand for, and behind them `<eot>` where contexts have several turns.
        vocabulary: of the model.
    """

    corpus: PairCorpus
    words: PairVocabulary
    vocabulary: PairVocabulary

    def spelt(self, split: PairSplit) -> PairSplit:
        """Return a split of the corpus in the model's units."""
        return spelt(split, self.words, self.vocabulary)

    @property
    def provenance(self) -> dict[str, int]:
        """Return the checkpoint's entries on the units: words of the corpus' vocabulary, or pieces and their merges."""
        merges = self.vocabulary.merges
        if merges is None:
            return {"vocabulary": len(self.corpus.vocabulary)}
        return {"vocabulary": len(self.vocabulary), "merges": len(merges)}


def open_units(config: PairTrainingConfig, turns: int, reporter: Reporter) -> Units:
    """Open the corpus of a fit and build the vocabulary of its model; raise as `open_pairs` does.

    Args:
        config: of the fit.
        turns: of context that the model reads.
        reporter: gets a line on the number of pieces of a word.
    """
    if config.subwords is None:
        corpus = open_pairs(config, vocabulary=config.vocabulary)
        words = corpus.vocabulary if turns == 1 else with_eot(corpus.vocabulary)
        return Units(corpus, words, words)
    corpus = open_pairs(config, every_word=True)
    pieces = pieces_of(corpus, config.subwords, in_bytes=config.subword_bytes)
    units = Units(corpus, with_eot(corpus.vocabulary), pieces)
    test = corpus.splits["test"]
    num_words, num_pieces = len(test.utterances.values), len(units.spelt(test).utterances.values)
    sizes = f"{len(pieces):,} pieces of {len(pieces.merges or ()):,} merges"
    reporter.say(f"{sizes}; a word of the test split takes {num_pieces / num_words:.2f} of them, which sizes count")
    return units


CHARACTERS = "ptb_characters"
"""The corpus whose models are searched by brute force."""


@dataclass(frozen=True, kw_only=True)
class TrainSeq2SeqConfig(PairTrainingConfig):
    """A sequence-to-sequence model, fitted to pairs of utterance and reply."""

    added: ClassVar[Mapping[str, Any]] = {"weighting": "none"}

    backward: bool = False
    """Fit the backward model of these settings, p(context | reply), for re-ranking: --decoder mmi:backward=RUN."""
    min_reply: NonNegativeInt = 0
    """Words of a reply at least; pairs with shorter ones are left out, of all splits."""
    weighting: Literal["none", "tf-idf"] = "none"
    """Weights of replies: tf-idf has dull ones teach less (Li et al. 2017, section 3.3)."""
    max_reply: PositiveInt | None = None
    """Words of a reply at most; pairs with longer ones are left out, and without a number cut to sizes.max_reply."""
    sizes: Seq2SeqSizes = field(default_factory=Seq2SeqSizes)
    """The model."""


@dataclass(frozen=True, kw_only=True)
class TrainLMConfig(PairTrainingConfig):
    """A language model, fitted to utterances, or to contexts of several turns."""

    sizes: LanguageModelSizes = field(default_factory=LanguageModelSizes)
    """The model."""


def small() -> TrainSeq2SeqConfig:
    """Fit a model for a laptop with Adam: half the published widths, 10,000 words."""
    return TrainSeq2SeqConfig(vocabulary=10_000, sizes=Seq2SeqSizes(embed=200, hidden=300), fit=settings.fast())


def he2018() -> TrainSeq2SeqConfig:
    """Fit the model of He & Glass 2018 by their recipe (SGD, 10 + 10 epochs), on Ubuntu; 30,000 words."""
    return TrainSeq2SeqConfig(corpus="ubuntu_irc", vocabulary=30_000, fit=settings.he2018())


def demo() -> TrainSeq2SeqConfig:
    """Fit a small model to the built-in help desk, in less than a minute of one core."""
    return TrainSeq2SeqConfig(sizes=Seq2SeqSizes(embed=64, hidden=96), fit=settings.demo())


def characters() -> TrainSeq2SeqConfig:
    """Fit a model of spelled words, whose every input parley search enumerate tries (He & Glass 2018, appendix B)."""
    sizes = Seq2SeqSizes(embed=200, hidden=200, max_source=6)
    return TrainSeq2SeqConfig(corpus=CHARACTERS, sizes=sizes, fit=settings.fast())


def dialogue() -> TrainSeq2SeqConfig:
    """Fit a model of two turns of context for parley evaluate robustness: attention, the reply links of #ubuntu."""
    sizes = Seq2SeqSizes(embed=200, hidden=300, attention="general", max_source=60, max_reply=30, turns=2)
    return TrainSeq2SeqConfig(corpus="ubuntu_irc", vocabulary=10_000, sizes=sizes, fit=settings.fast())


def replies() -> TrainSeq2SeqConfig:
    """Fit a small generator for parley minmax replies and evaluate generation: two turns, replies of 5 to 20 words."""
    sizes, fit = settings.replier(), settings.small_batches()
    return TrainSeq2SeqConfig(corpus="ubuntu_irc", vocabulary=10_000, sizes=sizes, fit=fit, min_reply=5, max_reply=20)


def li2017() -> TrainSeq2SeqConfig:
    """Fit the generator of Li et al. 2017 by the released recipe: Ubuntu, two layers of 512, 25,000 words, replies of 5-20."""
    sizes, fit = settings.released_replier(), settings.li2017()
    return TrainSeq2SeqConfig(corpus="ubuntu_irc", vocabulary=25_000, sizes=sizes, fit=fit, min_reply=5, max_reply=20)


def small_lm() -> TrainLMConfig:
    """Fit a language model for a laptop with Adam: half the published widths, 10,000 words."""
    return TrainLMConfig(vocabulary=10_000, sizes=LanguageModelSizes(embed=200, hidden=300), fit=settings.fast())


def he2018_lm() -> TrainLMConfig:
    """Fit the language model of He & Glass 2018 by their recipe (SGD, 10 + 10 epochs), on Ubuntu; 30,000 words."""
    return TrainLMConfig(corpus="ubuntu_irc", vocabulary=30_000, fit=settings.he2018())


def demo_lm() -> TrainLMConfig:
    """Fit a small language model to the built-in help desk, in less than a minute of one core."""
    return TrainLMConfig(sizes=LanguageModelSizes(embed=64, hidden=96), fit=settings.demo())


def dialogue_lm() -> TrainLMConfig:
    """Fit a language model of two turns of context, which judges inputs of the model of train seq2seq dialogue."""
    sizes = LanguageModelSizes(embed=200, hidden=300, max_length=60, turns=2)
    return TrainLMConfig(corpus="ubuntu_irc", vocabulary=10_000, sizes=sizes, fit=settings.fast())


def lm_command(corpus: str, vocabulary: int | None, sizes: Seq2SeqSizes, data_root: Path | None) -> str:
    """Return the command that fits a language model to judge the inputs of a sequence-to-sequence model.

    Args:
        corpus: of that model.
        vocabulary: entries of its vocabulary before `<eot>`; None for the corpus' own number.
        sizes: of that model.
        data_root: where corpora lie, if not in the usual place.
    """
    words = ["parley", "train", "lm", *_corpus_words(corpus, vocabulary)]
    if sizes.turns > 1:
        words += ["--set", f"sizes.turns={sizes.turns}", "--set", f"sizes.max_length={sizes.max_source}"]
    return shlex.join([*words, *root_words(data_root)])


def _corpus_words(corpus: str, vocabulary: int | None) -> list[str]:
    return ["--corpus", corpus, *([] if vocabulary is None else ["--vocabulary", str(vocabulary)])]


def _fitting(
    config: PairTrainingConfig,
    units: Units,
    model: Any,
    examples: Mapping[str, Any],
    what: str,
    turns: int,
    finish: Callable[[Fitness], Mapping[str, Estimate]] = lambda test: {},
    objective: Objective[Any] | None = None,
) -> Fitting:
    from parley.policies.core.fitting.loop import Fit
    from parley.policies.seq2seq.scoring import save_model

    model = model.to(config.device)
    return Fitting(
        config=config,
        corpus=units.corpus,
        model=model,
        splits=examples,
        fit=partial(Fit, model, examples["train"], examples["val"], config.fit, config.seed, objective=objective),
        save=save_model,
        provenance={"role": "supervised", **units.provenance, "turns": turns},
        what=what if turns == 1 else f"{what}, {turns} turns of context",
        vocabulary=units.vocabulary,
        words=units.vocabulary.title,
        finish=finish,
    )


class TrainSeq2Seq(FitJob[TrainSeq2SeqConfig]):
    """`parley train seq2seq`."""

    words = ("train", "seq2seq")
    run_name = "seq2seq"
    config = TrainSeq2SeqConfig
    presets = {
        "small": small,
        "he2018": he2018,
        "li2017": li2017,
        "replies": replies,
        "demo": demo,
        "characters": characters,
        "dialogue": dialogue,
    }
    legend = PREDICTION | TEXT | READING

    def prepare(self, config: TrainSeq2SeqConfig, path: Path, reporter: Reporter) -> Fitting:
        from parley.envs.corpora.pairs.contexts import windows, with_replies
        from parley.policies.core.fitting.batches import evaluate
        from parley.policies.core.response_weights import ResponseWeights, WeightedReplies, stop_ids
        from parley.policies.seq2seq.model import PairExamples
        from parley.policies.seq2seq.scoring import build_seq2seq

        turns = config.sizes.turns
        units = open_units(config, turns, reporter)
        sizes = config.sizes.exchanged if config.backward else config.sizes
        model = build_seq2seq(units.vocabulary, sizes)
        corpus = units.corpus
        eot_id = len(corpus.vocabulary)
        read = {name: split if turns == 1 else windows(split, turns, eot_id) for name, split in corpus.splits.items()}
        fitted = {name: with_replies(split, config.min_reply, config.max_reply) for name, split in read.items()}
        require_splits(corpus.name, fitted)
        spelt = {name: units.spelt(split) for name, split in fitted.items()}
        examples = {name: PairExamples(split, sizes) for name, split in spelt.items()}
        objective = None
        if config.weighting == "tf-idf":
            train = spelt["train"]
            replies = (train.utterances[reply] for reply in train.pairs[:, 0 if config.backward else 1].tolist())
            weights = ResponseWeights.of(replies, len(units.vocabulary), stop_ids(units.vocabulary))
            objective = WeightedReplies(model, weights)

        def finish(test: Fitness) -> dict[str, Estimate]:
            return {"context_gain": context_gain(test, evaluate(model, examples["test"].exchanged()))}

        attention = "no attention" if sizes.attention == "none" else f"{sizes.attention} attention"
        what = f"sequence to sequence, {attention}{', backward' if config.backward else ''}"
        return _fitting(config, units, model, examples, what, turns, finish, objective)

    def next_commands(self, config: TrainSeq2SeqConfig, path: Path) -> tuple[str, ...]:
        root = root_words(config.data_root)
        if config.backward and config.max_reply is not None:
            named = ["--start", "runs/seq2seq", "--backward", display_path(path), "--corpus", config.corpus, *root]
            return (shlex.join(["parley", "minmax", "replies", "li2017", *named]),)
        if config.backward:
            decoder = f"mmi:backward={display_path(path)}"
            return (shlex.join(["parley", "evaluate", "robustness", "--model", "runs/seq2seq", "--decoder", decoder, *root]),)
        if config.corpus == CHARACTERS:
            return (shlex.join(["parley", "search", "enumerate", "--model", display_path(path), *root]),)
        if config.subwords is not None:
            return (shlex.join(["parley", "evaluate", "robustness", "--model", display_path(path), *root]),)
        if config.max_reply is not None:
            # A generator of replies: it learns with, or against, a discriminator.
            named = [display_path(path), "--corpus", config.corpus, *root]
            return tuple(
                shlex.join(["parley", *words, *named])
                for words in (("train", "discriminator", "--generator"), ("minmax", "replies", "--start"))
            )
        judge = lm_command(config.corpus, config.vocabulary, config.sizes, config.data_root)
        if config.sizes.turns > 1 or config.sizes.input_feeding:
            return (shlex.join(["parley", "evaluate", "robustness", "--model", display_path(path), *root]), judge)
        return (judge, shlex.join(["parley", "search", "quick", "--model", display_path(path), *root]))


class TrainLM(FitJob[TrainLMConfig]):
    """`parley train lm`."""

    words = ("train", "lm")
    run_name = "lm"
    config = TrainLMConfig
    presets = {"small": small_lm, "he2018": he2018_lm, "demo": demo_lm, "dialogue": dialogue_lm}
    legend = PREDICTION | TEXT

    def prepare(self, config: TrainLMConfig, path: Path, reporter: Reporter) -> Fitting:
        from parley.envs.corpora.pairs.contexts import contexts, dialogues, utterance_dialogues
        from parley.policies.seq2seq.model import LanguageModel, SentenceExamples

        turns = config.sizes.turns
        units = open_units(config, turns, reporter)
        model = LanguageModel(units.vocabulary, config.sizes)
        eot_id = len(units.corpus.vocabulary)
        number, examples = utterance_dialogues if turns == 1 else dialogues, {}
        for name, split in units.corpus.splits.items():
            texts = split if turns == 1 else replace(split, utterances=contexts(split, turns, eot_id))
            measured = None if name == "train" else number(split)
            examples[name] = SentenceExamples(units.spelt(texts).utterances, config.sizes, measured)
        return _fitting(config, units, model, examples, "language model", turns)

    def next_commands(self, config: TrainLMConfig, path: Path) -> tuple[str, ...]:
        flags, sizes, root = _corpus_words(config.corpus, config.vocabulary), config.sizes, root_words(config.data_root)
        if sizes.turns > 1:
            flags += ["--set", f"sizes.turns={sizes.turns}", "--set", f"sizes.max_source={sizes.max_length}"]
        if config.subwords is not None:
            flags += ["--set", f"subwords={config.subwords}"]
            return (shlex.join(["parley", "train", "seq2seq", *flags, *root]),)
        search = ["parley", "search", "quick", "--model", "runs/seq2seq", "--lm", display_path(path)]
        return (
            shlex.join(["parley", "train", "seq2seq", *flags, *root]),
            shlex.join([*search, "--hit", "io-sample-min-k1", *root]),
        )


TRAIN_SEQ2SEQ, TRAIN_LM = TrainSeq2Seq(), TrainLM()
