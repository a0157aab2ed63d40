"""Trainings that go on from a response model's checkpoint: which model, on which dialogues, by which recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.jobs.limit import drawn
from engine.jobs.supervised import SupervisedConfig, require_splits
from envs.core.errors import ConfigError
from envs.core.ranges import NonNegativeInt
from envs.pairs.compiled import load_pairs
from envs.pairs.contexts import examples as read_examples
from envs.pairs.turns import Example
from policies.fitting.settings import FitConfig

SPLITS = {"train": "train", "validation": "val", "test": "test"}


def fine_tuning() -> FitConfig:
    """Three epochs of Adam at the paper's rate from the weights that are there; the best by the objective are kept.

    The paper does not say how many epochs.
    """
    return FitConfig(learning_rate=2e-4, max_epochs=3, patience=3, decay_epochs=0, precision="float32")


@dataclass(frozen=True, kw_only=True)
class ContinuedConfig(SupervisedConfig):
    """Which model is trained further, on what."""

    model: str = "runs/seq2seq"
    """Run or checkpoint folder of the response model to begin with (parley train seq2seq, parley train vhred)."""
    corpus: str = ""
    """Corpus to train on; the one that the model was fitted to when empty."""
    limit: NonNegativeInt = 0
    """Examples of each split at most, the seed's choice of them; 0 for all."""
    fit: FitConfig = field(default_factory=fine_tuning)
    """The recipe."""

    def corpus_of(self, provenance: Mapping[str, Any]) -> str:
        """The corpus to train on, by how the model came about.

        Raises:
            ConfigError: nobody names one.
        """
        corpus = self.corpus or provenance.get("corpus")
        if not isinstance(corpus, str):
            fix = "--corpus NAME"
            raise ConfigError("the checkpoint does not say which corpus it was fitted to", where=self.model, fix=fix)
        return corpus

    def examples(self, corpus: str, turns: int) -> dict[str, Sequence[Example]]:
        """The splits of a corpus as text, contexts of at most so many turns.

        Raises:
            DataError: one of them holds no example.
        """
        words = load_pairs(corpus, self.data_root, every_word=True)
        found: dict[str, Sequence[Example]] = {
            split: drawn(read_examples(words, name, turns), self.limit, self.seed, corpus)
            for split, name in SPLITS.items()
        }
        require_splits(corpus, found)
        return found
