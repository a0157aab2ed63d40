"""Supervised training of a paraphraser: `parley train paraphraser`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from engine.jobs.command import command_line
from engine.jobs.device import require_device, threads
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.supervised import RESUME_SAFE, SupervisedConfig, estimates, require_splits, run_fit
from engine.metrics.training import REWRITING
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from envs.core.config import check
from envs.data.root import root_words
from envs.pairs.compiled import load_pairs
from envs.pairs.vocabulary import SPECIALS, PairVocabulary
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path
from policies.pointer_generator import settings
from policies.pointer_generator.settings import PointerFitConfig, PointerSizes

MSR, HELPDESK = "msr_paraphrases", "helpdesk_paraphrases"


@dataclass(frozen=True, kw_only=True)
class TrainParaphraserConfig(SupervisedConfig):
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
    """A network for a laptop, fitted with Adam: half the published state, 5,000 words; the rest is copied."""
    return TrainParaphraserConfig(sizes=PointerSizes(hidden=128, dropout=0.2), fit=settings.fast())


def see2017() -> TrainParaphraserConfig:
    """The network of See et al. 2017 by their recipe (Adagrad, coverage in a last phase); 50,000 words."""
    return TrainParaphraserConfig(vocabulary=50_000, fit=settings.see2017())


def demo() -> TrainParaphraserConfig:
    """A small network for the built-in paraphrases, fitted in seconds."""
    return TrainParaphraserConfig(corpus=HELPDESK, vocabulary=300, sizes=PointerSizes(embed=32, hidden=32), fit=settings.demo())


STATE = "training.safetensors"


def run_paraphraser(config: TrainParaphraserConfig, path: Path, reporter: Reporter) -> Result:
    """Fits a pointer-generator network, resuming exactly where it was, and stores it as `checkpoint`."""
    if earlier := TRAIN_PARAPHRASER.finished(config, path, reporter):
        return earlier
    from policies.fitting.evaluation import evaluate
    from policies.pointer_generator.batches import RewriteExamples
    from policies.pointer_generator.checkpoints import save_pointer_generator
    from policies.pointer_generator.fit import PointerFit
    from policies.pointer_generator.model import PointerGenerator

    require_device(config.device, "--device")
    # A network that copies must tell words apart that it does not know.
    corpus = load_pairs(config.corpus, config.data_root, every_word=True).first(config.limit)
    require_splits(corpus.name, corpus.splits)
    with (
        threads(config.threads),
        RunFolder.open(path, config, job=TRAIN_PARAPHRASER.name, resume_safe=TRAIN_PARAPHRASER.resume_safe) as folder,
    ):
        vocabulary = PairVocabulary(corpus.vocabulary.words[: config.vocabulary])
        model = PointerGenerator(vocabulary, config.sizes).to(config.device)
        train, validation, test = (RewriteExamples(corpus.splits[name], config.sizes) for name in ("train", "val", "test"))
        fit = PointerFit(model, train, validation, config.fit, config.seed, path / STATE)
        run_fit(fit, folder, reporter)
        figures = {"test": evaluate(model, test), "validation": evaluate(model, validation)}
        provenance = {
            "role": "paraphraser",
            "corpus": config.corpus,
            "corpus_key": corpus.folder.name,
            "seed": config.seed,
            "epochs": len(fit.history),
            **{f"{split}_nll": fitness.nll for split, fitness in figures.items()},
        }
        save_pointer_generator(model, path / CHECKPOINT, provenance)
        about = {
            "title": f"pointer-generator paraphraser, on {corpus.name}",
            "description": f"Supervised training, seed {config.seed}, {len(vocabulary):,} words, others copied.",
            "command": command_line(TRAIN_PARAPHRASER, config, path),
        }
        folder.write_summary(estimates("test", figures["test"]) | estimates("validation", figures["validation"]), about)
    return TRAIN_PARAPHRASER.result(config, path)


def _after(config: TrainParaphraserConfig, path: Path) -> tuple[str, ...]:
    command = ["parley", "perturb", "generative-paraphrase", "--set", f"perturb.paraphraser={display_path(path)}"]
    command += root_words(config.data_root)
    return (f"echo 'how can i install it' | {shlex.join(command)}",)


TRAIN_PARAPHRASER = Job(
    "train-paraphraser",
    TrainParaphraserConfig,
    {"small": small, "see2017": see2017, "demo": demo},
    run_paraphraser,
    REWRITING,
    (CHECKPOINT, SUMMARY),
    _after,
    RESUME_SAFE,
)
