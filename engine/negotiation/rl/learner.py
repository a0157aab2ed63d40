"""The learner: REINFORCE on dialogues just played, a supervised loss on corpus dialogues, and KL to the start.

Serves goal-based agents, the RL attack, and both sides of adversarial training; what differs between them is the reward,
which the algorithm has already turned into returns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parley.engine.core.baseline import DivergenceError
from parley.engine.core.rllib.reproducible import SeededLearner, summed
from parley.engine.negotiation.attacks.reinforce import entropy, kl_to_reference, policy_gradient_loss
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.rl.module import SELECTION_WEIGHT
from parley.envs.core.storage.copies import fetched_model
from parley.policies.core.memory import keep_freed
from parley.policies.negotiator.checkpoints import load_model
from parley.policies.negotiator.model import num_weighing

RELEASED_MOMENTUM = 0.1
TRIED_TOKENS = 8
"""Tokens of a dialogue on which the weights of an update are tried."""


class DialogueLearner(SeededLearner):
    """Updates the trained module of a `DialogueReinforce` algorithm."""

    def build(self) -> None:
        """Builds the module and its optimiser, and loads the reference of the KL guard.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        if self.config.num_learners:
            # Sums of gradients differ in the last digit with the number of threads: a worker's environment must not decide it.
            cpus = self.config.num_cpus_per_learner
            torch.set_num_threads(1 if cpus == "auto" else int(cpus))
        keep_freed()
        super().build()
        self._reference = None
        if self._reinforce.kl_weight > 0:
            # Always from a checkpoint: a copy of the present weights would move after a resume.
            self._reference = load_model(fetched_model(self.config.roster.reference)).to(self._device).requires_grad_(False)

    def _uncompiled_update(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        results = super()._uncompiled_update(batch, **kwargs)
        for name, rows in batch.items():
            self._require_working(name, {column: values[:1] for column, values in rows.items()})
        return results

    def _require_working(self, module_id: str, row: dict[str, Tensor]) -> None:
        """Checks on the beginning of a dialogue that the weights of an update still make numbers of words and choices.

        A few tokens do: all weights are in the logits of a word, but for what is read of words that they are not.

        Raises:
            DivergenceError: they do not: nobody could speak with them.
        """
        net = self.module[module_id].unwrapped().net.eval()
        with torch.no_grad():
            lengths = row["lengths"].clamp(max=TRIED_TOKENS)
            logits, choice = net(row["contexts"], row["tokens"][:, : int(lengths.max())], lengths)
        if not all(bool(values.isfinite().all()) for values in (logits, choice)):
            raise DivergenceError(
                "the weights of an update no longer make finite numbers",
                where="reinforcement learning",
                got="NaN or infinity among the scores of words or choices",
                fix=f"train again with a smaller {self.rates([module_id])}",
            )

    @property
    def _reinforce(self) -> ReinforceConfig:
        return self.config.reinforce

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam, or SGD with the released momentum."""
        parameters = self.get_parameters(self._module[module_id])
        optimiser: torch.optim.Optimizer
        if self._reinforce.optimiser == "adam":
            optimiser = torch.optim.Adam(parameters, fused=True)
        else:
            optimiser = torch.optim.SGD(parameters, momentum=RELEASED_MOMENTUM, nesterov=True, fused=True)
        self.register_optimizer(module_id=module_id, optimizer=optimiser, params=parameters, lr_or_lr_schedule=config.lr)

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Policy-gradient loss + supervised_weight * supervised loss + kl_weight * KL.

        Each is a mean over all that an update has of something; of several learners each adds its share of it.
        """
        settings, supervised = self._reinforce, batch["supervised"].bool()
        own = batch["own"][~supervised].bool()
        words, returns = batch["tokens"][~supervised][own], batch["returns"][~supervised][own]
        num_played = int((~supervised).sum())
        weighing = num_weighing(batch["outputs"][supervised], len(self.module[module_id].unwrapped().net.domain.tokens))
        of_dialogues, of_words, of_corpus, of_choices = self._shares(num_played, len(words), int(supervised.sum()), weighing)
        log_probs_MV = fwd_out["log_probs"]
        log_probs_M = log_probs_MV.gather(1, words.unsqueeze(1)).squeeze(1)
        loss = of_dialogues * policy_gradient_loss(log_probs_M, returns, max(1, num_played))
        logged = {"policy_gradient_loss": loss, "word_entropy": of_words * entropy(log_probs_MV.detach())}
        if "supervised_words" in fwd_out:
            guard = of_corpus * fwd_out["supervised_words"] + SELECTION_WEIGHT * (of_choices * fwd_out["supervised_selection"])
            loss = loss + settings.supervised_weight * guard
            logged["supervised_loss"] = guard
        if self._reference is not None:
            with torch.no_grad():
                reference = self.module[module_id].unwrapped().word_log_probs(self._reference, batch)
            kl = of_words * kl_to_reference(log_probs_MV, reference)
            loss = loss + settings.kl_weight * kl
            logged["kl"] = kl
        for name, value in logged.items():
            # RLlib averages the figures of several learners.
            self.metrics.log_value((module_id, name), value.item() * max(1, self.config.num_learners), window=1)
        return loss

    def _shares(self, *counts: float) -> list[float]:
        """This learner's shares of what all have of several things; of one learner, all."""
        if self.config.num_learners < 2:
            return [1.0] * len(counts)
        here = torch.tensor(counts, dtype=torch.float64, device=self._device)
        return (here / summed(here).clamp_min(1)).tolist()
