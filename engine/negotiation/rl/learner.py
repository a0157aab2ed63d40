"""Negotiators as RLlib modules, and the learner of `DialogueReinforce`.

The learner's loss: REINFORCE on dialogues just played, a supervised loss on corpus dialogues, and KL to the start. It serves
goal-based agents, the RL attack, and both sides of adversarial training; only the returns differ.

`NegotiatorModule` wraps the network of `policies/negotiator`. Training rows are whole dialogues from the learner's side, not
single turns: one teacher-forced pass scores all words of a dialogue. Columns of a training batch (N rows, T tokens):
    contexts (N, 6), tokens (N, T), lengths (N,), own (N, T) bool, returns (N, T) float32   dialogues just played
    supervised (N,) bool, outputs (N, 6)                                   corpus dialogues mixed in, what was chosen

`ActorCriticNegotiator` is for RLlib's own algorithms, such as PPO, which ask a module for log-probabilities and values. One
step is one utterance or one choice on `parley/Negotiation-v1` or its two-sided form (`env.py`). An utterance is one action: its
log-probability is the sum over its words, under the distribution that spoke them. Choices are the network's own argmax; they
have probability 1 and teach nothing, as in `DialogueReinforce`. Each step reads the dialogue from its beginning, which costs
time: `DialogueReinforce` reads each dialogue once.

Shapes: B steps, T tokens, L words of an utterance, H language state, M words said in all steps.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.models.torch.torch_distributions import TorchDistribution
from ray.rllib.utils.torch_utils import clip_gradients
from torch import Tensor, nn

from parley.engine.core.rllib.reproducible import DivergenceError, SeededLearner, summed
from parley.engine.negotiation.attacks.reinforce import entropy, kl_to_reference, policy_gradient_loss, policy_log_probs
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.negotiation.domain import PAD_ID
from parley.envs.negotiation.game import SELECT, SPEAK, Rules
from parley.policies.core.checkpoint import eager, keep_freed
from parley.policies.core.layers import TokenPlaces
from parley.policies.negotiator.model import Negotiator, num_weighing, num_words, supervised_loss, word_nll
from parley.policies.negotiator.speaker import NegotiatorAgent, load_model

SELECTION_WEIGHT = 0.5
"""Weight of the selection loss in supervised rows, as in the supervised training."""


class NegotiatorModule(TorchRLModule):
    """An RLModule around a `Negotiator`.

    Model config: `checkpoint` (folder or URI it starts from), `temperature` (of its speech).
    """

    def setup(self) -> None:
        """Load the networks of the checkpoint."""
        self.net: Negotiator = load_model(fetched_model(self.model_config["checkpoint"]))
        self.temperature: float = self.model_config["temperature"]
        self.forbidden = list(self.net.vocabulary.unspeakable_ids)

    no_sync = nullcontext
    """RLlib calls it if there are several learners; torch's data-parallel modules have it."""

    def agent(self, name: str) -> NegotiatorAgent:
        """Return the module with its present weights as an agent."""
        return NegotiatorAgent(self.net.eval(), name, self.temperature)

    def _forward_inference(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Act on observations of `engine/negotiation/rl/env.py`: read each dialogue again, then speak or choose."""
        observations = {key: np.asarray(value) for key, value in batch[Columns.OBS].items()}
        view = _ObservedView(self.net, observations, self.action_space["utterance"].shape[0])
        session = self.agent("module").join(view)  # type: ignore[arg-type]  # quacks like a SideView
        count, width = len(view), view.rules.max_words
        utterances = np.full((count, width), PAD_ID, dtype=np.int64)
        selections = np.zeros(count, dtype=np.int64)
        phase = observations["phase"].reshape(count, -1)
        phase = phase.argmax(1) if phase.shape[1] > 1 else phase[:, 0]
        speaking, choosing = np.flatnonzero(phase == SPEAK), np.flatnonzero(phase == SELECT)
        if speaking.size:
            spoken = session.speak(speaking)
            utterances[speaking] = np.where(np.arange(width) < spoken.lengths[:, None], spoken.tokens, PAD_ID)
        if choosing.size:
            selections[choosing] = session.choose(choosing)
        return {Columns.ACTIONS: {"utterance": utterances, "selection": selections}}

    _forward_exploration = _forward_inference

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return log-probabilities at the learner's words, and the loss on corpus rows."""
        if "supervised" not in batch:
            raise ConfigError(
                "NegotiatorModule learns from whole dialogues",
                where="an algorithm other than DialogueReinforce",
                fix="give that algorithm parley.engine.core.rllib's ActorCriticNegotiator, with the same model config",
            )
        supervised = batch["supervised"].bool()
        out: dict[str, Any] = {"log_probs": self.word_log_probs(self.net, batch)}
        if supervised.any():
            self.net.train()  # dropout belongs to the supervised rows alone: played rows are scored as they were spoken
            lengths = batch["lengths"][supervised]
            tokens = batch["tokens"][supervised, : int(lengths.max())]
            logits, choice = self.net(batch["contexts"][supervised], tokens, lengths)
            losses = supervised_loss(choice, word_nll(logits, tokens), lengths, batch["outputs"][supervised], SELECTION_WEIGHT)
            out["supervised_words"], out["supervised_selection"] = losses[1:]
            self.net.eval()
        return out

    def word_log_probs(self, net: Negotiator, batch: dict[str, Any]) -> torch.Tensor:
        """Return log-probabilities (M, V) under a network's speaking distribution for each word of the learner."""
        net.eval()
        played = ~batch["supervised"].bool()
        own_words = batch["own"][played].bool()
        rows_M, steps_M = own_words.nonzero(as_tuple=True)
        # The state after the token before a word decides it, so nothing is read after the token before the last word.
        lengths = (own_words * torch.arange(own_words.shape[1], device=own_words.device)).amax(1)
        positions = TokenPlaces.of(lengths.cpu().numpy(), own_words.device)
        states_NH = net.read_spoken(batch["tokens"][played], positions, net.encode_context(batch["contexts"][played]))
        states_MH = F.embedding(positions.at_BT[rows_M, steps_M - 1], states_NH)
        return policy_log_probs(net.word_logits(states_MH), self.forbidden, self.temperature)


class _ObservedView:
    """A `SideView` made from a batch of observations, so that a session can act on them."""

    def __init__(self, net: Negotiator, observations: dict[str, np.ndarray], max_words: int) -> None:
        self.vocabulary = net.vocabulary
        self.contexts = observations["context"].astype(np.int64)
        self.tokens = observations["tokens"].astype(np.int64)
        self.num_tokens = observations["num_tokens"].reshape(len(self.contexts), -1)[:, -1].astype(np.int64)
        self.rules = Rules(max_words=max_words, max_tokens=self.tokens.shape[1])
        # Draws come from torch's generator, which RLlib seeds per runner.
        self.uniforms = torch.rand(self.tokens.shape, dtype=torch.float64).numpy()

    def __len__(self) -> int:
        return len(self.contexts)


RELEASED_MOMENTUM = 0.1
CHECKED_TOKENS = 8
"""Tokens of a dialogue on which the weights of an update are checked."""


class DialogueLearner(SeededLearner):
    """The learner of the trained module of a `DialogueReinforce` algorithm."""

    def build(self) -> None:
        """Build the module and its optimiser, and load the reference of the KL guard.

        Raises:
            ClusterError: this machine has other code than the driver.
        """
        if self.config.num_learners:
            # The number of threads changes the last digit of summed gradients, so a worker's environment must not decide it.
            cpus = self.config.num_cpus_per_learner
            torch.set_num_threads(1 if cpus == "auto" else int(cpus))
        keep_freed()
        super().build()
        self._reference = None
        self._guards: dict[str, Tensor] = {}
        if self._reinforce.kl_weight > 0:
            # Always from a checkpoint: a copy of the present weights would move after a resume.
            self._reference = load_model(fetched_model(self.config.roster.reference)).to(self._device).requires_grad_(False)

    def _uncompiled_update(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        results = super()._uncompiled_update(batch, **kwargs)
        for name, rows in batch.items():
            self._require_finite(name, {column: values[:1] for column, values in rows.items()})
        return results

    def _require_finite(self, module_id: str, row: dict[str, Tensor]) -> None:
        """Raise an error if new weights give no finite scores; a few tokens suffice, for nearly all weights enter a logit."""
        net = self.module[module_id].unwrapped().net.eval()
        with torch.no_grad():
            lengths = row["lengths"].clamp(max=CHECKED_TOKENS)
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
        """Register Adam, or SGD with the released momentum."""
        parameters = self.get_parameters(self._module[module_id])
        optimiser: torch.optim.Optimizer
        if self._reinforce.optimiser == "adam":
            optimiser = eager(torch.optim.Adam)(parameters, fused=True)
        else:
            optimiser = eager(torch.optim.SGD)(parameters, momentum=RELEASED_MOMENTUM, nesterov=True, fused=True)
        self.register_optimizer(module_id=module_id, optimizer=optimiser, params=parameters, lr_or_lr_schedule=config.lr)

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Tensor:
        """Return policy-gradient loss + supervised_weight * supervised loss + kl_weight * KL.

        Each term is a mean over the dialogues, words or choices of an update; each of several learners adds its share.
        """
        settings, supervised = self._reinforce, batch["supervised"].bool()
        own_words = batch["own"][~supervised].bool()
        words, returns = batch["tokens"][~supervised][own_words], batch["returns"][~supervised][own_words]
        num_played = int((~supervised).sum())
        weighing = num_weighing(batch["outputs"][supervised], len(self.module[module_id].unwrapped().net.domain.tokens))
        corpus_words = int(num_words(batch["lengths"][supervised]))
        of_dialogues, of_words, of_corpus, of_choices = self._shares(num_played, len(words), corpus_words, weighing)
        log_probs_MV = fwd_out["log_probs"]
        log_probs_M = log_probs_MV.gather(1, words.unsqueeze(1)).squeeze(1)
        loss = of_dialogues * policy_gradient_loss(log_probs_M, returns, max(1, num_played))
        logged = {"policy_gradient_loss": loss, "word_entropy": of_words * entropy(log_probs_MV.detach())}
        if "supervised_words" in fwd_out:
            guard = of_corpus * fwd_out["supervised_words"] + SELECTION_WEIGHT * (of_choices * fwd_out["supervised_selection"])
            logged["supervised_loss"] = guard
            if settings.clipping == "parts":
                self._guards[module_id] = guard
            else:
                loss = loss + settings.supervised_weight * guard
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

    def compute_gradients(self, loss_per_module: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return the gradient of the loss; with the guard's own beside it if each is clipped by itself.

        Raises:
            DivergenceError: a gradient is not finite; the weights are those before the update.
        """
        gradients, settings = super().compute_gradients(loss_per_module, **kwargs), self._reinforce
        if settings.clipping == "whole" or settings.supervised_weight == 0:
            return gradients
        guards, self._guards = self._guards, {}
        of_guard = super().compute_gradients(guards, **kwargs)
        for part in (gradients, of_guard):
            clip_gradients(part, grad_clip=settings.clip, grad_clip_by="global_norm")
        for name, gradient in of_guard.items():
            if gradient is not None:
                own, weighted = gradients.get(name), settings.supervised_weight * gradient
                gradients[name] = weighted if own is None else own + weighted
        return gradients

    def _shares(self, *counts: float) -> list[float]:
        """Return this learner's share of several totals over all learners; 1 for a single learner."""
        if self.config.num_learners < 2:
            return [1.0] * len(counts)
        here = torch.tensor(counts, dtype=torch.float64, device=self._device)
        return (here / summed(here).clamp_min(1)).tolist()


class ScoredActions(TorchDistribution):
    """A distribution known at one action alone: log-probability and entropy (B, 2), as the module has computed them.

    Args:
        logits: log-probability of the action that was taken, and entropy in nats.
    """

    def __init__(self, logits: Tensor) -> None:
        self.inputs = logits
        super().__init__()

    def _get_torch_distribution(self, *_: Any, **__: Any) -> None:
        """Return nothing: there is no torch distribution, but RLlib's base class calls this."""

    def logp(self, value: Any, **_: Any) -> Tensor:
        """Return the log-probability (B,) of the action that was taken."""
        return self.inputs[:, 0]

    def entropy(self) -> Tensor:
        """Return the entropy (B,) in nats of the distributions of the words said, summed over them."""
        return self.inputs[:, 1]

    def kl(self, other: ScoredActions, **_: Any) -> Tensor:
        """Estimate KL(self || other) (B,) from the one action; never negative (Schulman 2020, k3)."""
        log_ratio = other.inputs[:, 0] - self.inputs[:, 0]
        return log_ratio.exp() - 1 - log_ratio

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        """Return 2, the numbers of each step."""
        return 2

    @classmethod
    def from_logits(cls, logits: Tensor, **_: Any) -> ScoredActions:
        """Make the distribution from the module's output."""
        return cls(logits)


class ActorCriticNegotiator(NegotiatorModule, ValueFunctionAPI):
    """`NegotiatorModule` with a critic, for RLlib's own algorithms; the same model config.

    The critic is a linear map of the language state after `YOU:`; its gradient does not reach the language network.
    """

    framework = "torch"

    def setup(self) -> None:
        super().setup()
        self.critic = nn.Linear(self.net.sizes.hidden_language, 1)
        nn.init.zeros_(self.critic.weight)
        nn.init.zeros_(self.critic.bias)

    def get_exploration_action_dist_cls(self) -> type[ScoredActions]:
        """Return the distribution for the outputs of `_forward_exploration` and `_forward_train`."""
        return ScoredActions

    get_train_action_dist_cls = get_inference_action_dist_cls = get_exploration_action_dist_cls

    def _forward_exploration(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return actions as in play, their log-probabilities, and the inputs of the distribution."""
        out = self._forward_inference(batch)
        with torch.no_grad():
            scored_B2 = self._score(batch[Columns.OBS], out[Columns.ACTIONS]["utterance"])[0]
        scored = scored_B2.cpu().numpy()
        return {**out, Columns.ACTION_LOGP: scored[:, 0], Columns.ACTION_DIST_INPUTS: scored}

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return log-probabilities and entropies of the batch's actions, and the states that the critic reads."""
        scored_B2, states_BH = self._score(batch[Columns.OBS], batch[Columns.ACTIONS]["utterance"])
        return {Columns.ACTION_DIST_INPUTS: scored_B2, Columns.EMBEDDINGS: states_BH}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Return the values (B,) of the states before the actions."""
        if embeddings is None:
            with torch.no_grad():
                _, embeddings = self._score(batch[Columns.OBS], None)
        values: Tensor = self.critic(embeddings.detach()).squeeze(-1)
        return values

    def _score(self, observations: dict[str, Any], utterances_BL: Any) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of utterances (B, 2), 0 without words, and language states (B, H) before."""
        self.net.eval()
        columns = {key: _integers(observations[key]) for key in ("context", "tokens", "num_tokens", "phase")}
        contexts_BC, tokens_BT, num_tokens, phase = columns.values()
        size = len(contexts_BC)
        lengths_B, speaks_B = num_tokens.reshape(size, -1)[:, -1], phase.reshape(size, -1)[:, -1] == SPEAK
        words_BL = torch.full((size, 1), PAD_ID) if utterances_BL is None else _integers(utterances_BL)
        words_BL = words_BL.to(tokens_BT.device).masked_fill(~speaks_B.unsqueeze(1), PAD_ID)
        counts_B = ((words_BL != PAD_ID) * torch.arange(1, words_BL.shape[1] + 1, device=words_BL.device)).amax(1)
        width = int((lengths_B + 1 + counts_B).max())
        row, position = torch.nonzero(
            torch.arange(words_BL.shape[1], device=words_BL.device) < counts_B.unsqueeze(1), as_tuple=True
        )
        read_BT = torch.full((size, width), PAD_ID, device=tokens_BT.device)
        read_BT[:, : tokens_BT.shape[1]] = tokens_BT[:, :width]
        all_rows = torch.arange(size, device=tokens_BT.device)
        read_BT[all_rows, lengths_B] = self.net.vocabulary.you_id
        read_BT[row, lengths_B[row] + 1 + position] = words_BL[row, position]
        states_BTH = self.net.read(read_BT, self.net.encode_context(contexts_BC))
        # The state after the token before a word decides it.
        logits_MV = self.net.word_logits(states_BTH[row, lengths_B[row] + position])
        log_probs_MV = policy_log_probs(logits_MV, self.forbidden, self.temperature)
        log_probs_M = log_probs_MV.gather(1, words_BL[row, position].unsqueeze(1)).squeeze(1)
        surprise_MV = torch.where(log_probs_MV.isinf(), 0.0, -log_probs_MV)
        entropies_M = (log_probs_MV.exp() * surprise_MV).sum(1)
        scored_B2 = log_probs_MV.new_zeros(size, 2).index_add(0, row, torch.stack([log_probs_M, entropies_M], 1))
        return scored_B2, states_BTH[all_rows, lengths_B]


def _integers(values: Any) -> Tensor:
    return torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values)).long()
