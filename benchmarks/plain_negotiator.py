"""The negotiator as a researcher writes it: torch's own layers, one dialogue at a time, one word at a time.

It shares the parameters of a `Negotiator` and nothing of how that runs. Utterances of the partner are read by one call
of the layer, own words are sampled one by one, and the legal selections are scored in a loop, as in the published code;
what that does besides (log-probabilities of words, texts, figures kept per word) is left out, which makes this faster.
Dialogues of a corpus are read as a padded batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parley.envs.negotiation.dealornodeal_rules import selection_table
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, points
from parley.envs.negotiation.game import NegotiationGame
from parley.policies.negotiator.model import Negotiator

ENDS = (EOS_ID, SELECTION_ID)


class PlainNegotiator:
    """One side of one dialogue after another.

    Args:
        model: the parameters.
        temperature: of the word distribution.
    """

    def __init__(self, model: Negotiator, temperature: float) -> None:
        self.model, self.temperature = model, temperature
        self.mask = torch.zeros(len(model.vocabulary))
        self.mask[list(model.vocabulary.unspeakable_ids)] = -999.0

    def begin(self, context: Sequence[int]) -> None:
        """Begin a dialogue; the context holds count and value of each item in turn."""
        self.counts = (context[0], context[2], context[4])
        self.scenario = self.model.encode_context(torch.tensor([context]))
        self.state = torch.zeros(1, 1, self.model.sizes.hidden_language)
        self.tokens: list[int] = []
        self.states: list[Tensor] = []

    def read(self, words: list[int]) -> None:
        """Read the partner's words, `<eos>` included."""
        self._advance([self.model.vocabulary.them_id, *words])

    def write(self, draws: Sequence[float]) -> list[int]:
        """Write words, at most one a draw; add `<eos>` if they do not end by themselves."""
        self._advance([self.model.vocabulary.you_id])
        words: list[int] = []
        for draw in draws:
            hidden = self.model.decoder(self.state[0, 0])
            logits = torch.mv(self.model.word_embedding.weight, hidden) / self.temperature + self.mask
            cumulative = logits.softmax(0).cumsum(0)
            words.append(int(torch.searchsorted(cumulative, draw * float(cumulative[-1]), right=True)))
            self._advance(words[-1:])
            if words[-1] in ENDS:
                return words
        self._advance([EOS_ID])
        return [*words, EOS_ID]

    def force_end(self) -> None:
        """Say `<selection>` for this side."""
        self._advance([self.model.vocabulary.you_id, SELECTION_ID])

    def choose(self) -> int:
        """Return the index of the legal selection with the largest sum of head logits."""
        sums = self.sums()
        return sums.index(max(sums))

    def sums(self) -> list[float]:
        """Return the sum of head logits of every legal selection."""
        words = self.model.word_embedding(torch.tensor(self.tokens)).unsqueeze(1)
        logits = _choose_plainly(self.model, torch.cat(self.states), words, self.scenario)[0].tolist()
        legal = selection_table(self.counts).tolist()
        return [sum(logits[head][token] for head, token in enumerate(selection)) for selection in legal]

    def _advance(self, tokens: list[int]) -> None:
        words = self.model.word_embedding(torch.tensor(tokens)).unsqueeze(1)
        inputs = torch.cat([words, self.scenario.expand(len(tokens), 1, -1)], 2)
        states, self.state = nn.GRU.forward(self.model.language, inputs, self.state)
        self.tokens += tokens
        self.states.append(states)


def read_plainly(model: Negotiator, contexts_B6: Tensor, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Return word logits (B, T - 1, V) and item logits (B, 6, 18) of whole dialogues; padding is read, as published."""
    scenario, words = model.encode_context(contexts_B6), model.word_embedding(tokens_BT.t())
    states, _ = nn.GRU.forward(model.language, _dropped(model, torch.cat([words, scenario.expand(len(words), -1, -1)], 2)))
    logits = F.linear(model.decoder(states[:-1]), model.word_embedding.weight)
    return logits.transpose(0, 1), _choose_plainly(model, states, words, scenario)


def _choose_plainly(model: Negotiator, states_TBH: Tensor, words_TBE: Tensor, scenario_BC: Tensor) -> Tensor:
    """Return the item logits (B, 6, 18)."""
    hidden, _ = nn.GRU.forward(model.selection, _dropped(model, torch.cat([states_TBH, words_TBE], 2)))
    scores = model.attention_score(torch.tanh(model.attention_hidden(hidden)))
    attended = (scores.softmax(0) * hidden).sum(0)
    encoded = torch.tanh(model.selection_encoder(_dropped(model, torch.cat([attended, scenario_BC], 1))))
    return model.selection_heads(encoded).unflatten(1, (6, -1))


def _dropped(model: Negotiator, values: Tensor) -> Tensor:
    return F.dropout(values, model.sizes.dropout, model.training)


@dataclass(frozen=True)
class Played:
    """A finished dialogue."""

    tokens: list[int]
    """From side 0's perspective, markers included."""
    selections: tuple[int, int]
    """What each side chose, as indices into the legal selections."""
    points: tuple[int, int]
    """What each side earned."""


@torch.no_grad()
def play_plainly(game: NegotiationGame, row: int, agents: tuple[PlainNegotiator, PlainNegotiator]) -> Played:
    """Play one dialogue of a fresh game; read only its scenario, first speaker and draws."""
    rules, draws = game.rules, game.uniforms[row].tolist()
    for side, agent in enumerate(agents):
        agent.begin(game.contexts[side, row].tolist())
    writer, num_turns, num_tokens = int(game.first_speakers[row]), 0, 0
    while True:
        words = agents[writer].write(draws[num_tokens + 1 : num_tokens + 1 + rules.max_words])
        agents[1 - writer].read(words)
        num_turns, num_tokens = num_turns + 1, num_tokens + 1 + len(words)
        if words == [SELECTION_ID]:
            break
        writer = 1 - writer
        if num_turns >= rules.max_turns or rules.max_tokens - num_tokens < rules.max_words + 4:
            agents[writer].force_end()
            agents[1 - writer].read([SELECTION_ID])
            break
    selections = (agents[0].choose(), agents[1].choose())
    return Played(agents[0].tokens, selections, points(game.scenarios[row], selections)[1])
