"""Training of VHRED with attention: `parley train vhred`.

Source: Niu & Bansal 2018, section 2.1; the model is `policies/vhred/model.py`. Beside perplexities, which are measured with the
latent variable at the prior's mean, a run reports the divergence of posterior and prior: near zero, the latent variable
has gone out of use.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parley.engine.core.stats.known import DIVERGENCES, PREDICTION, READING, TEXT
from parley.engine.core.stats.statistics import Estimate, mean_count
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.supervised import FitJob, Fitting, context_gain
from parley.engine.responders.seq2seq import PairTrainingConfig, Units, open_units
from parley.envs.core.storage.uris import display_path
from parley.envs.corpora.arrow import root_words
from parley.policies.vhred import settings
from parley.policies.vhred.settings import VhredSizes

if TYPE_CHECKING:
    from parley.policies.core.fitting.batches import Fitness
    from parley.policies.vhred.model import DialogueExamples

DIALOGUES = "ubuntu_dialogues"


@dataclass(frozen=True, kw_only=True)
class TrainVhredConfig(PairTrainingConfig):
    """A VHRED with attention, fitted to replies and their contexts."""

    sizes: VhredSizes = field(default_factory=VhredSizes)
    """The model."""


def small() -> TrainVhredConfig:
    """Fit a model for a laptop with Adam: half the published widths, 10,000 words, on the conversations of #ubuntu."""
    return TrainVhredConfig(corpus=DIALOGUES, vocabulary=10_000, sizes=settings.small(), fit=settings.small_fit())


def niu2018() -> TrainVhredConfig:
    """Fit the model of Niu & Bansal 2018 by their recipe (Adam 2e-4, clip 2), on the conversations of #ubuntu; 20,000 words."""
    return TrainVhredConfig(corpus=DIALOGUES, vocabulary=20_000, fit=settings.niu2018_fit())


def demo() -> TrainVhredConfig:
    """Fit a small model to the built-in help desk, in less than two minutes of one core."""
    return TrainVhredConfig(sizes=settings.demo(), fit=settings.demo_fit())


class TrainVhred(FitJob[TrainVhredConfig]):
    """`parley train vhred`."""

    words = ("train", "vhred")
    run_name = "vhred"
    config = TrainVhredConfig
    presets = {"small": small, "niu2018": niu2018, "demo": demo}
    legend = PREDICTION | TEXT | READING | DIVERGENCES

    def prepare(self, config: TrainVhredConfig, path: Path, reporter: Reporter) -> Fitting:
        from parley.policies.core.fitting.batches import evaluate, units_of
        from parley.policies.core.fitting.loop import Fit
        from parley.policies.vhred.decoding import divergences, save_model
        from parley.policies.vhred.model import VHRED

        turns = config.sizes.turns
        units = open_units(config, 1, reporter)
        model = VHRED(units.vocabulary, config.sizes).to(config.device)
        splits = {split: _examples(units, split, config) for split in ("train", "val", "test")}

        def finish(test: Fitness) -> dict[str, Estimate]:
            return {
                "context_gain": context_gain(test, evaluate(model, splits["test"].exchanged())),
                "test_kl": mean_count(divergences(model, splits["test"]), test.units),
                "validation_kl": mean_count(divergences(model, splits["val"]), units_of(splits["val"])),
            }

        return Fitting(
            config=config,
            corpus=units.corpus,
            model=model,
            splits=splits,
            fit=partial(Fit, model, splits["train"], splits["val"], config.fit, config.seed),
            save=save_model,
            provenance={"role": "supervised", **units.provenance, "turns": turns},
            what=f"VHRED, attention over {config.sizes.attention}, {turns} turns",
            vocabulary=units.vocabulary,
            words=units.vocabulary.title,
            measure=lambda: {"validation_kl": float(divergences(model, splits["val"]).mean())},
            finish=finish,
        )

    def next_commands(self, config: TrainVhredConfig, path: Path) -> tuple[str, ...]:
        return (shlex.join(["parley", "evaluate", "robustness", "--model", display_path(path), *root_words(config.data_root)]),)


def _examples(units: Units, split: str, config: TrainVhredConfig) -> DialogueExamples:
    from parley.envs.corpora.pairs.contexts import examples
    from parley.policies.vhred.model import DialogueExamples

    listed = list(examples(units.corpus, split, config.sizes.turns))
    contexts, replies = [example.context for example in listed], [example.reply for example in listed]
    numbers = np.array([example.dialogue for example in listed])
    return DialogueExamples(contexts, replies, units.vocabulary, config.sizes, numbers)


TRAIN_VHRED = TrainVhred()
