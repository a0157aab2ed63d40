"""A negotiator as an RLModule: the same network that `policies/negotiator` fits and plays, behind RLlib's interface.

Training rows are whole dialogues from the learner's side, not single turns: one teacher-forced pass scores all of a
dialogue's words. Columns of a training batch (N rows, T tokens):
    contexts (N, 6), tokens (N, T), lengths (N,), own (N, T) bool, returns (N, T) float32   dialogues just played
    supervised (N,) bool, outputs (N, 6), corpus_width (N,)               corpus dialogues mixed in, what was chosen, tokens
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.torch import TorchRLModule

from parley.engine.negotiation.attacks.reinforce import policy_log_probs
from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.negotiation.game import SELECT, SPEAK, Rules
from parley.envs.negotiation.vocabulary import PAD_ID
from parley.policies.core.packing import TokenPlaces
from parley.policies.negotiator.checkpoints import load_model
from parley.policies.negotiator.model import Negotiator, supervised_loss, word_nll
from parley.policies.negotiator.speaker import NegotiatorAgent

SELECTION_WEIGHT = 0.5
"""Weight of the selection loss in supervised rows, as in the supervised training."""


class NegotiatorModule(TorchRLModule):
    """RLModule around a `Negotiator`.

    Model config: `checkpoint` (folder or URI it starts from), `temperature` (of its speech).
    """

    def setup(self) -> None:
        """Loads the networks of the checkpoint."""
        self.net: Negotiator = load_model(fetched_model(self.model_config["checkpoint"]))
        self.temperature: float = self.model_config["temperature"]
        self.forbidden = list(self.net.vocabulary.unspeakable_ids)

    no_sync = nullcontext
    """RLlib asks modules for it where there are several learners, as torch's data-parallel ones have it."""

    def agent(self, name: str) -> NegotiatorAgent:
        """The module with its weights of this moment, as an agent that plays."""
        return NegotiatorAgent(self.net.eval(), name, self.temperature)

    def _forward_inference(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Acts on observations of `engine/negotiation/rl/env.py`: re-reads each dialogue, then speaks or chooses."""
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
            said = session.speak(speaking)
            utterances[speaking] = np.where(np.arange(width) < said.lengths[:, None], said.tokens, PAD_ID)
        if choosing.size:
            selections[choosing] = session.choose(choosing)
        return {Columns.ACTIONS: {"utterance": utterances, "selection": selections}}

    _forward_exploration = _forward_inference

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Log-probabilities at the learner's words, and the loss on corpus rows.

        Raises:
            ConfigError: the batch is one of RLlib's own algorithms, whose rows are single turns.
        """
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
            # That of all corpus rows of the update, in which padding counts, where several learners share it.
            tokens = batch["tokens"][supervised, : int(batch["corpus_width"][0])]
            logits, choice = self.net(batch["contexts"][supervised], tokens, batch["lengths"][supervised])
            losses = supervised_loss(choice, word_nll(logits, tokens), batch["outputs"][supervised], SELECTION_WEIGHT)
            out["supervised_words"], out["supervised_selection"] = losses[1:]
            self.net.eval()
        return out

    def word_log_probs(self, net: Negotiator, batch: dict[str, Any]) -> torch.Tensor:
        """Log-probabilities (M, V) under a network's speaking distribution wherever the learner wrote a word."""
        net.eval()
        played = ~batch["supervised"].bool()
        own = batch["own"][played].bool()
        rows_M, steps_M = own.nonzero(as_tuple=True)
        # A word is decided by the state after the token before it: nothing is read past the one before the last word.
        lengths = (own * torch.arange(own.shape[1], device=own.device)).amax(1)
        places = TokenPlaces.of(lengths.cpu().numpy(), own.device)
        states_NH = net.read_spoken(batch["tokens"][played], places, net.encode_context(batch["contexts"][played]))
        states_MH = F.embedding(places.at_BT[rows_M, steps_M - 1], states_NH)
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
