"""Reinforcement learning of one side as a plain loop, without RLlib: what `benchmarks.rllib` compares `engine/core/rllib` with.

It plays the same dialogues, forms the same loss by hand and takes the same steps with the same optimiser.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.corpora.catalogue import Corpus
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.policies.negotiator.model import Negotiator, make_batch, supervised_loss, word_nll
from parley.policies.negotiator.speaker import NegotiatorAgent

SEED = 1
_SELECTION_WEIGHT = 0.5


class PlainLoop:
    """The same training by hand.

    Args:
        learner: learns from its present weights.
        partner: stays as it is.
        rule: its sizes, rates and weights; what kind of rule it is, is written out here.
        corpus: of the supervised guard.
    """

    def __init__(self, learner: Negotiator, partner: Negotiator, rule: ReinforceConfig, corpus: Corpus) -> None:
        self.learner, self.rule, self.corpus = learner, rule, corpus
        self.partner = NegotiatorAgent(partner, "partner", rule.temperature)
        self.reference = copy.deepcopy(learner).requires_grad_(False)
        self.optimiser = torch.optim.Adam(learner.parameters(), lr=rule.learning_rate)
        self.rewards: list[float] = []
        self.iteration = 0

    def update(self) -> None:
        """Plays, then takes one step."""
        game = self._play()
        advantages = (game.points[:, 0] - game.points[:, 1]).tolist()
        self.rewards += advantages
        mean = sum(self.rewards) / len(self.rewards)
        is_own, returns = self._returns(game, [advantage - mean for advantage in advantages])
        with torch.random.fork_rng():
            dialogues_so_far = (self.iteration + 1) * len(game)
            torch.manual_seed(derive_seed(SEED, "dropout", dialogues_so_far))
            loss = self._policy_loss(game, is_own, returns) + self.rule.supervised_weight * self._corpus_loss()
            self.optimiser.zero_grad()
            loss.backward()
        nn.utils.clip_grad_norm_(self.learner.parameters(), self.rule.clip)
        self.optimiser.step()
        self.iteration += 1

    def _play(self) -> NegotiationGame:
        rule, size = self.rule, self.rule.dialogues_per_update
        indices = range(self.iteration * size, (self.iteration + 1) * size)
        scenarios = [random_scenario(stream(SEED, "training scenario", index)) for index in indices]
        seeds = [derive_seed(SEED, "training dialogue", index) for index in indices]
        rules = Rules(max_turns=rule.max_turns, complementary=rule.complementary)
        game = NegotiationGame(scenarios, seeds, self.learner.vocabulary, rules)
        return play(game, (NegotiatorAgent(self.learner.eval(), "learner", rule.temperature), self.partner))

    def _returns(self, game: NegotiationGame, centered: list[float]) -> tuple[np.ndarray, np.ndarray]:
        """Which tokens the learner drew (N, T) bool, and their returns (N, T) float32."""
        width = int(game.num_tokens.max())
        is_own, returns = np.zeros((len(game), width), dtype=bool), np.zeros((len(game), width), dtype=np.float32)
        for row, reward in enumerate(centered):
            drawn, place_in_utterance = [], 0
            for position in range(game.num_tokens[row]):
                place_in_utterance = place_in_utterance + 1 if game.authors[row, position] == 0 else 0
                # The game closes an utterance that has reached its limit; nobody drew that word.
                if 0 < place_in_utterance <= game.rules.max_words:
                    drawn.append(position)
            is_own[row, drawn] = True
            returns[row, drawn] = [reward * self.rule.gamma ** (len(drawn) - 1 - k) for k in range(len(drawn))]
        return is_own, returns

    def _policy_loss(self, game: NegotiationGame, is_own: np.ndarray, returns: np.ndarray) -> torch.Tensor:
        """REINFORCE and the divergence from the reference on the words that the learner drew."""
        tokens, mine = torch.from_numpy(game.tokens[0, :, : is_own.shape[1]]), torch.from_numpy(is_own)
        contexts = torch.from_numpy(np.ascontiguousarray(game.contexts[0]))
        speaking = self._log_probs(self.learner, contexts, tokens, mine)
        with torch.no_grad():
            reference = self._log_probs(self.reference, contexts, tokens, mine)
        log_probs = speaking.gather(1, tokens[mine].unsqueeze(1)).squeeze(1)
        difference = (speaking - reference).masked_fill(torch.isinf(speaking), 0.0)
        divergence = (speaking.exp() * difference).sum(1).mean()
        return -(log_probs * torch.from_numpy(returns)[mine]).sum() / len(game) + self.rule.kl_weight * divergence

    def _log_probs(self, model: Negotiator, contexts: torch.Tensor, tokens: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
        states = model.read(tokens, model.encode_context(contexts))
        logits = model.word_logits(states[:, :-1][mine[:, 1:]]) / self.rule.temperature
        logits[:, list(model.vocabulary.unspeakable_ids)] = -torch.inf
        return logits.log_softmax(1)

    def _corpus_loss(self) -> torch.Tensor:
        train = self.corpus.splits["train"]
        drawn = stream(SEED, "supervised", self.iteration).choice(len(train), size=self.rule.supervised_batch, replace=False)
        batch = make_batch(train, drawn)
        logits, choice = self.learner.train()(batch.contexts_B6, batch.tokens_BT, batch.lengths_B)
        nll = word_nll(logits, batch.tokens_BT)
        return supervised_loss(choice, nll, batch.lengths_B, batch.outputs_B6, _SELECTION_WEIGHT)[0]
