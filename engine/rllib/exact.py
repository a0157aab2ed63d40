"""What trainings share that go on exactly where they were: every example is named by its index, and nothing else is drawn.

An algorithm has a module that learns, called by its role, or several, and records beside. A runner plays the examples of given
indices to their end and keeps nothing from one call to the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import COMPONENT_RL_MODULE
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from torch import Tensor

from engine.negotiation.reinforce import DivergenceError
from envs.core.seeds import derive_seed


class ExactAlgorithm(Algorithm):
    """An algorithm whose state is its learner, its records and its iteration (`state.py`)."""

    role: str
    """The module that learns, or the first of several."""

    @property
    def roles(self) -> tuple[str, ...]:
        """All modules that learn."""
        return (self.role,)

    @abstractmethod
    def records(self) -> dict[str, Any]:
        """What it remembers beside weights and optimiser, as JSON types."""

    @abstractmethod
    def restore_records(self, records: Mapping[str, Any]) -> None:
        """Takes back what `records` gave."""


class ExactRunner(EnvRunner, Checkpointable):
    """A runner whose only state is its modules."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self._weights_seq_no = 0
        self.make_env()
        self.make_module()

    def make_module(self) -> None:
        """The modules of the configuration."""
        self.module = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True).build()

    def take(self, names: Collection[str]) -> None:
        """Called with the names of modules that have new weights."""

    def assert_healthy(self) -> None:
        """RLlib's question after a restart."""
        assert self.env is not None
        assert self.module is not None

    def get_metrics(self) -> Any:
        """Nothing of ours: figures of examples come with the examples."""
        return self.metrics.reduce()

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """The modules' state and its sequence number; examples carry no state from one call to the next."""
        state: dict[str, Any] = {}
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(
                components=self._get_subcomponents(COMPONENT_RL_MODULE, components),
                not_components=self._get_subcomponents(COMPONENT_RL_MODULE, not_components),
                **kwargs,
            )
            state[WEIGHTS_SEQ_NO] = self._weights_seq_no
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes newer weights; equal or older sequence numbers are ignored, 0 forces."""
        if COMPONENT_RL_MODULE not in state:
            return
        number = state.get(WEIGHTS_SEQ_NO, 0)
        if number == 0 or number > self._weights_seq_no:
            weights = state[COMPONENT_RL_MODULE]
            weights = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
            self.module.set_state(weights)
            self.take(weights)
        self._weights_seq_no = max(self._weights_seq_no, number)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[()], dict[str, Any]]:
        """What builds another runner like this one."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The modules."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def weights_seq_no(self) -> int:
        """Sequence number of the weights in use."""
        return self._weights_seq_no


class FiniteLearner(TorchLearner):
    """A learner that stops at a gradient that is not finite."""

    def compute_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """The gradient of the loss.

        Raises:
            DivergenceError: it is not finite; the weights are still those of the update before.
        """
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        # RLlib would put zeros in its place and go on.
        if not all(bool(gradient.isfinite().all()) for gradient in gradients.values() if gradient is not None):
            raise DivergenceError(
                "the gradient of an update is not finite",
                where="reinforcement learning",
                got=", ".join(f"loss of {name}: {loss.item()}" for name, loss in loss_per_module.items()),
                fix=f"train again with a smaller learning_rate (now {self.config.lr:g}); a reward of your own must be finite",
            )
        return gradients


class SeededLearner(FiniteLearner):
    """A learner whose dropout is named by the examples behind an update, so that a resumed training repeats it exactly."""

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Derives the seed of an update's dropout."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._dropout_seed = derive_seed(self.config.master_seed, "dropout", timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME])

    def _uncompiled_update(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self._dropout_seed)
            return super()._uncompiled_update(batch, **kwargs)
