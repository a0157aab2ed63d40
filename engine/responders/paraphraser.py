"""Supervised training of a paraphraser: `parley train paraphraser`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from parley.engine.core.stats.known import REWRITING, TEXT
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import FitJob, Fitting, PairFitConfig, open_pairs
from parley.envs.core.config import check
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.envs.corpora.pairs.vocabulary import SPECIALS, PairVocabulary
from parley.policies.paraphraser import settings
from parley.policies.paraphraser.settings import PointerFitConfig, PointerSizes

MSR, HELPDESK = "msr_paraphrases", "helpdesk_paraphrases"


@dataclass(frozen=True, kw_only=True)
class TrainParaphraserConfig(PairFitConfig):
    """A pointer-generator network, fitted to pairs of paraphrases."""

    corpus: str = MSR
    """Registered corpus of pairs (parley data list), a source<TAB>paraphrase file or folder, or path/file.py:NAME."""
    vocabulary: int = 5_000
    """Words that it can write without copying, special tokens included: the most frequent ones of the corpus."""
    sizes: PointerSizes = field(default_factory=PointerSizes)
    """The model."""
    fit: PointerFitConfig = field(default_factory=PointerFitConfig)
    """The recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "vocabulary", self.vocabulary > len(SPECIALS), f"at least {len(SPECIALS) + 1}")


def small() -> TrainParaphraserConfig:
    """Fit a network for a laptop with Adam: half the published state, 5,000 words; other words are copied."""
    return TrainParaphraserConfig(sizes=PointerSizes(hidden=128, dropout=0.2), fit=settings.fast())


def see2017() -> TrainParaphraserConfig:
    """Fit the network of See et al. 2017 by their recipe (Adagrad, coverage in a last phase); 50,000 words."""
    return TrainParaphraserConfig(vocabulary=50_000, fit=settings.see2017())


def demo() -> TrainParaphraserConfig:
    """Fit a small network to the built-in paraphrases, in seconds."""
    return TrainParaphraserConfig(corpus=HELPDESK, vocabulary=300, sizes=PointerSizes(embed=32, hidden=32), fit=settings.demo())


class TrainParaphraser(FitJob[TrainParaphraserConfig]):
    """`parley train paraphraser`."""

    words = ("train", "paraphraser")
    run_name = "paraphraser"
    config = TrainParaphraserConfig
    presets = {"small": small, "see2017": see2017, "demo": demo}
    legend = REWRITING | TEXT

    def prepare(self, config: TrainParaphraserConfig, path: Path, reporter: Reporter) -> Fitting:
        from parley.policies.paraphraser.model import PointerFit, PointerGenerator, RewriteExamples, save_pointer_generator

        # A network that copies must tell words apart that it does not know.
        corpus = open_pairs(config, every_word=True)
        vocabulary = PairVocabulary(corpus.vocabulary.words[: config.vocabulary])
        model = PointerGenerator(vocabulary, config.sizes).to(config.device)
        splits = {name: RewriteExamples(split, config.sizes) for name, split in corpus.splits.items()}
        return Fitting(
            config=config,
            corpus=corpus,
            model=model,
            splits=splits,
            fit=partial(PointerFit, model, splits["train"], splits["val"], config.fit, config.seed),
            save=save_pointer_generator,
            provenance={"role": "paraphraser"},
            what="pointer-generator paraphraser",
            words=f"{len(vocabulary):,} words, others copied",
            vocabulary=corpus.vocabulary,
        )

    def next_commands(self, config: TrainParaphraserConfig, path: Path) -> tuple[str, ...]:
        command = ["parley", "perturb", "generative-paraphrase", "--set", f"perturb.paraphraser={display_path(path)}"]
        command += root_words(config.data_root)
        return (f"echo 'how can i install it' | {shlex.join(command)}",)


TRAIN_PARAPHRASER = TrainParaphraser()
