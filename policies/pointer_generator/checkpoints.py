"""Pointer-generator networks on disk: a checkpoint folder (`policies/checkpoint.py`), or a run folder that holds one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.core.config import from_dict
from envs.core.errors import CheckpointError, ConfigError
from envs.pairs.vocabulary import PairVocabulary
from policies.checkpoint import Checkpoint
from policies.pointer_generator.model import PointerGenerator
from policies.pointer_generator.settings import PointerSizes

POINTER_GENERATOR = "pointer-generator"
"""The kind of these checkpoints."""

_INSIDE_A_RUN = "checkpoint"


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
    inside = folder / _INSIDE_A_RUN
    checkpoint = Checkpoint.load(inside if inside.is_dir() else folder, POINTER_GENERATOR, PairVocabulary)
    broken = [name for name, value in checkpoint.weights.items() if not value.isfinite().all()]
    if broken:
        raise CheckpointError(
            "the checkpoint's weights are not all finite numbers",
            where=folder,
            got=f"NaN or infinity in {', '.join(broken)}",
            fix="train it again, at a lower learning rate if it diverged",
        )
    try:
        model = PointerGenerator(checkpoint.vocabulary, from_dict(PointerSizes, checkpoint.sizes))
        model.load_state_dict(checkpoint.weights)
    except (TypeError, ConfigError, RuntimeError) as error:
        raise CheckpointError(
            "the checkpoint's weights do not fit its sizes", where=folder, got=str(error)[:200], fix="train it again"
        ) from None
    model.eval()
    return model
