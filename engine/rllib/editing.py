"""Training an editing policy against a frozen ranker as an RLlib algorithm (new API stack).

The policy plays `parley/ResponseRanking-v1`. An iteration edits the replies of `examples_per_update` examples side by side, in
this process, and makes one update by REINFORCE. Iteration i edits examples i N .. (i + 1) N - 1; which group an example is, and
every draw in it, follows from the master seed and its index, so that a training goes on exactly where it was (`state.py`).
RLlib's stock runner would draw from a generator that no checkpoint holds. Shapes: M steps in all, A actions, F features.
"""

from __future__ import annotations

import time
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
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor

from engine.negotiation.reinforce import RunningBaseline
from engine.rllib.exact import ExactAlgorithm, ExactRunner, FiniteLearner
from envs.candidates.edit_game import EditGame
from envs.candidates.ranking_env import ResponseRankingEnv
from envs.core.seeds import derive_seed, stream
from policies.editor import Editor, load_editor
from policies.editor_settings import EditorLearning

EDITOR = "editor"
"""The module that learns."""


class EditorModule(TorchRLModule):
    """RLModule around an `Editor`; observations are those of the environment, so that RLlib's own runners can use it too.

    Model config: `checkpoint`, the folder that it starts from.
    """

    def setup(self) -> None:
        """Loads the policy of the checkpoint."""
        self.net: Editor = load_editor(Path(self.model_config["checkpoint"]))

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Scores (B, A) whose softmax is the policy."""
        seen = batch[Columns.OBS]
        return {Columns.ACTION_DIST_INPUTS: self.net(seen["actions"], seen["action_mask"])}


class EditorRunner(ExactRunner):
    """Edits the replies of examples, all of an update side by side."""

    def make_env(self) -> None:
        """The environment; its game is played by `sample`, many examples at once."""
        self.env: ResponseRankingEnv = self.config.make_env()
        self._orders: dict[int, np.ndarray] = {}

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Observation and action space of the module."""
        return {EDITOR: (self.env.observation_space, self.env.action_space)}

    def sample(self, *, indices: Sequence[int] = (), **_: Any) -> dict[str, Any]:
        """Edits the replies of some examples.

        Args:
            indices: of the examples.

        Returns:
            Columns of all steps (M, ...): `actions` (M, A, F), `action_mask` (M, A), `taken` (M,), `rewards` (M,), `step` and
            `example` (M,), the place in `indices`; and of all examples `tried`, `success` and `queries` (N,).

        Raises:
            RankerError: the ranker gave no scores.
        """
        env, seed = self.env, self.config.master_seed
        groups = [env.groups[self._row(index)] for index in indices]
        seeds = [derive_seed(seed, "edited example", index) for index in indices]
        game = EditGame(groups, seeds, env.scorer, env.proposer, env.rules, env.goal)
        draws = [stream(each, "edits") for each in seeds]
        steps: dict[str, list[np.ndarray]] = {
            name: [] for name in ("actions", "action_mask", "taken", "rewards", "step", "example")
        }
        tried = np.array([not reply.is_over for reply in game.replies])
        for number in range(env.rules.edits):
            rows = game.active()
            if not rows:
                break
            masks, seen = np.stack([game.replies[row].mask(env.rules) for row in rows]), env.sight(game, rows)
            taken = self._drawn(seen, masks, np.array([draws[row].random() for row in rows]))
            rewards = game.act(rows, taken.tolist())
            columns = (seen, masks, taken, rewards.astype(np.float32), np.full(len(rows), number), np.array(rows))
            for column, values in zip(steps.values(), columns, strict=True):
                column.append(values)
        return {
            **{name: np.concatenate(values) for name, values in steps.items() if values},
            "tried": tried,
            "success": np.array([reply.succeeded for reply in game.replies]),
            "queries": np.array([reply.num_queries for reply in game.replies]),
        }

    def _drawn(self, seen: np.ndarray, masks: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """An action for each row, by the policy and a uniform number."""
        batch = {Columns.OBS: {"actions": torch.from_numpy(seen), "action_mask": torch.from_numpy(masks)}}
        with torch.no_grad():
            scores = self.module[EDITOR].forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
        reached = scores.double().softmax(-1).cumsum(-1).numpy()
        drawn = (reached < shares[:, None] * reached[:, -1:]).sum(1)
        # Rounding may leave a share behind the last action, which stops and is always allowed.
        return np.asarray(drawn.clip(max=masks.shape[1] - 1))

    def _row(self, index: int) -> int:
        """The group of an example: endless passes over all of them, each in an order of its own."""
        turn, place = divmod(index, len(self.env.groups))
        if turn not in self._orders:
            self._orders = {turn: stream(self.config.master_seed, "order of groups", turn).permutation(len(self.env.groups))}
        return int(self._orders[turn][place])


class EditorLearner(FiniteLearner):
    """REINFORCE with a bonus for entropy."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Minus the mean of return times log-probability, less `entropy_weight` times the entropy."""
        log_probs = fwd_out[Columns.ACTION_DIST_INPUTS].log_softmax(-1)
        taken = log_probs.gather(1, batch["taken"].long()[:, None]).squeeze(1)
        entropy = -(log_probs.exp() * log_probs.clamp(min=-100.0)).sum(-1).mean()
        loss: Tensor = -(taken * batch["returns"]).mean() - self.config.learning.entropy_weight * entropy
        self.metrics.log_value((module_id, "entropy"), entropy.item(), window=1)
        return loss


class EditorReinforceConfig(AlgorithmConfig):
    """Configuration of `EditorReinforce`; `editing()` holds what is ours."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or EditorReinforce)
        self.learning = EditorLearning()
        self.master_seed = 0
        self.make_env: Callable[[], ResponseRankingEnv] = ResponseRankingEnv
        # RLlib's checker resets environments with a seed of its own.
        self.disable_env_checking = True
        # Its thread measures the machine for results that nobody reads, and sleeps on while an algorithm stops.
        self.debugging(log_sys_usage=False)
        self.env_runners(env_runner_cls=EditorRunner, num_env_runners=0)
        self.learners(num_learners=0)

    def editing(
        self, *, learning: EditorLearning, make_env: Callable[[], ResponseRankingEnv], checkpoint: str, seed: int
    ) -> EditorReinforceConfig:
        """Sets who learns, and on what.

        Args:
            learning: the rule.
            make_env: gives the environment, with the frozen ranker in it.
            checkpoint: folder of the policy that learning starts from.
            seed: master seed.
        """
        self.learning, self.make_env, self.master_seed = learning, make_env, seed
        self.environment(ResponseRankingEnv)
        self.multi_agent(policies=[EDITOR], policy_mapping_fn=_editor, policies_to_train=[EDITOR])
        spec = RLModuleSpec(module_class=EditorModule, model_config={"checkpoint": checkpoint})
        self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={EDITOR: spec}))
        self.training(lr=learning.learning_rate, grad_clip=learning.clip, grad_clip_by="global_norm")
        return self

    def get_default_learner_class(self) -> type:
        """`EditorLearner`."""
        return EditorLearner

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """An `EditorModule`; its checkpoint is named in `editing()`."""
        return RLModuleSpec(module_class=EditorModule)


def _editor(*_: Any, **__: Any) -> str:
    """Asked by RLlib's own runners alone."""
    return EDITOR


class EditorReinforce(ExactAlgorithm):
    """REINFORCE over edits of replies."""

    role = EDITOR

    @classmethod
    def get_default_config(cls) -> EditorReinforceConfig:
        """A configuration that still needs `editing()`."""
        return EditorReinforceConfig(algo_class=cls)

    def setup(self, config: AlgorithmConfig) -> None:
        """Builds runner and learner."""
        super().setup(config)
        self.baselines = [RunningBaseline() for _ in range(self.env_runner.env.rules.edits)]
        """Of the returns at each step."""
        self.last: dict[str, Any] = {}
        """Figures of the newest iteration."""

    def records(self) -> dict[str, Any]:
        """The baselines."""
        return {"baselines": [vars(baseline) for baseline in self.baselines]}

    def restore_records(self, records: Mapping[str, Any]) -> None:
        """See `ExactAlgorithm`."""
        self.baselines = [RunningBaseline(**record) for record in records["baselines"]]

    def training_step(self) -> None:
        """One iteration: edit, learn, hand the new weights to the runner.

        Raises:
            DivergenceError: the gradient is not finite.
            RankerError: the ranker gave no scores.
        """
        started, size = time.monotonic(), self.config.learning.examples_per_update
        first = self.training_iteration * size
        played = self.env_runner.sample(indices=range(first, first + size))
        sampled, tried = time.monotonic(), played["tried"]
        self.last = {
            "success": float(played["success"][tried].mean()) if tried.any() else 0.0,
            "queries": float(played["queries"][tried].mean()) if tried.any() else 0.0,
            "tried": int(tried.sum()),
            "reward": float(played["rewards"].sum() / tried.sum()) if tried.any() else 0.0,
            "seconds_sampling": sampled - started,
        }
        if tried.any():
            self._learn(played, (self.training_iteration + 1) * size)
        self.last["seconds"] = time.monotonic() - started
        for name, value in self.last.items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    def _learn(self, played: Mapping[str, np.ndarray], num_examples: int) -> None:
        observed = {name: played[name] for name in ("actions", "action_mask")}
        returns = self._centered(rewards_to_go(played["rewards"], played["example"]), played["step"])
        rows = SampleBatch({Columns.OBS: observed, "taken": played["taken"], "returns": returns})
        batch = MultiAgentBatch({EDITOR: rows}, env_steps=len(returns))
        learned = self.learner_group.update(batch=batch, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: num_examples})
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group, inference_only=True, timeout_seconds=None
        )

    def _centered(self, returns: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns (M,) less what is usual at their step, in deviations of it."""
        centered = np.empty(len(returns), dtype=np.float32)
        for number in np.unique(steps).tolist():
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
