"""Generator, discriminator and critic as RLModules: the networks of `policies/` behind RLlib's interface, and the loss of each.

Columns of a training batch (B contexts, K turns, N words of a turn or of a source, T words of a reply and its end):
    generator       source (B, N), source_lengths (B,), words (B, T + 1) from `<s>` on, response_weights (B,),
                    advantages (B, T) of policy gradients, or forced (B,) of teacher forcing
    discriminator   context (B, K, N), lengths (B, K), replies (B, 2, T), reply_lengths (B, 2): the recorded one, then the other
    critic          context (B, K, N), lengths (B, K), replies (B, T), reply_lengths (B,), is_cut (B,), rewards (B, T); a linear
                    one encoded (B, H) instead of context and lengths
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from parley.engine.core.rllib.reproducible import SeededLearner
from parley.engine.generation.rewards.baselines import RunningMean, baseline_values, critic_loss
from parley.engine.generation.rewards.losses import action_nll, forcing_loss, policy_loss
from parley.engine.generation.rewards.replies import ReplyActions
from parley.engine.generation.rl.replies_env import DISCRIMINATOR, GENERATOR
from parley.envs.core.storage.copies import fetched_model
from parley.policies.generation.discriminator.batches import ContextBatch, JudgedBatch
from parley.policies.generation.discriminator.checkpoints import load_discriminator
from parley.policies.generation.discriminator.critic import Critic, LinearCritic
from parley.policies.generation.discriminator.model import Discriminator
from parley.policies.seq2seq.batches import Exchanges, Sentences
from parley.policies.seq2seq.checkpoints import load_seq2seq
from parley.policies.seq2seq.model import Seq2Seq

CRITIC = "critic"
"""The module that says what reward to expect."""
ACCURACY, NATS = "accuracy", "nats"
"""Figures of an update: of the discriminator before it, and of a word that the generator chose, or is forced to choose."""


class GeneratorModule(TorchRLModule):
    """RLModule around a `Seq2Seq`; model config: `checkpoint`, the folder that it starts from."""

    def setup(self) -> None:
        """Loads the model of the checkpoint."""
        self.net: Seq2Seq = load_seq2seq(fetched_model(self.model_config["checkpoint"]))

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Negative log-likelihoods (B, T) of the replies' words."""
        # Dropout belongs to recorded replies: those just said are scored as they were said.
        self.net.train("forced" in batch)
        reply = Sentences(batch["words"])
        nll_BT = action_nll(self.net, Exchanges(source_BN=batch["source"], lengths_B=batch["source_lengths"], reply=reply))
        self.net.eval()
        return {"nll": nll_BT}


class DiscriminatorModule(TorchRLModule):
    """RLModule around a `Discriminator`; model config: `checkpoint`, the folder that it starts from."""

    def setup(self) -> None:
        """Loads the model of the checkpoint."""
        self.net: Discriminator = load_discriminator(fetched_model(self.model_config["checkpoint"]))

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
        like = load_discriminator(fetched_model(self.model_config["checkpoint"]))
        self.net = Critic(like.vocabulary, like.sizes)
        self.net.initialise(torch.Generator().manual_seed(self.model_config["seed"]))
        self.net.eval()

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """What reward is expected after no word of each reply, after one, and so on (B, T + 1)."""
        contexts = ContextBatch(batch["context"], batch["lengths"])
        return {"expected": self.net.prefixes(contexts, batch["replies"], batch["reply_lengths"])}


class LinearCriticModule(TorchRLModule):
    """RLModule around a `LinearCritic`; model config: `hidden` of the generator."""

    def setup(self) -> None:
        """Zeros."""
        self.net = LinearCritic(self.model_config["hidden"])

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """What reward is expected in each context (B, 1)."""
        return {"expected": self.net(batch["encoded"])}


class ReplyLearner(SeededLearner):
    """Updates whichever modules a batch has rows for; the others, and what their optimisers know, stay as they are."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam or SGD, at the module's rate."""
        learning, parameters = self.config.learning, self.get_parameters(self._module[module_id])
        rate = {GENERATOR: learning.generator_rate, DISCRIMINATOR: learning.discriminator_rate, CRITIC: learning.critic_rate}
        kind = torch.optim.Adam if learning.optimiser == "adam" else torch.optim.SGD
        optimiser = kind(parameters, lr=rate[module_id])
        self.register_optimizer(module_id=module_id, optimizer=optimiser, params=parameters, lr_or_lr_schedule=rate[module_id])

    def rate_setting(self, module: str) -> str:
        """Return the name of the setting of a module's step size."""
        return f"learning.{module}_rate"

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Weighted likelihood, cross-entropy or squared error, by module."""
        if module_id == CRITIC:
            return self._critic_loss(batch, fwd_out["expected"])
        if module_id == GENERATOR:
            return self._generator_loss(batch, fwd_out["nll"])
        log_odds_B2 = fwd_out["log_odds"]
        signed_B2 = torch.stack([log_odds_B2[:, 0], -log_odds_B2[:, 1]], dim=1)
        # Of replies that it has not learned from yet; even odds count half.
        right_B2 = (signed_B2 > 0).float() + 0.5 * (signed_B2 == 0).float()
        self.metrics.log_value((DISCRIMINATOR, ACCURACY), right_B2.mean().item(), window=1)
        return F.softplus(-signed_B2).mean()

    def _generator_loss(self, batch: dict[str, Tensor], nll_BT: Tensor) -> Tensor:
        own, num_words = self.config, self.config.num_words
        self.metrics.log_value((GENERATOR, NATS), (nll_BT.sum() / (nll_BT > 0).sum().clamp(min=1)).item(), window=1)
        if "forced" in batch:
            return forcing_loss(nll_BT, batch["forced"] * batch["response_weights"], num_words)
        return policy_loss(own.rewards, nll_BT, batch["advantages"], batch["response_weights"], num_words)

    def _critic_loss(self, batch: dict[str, Tensor], expected_BT1: Tensor) -> Tensor:
        settings = self.config.rewards
        replies = ReplyActions(batch["replies"], batch["reply_lengths"], batch["is_cut"].bool())
        values_BT = baseline_values(settings.chosen_baseline, replies, RunningMean(), expected_BT1)
        return critic_loss(settings, values_BT, batch["rewards"], replies)
