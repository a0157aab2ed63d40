"""Generator, discriminator and critic as RLModules: the networks of `policies/` behind RLlib's interface, and the loss of each.

Columns of a training batch (B contexts, K turns, N words of a turn or of a source, T words of a reply and its end):
    generator       source (B, N), source_lengths (B,), words (B, T + 1) from `<s>` on, advantages (B, T), recorded (B,) bool
    discriminator   context (B, K, N), lengths (B, K), replies (B, 2, T), reply_lengths (B, 2): the recorded one, then the other
    critic          context (B, K, N), lengths (B, K), rewards (B,)
The generator's loss is the sum of advantages times negative log-likelihoods in both of its phases. Advantages tell them apart:
what a word was rewarded with, less the baseline, in policy gradients; the weight of a recorded reply in teacher forcing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from engine.rllib.exact import SeededLearner
from engine.rllib.replies_env import DISCRIMINATOR, GENERATOR
from policies.discriminator.batches import ContextBatch, JudgedBatch
from policies.discriminator.checkpoints import load_discriminator
from policies.discriminator.critic import Critic
from policies.discriminator.model import Discriminator
from policies.seq2seq.checkpoints import load_seq2seq
from policies.seq2seq.model import Seq2Seq

CRITIC = "critic"
"""The module that says what reward a context is worth."""


class GeneratorModule(TorchRLModule):
    """RLModule around a `Seq2Seq`; model config: `checkpoint`, the folder that it starts from."""

    def setup(self) -> None:
        """Loads the model of the checkpoint."""
        self.net: Seq2Seq = load_seq2seq(Path(self.model_config["checkpoint"]))

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Negative log-likelihoods (B, T) of the replies' words."""
        # Dropout belongs to recorded replies: those just said are scored as they were said.
        self.net.train(bool(batch["recorded"].any()))
        replies = Exchanges(
            source_BN=batch["source"], lengths_B=batch["source_lengths"], reply=Sentences(batch["words"])
        )
        nll_BT = action_nll(self.net, replies)
        self.net.eval()
        return {"nll": nll_BT}


class DiscriminatorModule(TorchRLModule):
    """RLModule around a `Discriminator`; model config: `checkpoint`, the folder that it starts from."""

    def setup(self) -> None:
        """Loads the model of the checkpoint."""
        self.net: Discriminator = load_discriminator(Path(self.model_config["checkpoint"]))

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Log-odds (B, 2) that a person wrote each reply."""
        self.net.train()
        size = len(batch["replies"])
        rows_R = torch.arange(size, device=batch["replies"].device).repeat_interleave(2)
        judged = JudgedBatch(
            contexts=ContextBatch(batch["context"], batch["lengths"]),
            rows_R=rows_R,
            words_RT=batch["replies"].flatten(0, 1),
            lengths_R=batch["reply_lengths"].flatten(),
            human_R=torch.tensor([1, 0], device=rows_R.device).repeat(size),
        )
        log_odds_R = self.net(judged)
        self.net.eval()
        return {"log_odds": log_odds_R.view(size, 2)}


class CriticModule(TorchRLModule):
    """RLModule around a `Critic`; model config: `checkpoint` of the discriminator whose words and sizes it has, `seed`."""

    def setup(self) -> None:
        """Draws its weights, none of which it shares with the discriminator."""
        like = load_discriminator(Path(self.model_config["checkpoint"]))
        self.net = Critic(like.vocabulary, like.sizes)
        self.net.initialise(torch.Generator().manual_seed(self.model_config["seed"]))
        self.net.eval()

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The reward (B,) that contexts are expected to bring."""
        return {"expected": self.net(ContextBatch(batch["context"], batch["lengths"]))}


class ReplyLearner(SeededLearner):
    """Updates whichever modules a batch has rows for; the others, and what their optimisers know, stay as they are."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam or SGD, at the module's rate."""
        learning, parameters = self.config.learning, self.get_parameters(self._module[module_id])
        rate = {GENERATOR: learning.generator_rate, DISCRIMINATOR: learning.discriminator_rate, CRITIC: learning.critic_rate}
        kind = torch.optim.Adam if learning.optimiser == "adam" else torch.optim.SGD
        optimiser = kind(parameters, lr=rate[module_id])
        self.register_optimizer(
            module_id=module_id, optimizer=optimiser, params=parameters, lr_or_lr_schedule=rate[module_id]
        )

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Weighted likelihood, cross-entropy or squared error, by module."""
        if module_id == GENERATOR:
            return policy_loss(fwd_out["nll"], batch["advantages"], self.config.world_size)
        if module_id == CRITIC:
            return F.mse_loss(fwd_out["expected"], batch["rewards"])
        log_odds_B2 = fwd_out["log_odds"]
        signed_B2 = torch.stack([log_odds_B2[:, 0], -log_odds_B2[:, 1]], dim=1)
        right_B2 = (signed_B2 > 0).float() + 0.5 * (signed_B2 == 0).float()
        # Before the update: of replies that it has not learned from.
        self.metrics.log_value((DISCRIMINATOR, ACCURACY), right_B2.mean().item(), window=1)
        return F.softplus(-signed_B2).mean()
