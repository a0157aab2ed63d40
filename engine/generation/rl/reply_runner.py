"""The env runner of the reply game: samples replies, and says what they are worth, with copies of all modules.

Examples come in shards of one size, whoever works on them, so that no digit of what a network computes side by side depends on
the number of runners. What an example is depends on its index and the master seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces

from parley.engine.core.ray.identity import require
from parley.engine.core.rllib.reproducible import ExactRunner
from parley.engine.generation.rewards.replies import ReplyActions, reply_actions
from parley.engine.generation.rewards.rewards import reply_rewards, rewards
from parley.engine.generation.rl.replies_env import DISCRIMINATOR, GENERATOR, listener_space
from parley.engine.generation.rl.reply_modules import CRITIC
from parley.engine.generation.rl.reply_settings import UNJUDGED, Phase
from parley.engine.generation.rl.reply_world import ReplyWorld
from parley.envs.core.seeds import derive_seed
from parley.envs.generation.game import PERSON, ReplyRules
from parley.envs.generation.reply_env import reply_space, speaker_space
from parley.policies.generation.discriminator.batches import context_batch
from parley.policies.seq2seq.decoding import read, sample

SHARD = 16
"""Examples that are worked on side by side."""


class ReplyEnvRunner(ExactRunner):
    """Says replies to recorded contexts and rewards them."""

    def make_env(self) -> None:
        """The pairs that replies are said to."""
        self.env: ReplyWorld = self.config.make_world()

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Those of the two-sided environment; a critic sees what the generator sees."""
        words, rules = self.env.vocabulary, ReplyRules(max_words=self.env.max_words)
        seen = speaker_space(words, rules)
        return {
            GENERATOR: (seen, reply_space(words, rules)),
            DISCRIMINATOR: (listener_space(words, rules), spaces.Discrete(PERSON + 1)),
            CRITIC: (seen, spaces.Box(0.0, 1.0, (1,), np.float32)),
        }

    def sample(self, *, dealt: Sequence[tuple[int, Phase, Sequence[int]]] = (), **_: Any) -> dict[str, Any]:
        """Works on shards of examples.

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
        found = {number: self._shard(phase, indices) for number, phase, indices in dealt}
        return {"index": list(found), "weights": self._weights_seq_no, "found": found}

    @torch.no_grad()
    def _shard(self, phase: Phase, indices: Sequence[int]) -> dict[str, list[Any]]:
        """What is asked of some examples, in their order."""
        world, generator = self.env, self.module[GENERATOR].net
        pairs = [world.pair(self.config.master_seed, index) for index in indices]
        sources = [source for source, _ in pairs]
        if phase == "teacher":
            recorded = [reply for _, reply in pairs]
            return {"replies": recorded, **self._judged(sources, reply_actions(recorded, world.max_words + 1))}
        seeds = [derive_seed(self.config.master_seed, "said reply", index) for index in indices]
        # As long as they may be, for a discriminator too: else it learns which of both writes longer ones.
        said = [reply[: world.max_words] for reply in sample(generator, sources, seeds)]
        if phase == "discriminator":
            return {"replies": said}
        actions = reply_actions(said, world.max_words)
        return {"replies": said, **self._judged(sources, actions, seeds)}

    def _judged(self, sources: Sequence[Any], actions: ReplyActions, seeds: Sequence[int] = ()) -> dict[str, list[Any]]:
        discriminator, settings = self.module[DISCRIMINATOR].net, self.config.rewards
        contexts = context_batch(sources, discriminator.vocabulary, discriminator.sizes)
        memory = discriminator.read(contexts)
        human_B = actions.at_end(reply_rewards(discriminator, memory, actions))
        found: dict[str, list[Any]] = {"human": human_B.tolist()}
        lengths = actions.lengths_B.tolist()
        generator = self.module[GENERATOR].net
        if CRITIC in self.module:
            critic = self.module[CRITIC].net
            if settings.critic == "linear":
                last_BH = read(generator, sources).last_BH
                found["encoded"], expected_BT1 = list(last_BH.numpy()), critic(last_BH)
            else:
                expected_BT1 = critic.prefixes(contexts, actions.words_BT, actions.lengths_B)
            found["expected"] = [row[: length + 1].numpy() for row, length in zip(expected_BT1, lengths, strict=True)]
        if seeds:
            most = self.env.max_words
            if self.config.reward in UNJUDGED:
                settings = replace(settings, method="reinforce")
            earned_BT = rewards(settings, generator, read(generator, sources), discriminator, memory, actions, seeds, most)
            found["rewards"] = [row[:length].numpy() for row, length in zip(earned_BT, lengths, strict=True)]
        return found
