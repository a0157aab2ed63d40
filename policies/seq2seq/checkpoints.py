"""Sequence-to-sequence and language models on disk, and the thresholds that their test figures set.

A checkpoint is a folder (`policies/core/checkpoint.py`); a run folder that holds one in `checkpoint` stands for it. Its
provenance has `test_nll`, the nats per word on the test split: T_out = -test_nll of a sequence-to-sequence model,
T_in = -test_nll of a language model (He & Glass 2018, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.policies.core.checkpoint import ModelFormat
from parley.policies.seq2seq.model import LanguageModel, Seq2Seq
from parley.policies.seq2seq.settings import LanguageModelSizes, Seq2SeqSizes
from parley.policies.seq2seq.stacked import build_seq2seq

SEQ2SEQ = ModelFormat("seq2seq", PairVocabulary, Seq2SeqSizes, build_seq2seq)
LANGUAGE_MODEL = ModelFormat("language-model", PairVocabulary, LanguageModelSizes, LanguageModel)
load_seq2seq, load_language_model = SEQ2SEQ.load, LANGUAGE_MODEL.load


def save_model(model: Seq2Seq | LanguageModel, folder: Path, provenance: Mapping[str, Any]) -> None:
    """Stores a model.

    Args:
        model: with its weights.
        folder: the checkpoint's.
        provenance: how it came about; `test_nll` among it is what `threshold` reads.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    if isinstance(model, Seq2Seq):
        SEQ2SEQ.save(model, folder, provenance)
    else:
        LANGUAGE_MODEL.save(model, folder, provenance)


def threshold(folder: Path, kind: ModelFormat[Any, Any, Any]) -> float:
    """Mean log-likelihood of a test word in nats, below 0: T_out or T_in.

    Args:
        folder: a run or checkpoint folder.
        kind: `SEQ2SEQ` or `LANGUAGE_MODEL`.

    Raises:
        CheckpointError: as `load_seq2seq`, or the checkpoint does not say how well the model does on a test split.
    """
    found = kind.provenance(folder).get("test_nll")
    if not isinstance(found, float):
        raise CheckpointError(
            "the checkpoint names no test loss, which sets the threshold of a hit",
            where=folder,
            got=f"test_nll {found!r}",
            fix="train the model with parley train, or give the threshold",
        )
    return -found
