"""Exact training states of an `ExactAlgorithm`, without pickle.

RLlib's own checkpoints are pickles that name our classes, and continue with other random numbers. Here a state is the
learning module's weights, its optimiser's state, the algorithm's records and the iteration: as every example is seeded by its
index, that is all there is, and training goes on as if it had never stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from torch import Tensor

from engine.rllib.exact import ExactAlgorithm
from engine.runtime.ray_internals import set_iteration
from policies.checkpoint import load_state, save_state


def learned_weights(algorithm: ExactAlgorithm) -> dict[str, Tensor]:
    """The learner's network parameters, by their names in the network."""
    role = algorithm.role
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}/{role}")
    module = state[COMPONENT_LEARNER][COMPONENT_RL_MODULE][role]
    return {name.removeprefix("net."): torch.as_tensor(np.array(value)) for name, value in module.items()}


def save(algorithm: ExactAlgorithm, path: Path) -> None:
    """Writes the training state, whole or not at all.

    Raises:
        CheckpointError: the file cannot be written.
    """
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_OPTIMIZER}")
    entries = state[COMPONENT_LEARNER][COMPONENT_OPTIMIZER][_optimiser(algorithm)]["state"]["state"]
    tensors = {f"net.{name}": value for name, value in learned_weights(algorithm).items()}
    for index, values in entries.items():
        tensors |= {f"optimiser.{index}.{name}": torch.as_tensor(value) for name, value in values.items() if value is not None}
    save_state(path, tensors, {"iteration": algorithm.training_iteration, **algorithm.records()})


def restore(algorithm: ExactAlgorithm, path: Path) -> int:
    """Puts a saved state into an algorithm of the same configuration, fresh or not.

    Returns:
        The iterations it has behind it.

    Raises:
        CheckpointError: the file is damaged.
    """
    tensors, counters = load_state(path)
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, index, name = key.split(".", 2)
            entries.setdefault(int(index), {})[name] = value
    weights = {key: value.numpy() for key, value in tensors.items() if key.startswith("net.")}
    state: dict[str, Any] = algorithm.learner_group.get_state()
    learner = state[COMPONENT_LEARNER]
    learner[COMPONENT_RL_MODULE][algorithm.role] |= weights
    learner[COMPONENT_OPTIMIZER][_optimiser(algorithm)]["state"]["state"] = entries
    # Runners take only what is newer than what they have.
    learner["weights_seq_no"] += 1
    algorithm.learner_group.set_state(state)
    algorithm.restore_records(counters)
    set_iteration(algorithm, counters["iteration"])
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group, inference_only=True, timeout_seconds=None
    )
    return int(counters["iteration"])


def _optimiser(algorithm: ExactAlgorithm) -> str:
    return f"{algorithm.role}_default_optimizer"
