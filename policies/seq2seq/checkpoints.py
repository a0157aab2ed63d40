"""Sequence-to-sequence and language models on disk, and the thresholds that their test figures set.

A checkpoint is a folder (`policies/checkpoint.py`); a run folder that holds one in `checkpoint` stands for it. Its
provenance has `test_nll`, the nats per word on the test split: T_out = -test_nll of a sequence-to-sequence model,
T_in = -test_nll of a language model (He & Glass 2018, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.core.errors import CheckpointError
from envs.pairs.vocabulary import PairVocabulary
from policies.checkpoint import Checkpoint, load_inside, load_model
from policies.seq2seq.model import LanguageModel, Seq2Seq
from policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes

SEQ2SEQ, LANGUAGE_MODEL = "seq2seq", "language-model"
"""Kinds of checkpoints."""


def save_model(model: Seq2Seq | LanguageModel, folder: Path, provenance: Mapping[str, Any]) -> None:
    """Stores a model.

    Args:
        model: with its weights.
        folder: the checkpoint's.
        provenance: how it came about; `test_nll` among it is what `threshold` reads.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    kind = SEQ2SEQ if isinstance(model, Seq2Seq) else LANGUAGE_MODEL
    Checkpoint(kind, asdict(model.sizes), dict(provenance), model.vocabulary, model.state_dict()).save(folder)


def load_seq2seq(folder: Path) -> Seq2Seq:
    """The model of a run or checkpoint folder, in evaluation mode, on the CPU.

    Raises:
        CheckpointError: nothing is there, it is damaged or of another kind, or a weight is not a finite number.
    """
    return load_model(folder, SEQ2SEQ, PairVocabulary, Seq2SeqSizes, Seq2Seq)


def load_language_model(folder: Path) -> LanguageModel:
    """As `load_seq2seq`, for a language model."""
    return load_model(folder, LANGUAGE_MODEL, PairVocabulary, LanguageModelSizes, LanguageModel)


def threshold(folder: Path, kind: str) -> float:
    """Mean log-likelihood of a test word in nats, below 0: T_out or T_in.

    Args:
        folder: a run or checkpoint folder.
        kind: `SEQ2SEQ` or `LANGUAGE_MODEL`.

    Raises:
        CheckpointError: as `load_seq2seq`, or the checkpoint does not say how well the model does on a test split.
    """
    found = load_inside(folder, kind, PairVocabulary).provenance.get("test_nll")
    if not isinstance(found, float):
        raise CheckpointError(
            "the checkpoint names no test loss, which sets the threshold of a hit",
            where=folder,
            got=f"test_nll {found!r}",
            fix="train the model with parley train, or give the threshold",
        )
    return -found
