"""The env runner of the reply game: samples replies, and says what they are worth, with copies of all modules.

Examples come in shards of one size, whoever works on them, so that no digit of what a network computes side by side depends on
the number of runners. What an example is depends on its index and the master seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Space

from engine.generation.replies import reply_actions
from engine.generation.rewards import rewards
from engine.rllib.exact import ExactRunner
from engine.rllib.replies_env import DISCRIMINATOR, GENERATOR, listener_space
from engine.rllib.reply_modules import CRITIC
from engine.rllib.reply_settings import Phase
from engine.rllib.reply_world import ReplyWorld
from engine.runtime.identity import require
from envs.core.seeds import derive_seed
from envs.replies.game import PERSON, ReplyRules
from envs.replies.reply_env import reply_space, speaker_space
from gymnasium import spaces
from policies.discriminator.batches import context_batch, reply_batch
from policies.seq2seq.decoding import read, sample

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
            `index`, the numbers of the shards, the number of the `weights` in use, and by number what was `found`: for each
            example `replies` (word ids without `</s>`); for a generator's step also `rewards` of their words, what the
            discriminator finds of the whole reply (`human`) and the critic's `expected` reward; for teacher forcing `human` of the
            recorded reply, and `expected`.

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
            return self._judged(sources, [recorded for _, recorded in pairs])
        seeds = [derive_seed(self.config.master_seed, "said reply", index) for index in indices]
        replies = sample(generator, sources, seeds)
        if phase == "discriminator":
            return {"replies": replies}
        discriminator = self.module[DISCRIMINATOR].net
        contexts = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
        actions = reply_actions(replies, world.max_words)
        earned_BT = rewards(self.config.rewards, generator, read(generator, sources), discriminator, contexts, actions, seeds)
        lengths = actions.real_BT.sum(1).tolist()
        earned = [row[:length].numpy() for row, length in zip(earned_BT, lengths, strict=True)]
        return {"replies": replies, "rewards": earned, **self._judged(sources, replies)}

    def _judged(self, sources: Sequence[Any], replies: Sequence[Any]) -> dict[str, list[Any]]:
        discriminator, found = self.module[DISCRIMINATOR].net, {}
        contexts = context_batch(sources, discriminator.vocabulary, discriminator.sizes)
        memory = discriminator.read(contexts)
        words_RT, lengths_R = reply_batch(replies, discriminator.sizes)
        log_odds_RT = discriminator.prefixes(memory, words_RT, lengths_R)
        found["human"] = log_odds_RT.gather(1, lengths_R[:, None] - 1)[:, 0].sigmoid().tolist()
        if CRITIC in self.module:
            found["expected"] = self.module[CRITIC].net(contexts).tolist()
        return found
