"""What trainings share that go on exactly where they were: every example is named by its index, and nothing else is drawn.

An algorithm has a module that learns, called by its role, or several, and records beside. A runner plays the examples of given
indices to their end and keeps nothing from one call to the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.framework import get_device
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from torch import Tensor

from parley.engine.core.baseline import DivergenceError
from parley.engine.core.ray.identity import require
from parley.envs.core.seeds import derive_seed

RECORDS = "records"
"""What RLlib's checkpoints call an algorithm's records."""
AHEAD = "ahead"
"""What they call examples that were played ahead."""
STEPS_BEFORE = "num_steps_before_update"
"""Entry of a learner's timesteps: the examples before those of the update, at which schedules are read."""


class ExactConfig(AlgorithmConfig):
    """What all configurations here begin with.

    Attributes:
        own_learner: class of the learner.
        own_module: class of the modules, whose checkpoints a method of the subclass names.
    """

    own_learner: ClassVar[type]
    own_module: ClassVar[type]

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.master_seed = 0
        # Every example is seeded by itself; RLlib's own seeding replays seeds, and its checker seeds all envs alike.
        self.disable_env_checking = True
        # Its thread measures the machine for results that nobody reads, and sleeps on while an algorithm stops.
        self.debugging(log_sys_usage=False)
        self.env_runners(num_env_runners=0)
        self.learners(num_learners=0)
        # RLlib would look twice more for gradients that are not finite, at which the learner has stopped by then.
        self.framework(torch_skip_nan_gradients=True)

    def get_default_learner_class(self) -> type:
        """The learner of ours."""
        return self.own_learner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """A module of ours."""
        return RLModuleSpec(module_class=self.own_module)


class ExactAlgorithm(Algorithm):
    """An algorithm whose state is its learner, its records and its iteration, in `state.py` as in RLlib's checkpoints."""

    role: str
    """The module that learns, or the first of several."""
    own_config: ClassVar[type[ExactConfig]]

    @classmethod
    def get_default_config(cls) -> ExactConfig:
        """A configuration that is still to be told who learns."""
        return cls.own_config(algo_class=cls)

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

    def ahead(self) -> dict[str, np.ndarray]:
        """What was played ahead of the learner, for the next update; nothing where examples wait for its weights."""
        return {}

    def restore_ahead(self, columns: Mapping[str, np.ndarray]) -> None:
        """Takes back what `ahead` gave."""

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state and the records beside it, so that its checkpoints, Tune's among them, go on exactly."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(RECORDS, components, not_components):
            state[RECORDS], state[AHEAD] = deepcopy(self.records()), self.ahead()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave, also where it is older than what is there."""
        group = state.get(COMPONENT_LEARNER_GROUP, {})
        if learner := group.get(COMPONENT_LEARNER):
            newer = {**learner, WEIGHTS_SEQ_NO: self._newer(learner[WEIGHTS_SEQ_NO])}
            state = {**state, COMPONENT_LEARNER_GROUP: {**group, COMPONENT_LEARNER: newer}}
        super().set_state(state)
        if RECORDS in state:
            self.restore_records(state[RECORDS])
            self.restore_ahead(state[AHEAD])

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Takes back an RLlib checkpoint, also where it is older than what is there."""
        super().restore_from_path(path, *args, **kwargs)
        # RLlib reads weights and their number apart, and runners ignore weights whose number is not newer than theirs.
        learner = self.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{WEIGHTS_SEQ_NO}")[COMPONENT_LEARNER]
        number = self._newer(learner[WEIGHTS_SEQ_NO])
        self.learner_group.set_state({COMPONENT_LEARNER: {WEIGHTS_SEQ_NO: number}})
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True, timeout_seconds=None
        )

    def timesteps(self, size: int) -> dict[str, int]:
        """Return the learner's timesteps of this iteration's update, of that many examples."""
        before = self.training_iteration * size
        return {STEPS_BEFORE: before, NUM_ENV_STEPS_SAMPLED_LIFETIME: before + size}

    def _newer(self, number: int) -> int:
        """A number of weights above this one and above that of the runners'."""
        return 1 + max(number, self.env_runner.weights_seq_no())


def open_carried(config: Any) -> None:
    """Makes the models that a configuration carries to its actors stand for their names, before modules are built."""
    if getattr(config, "carried", None) is not None:
        config.carried.open()


class ExactRunner(EnvRunner, Checkpointable):
    """A runner whose only state is its modules."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        open_carried(config)
        self._weights_seq_no = 0
        self.make_env()
        self.make_module()

    def make_module(self) -> None:
        """The modules of the configuration."""
        self.module = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True).build()
        # GPUs are reserved for actors; this process has the driver's. What Ray gives out and torch cannot use is no device.
        has_gpu = bool(self.worker_index) and torch.cuda.is_available()
        self.device = get_device(self.config, self.config.num_gpus_per_env_runner if has_gpu else 0)
        for module in self.module.values():
            module.to(self.device)

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


def summed(values: Tensor) -> Tensor:
    """The sum of a tensor over all learners, which each get."""
    total = values.clone()
    torch.distributed.all_reduce(total)
    return total


def summed_gradients(parameters: Mapping[str, Any], gradients: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Each parameter's gradient, summed over all learners; one that no learner has is left out.

    torch's own data-parallel module waits for ever where one learner has a gradient that another has not.
    """
    counts, pieces = [], []
    for name, parameter in parameters.items():
        gradient = gradients.get(name)
        counts.append(float(gradient is not None))
        pieces.append(torch.zeros_like(parameter) if gradient is None else gradient)
    total = summed(torch.cat([piece.flatten() for piece in pieces])).split([piece.numel() for piece in pieces])
    known = summed(torch.tensor(counts, device=pieces[0].device)).tolist()
    found = zip(parameters, total, pieces, known, strict=True)
    return {name: part.view_as(piece) for name, part, piece, learners in found if learners}


class FiniteLearner(TorchLearner):
    """A learner that stops at a gradient that is not finite; several share a batch and take the same step.

    Rates follow from the configuration and the number of examples alone. RLlib 2.60 keeps the rate of the last update in the
    state, and a restored schedule begins at its first rate.
    """

    def _make_modules_ddp_if_necessary(self) -> None:
        """RLlib would wrap the modules; here gradients are summed in the open (`summed_gradients`)."""

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Set each optimiser's rate to that of its schedule before the update."""
        super().before_gradient_based_update(timesteps=timesteps)
        for optimiser, schedule in self._optimizer_lr_schedules.items():
            self._set_optimizer_lr(optimiser, schedule.update(timestep=timesteps[STEPS_BEFORE]))

    def compute_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """The gradient of the loss.

        Raises:
            DivergenceError: it is not finite; the weights are still those of the update before.
        """
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        if self.config.num_learners > 1:
            gradients = summed_gradients(self._params, gradients)
        # RLlib would skip the update and go on. What is not finite shows in the least or the largest element.
        if not all(bool(torch.stack(each.aminmax()).isfinite().all()) for each in gradients.values() if each is not None):
            raise DivergenceError(
                "the gradient of an update is not finite",
                where="reinforcement learning",
                got=", ".join(f"loss of {name}: {loss.item()}" for name, loss in loss_per_module.items()),
                fix=f"train again with a smaller {self.rates(loss_per_module)}; a reward of your own must be finite",
            )
        return gradients

    def rates(self, modules: Iterable[str]) -> str:
        """Return the settings of the step sizes of some modules, and what they are now, in words."""
        return " or ".join(f"{self.rate_setting(name)} (now {self._rate(name):g})" for name in modules)

    def rate_setting(self, module: str) -> str:
        """Return the name of the setting of a module's step size."""
        return "learning_rate"

    def _rate(self, module: str) -> float:
        (optimiser,) = (optimiser for _, optimiser in self.get_optimizers_for_module(module))
        return float(self._get_optimizer_lr(optimiser))


class SeededLearner(FiniteLearner):
    """A learner whose dropout is named by the examples behind an update, so that a resumed training repeats it exactly."""

    def build(self) -> None:
        """Builds the modules and their optimisers.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        require(self.config.driver)
        open_carried(self.config)
        super().build()

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Derives the seed of an update's dropout."""
        super().before_gradient_based_update(timesteps=timesteps)
        # Each learner's dialogues are others, and so are their draws.
        share = (torch.distributed.get_rank(),) if self.config.num_learners > 1 else ()
        lifetime = timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME]
        self._dropout_seed = derive_seed(self.config.master_seed, "dropout", lifetime, *share)

    def _uncompiled_update(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self._dropout_seed)
            return super()._uncompiled_update(batch, **kwargs)
