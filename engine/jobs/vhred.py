"""Training of VHRED with attention: `parley train vhred`.

Source: Niu & Bansal 2018, section 4; the model is `policies/vhred/model.py`. Beside perplexities, which are measured with the
latent variable at the prior's mean, a run reports the divergence of posterior and prior: near zero, the latent variable
has gone out of use.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from engine.jobs.agents import CHECKPOINT
from engine.jobs.command import command_line
from engine.jobs.device import require_device, threads
from engine.jobs.job import Job, Result, Watcher
from engine.jobs.seq2seq import FILES, STATE
from engine.jobs.supervised import UNCHECKED, context_gain, estimates, require_splits, run_fit
from engine.jobs.vhred_config import TrainVhredConfig, demo, niu2018, small
from engine.metrics.statistics import mean
from engine.metrics.training import DIVERGENCES, PREDICTION, READING
from engine.store.run_folder import RunFolder
from envs.data.root import root_words
from envs.pairs.compiled import PairCorpus, load_pairs
from envs.storage.places import named

if TYPE_CHECKING:
    from policies.vhred.batches import DialogueExamples


LEGEND = PREDICTION | READING | DIVERGENCES


def run(config: TrainVhredConfig, path: Path, watcher: Watcher) -> Result:
    """Fits a VHRED, resuming exactly where it was, and stores it as `checkpoint`."""
    if earlier := TRAIN_VHRED.finished(config, path, watcher):
        return earlier
    from policies.seq2seq.evaluation import evaluate
    from policies.seq2seq.fit import Fit
    from policies.vhred.checkpoints import save_model
    from policies.vhred.evaluation import divergences
    from policies.vhred.model import VHRED

    require_device(config.device, "--device")
    corpus = load_pairs(config.corpus, config.data_root, vocabulary=config.vocabulary)
    require_splits(corpus.name, corpus.splits)
    with (
        threads(config.threads),
        RunFolder.open(path, config, job=TRAIN_VHRED.name, unchecked=UNCHECKED) as folder,
    ):
        model = VHRED(corpus.vocabulary, config.sizes).to(config.device)
        train, validation, test = (_examples(corpus, split, config) for split in ("train", "val", "test"))
        fit = Fit(model, train, validation, config.fit, config.seed, path / STATE)
        run_fit(fit, folder, watcher, lambda: {"validation_kl": float(divergences(model, validation).mean())})
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
    return (shlex.join(["parley", "evaluate", "robustness", "--model", named(path), *root_words(config.data_root)]),)


TRAIN_VHRED = Job(
    "train-vhred",
    TrainVhredConfig,
    {"small": small, "niu2018": niu2018, "demo": demo},
    run,
    LEGEND,
    FILES,
    _next,
    UNCHECKED,
)
