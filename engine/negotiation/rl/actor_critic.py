"""A negotiator that RLlib's own algorithms train: PPO, and others that ask a module for log-probabilities and values.

One step is one utterance or one choice on `parley/Negotiation-v1` or its two-sided form (`env.py`). An utterance counts as one
action: its log-probability is the sum over its words, under the distribution that spoke them. Choices are the network's own
argmax; they have probability 1 and teach nothing, as in `DialogueReinforce`. Each step reads the dialogue from its beginning;
nothing is kept between steps. That costs time: `DialogueReinforce` reads each dialogue once.

Shapes: B steps, T tokens, L words of an utterance, H language state, M words said in all steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.models.torch.torch_distributions import TorchDistribution
from torch import Tensor, nn

from parley.engine.negotiation.attacks.reinforce import policy_log_probs
from parley.engine.negotiation.rl.module import NegotiatorModule
from parley.envs.negotiation.game import SPEAK
from parley.envs.negotiation.vocabulary import PAD_ID


class ScoredActions(TorchDistribution):
    """A distribution known at one action alone: log-probability and entropy (B, 2), as the module has computed them.

    Args:
        logits: log-probability of the action that was taken, and entropy in nats.
    """

    def __init__(self, logits: Tensor) -> None:
        self.inputs = logits
        super().__init__()

    def _get_torch_distribution(self, *_: Any, **__: Any) -> None:
        """There is none; RLlib's base class asks."""

    def logp(self, value: Any, **_: Any) -> Tensor:
        """Log-probability (B,) of the action that was taken."""
        return self.inputs[:, 0]

    def entropy(self) -> Tensor:
        """Entropy (B,) in nats of the distributions of the words said, summed over them."""
        return self.inputs[:, 1]

    def kl(self, other: ScoredActions, **_: Any) -> Tensor:
        """An estimate (B,) of KL(self || other) from the one action, never negative (Schulman 2020, k3)."""
        log_ratio = other.inputs[:, 0] - self.inputs[:, 0]
        return log_ratio.exp() - 1 - log_ratio

    @staticmethod
    def required_input_dim(space: Any, **_: Any) -> int:
        """Two numbers for each step."""
        return 2

    @classmethod
    def from_logits(cls, logits: Tensor, **_: Any) -> ScoredActions:
        """From what the module returned."""
        return cls(logits)


class ActorCriticNegotiator(NegotiatorModule, ValueFunctionAPI):
    """`NegotiatorModule` with a critic, for RLlib's own algorithms; the same model config.

    The critic is a linear map of the language state after `YOU:`; what it learns does not move the language.
    """

    framework = "torch"

    def setup(self) -> None:
        super().setup()
        self.critic = nn.Linear(self.net.sizes.hidden_language, 1)
        nn.init.zeros_(self.critic.weight)
        nn.init.zeros_(self.critic.bias)

    def get_exploration_action_dist_cls(self) -> type[ScoredActions]:
        """What `_forward_exploration` and `_forward_train` return the numbers of."""
        return ScoredActions

    get_train_action_dist_cls = get_inference_action_dist_cls = get_exploration_action_dist_cls

    def _forward_exploration(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Actions as in play, their log-probability, and what PPO keeps of the distribution."""
        out = self._forward_inference(batch)
        with torch.no_grad():
            scored_B2 = self._score(batch[Columns.OBS], out[Columns.ACTIONS]["utterance"])[0]
        scored = scored_B2.cpu().numpy()
        return {**out, Columns.ACTION_LOGP: scored[:, 0], Columns.ACTION_DIST_INPUTS: scored}

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Log-probabilities and entropies of the actions in the batch, and the states that the critic reads."""
        scored_B2, states_BH = self._score(batch[Columns.OBS], batch[Columns.ACTIONS]["utterance"])
        return {Columns.ACTION_DIST_INPUTS: scored_B2, Columns.EMBEDDINGS: states_BH}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Values (B,) of the states before the actions."""
        if embeddings is None:
            with torch.no_grad():
                _, embeddings = self._score(batch[Columns.OBS], None)
        values: Tensor = self.critic(embeddings.detach()).squeeze(-1)
        return values

    def _score(self, observations: dict[str, Any], utterances_BL: Any) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of utterances (B, 2), 0 where nothing was said, and language states (B, H) before."""
        self.net.eval()
        seen = {key: _whole(observations[key]) for key in ("context", "tokens", "num_tokens", "phase")}
        contexts_BC, tokens_BT, heard, phase = seen.values()
        size = len(contexts_BC)
        heard_B, speaks_B = heard.reshape(size, -1)[:, -1], phase.reshape(size, -1)[:, -1] == SPEAK
        said_BL = torch.full((size, 1), PAD_ID) if utterances_BL is None else _whole(utterances_BL)
        said_BL = said_BL.to(tokens_BT.device).masked_fill(~speaks_B.unsqueeze(1), PAD_ID)
        counts_B = ((said_BL != PAD_ID) * torch.arange(1, said_BL.shape[1] + 1, device=said_BL.device)).amax(1)
        width = int((heard_B + 1 + counts_B).max())
        row, place = torch.nonzero(torch.arange(said_BL.shape[1], device=said_BL.device) < counts_B.unsqueeze(1), as_tuple=True)
        read_BT = torch.full((size, width), PAD_ID, device=tokens_BT.device)
        read_BT[:, : tokens_BT.shape[1]] = tokens_BT[:, :width]
        everyone = torch.arange(size, device=tokens_BT.device)
        read_BT[everyone, heard_B] = self.net.vocabulary.you_id
        read_BT[row, heard_B[row] + 1 + place] = said_BL[row, place]
        states_BTH = self.net.read(read_BT, self.net.encode_context(contexts_BC))
        # A word is decided by the state after the token before it.
        logits_MV = self.net.word_logits(states_BTH[row, heard_B[row] + place])
        log_probs_MV = policy_log_probs(logits_MV, self.forbidden, self.temperature)
        log_probs_M = log_probs_MV.gather(1, said_BL[row, place].unsqueeze(1)).squeeze(1)
        surprise_MV = torch.where(log_probs_MV.isinf(), 0.0, -log_probs_MV)
        entropies_M = (log_probs_MV.exp() * surprise_MV).sum(1)
        scored_B2 = log_probs_MV.new_zeros(size, 2).index_add(0, row, torch.stack([log_probs_M, entropies_M], 1))
        return scored_B2, states_BTH[everyone, heard_B]


def _whole(values: Any) -> Tensor:
    """A column of whole numbers as a tensor, whatever RLlib's connectors have made of it."""
    return torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values)).long()
