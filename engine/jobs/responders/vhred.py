"""Training of VHRED with attention: `parley train vhred`.

Source: Niu & Bansal 2018, section 4; the model is `policies/vhred/model.py`. Beside perplexities, which are measured with the
latent variable at the prior's mean, a run reports the divergence of posterior and prior: near zero, the latent variable
has gone out of use.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.jobs.command import command_line
from engine.jobs.device import require_device, threads
from engine.jobs.job import Job, Reporter, Result
from engine.jobs.responders.seq2seq import FILES, STATE, PairTrainingConfig
from engine.jobs.supervised import RESUME_SAFE, context_gain, estimates, require_splits, run_fit
from engine.metrics.statistics import mean
from engine.metrics.training import DIVERGENCES, PREDICTION, READING
from engine.store.run_folder import RunFolder
from envs.data.root import root_words
from envs.pairs.compiled import PairCorpus, load_pairs
from envs.storage.copies import CHECKPOINT
from envs.storage.places import display_path
from policies.vhred import settings
from policies.vhred.settings import VhredSizes

if TYPE_CHECKING:
    from policies.vhred.batches import DialogueExamples

DIALOGUES = "ubuntu_dialogues"


@dataclass(frozen=True, kw_only=True)
class TrainVhredConfig(PairTrainingConfig):
    """A VHRED with attention, fitted to replies and their contexts."""

    sizes: VhredSizes = field(default_factory=VhredSizes)
    """The model."""


def small() -> TrainVhredConfig:
    """A model for a laptop, fitted with Adam: half the published widths, 10,000 words, on the conversations of #ubuntu."""
    return TrainVhredConfig(corpus=DIALOGUES, vocabulary=10_000, sizes=settings.small(), fit=settings.small_fit())


def niu2018() -> TrainVhredConfig:
    """The model of Niu & Bansal 2018 by their recipe (Adam 2e-4, clip 2), on the conversations of #ubuntu; 20,000 words."""
    return TrainVhredConfig(corpus=DIALOGUES, vocabulary=20_000, fit=settings.niu2018_fit())


def demo() -> TrainVhredConfig:
    """A small model for the built-in help desk, fitted in less than two minutes of one core."""
    return TrainVhredConfig(sizes=settings.demo(), fit=settings.demo_fit())


LEGEND = PREDICTION | READING | DIVERGENCES


def run(config: TrainVhredConfig, path: Path, reporter: Reporter) -> Result:
    """Fits a VHRED, resuming exactly where it was, and stores it as `checkpoint`."""
    if earlier := TRAIN_VHRED.finished(config, path, reporter):
        return earlier
    from policies.fitting.evaluation import evaluate
    from policies.fitting.fit import Fit
    from policies.vhred.checkpoints import save_model
    from policies.vhred.evaluation import divergences
    from policies.vhred.model import VHRED

    require_device(config.device, "--device")
    corpus = load_pairs(config.corpus, config.data_root, vocabulary=config.vocabulary).first(config.limit)
    require_splits(corpus.name, corpus.splits)
    with (
        threads(config.threads),
        RunFolder.open(path, config, job=TRAIN_VHRED.name, resume_safe=RESUME_SAFE) as folder,
    ):
        model = VHRED(corpus.vocabulary, config.sizes).to(config.device)
        train, validation, test = (_examples(corpus, split, config) for split in ("train", "val", "test"))
        fit = Fit(model, train, validation, config.fit, config.seed, path / STATE)
        run_fit(fit, folder, reporter, lambda: {"validation_kl": float(divergences(model, validation).mean())})
        fitness = evaluate(model, test)
        found = estimates("test", fitness) | estimates("validation", evaluate(model, validation))
        found["context_gain"] = context_gain(fitness, evaluate(model, test.exchanged()))
        found |= {"test_kl": mean(divergences(model, test)), "validation_kl": mean(divergences(model, validation))}
        metrics = {name: found[name] for name in LEGEND}
        provenance = {
            "role": "supervised",
            "corpus": config.corpus,
            "corpus_key": corpus.folder.name,
            "vocabulary": len(corpus.vocabulary),
            "seed": config.seed,
            "epochs": len(fit.history),
            "turns": config.sizes.turns,
            **{name: metrics[name].value for name in ("test_nll", "validation_nll", "test_kl")},
        }
        save_model(model, path / CHECKPOINT, provenance)
        about = {
            "title": f"VHRED, attention over {config.sizes.attention}, {config.sizes.turns} turns, on {corpus.name}",
            "description": f"Supervised training, seed {config.seed}, {len(corpus.vocabulary):,} words.",
            "command": command_line(TRAIN_VHRED, config, path),
        }
        folder.write_summary(metrics, about)
    return TRAIN_VHRED.result(config, path)


def _examples(corpus: PairCorpus, split: str, config: TrainVhredConfig) -> DialogueExamples:
    from envs.pairs.contexts import examples
    from policies.vhred.batches import DialogueExamples

    found = list(examples(corpus, split, config.sizes.turns))
    contexts, replies = [each.context for each in found], [each.reply for each in found]
    return DialogueExamples(contexts, replies, corpus.vocabulary, config.sizes)


def _next(config: TrainVhredConfig, path: Path) -> tuple[str, ...]:
    return (shlex.join(["parley", "evaluate", "robustness", "--model", display_path(path), *root_words(config.data_root)]),)


TRAIN_VHRED = Job(
    "train-vhred",
    TrainVhredConfig,
    {"small": small, "niu2018": niu2018, "demo": demo},
    run,
    LEGEND,
    FILES,
    _next,
    RESUME_SAFE,
)
