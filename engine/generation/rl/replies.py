"""Adversarial REINFORCE and REGS as an RLlib algorithm (new API stack): Li et al. 2017 (arXiv 1701.06547), figure 1.

An iteration is one update. Its number decides the learner (`ReplyLearning.phase`): the discriminator on recorded
replies and the generator's, the generator by policy gradients on replies that it says, or by teacher forcing on recorded ones;
a critic learns beside the policy gradients. Update i takes examples i N .. (i + 1) N - 1, and nothing is
drawn that does not follow from the master seed and an index: so an update does not depend on the number of env runners, and a
training goes on exactly where it was.

The env runner of the reply game samples and scores replies with copies of all modules. Examples come in shards of one size,
for any number of runners, so that no digit of a batched network depends on that number. An
example depends only on its index and the master seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import LEARNER_RESULTS
from torch import Tensor

from parley.engine.core.ray.identity import own_identity, require
from parley.engine.core.rllib.distributed_rollouts import DistributedAlgorithm
from parley.engine.core.rllib.reproducible import ReproducibleConfig, ReproducibleRunner
from parley.engine.generation.metrics.trained import ADVANTAGE, variety
from parley.engine.generation.rewards.rewards import (
    ReplyActions,
    RunningMean,
    action_batch,
    baseline_values,
    forcing_rewards,
    reply_actions,
    reply_rewards,
    rewards,
)
from parley.engine.generation.rl.reply_modules import (
    ACCURACY,
    CRITIC,
    DISCRIMINATOR,
    GENERATOR,
    NATS,
    CriticModule,
    DiscriminatorModule,
    GeneratorModule,
    LinearCriticModule,
    ReplyLearner,
    ReplyMultiAgentEnv,
    ReplyWorld,
    listener_space,
)
from parley.engine.generation.settings import UNJUDGED, Phase, ReplyLearning, Reward, RewardSettings
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.generation.game import PERSON, ReplyRules
from parley.envs.generation.reply_env import reply_space, speaker_space
from parley.policies.generation.discriminator.batches import JudgedReplies, ReplyExamples, context_batch
from parley.policies.seq2seq.decoding import read, sample
from parley.policies.seq2seq.scoring import load_seq2seq

SHARD = 16
"""Examples of a batch."""


class ReplyEnvRunner(ReproducibleRunner):
    """Says replies to recorded contexts and rewards them."""

    def make_env(self) -> None:
        """Make the pairs that the generator answers."""
        self.env: ReplyWorld = self.config.make_world()

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return the spaces of the two-sided environment; a critic sees what the generator sees."""
        words, rules = self.env.vocabulary, ReplyRules(max_words=self.env.max_words)
        seen = speaker_space(words, rules)
        return {
            GENERATOR: (seen, reply_space(words, rules)),
            DISCRIMINATOR: (listener_space(words, rules), spaces.Discrete(PERSON + 1)),
            CRITIC: (seen, spaces.Box(0.0, 1.0, (1,), np.float32)),
        }

    def sample(self, *, dealt: Sequence[tuple[int, Phase, Sequence[int]]] = (), **_: Any) -> dict[str, Any]:
        """Sample and score shards of examples.

        Args:
            dealt: number of each shard, the phase that it is for, and the indices of its examples.

        Returns:
            `index`, the numbers of the shards; the number of the `weights` in use; `found` by shard, lists for its examples:
            `replies` (word ids without `</s>`; recorded ones in teacher forcing), and but for a discriminator's step the
            probability that each is a person's (`human`), what the critic has `expected` after each of its words (T + 1,), of a
            linear one in the context (1,) with what it was `encoded` as (H,), and the `rewards` (T,) of a generator's step.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        require(self.config.driver)
        results = {number: self._shard(phase, indices) for number, phase, indices in dealt}
        return {"index": list(results), "weights": self._weights_seq_no, "found": results}

    @torch.no_grad()
    def _shard(self, phase: Phase, indices: Sequence[int]) -> dict[str, list[Any]]:
        """Return the shard of some examples, in their order."""
        world, generator = self.env, self.module[GENERATOR].net
        pairs = [world.pair(self.config.master_seed, index) for index in indices]
        sources = [source for source, _ in pairs]
        if phase == "teacher":
            recorded = [reply for _, reply in pairs]
            return {"replies": recorded, **self._judged(sources, reply_actions(recorded, world.max_words + 1))}
        seeds = [derive_seed(self.config.master_seed, "said reply", index) for index in indices]
        # As long as they may be, for a discriminator too: else it learns which of both writes longer ones.
        replies = [reply[: world.max_words] for reply in sample(generator, sources, seeds)]
        if phase == "discriminator":
            return {"replies": replies}
        actions = reply_actions(replies, world.max_words)
        return {"replies": replies, **self._judged(sources, actions, seeds)}

    def _judged(self, sources: Sequence[Any], actions: ReplyActions, seeds: Sequence[int] = ()) -> dict[str, list[Any]]:
        discriminator, settings = self.module[DISCRIMINATOR].net, self.config.rewards
        contexts = context_batch(sources, discriminator.vocabulary, discriminator.sizes)
        memory = discriminator.read(contexts)
        human_B = actions.at_end(reply_rewards(discriminator, memory, actions))
        columns: dict[str, list[Any]] = {"human": human_B.tolist()}
        lengths = actions.lengths_B.tolist()
        generator = self.module[GENERATOR].net
        if CRITIC in self.module:
            critic = self.module[CRITIC].net
            if settings.critic == "linear":
                last_BH = read(generator, sources).last_BH
                columns["encoded"], expected_BT1 = list(last_BH.numpy()), critic(last_BH)
            else:
                expected_BT1 = critic.prefixes(contexts, actions.words_BT, actions.lengths_B)
            columns["expected"] = [row[: length + 1].numpy() for row, length in zip(expected_BT1, lengths, strict=True)]
        if seeds:
            most = self.env.max_words
            if self.config.reward in UNJUDGED:
                settings = replace(settings, method="reinforce")
            earned_BT = rewards(settings, generator, read(generator, sources), discriminator, memory, actions, seeds, most)
            columns["rewards"] = [row[:length].numpy() for row, length in zip(earned_BT, lengths, strict=True)]
        return columns


CRITICS = ("critic", "prefix", "literal")
"""Baselines that a critic gives."""


class ReplyMinMaxConfig(ReproducibleConfig):
    """Configuration of `ReplyMinMax`; `replies()` holds what is ours."""

    own_learner, own_module = ReplyLearner, GeneratorModule

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or ReplyMinMax)
        self.learning, self.rewards = ReplyLearning(), RewardSettings()
        self.make_world: Callable[[], ReplyWorld] | None = None
        self.reward: Reward = "discriminator"
        self.num_words = 1.0
        """Of the recorded replies of a step, in the mean: what losses are divided by."""
        self.driver: dict[str, str] = {}
        self.env_runners(env_runner_cls=ReplyEnvRunner)

    def replies(
        self,
        *,
        learning: ReplyLearning,
        rewards: RewardSettings,
        reward: Reward,
        make_world: Callable[[], ReplyWorld],
        generator: str,
        discriminator: str,
        seed: int,
    ) -> ReplyMinMaxConfig:
        """Set the learners, their data and their settings.

        Args:
            learning: order and amounts of steps.
            rewards: what words are worth.
            reward: the discriminator's, or a control.
            make_world: gives the pairs; every runner makes its own.
            generator: folder of the checkpoint that it starts from, here or at a URI.
            discriminator: the same.
            seed: master seed.
        """
        self.learning, self.rewards, self.reward = learning, rewards, reward
        self.make_world, self.master_seed = make_world, seed
        self.num_words = make_world().mean_words * learning.examples_per_step
        # Runners elsewhere compare it with theirs.
        self.driver = own_identity()
        self.environment(ReplyMultiAgentEnv)
        discriminator_config = {"checkpoint": discriminator}
        specs = {
            GENERATOR: RLModuleSpec(module_class=GeneratorModule, model_config={"checkpoint": generator}),
            DISCRIMINATOR: RLModuleSpec(module_class=DiscriminatorModule, model_config=discriminator_config),
        }
        if rewards.chosen_baseline in CRITICS:
            drawn = {**discriminator_config, "seed": derive_seed(seed, "critic")}
            specs[CRITIC] = RLModuleSpec(module_class=CriticModule, model_config=drawn)
            if rewards.critic == "linear":
                hidden = {"hidden": load_seq2seq(Path(generator)).sizes.hidden}
                specs[CRITIC] = RLModuleSpec(module_class=LinearCriticModule, model_config=hidden)
        # A list: from a set, the order would change from process to process.
        self.multi_agent(policies=list(specs), policy_mapping_fn=_module_of_agent, policies_to_train=list(specs))
        self.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        self.training(grad_clip=learning.clip, grad_clip_by="global_norm")
        return self


def _module_of_agent(agent: str, *_: Any, **__: Any) -> str:
    """Return the agent: modules have the names of agents. RLlib's own runners alone call this."""
    return agent


class ReplyMinMax(DistributedAlgorithm):
    """Discriminator and generator by turns."""

    role, items, own_config = GENERATOR, "shards of examples", ReplyMinMaxConfig

    def setup(self, config: AlgorithmConfig) -> None:
        super().setup(config)
        self.world: ReplyWorld = config.make_world()
        self.mean = RunningMean()
        """Of rewards."""
        self.last: dict[str, Any] = {}
        """Figures of the newest update."""

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self.config.policies)

    def records(self) -> dict[str, Any]:
        return {"mean": vars(self.mean)}

    def restore_records(self, records: Mapping[str, Any]) -> None:
        self.mean = RunningMean(**records["mean"])

    def training_step(self) -> None:
        """Run one update, and send the new weights to the runners.

        Raises:
            DivergenceError: a gradient is not finite.
            ClusterError: env runners keep failing.
        """
        started, number = time.monotonic(), self.training_iteration
        phase, indices = self.config.learning.phase(number), self._indices(number)
        pairs = [self.world.pair(self.config.master_seed, index) for index in indices]
        results = self._gathered(phase, indices)
        sampled = time.monotonic()
        make = {"discriminator": self._discriminator_rows, "generator": self._generator_rows, "teacher": self._teacher_rows}[
            phase
        ]
        rows, figures = make(number, [source for source, _ in pairs], [reply for _, reply in pairs], results)
        batch = MultiAgentBatch({role: SampleBatch(columns) for role, columns in rows.items()}, env_steps=len(indices))
        learned = self.learner_group.update(batch=batch, timesteps=self.timesteps(len(indices)))
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        self.send_weights(list(rows))
        figure = {DISCRIMINATOR: ACCURACY, GENERATOR: NATS}
        peek = self.metrics.peek
        learned_figures = {name: peek((LEARNER_RESULTS, role, name)) for role, name in figure.items() if role in rows}
        self.last = {
            "phase": phase,
            **figures,
            **{f"{phase}_{name}": float(value) for name, value in learned_figures.items()},
            "seconds_sampling": sampled - started,
            "seconds": time.monotonic() - started,
        }

    def _indices(self, number: int) -> list[int]:
        """Return the examples of an update; figure 1 forces the contexts of the last update of another kind."""
        learning = self.config.learning
        if learning.phase(number) == "teacher" and self.config.rewards.forced_batch == "last":
            # Where there are only steps of teacher forcing, each has its own.
            before = range(number - 1, max(-1, number - 1 - len(learning.cycle)), -1)
            number = next((earlier for earlier in before if learning.phase(earlier) != "teacher"), number)
        first = number * learning.examples_per_step
        return list(range(first, first + learning.examples_per_step))

    def _gathered(self, phase: Phase, indices: Sequence[int]) -> dict[str, list[Any]]:
        shards = [indices[start : start + SHARD] for start in range(0, len(indices), SHARD)]
        parts = self.gather({number: (number, phase, shard) for number, shard in enumerate(shards)})
        by_shard = {number: results for part in parts for number, results in part["found"].items()}
        return {name: [value for number in sorted(by_shard) for value in by_shard[number][name]] for name in by_shard[0]}

    def _discriminator_rows(
        self, number: int, sources: Sequence[Any], recorded: Sequence[Any], results: Mapping[str, list[Any]]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the rows and figures of a discriminator's step."""
        net = self.env_runner.module[DISCRIMINATOR].net
        seeds = [derive_seed(self.config.master_seed, "told beginning", index) for index in self._indices(number)]
        items = [
            JudgedReplies(source, pair, (True, False), seed)
            for source, *pair, seed in zip(sources, recorded, results["replies"], seeds, strict=True)
        ]
        prefixes = self.config.rewards.method == "regs-partial"
        batch = ReplyExamples(items, net.vocabulary, net.sizes, prefixes=prefixes).batch(np.arange(len(items)))
        columns = {
            "context": batch.contexts.words_BKN,
            "lengths": batch.contexts.lengths_BK,
            "replies": batch.words_RT.view(len(items), 2, -1),
            "reply_lengths": batch.lengths_R.view(len(items), 2),
        }
        return {DISCRIMINATOR: _arrays(columns)}, {}

    def _generator_rows(
        self, number: int, sources: Sequence[Any], recorded: Sequence[Any], results: Mapping[str, list[Any]]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the rows and figures of a policy-gradient step and of its critic's step."""
        settings, most = self.config.rewards, self.world.max_words
        replies = reply_actions(results["replies"], most)
        width = replies.words_BT.shape[1]
        rng = stream(self.config.master_seed, "shuffled rewards", number)
        rewards_BT = _padded(controlled(self.config.reward, results["rewards"], most, rng), width) * replies.real_BT
        expected_BT1 = _padded(results["expected"], width + 1) if "expected" in results else None
        baseline_BT = baseline_values(settings.chosen_baseline, replies, self.mean, expected_BT1)
        self.mean = self.mean.after(rewards_BT, replies)
        advantages_BT = (rewards_BT - baseline_BT) * replies.real_BT
        rows = {GENERATOR: self._reply_columns(sources, replies) | {"advantages": advantages_BT.numpy()}}
        if CRITIC in self.roles:
            if "encoded" in results:
                columns = {"encoded": torch.from_numpy(np.stack(results["encoded"]))}
            else:
                net = self.env_runner.module[CRITIC].net
                contexts = context_batch(sources, net.vocabulary, net.sizes)
                columns = {"context": contexts.words_BKN, "lengths": contexts.lengths_BK}
            reply_columns = {"replies": replies.words_BT, "reply_lengths": replies.lengths_B, "is_cut": replies.is_cut_B}
            rows[CRITIC] = _arrays({**columns, **reply_columns, "rewards": rewards_BT})
        earned = {
            "reward": float(rewards_BT[replies.real_BT].mean()),
            ADVANTAGE: float(advantages_BT[replies.real_BT].abs().mean()),
            "human": float(np.mean(results["human"])),
        }
        return rows, earned | variety(results["replies"])

    def _teacher_rows(
        self, number: int, sources: Sequence[Any], recorded: Sequence[Any], results: Mapping[str, list[Any]]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the rows and figures of a teacher-forcing step."""
        settings = self.config.rewards
        # A recorded reply ends by itself, at the limit too.
        replies = reply_actions(recorded, self.world.max_words + 1)
        expected_BT1 = _padded(results["expected"], replies.words_BT.shape[1] + 1) if "expected" in results else None
        baseline_B = baseline_values(settings.chosen_baseline, replies, self.mean, expected_BT1)[:, 0]
        weights_B = forcing_rewards(settings, torch.tensor(results["human"]), baseline_B)
        rows = {GENERATOR: self._reply_columns(sources, replies) | {"forced": weights_B.numpy()}}
        return rows, {"human_recorded": float(np.mean(results["human"])), "forced": float((weights_B > 0).float().mean())}

    def _reply_columns(self, sources: Sequence[Any], replies: ReplyActions) -> dict[str, Any]:
        batch = action_batch(self.env_runner.module[GENERATOR].net, sources, replies)
        words = [reply[:length].tolist() for reply, length in zip(replies.words_BT, replies.lengths_B - 1, strict=True)]
        weigh = self.world.response_weights if self.config.rewards.weighted else None
        weights = np.ones(len(words)) if weigh is None else weigh(words)
        columns = {"source": batch.source_BN, "source_lengths": batch.lengths_B, "words": batch.reply.words_BT1}
        return {**_arrays(columns), "response_weights": weights.astype(np.float32)}


def controlled(kind: Reward, rewards: Sequence[np.ndarray], max_words: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the rewards of a step's replies, or their substitutes in a control.

    Args:
        kind: which.
        rewards: of the words of each (T,).
        max_words: words of a reply at most.
        rng: of the step.
    """
    if kind == "constant":
        return [np.ones_like(rewards_T) for rewards_T in rewards]
    if kind == "length":
        return [np.full_like(rewards_T, min(len(rewards_T) - 1, max_words) / max_words) for rewards_T in rewards]
    if kind == "shuffled":
        permuted = [rewards[index] for index in rng.permutation(len(rewards))]
        return [other[np.minimum(np.arange(len(own)), len(other) - 1)] for own, other in zip(rewards, permuted, strict=True)]
    return list(rewards)


def _padded(rows: Sequence[np.ndarray], width: int) -> Tensor:
    padded = np.zeros((len(rows), width), dtype=np.float32)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values[:width]
    return torch.from_numpy(padded)


def _arrays(columns: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in columns.items()}
