"""VHRED on disk: a folder (`policies/checkpoint.py`) of kind `vhred`; a run folder that has one stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.pairs.vocabulary import PairVocabulary
from policies import checkpoint
from policies.checkpoint import Checkpoint
from policies.vhred.model import VHRED
from policies.vhred.settings import VhredSizes

KIND = "vhred"


def save_model(model: VHRED, folder: Path, provenance: Mapping[str, Any]) -> None:
    """Stores a model.

    Args:
        model: with its weights.
        folder: the checkpoint's.
        provenance: how it came about.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    Checkpoint(KIND, asdict(model.sizes), dict(provenance), model.vocabulary, model.state_dict()).save(folder)


def load_model(folder: Path) -> VHRED:
    """The model of a run or checkpoint folder, in evaluation mode, on the CPU.

    Raises:
        CheckpointError: nothing is there, it is damaged or of another kind, or a weight is not a finite number.
    """
    return checkpoint.load_model(folder, KIND, PairVocabulary, VhredSizes, VHRED)
