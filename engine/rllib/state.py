"""Exact training states of a `DialogueReinforce` algorithm, without pickle.

RLlib's own checkpoints are pickles that name our classes, and continue with other random numbers. Here a state is the
learning module's weights, its optimiser's state, the baselines, the opponents' records and the iteration: as every dialogue is
seeded by its index, that is all there is, and training goes on as if it had never stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from torch import Tensor

from engine.negotiation.reinforce import RunningBaseline
from engine.rllib.algorithm import DialogueReinforce
from engine.runtime.ray_internals import set_iteration
from policies.checkpoint import load_state, save_state


def learned_weights(algorithm: DialogueReinforce) -> dict[str, Tensor]:
    """The learner's network parameters, by their names in `Negotiator`."""
    role = algorithm.roster.role
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}/{role}")
    module = state[COMPONENT_LEARNER][COMPONENT_RL_MODULE][role]
    return {name.removeprefix("net."): torch.as_tensor(np.array(value)) for name, value in module.items()}


def save(algorithm: DialogueReinforce, path: Path) -> None:
    """Writes the training state, whole or not at all.

    Raises:
        CheckpointError: the file cannot be written.
    """
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_OPTIMIZER}")
    entries = state[COMPONENT_LEARNER][COMPONENT_OPTIMIZER][_optimiser(algorithm)]["state"]["state"]
    tensors = {f"net.{name}": value for name, value in learned_weights(algorithm).items()}
    for index, values in entries.items():
        tensors |= {f"optimiser.{index}.{name}": torch.as_tensor(value) for name, value in values.items() if value is not None}
    counters = {
        "iteration": algorithm.training_iteration,
        "baselines": {name: vars(baseline) for name, baseline in algorithm.baselines.items()},
        "wins": algorithm.draw.wins,
    }
    save_state(path, tensors, counters)


def restore(algorithm: DialogueReinforce, path: Path) -> int:
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
    learner[COMPONENT_RL_MODULE][algorithm.roster.role] |= weights
    learner[COMPONENT_OPTIMIZER][_optimiser(algorithm)]["state"]["state"] = entries
    # Runners take only what is newer than what they have.
    learner["weights_seq_no"] += 1
    algorithm.learner_group.set_state(state)
    algorithm.baselines = {name: RunningBaseline(**record) for name, record in counters["baselines"].items()}
    algorithm.draw.restore(counters["wins"])
    set_iteration(algorithm, counters["iteration"])
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group, inference_only=True, timeout_seconds=None
    )
    return int(counters["iteration"])


def _optimiser(algorithm: DialogueReinforce) -> str:
    return f"{algorithm.roster.role}_default_optimizer"
