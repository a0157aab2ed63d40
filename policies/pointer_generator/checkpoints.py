"""Pointer-generator networks on disk: a checkpoint folder (`policies/checkpoint.py`), or a run folder that holds one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.pairs.vocabulary import PairVocabulary
from policies.checkpoint import Checkpoint, load_model
from policies.pointer_generator.model import PointerGenerator
from policies.pointer_generator.settings import PointerSizes

POINTER_GENERATOR = "pointer-generator"
"""The kind of these checkpoints."""


def save_pointer_generator(model: PointerGenerator, folder: Path, provenance: Mapping[str, Any]) -> None:
    """Stores a network.

    Args:
        model: with its weights.
        folder: the checkpoint's.
        provenance: how it came about.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    Checkpoint(POINTER_GENERATOR, asdict(model.sizes), dict(provenance), model.vocabulary, model.state_dict()).save(folder)


def load_pointer_generator(folder: Path) -> PointerGenerator:
    """The network of a run or checkpoint folder, in evaluation mode, on the CPU.

    Raises:
        CheckpointError: nothing is there, it is damaged or of another kind, or a weight is not a finite number.
    """
    return load_model(folder, POINTER_GENERATOR, PairVocabulary, PointerSizes, PointerGenerator)
