"""RLlib algorithms (new API stack) that resume exactly: the base classes, their saved state, and REINFORCE over actions.

Every example has an index, and every draw in it follows from the master seed and that index. A runner plays the examples of
given indices to their end and keeps nothing between calls. So the whole state is the weights of each module that learns, the
state of its optimiser, the algorithm's records, the iteration, and examples played ahead. `save` and `restore` store it
without pickle, and training continues as if it had never stopped; if several modules learn, names of tensors begin with the
module's. RLlib's own checkpoints are pickles that name our classes, and continue with other random numbers.

`ActionReinforce` trains a policy that chooses among actions. An iteration plays `examples_per_update` examples together, in
this process, and makes one update by REINFORCE; iteration i plays examples i N .. (i + 1) N - 1. RLlib's stock runner would
draw from a generator that no checkpoint holds. The systems define the game: edits of replies, lies about friends.

Shapes: N examples, M steps in all, A actions, F features.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import ray
import torch
from gymnasium import Space
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.framework import get_device
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME, WEIGHTS_SEQ_NO
from torch import Tensor

from parley.engine.core.ray import ray_internals
from parley.engine.core.ray.identity import require
from parley.envs.core.errors import ParleyError
from parley.envs.core.seeds import derive_seed
from parley.policies.core.checkpoint import ActionScorer, drawn_actions, load_state, save_state
from parley.policies.core.settings import ChoiceLearning

ray_internals.read_callers_alone()


class DivergenceError(ParleyError):
    """A reward, a loss or a gradient is no longer a finite number."""


@dataclass
class RunningBaseline:
    """Mean and deviation of all rewards so far, with the newest, as in the released code."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def center(self, rewards_N: np.ndarray, scaling: str) -> np.ndarray:
        """Add the rewards to the record, and return them minus the mean, scaled as in `ReinforceConfig.scaling`.

        Returns:
            (N,) float64.
        """
        self.count += len(rewards_N)
        self.total += float(rewards_N.sum())
        self.squares += float((rewards_N**2).sum())
        mean = self.total / self.count
        centered = rewards_N - mean
        if scaling == "sign":
            return np.sign(centered)
        if scaling == "deviation":
            deviation = math.sqrt(max(self.squares / self.count - mean**2, 0.0))
            return centered / max(1e-4, deviation)
        return centered


RECORDS = "records"
"""Name of an algorithm's records in RLlib's checkpoints."""
AHEAD = "ahead"
"""Name of examples that were played ahead, in the same."""
STEPS_BEFORE = "num_steps_before_update"
"""Entry of a learner's timesteps: number of examples before those of the update; schedules use it."""


class ReproducibleConfig(AlgorithmConfig):
    """The base of all configurations here.

    Attributes:
        own_learner: class of the learner.
        own_module: class of the modules; a method of the subclass names their checkpoints.
    """

    own_learner: ClassVar[type]
    own_module: ClassVar[type]

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.master_seed = 0
        # Every example has its own seed; RLlib's seeding repeats seeds, and its checker seeds all environments alike.
        self.disable_env_checking = True
        # Its thread measures the machine for unread results, and sleeps on while an algorithm stops.
        self.debugging(log_sys_usage=False)
        self.env_runners(num_env_runners=0)
        self.learners(num_learners=0)
        # RLlib would check twice more for gradients that are not finite, but the learner stops at them first.
        self.framework(torch_skip_nan_gradients=True)

    def get_default_learner_class(self) -> type:
        """Return the learner class."""
        return self.own_learner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of a module."""
        return RLModuleSpec(module_class=self.own_module)


class ReproducibleAlgorithm(Algorithm):
    """An algorithm whose state is its learner, its records and its iteration, also in RLlib's checkpoints."""

    role: str
    """The name of the module that learns, or of the first of several."""
    own_config: ClassVar[type[ReproducibleConfig]]

    @classmethod
    def get_default_config(cls) -> ReproducibleConfig:
        """Return a configuration that does not name its learner yet."""
        return cls.own_config(algo_class=cls)

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of all modules that learn."""
        return (self.role,)

    @abstractmethod
    def records(self) -> dict[str, Any]:
        """Return the state beside weights and optimiser, as JSON types."""

    @abstractmethod
    def restore_records(self, records: Mapping[str, Any]) -> None:
        """Restore the result of `records`."""

    def ahead(self) -> dict[str, np.ndarray]:
        """Return columns of examples played ahead of the learner, for the next update; empty by default."""
        return {}

    def restore_ahead(self, columns: Mapping[str, np.ndarray]) -> None:
        """Restore the result of `ahead`."""

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return RLlib's state with the records, so that its checkpoints, and Tune's, resume exactly."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(RECORDS, components, not_components):
            state[RECORDS], state[AHEAD] = deepcopy(self.records()), self.ahead()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `get_state`, even if it is older than the present state."""
        group = state.get(COMPONENT_LEARNER_GROUP, {})
        if learner := group.get(COMPONENT_LEARNER):
            newer = {**learner, WEIGHTS_SEQ_NO: self._newer(learner[WEIGHTS_SEQ_NO])}
            state = {**state, COMPONENT_LEARNER_GROUP: {**group, COMPONENT_LEARNER: newer}}
        super().set_state(state)
        if RECORDS in state:
            self.restore_records(state[RECORDS])
            self.restore_ahead(state[AHEAD])

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Restore an RLlib checkpoint, even if it is older than the present state."""
        super().restore_from_path(path, *args, **kwargs)
        # RLlib reads weights and their number separately, and runners ignore weights whose number is not newer than theirs.
        learner = self.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{WEIGHTS_SEQ_NO}")[COMPONENT_LEARNER]
        number = self._newer(learner[WEIGHTS_SEQ_NO])
        self.learner_group.set_state({COMPONENT_LEARNER: {WEIGHTS_SEQ_NO: number}})
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True, timeout_seconds=None
        )

    def timesteps(self, size: int) -> dict[str, int]:
        """Return the learner's timesteps of this iteration's update, for `size` examples."""
        before = self.training_iteration * size
        return {STEPS_BEFORE: before, NUM_ENV_STEPS_SAMPLED_LIFETIME: before + size}

    def _newer(self, number: int) -> int:
        return 1 + max(number, self.env_runner.weights_seq_no())


def open_carried(config: Any) -> None:
    """Make the models that a configuration carries to its actors available by name, before modules are built."""
    if getattr(config, "carried", None) is not None:
        config.carried.open()


class ReproducibleRunner(EnvRunner, Checkpointable):
    """A runner whose only state is its modules."""

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        open_carried(config)
        self._weights_seq_no = 0
        self.make_env()
        self.make_module()

    def make_module(self) -> None:
        """Build the modules of the configuration."""
        self.module = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True).build()
        # GPUs are reserved for actors; this process has the driver's. A GPU that torch cannot use does not count.
        has_gpu = bool(self.worker_index) and torch.cuda.is_available()
        self.device = get_device(self.config, self.config.num_gpus_per_env_runner if has_gpu else 0)
        for module in self.module.values():
            module.to(self.device)

    def take(self, names: Collection[str]) -> None:
        """Note the names of modules that have new weights; by default do nothing."""

    def assert_healthy(self) -> None:
        """Check the runner after a restart, for RLlib."""
        assert self.env is not None
        assert self.module is not None

    def get_metrics(self) -> Any:
        """Return RLlib's own metrics: figures of examples come with the examples."""
        return self.metrics.reduce()

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the modules' state and its sequence number; nothing else is kept between calls."""
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
        """Take newer weights; equal or older sequence numbers are ignored, 0 forces."""
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
        """Return the arguments that build another runner like this one."""
        return (), {"config": self.config}

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """Return the modules."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def weights_seq_no(self) -> int:
        """Return the sequence number of the weights in use."""
        return self._weights_seq_no


def summed(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all learners, to each of them."""
    total = values.clone()
    torch.distributed.all_reduce(total)
    return total


def summed_gradients(parameters: Mapping[str, Any], gradients: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Return the gradient of each parameter, summed over all learners; parameters without any gradient are left out.

    torch's own data-parallel module waits for ever if one learner has a gradient that another has not.
    """
    counts, pieces = [], []
    for name, parameter in parameters.items():
        gradient = gradients.get(name)
        counts.append(float(gradient is not None))
        pieces.append(torch.zeros_like(parameter) if gradient is None else gradient)
    total = summed(torch.cat([piece.flatten() for piece in pieces])).split([piece.numel() for piece in pieces])
    num_learners = summed(torch.tensor(counts, device=pieces[0].device)).tolist()
    summed_parts = zip(parameters, total, pieces, num_learners, strict=True)
    return {name: part.view_as(piece) for name, part, piece, learners in summed_parts if learners}


class FiniteLearner(TorchLearner):
    """A learner that stops at a gradient that is not finite; several share a batch and take the same step.

    Rates follow from the configuration and the number of examples alone. RLlib 2.60 keeps the last update's rate in the state,
    and a restored schedule begins at its first rate.
    """

    def _make_modules_ddp_if_necessary(self) -> None:
        """Do nothing: RLlib would wrap the modules; here `summed_gradients` sums the gradients."""

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Set each optimiser's rate to that of its schedule before the update."""
        super().before_gradient_based_update(timesteps=timesteps)
        for optimiser, schedule in self._optimizer_lr_schedules.items():
            self._set_optimizer_lr(optimiser, schedule.update(timestep=timesteps[STEPS_BEFORE]))

    def compute_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return the gradient of the loss.

        Raises:
            DivergenceError: it is not finite; the weights are those before the update.
        """
        gradients = self.own_gradients(loss_per_module, **kwargs)
        if self.config.num_learners > 1:
            gradients = summed_gradients(self._params, gradients)
        # RLlib would skip the update and continue. A number that is not finite shows in the smallest or largest element.
        if not all(bool(torch.stack(grad.aminmax()).isfinite().all()) for grad in gradients.values() if grad is not None):
            raise DivergenceError(
                "the gradient of an update is not finite",
                where="reinforcement learning",
                got=", ".join(f"loss of {name}: {loss.item()}" for name, loss in loss_per_module.items()),
                fix=f"train again with a smaller {self.rates(loss_per_module)}; a reward of your own must be finite",
            )
        return gradients

    def own_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return the gradient of this learner's loss, by torch's reference of each weight."""
        gradients: dict[str, Tensor] = super().compute_gradients(loss_per_module, **kwargs)
        return gradients

    def rates(self, modules: Iterable[str]) -> str:
        """Return the settings of the step sizes of some modules, with their present values, in words."""
        return " or ".join(f"{self.rate_setting(name)} (now {self._rate(name):g})" for name in modules)

    def rate_setting(self, module: str) -> str:
        """Return the name of the setting of a module's step size."""
        return "learning_rate"

    def _rate(self, module: str) -> float:
        (optimiser,) = (optimiser for _, optimiser in self.get_optimizers_for_module(module))
        return float(self._get_optimizer_lr(optimiser))


class SeededLearner(FiniteLearner):
    """A learner whose dropout is seeded by the examples behind an update, so that a resumed training repeats it exactly."""

    def build(self) -> None:
        """Build the modules and their optimisers.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        require(self.config.driver)
        open_carried(self.config)
        super().build()

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Derive the seed of an update's dropout."""
        super().before_gradient_based_update(timesteps=timesteps)
        # Learners have different dialogues, and so different draws.
        share = (torch.distributed.get_rank(),) if self.config.num_learners > 1 else ()
        lifetime = timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME]
        self._dropout_seed = derive_seed(self.config.master_seed, "dropout", lifetime, *share)

    def _uncompiled_update(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self._dropout_seed)
            return super()._uncompiled_update(batch, **kwargs)


_AHEAD = "ahead."
"""Prefix of the names of columns of examples that were played ahead."""


def learned_weights(algorithm: ReproducibleAlgorithm, role: str = "") -> dict[str, Tensor]:
    """Return the learner's parameters of a module's network by name; of `algorithm.role` by default."""
    role = role or algorithm.role
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}/{role}")
    module = state[COMPONENT_LEARNER][COMPONENT_RL_MODULE][role]
    return {name.removeprefix("net."): torch.as_tensor(np.array(value)) for name, value in module.items()}


def save(algorithm: ReproducibleAlgorithm, path: Path) -> None:
    """Write the training state, whole or not at all.

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


def restore(algorithm: ReproducibleAlgorithm, path: Path) -> int:
    """Load a saved state into an algorithm of the same configuration, fresh or not.

    Returns:
        The number of iterations it has done.

    Raises:
        CheckpointError: the file is damaged.
    """
    tensors, counters = load_state(path)
    state: dict[str, Any] = algorithm.learner_group.get_state()
    learner = state[COMPONENT_LEARNER]
    for role, prefix in _prefixes(algorithm).items():
        entries = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        learner[COMPONENT_RL_MODULE][role] |= {key: value.numpy() for key, value in entries.items() if key.startswith("net.")}
        learner[COMPONENT_OPTIMIZER][_optimiser(role)]["state"]["state"] = _entries(entries)
    # Runners only take weights newer than their own.
    learner["weights_seq_no"] += 1
    algorithm.learner_group.set_state(state)
    algorithm.restore_records(counters)
    ahead = {key.removeprefix(_AHEAD): value.numpy() for key, value in tensors.items() if key.startswith(_AHEAD)}
    algorithm.restore_ahead(ahead)
    ray_internals.set_iteration(algorithm, counters["iteration"])
    algorithm.env_runner_group.sync_weights(
        from_worker_or_learner_group=algorithm.learner_group, inference_only=True, timeout_seconds=None
    )
    return int(counters["iteration"])


def _entries(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Return an optimiser's entries for each parameter."""
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimiser."):
            _, index, name = key.split(".", 2)
            entries.setdefault(int(index), {})[name] = value
    return entries


def _prefixes(algorithm: ReproducibleAlgorithm) -> dict[str, str]:
    return {role: f"{role}." if len(algorithm.roles) > 1 else "" for role in algorithm.roles}


def _optimiser(role: str) -> str:
    return f"{role}_default_optimizer"


CHOOSER = "chooser"
"""The name of the module that learns."""
STEP = ("actions", "action_mask", "taken", "rewards", "step", "example")
"""Columns of steps; the other columns of a sample are of examples."""


class ChooserModule(TorchRLModule):
    """RLModule around a policy; it reads the observations of its environment, so RLlib's own runners can use it, too.

    Model config: `checkpoint`, the folder of the start.
    """

    @abstractmethod
    def load(self, folder: Path) -> ActionScorer:
        """Return the policy of a checkpoint."""

    def setup(self) -> None:
        """Load the policy of the checkpoint."""
        self.net = self.load(Path(self.model_config["checkpoint"]))

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        observations = batch[Columns.OBS]
        return {Columns.ACTION_DIST_INPUTS: self.net(observations["actions"], observations["action_mask"])}


class ActionRunner(ReproducibleRunner):
    """A runner that plays all examples of an update together; `env` has the spaces."""

    def make_env(self) -> None:
        """Make the environment."""
        self.env = self.config.make_env()

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space of the module."""
        return {CHOOSER: (self.env.observation_space, self.env.action_space)}

    @abstractmethod
    def play(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """Play some examples and return the columns of `sample`."""

    def sample(self, *, indices: Sequence[int] = (), **_: Any) -> dict[str, Any]:
        """Play some examples.

        Returns:
            Columns of all steps (M, ...): `actions` (M, A, F), `action_mask` (M, A), `taken` (M,), `rewards` (M,), `step` and
            `example` (M,), the position in `indices`; columns of all examples: `tried` (N,), whether there was anything to
            choose, and figures (N,).
        """
        return self.play(indices)

    def drawn(self, seen: np.ndarray, masks: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return an action for each row, from the policy and a uniform number."""
        batch = {Columns.OBS: {"actions": torch.from_numpy(seen), "action_mask": torch.from_numpy(masks)}}
        with torch.no_grad():
            scores = self.module[CHOOSER].forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
        return drawn_actions(scores, shares)


class ActionLearner(FiniteLearner):
    """REINFORCE with a bonus for entropy."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Return minus the mean of return times log-probability, minus `entropy_weight` times the entropy."""
        log_probs = fwd_out[Columns.ACTION_DIST_INPUTS].log_softmax(-1)
        taken = log_probs.gather(1, batch["taken"].long()[:, None]).squeeze(1)
        entropy = -(log_probs.exp() * log_probs.clamp(min=-100.0)).sum(-1).mean()
        loss: Tensor = -(taken * batch["returns"]).mean() - self.config.learning.entropy_weight * entropy
        self.metrics.log_value((module_id, "entropy"), entropy.item(), window=1)
        return loss


class ActionReinforceConfig(ReproducibleConfig):
    """Configuration of `ActionReinforce`; `choosing()` holds our own settings."""

    own_learner, own_module = ActionLearner, ChooserModule

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ActionReinforce)
        self.learning = ChoiceLearning()
        self.make_env: Callable[[], Any] = object

    def choosing(
        self,
        *,
        learning: ChoiceLearning,
        make_env: Callable[[], Any],
        runner: type[ActionRunner],
        module: type[ChooserModule],
        checkpoint: str,
        seed: int,
    ) -> ActionReinforceConfig:
        """Set the learner and its task.

        Args:
            learning: settings of the learning rule.
            make_env: makes the environment, with the frozen model in it.
            runner: class of the env runner.
            module: class of the policy's module.
            checkpoint: folder of the policy at the start.
            seed: master seed.
        """
        self.learning, self.make_env, self.master_seed = learning, make_env, seed
        self.env_runners(env_runner_cls=runner)
        self.multi_agent(policies=[CHOOSER], policy_mapping_fn=_chooser, policies_to_train=[CHOOSER])
        spec = RLModuleSpec(module_class=module, model_config={"checkpoint": checkpoint})
        self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={CHOOSER: spec}))
        self.training(lr=learning.learning_rate, grad_clip=learning.clip, grad_clip_by="global_norm")
        return self


def _chooser(*_: Any, **__: Any) -> str:
    return CHOOSER


class ActionReinforce(ReproducibleAlgorithm):
    """REINFORCE over single choices: each action is one item of a finite set."""

    role, own_config = CHOOSER, ActionReinforceConfig

    def setup(self, config: AlgorithmConfig) -> None:
        """Build runner and learner."""
        super().setup(config)
        self.baselines: list[RunningBaseline] = []
        """Baselines of the returns at each step that was reached."""
        self.last: dict[str, Any] = {}
        """Figures of the newest iteration."""

    def records(self) -> dict[str, Any]:
        return {"baselines": [vars(baseline) for baseline in self.baselines]}

    def restore_records(self, records: Mapping[str, Any]) -> None:
        self.baselines = [RunningBaseline(**record) for record in records["baselines"]]

    def training_step(self) -> None:
        """Do one iteration: play, learn, send the new weights to the runner.

        Raises:
            DivergenceError: the gradient is not finite.
        """
        started, size = time.monotonic(), self.config.learning.examples_per_update
        first = self.training_iteration * size
        played = self.env_runner.sample(indices=range(first, first + size))
        sampled, tried = time.monotonic(), played["tried"]
        figures = {name: values for name, values in played.items() if name not in (*STEP, "tried")}
        self.last = {
            **{name: float(values[tried].mean()) if tried.any() else 0.0 for name, values in figures.items()},
            "tried": int(tried.sum()),
            "reward": float(played["rewards"].sum() / tried.sum()) if tried.any() else 0.0,
            "seconds_sampling": sampled - started,
        }
        if tried.any():
            self._learn(played, size)
        self.last["seconds"] = time.monotonic() - started
        for name, value in self.last.items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    def _learn(self, played: Mapping[str, np.ndarray], num_examples: int) -> None:
        observed = {name: played[name] for name in ("actions", "action_mask")}
        returns = self._centered(rewards_to_go(played["rewards"], played["example"]), played["step"])
        rows = SampleBatch({Columns.OBS: observed, "taken": played["taken"], "returns": returns})
        batch = MultiAgentBatch({CHOOSER: rows}, env_steps=len(returns))
        learned = self.learner_group.update(batch=batch, timesteps=self.timesteps(num_examples))
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True, timeout_seconds=None
        )

    def _centered(self, returns: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return returns (M,) minus the mean at their step, in deviations of it."""
        centered = np.empty(len(returns), dtype=np.float32)
        for number in np.unique(steps).tolist():
            while len(self.baselines) <= number:
                self.baselines.append(RunningBaseline())
            at = steps == number
            centered[at] = self.baselines[number].center(returns[at].astype(np.float64), "deviation")
        return centered


def rewards_to_go(rewards: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """Return the sum of an example's rewards from each step on, (M,) float64.

    Args:
        rewards: (M,) rewards, an example's steps in their order.
        examples: (M,) the example of each step.
    """
    remaining: dict[int, float] = {}
    sums = np.empty(len(rewards))
    for index in range(len(rewards) - 1, -1, -1):
        example = int(examples[index])
        sums[index] = remaining[example] = float(rewards[index]) + remaining.get(example, 0.0)
    return sums
