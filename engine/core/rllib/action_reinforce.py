"""Training of a policy that chooses among actions, step by step, as an RLlib algorithm (new API stack).

An iteration plays `examples_per_update` examples side by side, in this process, and makes one update by REINFORCE. Iteration i
plays examples i N .. (i + 1) N - 1; which example that is, and every draw in it, follows from the master seed and its index, so
that a training goes on exactly where it was (`state.py`). RLlib's stock runner would draw from a generator that no checkpoint
holds. What is played is not known here: see `editing.py` (edits of replies) and `lying.py` (lies about friends).
Shapes: N examples, M steps in all, A actions, F features.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS
from torch import Tensor

from parley.engine.core.baseline import RunningBaseline
from parley.engine.core.rllib.reproducible import ExactAlgorithm, ExactConfig, ExactRunner, FiniteLearner
from parley.policies.core.choosing import ActionScorer, drawn_actions
from parley.policies.core.choosing_settings import ChoiceLearning

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


class ChoiceRunner(ExactRunner):
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


class ChoiceLearner(FiniteLearner):
    """REINFORCE with a bonus for entropy."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Minus the mean of return times log-probability, less `entropy_weight` times the entropy."""
        log_probs = fwd_out[Columns.ACTION_DIST_INPUTS].log_softmax(-1)
        taken = log_probs.gather(1, batch["taken"].long()[:, None]).squeeze(1)
        entropy = -(log_probs.exp() * log_probs.clamp(min=-100.0)).sum(-1).mean()
        loss: Tensor = -(taken * batch["returns"]).mean() - self.config.learning.entropy_weight * entropy
        self.metrics.log_value((module_id, "entropy"), entropy.item(), window=1)
        return loss


class ChoiceReinforceConfig(ExactConfig):
    """Configuration of `ChoiceReinforce`; `choosing()` holds what is ours."""

    own_learner, own_module = ChoiceLearner, ChooserModule

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ChoiceReinforce)
        self.learning = ChoiceLearning()
        self.make_env: Callable[[], Any] = object

    def choosing(
        self,
        *,
        learning: ChoiceLearning,
        make_env: Callable[[], Any],
        runner: type[ChoiceRunner],
        module: type[ChooserModule],
        checkpoint: str,
        seed: int,
    ) -> ChoiceReinforceConfig:
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


class ChoiceReinforce(ExactAlgorithm):
    """REINFORCE over choices."""

    role, own_config = CHOOSER, ChoiceReinforceConfig

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
        """See `ExactAlgorithm`."""
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
