"""What trainings share that go on exactly where they were: every example is named by its index, and nothing else is drawn.

An algorithm has a module that learns, called by its role, or several, and records beside. A runner plays the examples of given
indices to their end and keeps nothing from one call to the next.

What every learner by REINFORCE shares: the running baseline of rewards, and the error of one that has diverged.

Exact training states of an `ReproducibleAlgorithm`, without pickle.

RLlib's own checkpoints are pickles that name our classes, and continue with other random numbers. Here a state is the weights
of each module that learns, its optimiser's state, the algorithm's records, the iteration and what was played ahead of it. As
every example is seeded by its index, that is all there is, and training goes on as if it had never stopped. Where several
modules learn, names of tensors begin with the module's.

Training of a policy that chooses among actions, step by step, as an RLlib algorithm (new API stack).

An iteration plays `examples_per_update` examples side by side, in this process, and makes one update by REINFORCE. Iteration i
plays examples i N .. (i + 1) N - 1; which example that is, and every draw in it, follows from the master seed and its index, so
that a training goes on exactly where it was (`state.py`). RLlib's stock runner would draw from a generator that no checkpoint
holds. What is played is not known here: see `editing.py` (edits of replies) and `lying.py` (lies about friends).
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

from parley.engine.core.ray.identity import require
from parley.engine.core.ray.ray_internals import set_iteration
from parley.envs.core.errors import ParleyError
from parley.envs.core.seeds import derive_seed
from parley.policies.core.checkpoint import ActionScorer, drawn_actions, load_state, save_state
from parley.policies.core.settings import ChoiceLearning


class DivergenceError(ParleyError):
    """A reward, a loss or a gradient is no longer a finite number."""


@dataclass
class RunningBaseline:
    """Mean and deviation of all rewards so far, the newest included, as in the released code."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def center(self, rewards_N: np.ndarray, scaling: str) -> np.ndarray:
        """Adds the rewards to the record and returns them less the mean, scaled as `ReinforceConfig.scaling` says.

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
"""What RLlib's checkpoints call an algorithm's records."""
AHEAD = "ahead"
"""What they call examples that were played ahead."""
STEPS_BEFORE = "num_steps_before_update"
"""Entry of a learner's timesteps: the examples before those of the update, at which schedules are read."""


class ReproducibleConfig(AlgorithmConfig):
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


class ReproducibleAlgorithm(Algorithm):
    """An algorithm whose state is its learner, its records and its iteration, in `state.py` as in RLlib's checkpoints."""

    role: str
    """The module that learns, or the first of several."""
    own_config: ClassVar[type[ReproducibleConfig]]

    @classmethod
    def get_default_config(cls) -> ReproducibleConfig:
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


class ReproducibleRunner(EnvRunner, Checkpointable):
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


_AHEAD = "ahead."
"""What names of columns of examples begin with that were played ahead."""


def learned_weights(algorithm: ReproducibleAlgorithm, role: str = "") -> dict[str, Tensor]:
    """The learner's parameters of a module's network, by their names there; of `algorithm.role` where none is named."""
    role = role or algorithm.role
    state = algorithm.learner_group.get_state(components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}/{role}")
    module = state[COMPONENT_LEARNER][COMPONENT_RL_MODULE][role]
    return {name.removeprefix("net."): torch.as_tensor(np.array(value)) for name, value in module.items()}


def save(algorithm: ReproducibleAlgorithm, path: Path) -> None:
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


def restore(algorithm: ReproducibleAlgorithm, path: Path) -> int:
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


def _prefixes(algorithm: ReproducibleAlgorithm) -> dict[str, str]:
    """What names of tensors begin with, by module."""
    return {role: f"{role}." if len(algorithm.roles) > 1 else "" for role in algorithm.roles}


def _optimiser(role: str) -> str:
    return f"{role}_default_optimizer"


CHOOSER = "chooser"
"""The module that learns."""
STEP = ("actions", "action_mask", "taken", "rewards", "step", "example")
"""Columns of steps; the others of a sample are of examples."""


class ChooserModule(TorchRLModule):
    """RLModule around a policy; observations are those of its environment, so that RLlib's own runners can use it too.

    Model config: `checkpoint`, the folder that it starts from.
    """

    @abstractmethod
    def load(self, folder: Path) -> ActionScorer:
        """The policy of a checkpoint."""

    def setup(self) -> None:
        """Loads the policy of the checkpoint."""
        self.net = self.load(Path(self.model_config["checkpoint"]))

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Scores (B, A) whose softmax is the policy."""
        seen = batch[Columns.OBS]
        return {Columns.ACTION_DIST_INPUTS: self.net(seen["actions"], seen["action_mask"])}


class ActionRunner(ReproducibleRunner):
    """Plays examples, all of an update side by side; `env` has the spaces."""

    def make_env(self) -> None:
        """What is played."""
        self.env = self.config.make_env()

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Observation and action space of the module."""
        return {CHOOSER: (self.env.observation_space, self.env.action_space)}

    @abstractmethod
    def play(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """Plays some examples; the same as `sample`."""

    def sample(self, *, indices: Sequence[int] = (), **_: Any) -> dict[str, Any]:
        """Plays some examples.

        Returns:
            Columns of all steps (M, ...): `actions` (M, A, F), `action_mask` (M, A), `taken` (M,), `rewards` (M,), `step` and
            `example` (M,), the place in `indices`; of all examples `tried` (N,), whether there was anything to choose, and
            figures of them (N,).
        """
        return self.play(indices)

    def drawn(self, seen: np.ndarray, masks: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """An action for each row, by the policy and a uniform number."""
        batch = {Columns.OBS: {"actions": torch.from_numpy(seen), "action_mask": torch.from_numpy(masks)}}
        with torch.no_grad():
            scores = self.module[CHOOSER].forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
        return drawn_actions(scores, shares)


class ActionLearner(FiniteLearner):
    """REINFORCE with a bonus for entropy."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Minus the mean of return times log-probability, less `entropy_weight` times the entropy."""
        log_probs = fwd_out[Columns.ACTION_DIST_INPUTS].log_softmax(-1)
        taken = log_probs.gather(1, batch["taken"].long()[:, None]).squeeze(1)
        entropy = -(log_probs.exp() * log_probs.clamp(min=-100.0)).sum(-1).mean()
        loss: Tensor = -(taken * batch["returns"]).mean() - self.config.learning.entropy_weight * entropy
        self.metrics.log_value((module_id, "entropy"), entropy.item(), window=1)
        return loss


class ActionReinforceConfig(ReproducibleConfig):
    """Configuration of `ActionReinforce`; `choosing()` holds what is ours."""

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
        """Sets who learns, and on what.

        Args:
            learning: the rule.
            make_env: gives what is played, with the frozen model in it.
            runner: plays it.
            module: of the policy.
            checkpoint: folder of the policy that learning starts from.
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
    """Asked by RLlib's own runners alone."""
    return CHOOSER


class ActionReinforce(ReproducibleAlgorithm):
    """REINFORCE over choices."""

    role, own_config = CHOOSER, ActionReinforceConfig

    def setup(self, config: AlgorithmConfig) -> None:
        """Builds runner and learner."""
        super().setup(config)
        self.baselines: list[RunningBaseline] = []
        """Of the returns at each step that was reached."""
        self.last: dict[str, Any] = {}
        """Figures of the newest iteration."""

    def records(self) -> dict[str, Any]:
        """The baselines."""
        return {"baselines": [vars(baseline) for baseline in self.baselines]}

    def restore_records(self, records: Mapping[str, Any]) -> None:
        """See `ReproducibleAlgorithm`."""
        self.baselines = [RunningBaseline(**record) for record in records["baselines"]]

    def training_step(self) -> None:
        """One iteration: play, learn, hand the new weights to the runner.

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
        """Returns (M,) less what is usual at their step, in deviations of it."""
        centered = np.empty(len(returns), dtype=np.float32)
        for number in np.unique(steps).tolist():
            while len(self.baselines) <= number:
                self.baselines.append(RunningBaseline())
            at = steps == number
            centered[at] = self.baselines[number].center(returns[at].astype(np.float64), "deviation")
        return centered


def rewards_to_go(rewards: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """The sum of an example's rewards from each step on (M,) float64.

    Args:
        rewards: (M,), an example's steps in their order.
        examples: which example each step is of (M,).
    """
    left: dict[int, float] = {}
    found = np.empty(len(rewards))
    for place in range(len(rewards) - 1, -1, -1):
        example = int(examples[place])
        found[place] = left[example] = float(rewards[place]) + left.get(example, 0.0)
    return found
