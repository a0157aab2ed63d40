"""The RLlib algorithm that trains an adapter of one seat by whole conversations (new API stack).

An update plays `scenarios` times `tries` dialogues. The tries of a scenario share its texts and its opponent, and differ in
their draws; a reward is compared with those of the other tries. Scenarios whose tries all earn the same teach nothing: they are
counted (`alike`) and not read again. Scripted dialogues guard the language, as Lewis et al. 2017 do, and so does the KL.

The language watch: where the mean KL of an update passes `kl_limit`, its weight is doubled for good, and that is told. A
learner whose answers are mostly without a word for some updates ends the training; the last saved state is good.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS

from parley.engine.chat.rl.learner import ChatLearner, batch_rows
from parley.engine.chat.rl.runner import USER, AdapterModule, ChatLearnerSpec, ChatRunner, Dealt
from parley.engine.chat.rl.settings import ChatReinforceConfig
from parley.engine.core.ray.identity import own_identity
from parley.engine.core.rllib.distributed_rollouts import DistributedAlgorithm, DistributedConfig
from parley.engine.core.rllib.reproducible import DivergenceError
from parley.envs.core.seeds import stream

Scripted = Sequence[tuple[Sequence[int] | np.ndarray, Sequence[bool] | np.ndarray]]
"""Tokens and own marks of scripted dialogues."""


class ChatReinforceAlgorithmConfig(DistributedConfig):
    """The configuration of `ChatReinforce`; `conversations()` holds Parley's own settings."""

    own_learner, own_module = ChatLearner, AdapterModule

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ChatReinforce)
        self.reinforce = ChatReinforceConfig()
        self.spec: ChatLearnerSpec | None = None
        self.opponents: tuple[str, ...] = ()
        self.shares: tuple[float, ...] = ()
        self.scripted: Scripted = ()
        self.driver: dict[str, str] = {}
        self.env_runners(env_runner_cls=ChatRunner)

    def conversations(
        self,
        *,
        reinforce: ChatReinforceConfig,
        spec: ChatLearnerSpec,
        opponents: Sequence[str],
        shares: Sequence[float] = (),
        scripted: Scripted = (),
    ) -> ChatReinforceAlgorithmConfig:
        """Set the learner, its opponents and the learning rule.

        Args:
            reinforce: the learning rule.
            spec: the learner.
            opponents: players of the other side, by name.
            shares: share of each in the dialogues with an opponent; all alike if empty.
            scripted: dialogues that guard the language.
        """
        self.reinforce, self.spec, self.master_seed = reinforce, spec, spec.seed
        self.opponents = tuple(opponents)
        # RLlib copies configurations again and again, and lists of numbers slowly.
        self.scripted = [(np.array(tokens), np.array(own)) for tokens, own in scripted]
        self.shares = tuple(shares) or (1 / max(1, len(opponents)),) * len(opponents)
        # Runners and learner elsewhere compare it with theirs.
        self.driver = own_identity()
        role = spec.plays.role
        self.multi_agent(policies=[role], policy_mapping_fn=lambda *_, **__: role, policies_to_train=[role])
        module = RLModuleSpec(module_class=AdapterModule, model_config={"spec": spec})
        self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={role: module}))
        self.training(lr=reinforce.learning_rate, grad_clip=reinforce.clip, grad_clip_by="global_norm")
        return self


class ChatReinforce(DistributedAlgorithm):
    """REINFORCE over whole conversations of one seat."""

    own_config, items = ChatReinforceAlgorithmConfig, "batches"

    def setup(self, config: AlgorithmConfig) -> None:
        super().setup(config)
        self.role = config.spec.plays.role
        self.kl_weight: float = config.reinforce.kl_weight
        """Weight of the KL now."""
        self.silent_for = 0
        """Updates in a row in which the learner was silent."""
        self.told: list[str] = []
        """What the language watch has to say of the newest update."""
        self.last: dict[str, Any] = {}
        """Figures of the newest update."""

    def models(self) -> set[str]:
        return set()

    def records(self) -> dict[str, Any]:
        return {"kl_weight": self.kl_weight, "silent_for": self.silent_for}

    def restore_records(self, records: Mapping[str, Any]) -> None:
        self.kl_weight, self.silent_for = float(records["kl_weight"]), int(records["silent_for"])

    def dealt(self, update: int) -> list[Dealt]:
        """Return the dialogues of an update; the tries of a scenario follow each other."""
        rule, spec = self.config.reinforce, self.config.spec
        shares = np.array(self.config.shares) / max(sum(self.config.shares), 1e-12)
        dialogues = []
        for number in range(update * rule.scenarios, (update + 1) * rule.scenarios):
            draws = stream(spec.seed, "opponent", number)
            is_harmless = spec.plays.has_users and (draws.random() < rule.harmless or not self.config.opponents)
            met = USER
            if not is_harmless:
                met = self.config.opponents[int(draws.choice(len(self.config.opponents), p=shares))]
            dialogues += [Dealt(number * rule.tries + index, number, met) for index in range(rule.tries)]
        return dialogues

    def write(self, folder: Path) -> None:
        """Store the runners' adapter, which is the learner's newest.

        Raises:
            CheckpointError: the disk refuses.
        """
        module = self.env_runner.module[self.role]
        module.base.write(module.adapter, folder)

    def rewards(self, played: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return the reward of each dialogue, (N,) float64; override it for another one.

        Args:
            played: rows of the runner, see `ChatRunner.sample`.
        """
        return np.array([row["reward"] for row in played], dtype=np.float64)

    def training_step(self) -> None:
        """Run one update: play, reward, learn, and send the new weights to the runners.

        Raises:
            DivergenceError: the gradient is not finite, or the learner has stopped to speak.
            ClusterError: env runners keep failing; a `LearnerLostError` when the learner's actor is gone.
        """
        started, rule, number = time.monotonic(), self.config.reinforce, self.training_iteration
        dialogues = self.dealt(number)
        pieces = [dialogues[start : start + rule.at_once] for start in range(0, len(dialogues), rule.at_once)]
        items = {number * len(pieces) + index: (number * len(pieces) + index, piece) for index, piece in enumerate(pieces)}
        rows: dict[int, dict[str, Any]] = {}
        for part in self.gather(items):
            rows |= part["played"]
        sampled = time.monotonic()
        played = [rows[dialogue.number] for dialogue in dialogues]
        rewards = self.rewards(played).reshape(rule.scenarios, rule.tries)
        advantages = advantages_of(rewards, rule.baseline)
        learned = [
            (*sequence, float(advantage))
            for row, advantage in zip(played, advantages.ravel(), strict=True)
            if advantage
            for sequence in row["sequences"]
        ]
        figures = self._learn(learned)
        finished = time.monotonic()
        self.last = {
            "reward": float(rewards.mean()),
            **_outcomes(played),
            "alike": float((advantages == 0).all(1).mean()),
            "tokens": sum(sum(own) for _, own, _ in learned),
            **figures,
            "kl_weight": self.kl_weight,
            "seconds": finished - started,
            "seconds_sampling": sampled - started,
            "seconds_learning": finished - sampled,
        }
        self._watch()
        for name, value in self.last.items():
            self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    def _learn(self, learned: Sequence[tuple[Sequence[int], Sequence[bool], float]]) -> dict[str, float]:
        rule, number = self.config.reinforce, self.training_iteration
        scripted: Scripted = ()
        if rule.supervised_weight > 0 and self.config.scripted:
            draws = stream(self.config.spec.seed, "scripted", number)
            num = min(rule.supervised_batch, len(self.config.scripted))
            chosen = draws.choice(len(self.config.scripted), size=num, replace=False)
            scripted = [self.config.scripted[index] for index in chosen.tolist()]
        if not learned and not scripted:
            return {}
        columns = SampleBatch(batch_rows(learned, scripted, self.kl_weight))
        batch = MultiAgentBatch({self.role: columns}, env_steps=max(1, len(learned)))
        results = self.learner_group.update(batch=batch, timesteps=self.timesteps(rule.dialogues))
        self.metrics.aggregate(results, key=LEARNER_RESULTS)
        self.send_weights([self.role])
        # The learner has a sum of 0 for what it did not read: no figure.
        measured = {"kl": learned and self.kl_weight > 0, "token_entropy": learned, "policy_gradient_loss": learned}
        names = [name for name, was_read in (measured | {"supervised_loss": scripted}).items() if was_read]
        return {name: float(self.metrics.peek((LEARNER_RESULTS, self.role, name))) for name in names}

    def _watch(self) -> None:
        """Double the weight of the KL, or end the training, where the language goes."""
        rule, self.told = self.config.reinforce, []
        if self.kl_weight > 0 and self.last.get("kl", 0.0) > rule.kl_limit:
            self.kl_weight *= 2
            self.told.append(
                f"KL of {self.last['kl']:.2f} nats a token is above {rule.kl_limit:g}: its weight is {self.kl_weight:g}"
            )
        self.silent_for = self.silent_for + 1 if self.last["silent"] > rule.most_silent else 0
        if self.silent_for >= rule.patience:
            raise DivergenceError(
                f"the {self.role} has stopped to speak",
                where=f"update {self.training_iteration + 1}",
                got=f"{self.last['silent']:.0%} of its answers without a word, for {self.silent_for} updates",
                fix="train again with a smaller reinforce.learning_rate or a larger reinforce.kl_weight",
            )


def advantages_of(rewards_GK: np.ndarray, baseline: str) -> np.ndarray:
    """Return the advantage (G, K) of each of K tries of G scenarios.

    Args:
        rewards_GK: rewards.
        baseline: "leave-one-out": the reward less the mean of the scenario's other tries. "group": less the mean of all, in
            their deviations.
    """
    centred_GK = rewards_GK - rewards_GK.mean(axis=1, keepdims=True)
    if baseline == "leave-one-out":
        num = rewards_GK.shape[1]
        advantages: np.ndarray = centred_GK * num / (num - 1)
    else:
        deviations_G1 = rewards_GK.std(axis=1, keepdims=True)
        advantages = np.divide(centred_GK, deviations_G1, out=np.zeros_like(centred_GK), where=deviations_G1 > 0)
    # Rounding is no lesson.
    return np.where(np.ptp(rewards_GK, axis=1, keepdims=True) > 0, advantages, 0.0)


def _outcomes(played: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return means over the dialogues of an update; of the game's own figures, over the dialogues that have them."""
    texts = max(1, sum(row["texts"] for row in played))
    figures = {
        "dialogues": float(len(played)),
        "silent": sum(row["silent"] for row in played) / texts,
        "repeated": sum(row["repeated"] for row in played) / texts,
    }
    names = dict.fromkeys(name for row in played for name in row["outcomes"])
    return figures | {
        name: float(np.mean([row["outcomes"][name] for row in played if name in row["outcomes"]])) for name in names
    }
