"""Exact training states of an `ExactAlgorithm`, without pickle.

RLlib's own checkpoints are pickles that name our classes, and continue with other random numbers. Here a state is the weights
of each module that learns, its optimiser's state, the algorithm's records, the iteration and what was played ahead of it. As
every example is seeded by its index, that is all there is, and training goes on as if it had never stopped. Where several
modules learn, names of tensors begin with the module's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from torch import Tensor

from parley.engine.core.ray.ray_internals import set_iteration
from parley.engine.core.rllib.reproducible import ExactAlgorithm
from parley.policies.core.checkpoint import load_state, save_state

_AHEAD = "ahead."
"""What names of columns of examples begin with that were played ahead."""


def learned_weights(algorithm: ExactAlgorithm, role: str = "") -> dict[str, Tensor]:
    """The learner's parameters of a module's network, by their names there; of `algorithm.role` where none is named."""
    role = role or algorithm.role
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}/{role}")
    module = state[COMPONENT_LEARNER][COMPONENT_RL_MODULE][role]
    return {name.removeprefix("net."): torch.as_tensor(np.array(value)) for name, value in module.items()}


def save(algorithm: ExactAlgorithm, path: Path) -> None:
    """Writes the training state, whole or not at all.

    Raises:
        CheckpointError: the file cannot be written.
    """
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_OPTIMIZER}")
    optimisers = state[COMPONENT_LEARNER][COMPONENT_OPTIMIZER]
    tensors: dict[str, Tensor] = {}
    for role, prefix in _prefixes(algorithm).items():
        tensors |= {f"{prefix}net.{name}": value for name, value in learned_weights(algorithm, role).items()}
        for index, values in optimisers[_optimiser(role)]["state"]["state"].items():
            entries = {name: torch.as_tensor(value) for name, value in values.items() if value is not None}
            tensors |= {f"{prefix}optimiser.{index}.{name}": value for name, value in entries.items()}
    tensors |= {f"{_AHEAD}{name}": torch.from_numpy(column) for name, column in algorithm.ahead().items()}
    save_state(path, tensors, {"iteration": algorithm.training_iteration, **algorithm.records()})


def restore(algorithm: ExactAlgorithm, path: Path) -> int:
    """Puts a saved state into an algorithm of the same configuration, fresh or not.

    Returns:
        The iterations it has behind it.

    Raises:
        CheckpointError: the file is damaged.
    """
    tensors, counters = load_state(path)
    state: dict[str, Any] = algorithm.learner_group.get_state()
    learner = state[COMPONENT_LEARNER]
    for role, prefix in _prefixes(algorithm).items():
        own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        learner[COMPONENT_RL_MODULE][role] |= {key: value.numpy() for key, value in own.items() if key.startswith("net.")}
        learner[COMPONENT_OPTIMIZER][_optimiser(role)]["state"]["state"] = _entries(own)
    # Runners take only what is newer than what they have.
    learner["weights_seq_no"] += 1
    algorithm.learner_group.set_state(state)
    algorithm.restore_records(counters)
    ahead = {key.removeprefix(_AHEAD): value.numpy() for key, value in tensors.items() if key.startswith(_AHEAD)}
    algorithm.restore_ahead(ahead)
    set_iteration(algorithm, counters["iteration"])
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group, inference_only=True, timeout_seconds=None
    )
    return int(counters["iteration"])


def _entries(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """What an optimiser knows of each parameter."""
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, index, name = key.split(".", 2)
            entries.setdefault(int(index), {})[name] = value
    return entries


def _prefixes(algorithm: ExactAlgorithm) -> dict[str, str]:
    """What names of tensors begin with, by module."""
    return {role: f"{role}." if len(algorithm.roles) > 1 else "" for role in algorithm.roles}


def _optimiser(role: str) -> str:
    return f"{role}_default_optimizer"
