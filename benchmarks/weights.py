"""The networks that are measured: a checkpoint's, or published sizes fitted to some of the embedded corpus on the spot.

Random weights would not do: they babble to the word limit, and no share of any time measured on them would be real.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.envs.negotiation.corpora.catalogue import Corpus, Split, load_corpus
from parley.policies.core.checkpoint import Checkpoint
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import KIND, NegotiatorFitConfig
from parley.policies.negotiator.speaker import NegotiatorEpoch, NegotiatorFit, load_model

EMBEDDED = "embedded"
_RECIPE = NegotiatorFitConfig(max_epochs=1, patience=1, batch_size=16, learning_rate=3e-3)
_NUM_DIALOGUES, _MOST_TOKENS = 1000, 60


def pick(split: Split, indices: np.ndarray) -> Split:
    """Return some dialogues (n,) of a split as a split."""
    tokens = [split.tokens(int(i)) for i in indices]
    return replace(
        split,
        contexts=split.contexts[indices],
        partner_values=split.partner_values[indices],
        outputs=split.outputs[indices],
        token_values=np.concatenate(tokens),
        offsets=np.cumsum([0, *map(len, tokens)]),
    )


def negotiator(checkpoint: Path | None) -> Negotiator:
    """Return a checkpoint's network, or one fitted to short dialogues of the embedded corpus for one epoch of some seconds."""
    return load_model(checkpoint) if checkpoint is not None else copy.deepcopy(_fitted())


@cache
def _fitted() -> Negotiator:
    corpus = load_corpus(EMBEDDED)
    train = corpus.splits["train"]
    short = pick(train, np.flatnonzero(train.lengths <= _MOST_TOKENS)[:_NUM_DIALOGUES])
    model = Negotiator(corpus.vocabulary, _RECIPE.sizes)
    with tempfile.TemporaryDirectory() as folder:
        few = pick(corpus.splits["val"], np.arange(32))
        fit = NegotiatorFit(model, short, few, _RECIPE, 1, Path(folder) / "state.safetensors")
        return fit.run(_ignore)


def guard_corpus(model: Negotiator, name: str, data_root: Path | None) -> Corpus:
    """Return the corpus of the supervised guard.

    Raises:
        ConfigError: it has other words than the network.
    """
    corpus = load_corpus(name, data_root)
    if model.vocabulary.digest != corpus.vocabulary.digest:
        raise ConfigError(
            "the checkpoint and the corpus have different vocabularies",
            got=f"the checkpoint {len(model.vocabulary)} words, {name} {len(corpus.vocabulary)}",
            fix="name the corpus that the checkpoint was trained on with --corpus",
        )
    return corpus


def store(model: Negotiator, folder: Path) -> None:
    """Write a checkpoint that other processes can load."""
    Checkpoint(KIND, asdict(model.sizes), {"role": "benchmark"}, model.vocabulary, model.state_dict()).save(folder)


def _ignore(_: NegotiatorEpoch) -> None:
    """Nobody watches this fit."""
