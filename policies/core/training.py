"""What every supervised training shares: its precision, when it has diverged, and the state it goes on from.

The loop itself is `policies/core/fitting/loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from parley.envs.core.errors import ConfigError
from parley.policies.core.checkpoint import flatten_optimiser, load_state, restore_optimiser, save_state

DIVERGED = 100.0
"""Loss in nats that no model has which still learns: guessing costs the logarithm of the number of words."""

Precision = Literal["float32", "bfloat16", "auto"]
Progress = Callable[[int, int, int], None]
"""Called after each batch with (epoch, batches done, batches in all)."""


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """A block whose matrix products are of a precision that was chosen: anything but bfloat16 leaves them as they are."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def require_bounded(loss: float, where: str, learning_rate: float, clip: float) -> None:
    """Stops a training whose loss has left all bounds.

    Args:
        loss: of a batch or of the validation, in nats.
        where: epoch and batch, or validation.
        learning_rate: in force.
        clip: largest norm of a gradient.

    Raises:
        ConfigError: the loss is not a number below `DIVERGED`.
    """
    if not loss < DIVERGED:
        raise ConfigError(
            "the training has diverged",
            where=where,
            got=f"a loss of {loss:g}",
            fix=f"lower learning_rate (now {learning_rate:g}) or clip (now {clip:g})",
        )


def copied_weights(model: nn.Module) -> dict[str, Tensor]:
    """A model's weights as they are now."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def save_training(
    path: Path, model: nn.Module, best: Mapping[str, Tensor], optimiser: torch.optim.Optimizer, counters: Mapping[str, Any]
) -> None:
    """Writes all that a training goes on from: weights, the best weights so far, the optimiser and counters (JSON types).

    Raises:
        CheckpointError: the file cannot be written; the previous state stays as it was.
    """
    tensors, numbers = flatten_optimiser(optimiser)
    tensors |= {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    save_state(path, tensors, {**counters, "optimiser": numbers})


@dataclass(frozen=True)
class SavedTraining:
    """What `save_training` wrote, beside the weights.

    Args:
        best: the best weights so far.
        counters: as they were given.
    """

    best: dict[str, Tensor]
    counters: dict[str, Any]
    _tensors: dict[str, Tensor]

    def restore(self, optimiser: torch.optim.Optimizer) -> None:
        """Puts the optimiser's state back; its settings stay."""
        restore_optimiser(optimiser, self._tensors, self.counters["optimiser"])


def load_training(path: Path, model: nn.Module) -> SavedTraining:
    """Reads what `save_training` wrote; the model takes its weights.

    Raises:
        CheckpointError: the file is damaged.
    """
    tensors, counters = load_state(path)
    model.load_state_dict(_named(tensors, "model."))
    return SavedTraining(_named(tensors, "best."), counters, tensors)


def _named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
