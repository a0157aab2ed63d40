"""Supervised training of sequence-to-sequence and language models: `parley train seq2seq`, `parley train lm`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.jobs.command import command_line
from engine.jobs.device import require_device, threads
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.supervised import RESUME_SAFE, SupervisedConfig, context_gain, estimates, require_splits, run_fit
from engine.metrics.training import PREDICTION, READING
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from envs.data.root import root_words
from envs.pairs.compiled import PairCorpus, PairSplit, load_pairs
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path
from policies.fitting.settings import FitConfig
from policies.seq2seq import settings
from policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

if TYPE_CHECKING:
    from policies.fitting.batches import Examples
    from policies.seq2seq.model import LanguageModel, Seq2Seq

STATE = "training.safetensors"
CHARACTERS = "ptb_characters"
"""The corpus whose models are searched by brute force."""


@dataclass(frozen=True, kw_only=True)
class PairTrainingConfig(SupervisedConfig):
    """What a model is fitted to, and how."""

    corpus: str = "helpdesk"
    """Registered corpus of pairs (parley data list), a source<TAB>reply file or folder, or path/file.py:NAME."""
    vocabulary: int | None = None
    """Entries of the vocabulary, special tokens included; the corpus' own number when not given."""
    fit: FitConfig = field(default_factory=FitConfig)
    """The recipe."""


@dataclass(frozen=True, kw_only=True)
class TrainSeq2SeqConfig(PairTrainingConfig):
    """A sequence-to-sequence model, fitted to pairs of utterance and reply."""

    sizes: Seq2SeqSizes = field(default_factory=Seq2SeqSizes)
    """The model."""


@dataclass(frozen=True, kw_only=True)
class TrainLMConfig(PairTrainingConfig):
    """A language model, fitted to utterances, or to contexts of several turns."""

    sizes: LanguageModelSizes = field(default_factory=LanguageModelSizes)
    """The model."""


def small() -> TrainSeq2SeqConfig:
    """A model for a laptop, fitted with Adam: half the published widths, 10,000 words."""
    return TrainSeq2SeqConfig(vocabulary=10_000, sizes=Seq2SeqSizes(embed=200, hidden=300), fit=settings.fast())


def he2018() -> TrainSeq2SeqConfig:
    """The model of He & Glass 2018 by their recipe (SGD, 10 + 10 epochs), on Ubuntu; 30,000 words."""
    return TrainSeq2SeqConfig(corpus="ubuntu_irc", vocabulary=30_000, fit=settings.he2018())


def demo() -> TrainSeq2SeqConfig:
    """A small model for the built-in help desk, fitted in less than a minute of one core."""
    return TrainSeq2SeqConfig(sizes=Seq2SeqSizes(embed=64, hidden=96), fit=settings.demo())


def characters() -> TrainSeq2SeqConfig:
    """The model whose every input parley search enumerate tries: words spelled out (He & Glass 2018, appendix B)."""
    sizes = Seq2SeqSizes(embed=200, hidden=200, max_source=6)
    return TrainSeq2SeqConfig(corpus=CHARACTERS, sizes=sizes, fit=settings.fast())


def dialogue() -> TrainSeq2SeqConfig:
    """A model that answers two turns of context, for parley evaluate robustness: attention, the reply links of #ubuntu."""
    sizes = Seq2SeqSizes(embed=200, hidden=300, attention="general", max_source=60, max_reply=30, turns=2)
    return TrainSeq2SeqConfig(corpus="ubuntu_irc", vocabulary=10_000, sizes=sizes, fit=settings.fast())


def small_lm() -> TrainLMConfig:
    """A language model for a laptop, fitted with Adam: half the published widths, 10,000 words."""
    return TrainLMConfig(vocabulary=10_000, sizes=LanguageModelSizes(embed=200, hidden=300), fit=settings.fast())


def he2018_lm() -> TrainLMConfig:
    """The language model of He & Glass 2018 by their recipe (SGD, 10 + 10 epochs), on Ubuntu; 30,000 words."""
    return TrainLMConfig(corpus="ubuntu_irc", vocabulary=30_000, fit=settings.he2018())


def demo_lm() -> TrainLMConfig:
    """A small language model of the built-in help desk, fitted in less than a minute of one core."""
    return TrainLMConfig(sizes=LanguageModelSizes(embed=64, hidden=96), fit=settings.demo())


def dialogue_lm() -> TrainLMConfig:
    """A language model of two turns of context, which judges inputs of the model of train seq2seq dialogue."""
    sizes = LanguageModelSizes(embed=200, hidden=300, max_length=60, turns=2)
    return TrainLMConfig(corpus="ubuntu_irc", vocabulary=10_000, sizes=sizes, fit=settings.fast())


def run_seq2seq(config: TrainSeq2SeqConfig, path: Path, reporter: Reporter) -> Result:
    """Fits a sequence-to-sequence model, resuming exactly where it was, and stores it as `checkpoint`."""

    def build(corpus: PairCorpus) -> tuple[Seq2Seq, Callable[[PairSplit], Examples[Any]]]:
        from envs.pairs.contexts import windows, with_eot
        from policies.seq2seq.batches import PairExamples
        from policies.seq2seq.model import Seq2Seq

        words, turns = corpus.vocabulary, config.sizes.turns
        if turns == 1:
            return Seq2Seq(words, config.sizes), lambda split: PairExamples(split, config.sizes)
        model = Seq2Seq(with_eot(words), config.sizes)
        return model, lambda split: PairExamples(windows(split, turns, len(words)), config.sizes)

    attention = "no attention" if config.sizes.attention == "none" else f"{config.sizes.attention} attention"
    context = "" if config.sizes.turns == 1 else f", {config.sizes.turns} turns of context"
    what, read = f"sequence to sequence, {attention}{context}", {"turns": config.sizes.turns}
    return _run(TRAIN_SEQ2SEQ, config, what, build, path, reporter, read)


def run_lm(config: TrainLMConfig, path: Path, reporter: Reporter) -> Result:
    """Fits a language model, resuming exactly where it was, and stores it as `checkpoint`."""

    def build(corpus: PairCorpus) -> tuple[LanguageModel, Callable[[PairSplit], Examples[Any]]]:
        from envs.pairs.contexts import contexts, with_eot
        from policies.seq2seq.batches import SentenceExamples
        from policies.seq2seq.model import LanguageModel

        words, turns = corpus.vocabulary, config.sizes.turns
        if turns == 1:
            return LanguageModel(words, config.sizes), lambda split: SentenceExamples(split.utterances, config.sizes)
        model = LanguageModel(with_eot(words), config.sizes)
        return model, lambda split: SentenceExamples(contexts(split, turns, len(words)), config.sizes)

    what = "language model" if config.sizes.turns == 1 else f"language model, {config.sizes.turns} turns of context"
    return _run(TRAIN_LM, config, what, build, path, reporter, {"turns": config.sizes.turns})


def _run(
    job: Job,
    config: PairTrainingConfig,
    what: str,
    build: Callable[[PairCorpus], tuple[Any, Callable[[PairSplit], Examples[Any]]]],
    path: Path,
    reporter: Reporter,
    about_model: Mapping[str, Any],
) -> Result:
    if earlier := job.finished(config, path, reporter):
        return earlier
    from policies.fitting.evaluation import evaluate
    from policies.fitting.fit import Fit
    from policies.seq2seq.batches import PairExamples
    from policies.seq2seq.checkpoints import save_model

    require_device(config.device, "--device")
    corpus = load_pairs(config.corpus, config.data_root, vocabulary=config.vocabulary).first(config.limit)
    require_splits(corpus.name, corpus.splits)
    with (
        threads(config.threads),
        RunFolder.open(path, config, job=job.name, resume_safe=job.resume_safe) as folder,
    ):
        model, examples = build(corpus)
        train, validation, test = (examples(corpus.splits[name]) for name in ("train", "val", "test"))
        fit = Fit(model.to(config.device), train, validation, config.fit, config.seed, path / STATE)
        run_fit(fit, folder, reporter)
        figures = {"test": evaluate(model, test), "validation": evaluate(model, validation)}
        provenance = {
            "role": "supervised",
            "corpus": config.corpus,
            "corpus_key": corpus.folder.name,
            "vocabulary": len(corpus.vocabulary),
            "seed": config.seed,
            "epochs": len(fit.history),
            **about_model,
            **{f"{split}_nll": fitness.nll for split, fitness in figures.items()},
        }
        save_model(model, path / CHECKPOINT, provenance)
        about = {
            "title": f"{what}, on {corpus.name}",
            "description": f"Supervised training, seed {config.seed}, {len(corpus.vocabulary):,} words.",
            "command": command_line(job, config, path),
        }
        metrics = estimates("test", figures["test"]) | estimates("validation", figures["validation"])
        if isinstance(test, PairExamples):
            metrics["context_gain"] = context_gain(figures["test"], evaluate(model, test.exchanged()))
        folder.write_summary(metrics, about)
    return job.result(config, path)


def lm_command(corpus: str, vocabulary: int | None, sizes: Seq2SeqSizes, data_root: Path | None) -> str:
    """The command that fits a language model which can judge the inputs of a sequence-to-sequence model.

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


def _after_seq2seq(config: TrainSeq2SeqConfig, path: Path) -> tuple[str, ...]:
    root = root_words(config.data_root)
    if config.corpus == CHARACTERS:
        return (shlex.join(["parley", "search", "enumerate", "--model", display_path(path), *root]),)
    judge = lm_command(config.corpus, config.vocabulary, config.sizes, config.data_root)
    if config.sizes.turns > 1:
        return (shlex.join(["parley", "evaluate", "robustness", "--model", display_path(path), *root]), judge)
    return (
        judge,
        shlex.join(["parley", "search", "quick", "--model", display_path(path), *root]),
    )


def _after_lm(config: TrainLMConfig, path: Path) -> tuple[str, ...]:
    flags, sizes, root = _corpus_words(config.corpus, config.vocabulary), config.sizes, root_words(config.data_root)
    if sizes.turns > 1:
        flags += ["--set", f"sizes.turns={sizes.turns}", "--set", f"sizes.max_source={sizes.max_length}"]
    search = ["parley", "search", "quick", "--model", "runs/seq2seq", "--lm", display_path(path), "--hit", "io-sample-min-k1"]
    return (
        shlex.join(["parley", "train", "seq2seq", *flags, *root]),
        shlex.join([*search, *root]),
    )


FILES = (CHECKPOINT, SUMMARY)
TRAIN_SEQ2SEQ = Job(
    "train-seq2seq",
    TrainSeq2SeqConfig,
    {"small": small, "he2018": he2018, "demo": demo, "characters": characters, "dialogue": dialogue},
    run_seq2seq,
    PREDICTION | READING,
    FILES,
    _after_seq2seq,
    RESUME_SAFE,
)
TRAIN_LM = Job(
    "train-lm",
    TrainLMConfig,
    {"small": small_lm, "he2018": he2018_lm, "demo": demo_lm, "dialogue": dialogue_lm},
    run_lm,
    PREDICTION,
    FILES,
    _after_lm,
    RESUME_SAFE,
)
