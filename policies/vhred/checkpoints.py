"""VHRED on disk: a folder (`policies/checkpoint.py`) of kind `vhred`; a run folder that has one stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envs.core.config import from_dict
from envs.core.errors import CheckpointError, ConfigError
from envs.pairs.vocabulary import PairVocabulary
from policies.checkpoint import Checkpoint
from policies.vhred.model import VHRED
from policies.vhred.settings import VhredSizes

KIND = "vhred"
_INSIDE_A_RUN = "checkpoint"


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
    inside = folder / _INSIDE_A_RUN
    checkpoint = Checkpoint.load(inside if inside.is_dir() else folder, KIND, PairVocabulary)
    broken = [name for name, value in checkpoint.weights.items() if not value.isfinite().all()]
    if broken:
        raise CheckpointError(
            "the checkpoint's weights are not all finite numbers",
            where=folder,
            got=f"NaN or infinity in {', '.join(broken)}",
            fix="train it again, at a lower learning rate if it diverged",
        )
    try:
        model = VHRED(checkpoint.vocabulary, from_dict(VhredSizes, checkpoint.sizes))
        model.load_state_dict(checkpoint.weights)
    except (TypeError, ConfigError, RuntimeError) as error:
        raise CheckpointError(
            "the checkpoint's weights do not fit its sizes", where=folder, got=str(error)[:200], fix="train it again"
        ) from None
    return model.eval()
