"""What a search should find, worked out sentence by sentence with the networks that learn; and states to search from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from parley.engine.negotiation.attacks import replacement
from parley.engine.negotiation.attacks.replacement import ExchangeBatch
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.core.seeds import stream
from parley.envs.negotiation.dealornodeal_rules import complement, random_scenario, selection_table
from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION_ID, points
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.policies.negotiator.made_up import VOCABULARY, WORDS, negotiator

TARGET = NegotiatorAgent(negotiator(19), "target", temperature=0.8)
SPECIALS = {1, SELECTION_ID, PAD_ID, VOCABULARY.you_id, VOCABULARY.them_id}
Key = tuple[bool, int, float]


@dataclass(frozen=True)
class Verdict:
    """What a sentence comes to, by the networks that learn."""

    broken: bool
    loss: float
    points: tuple[float, float]

    @property
    def advantage(self) -> float:
        return self.points[0] - self.points[1]

    @property
    def key(self) -> Key:
        return self.broken, round(self.loss / 1e-4), -self.advantage


class Oracle:
    """One dialogue, one sentence at a time, every dialogue read from its start.

    Args:
        target: who is asked.
        state: the number of the dialogue, see `states`.
        config: the rules.
    """

    def __init__(self, target: NegotiatorAgent, state: int, config: SearchConfig) -> None:
        self.target, self.config = target, config
        rng = stream(3, "state", state)
        self.scenario = random_scenario(rng)
        self.before = _turn(rng, VOCABULARY.them_id) + _turn(rng, VOCABULARY.you_id)
        self.sentence = [*rng.choice(WORDS, size=int(rng.integers(1, 5))).tolist(), EOS_ID]
        self.draws = generator(state).random((config.replies, replacement.REPLY_WORDS), dtype=np.float32)

    def logits(self, tokens: list[int]) -> Tensor:
        """Logits (V,) of the next word."""
        return _passes(self.target, self.scenario.context(1), tuple(tokens))[0].clone()

    def scores(self, tokens: list[int]) -> list[float]:
        """The score of each legal selection."""
        heads = _passes(self.target, self.scenario.context(1), tuple(tokens))[1]
        return [sum(heads[head][token] for head, token in enumerate(row)) for row in self.table]

    @cached_property
    def table(self) -> list[list[int]]:
        """The tokens of each legal selection."""
        return selection_table(self.scenario.counts).tolist()

    @cached_property
    def earned(self) -> list[tuple[int, int]]:
        """The points of each legal selection of the target, its partner's choice fitting it."""
        counts = self.scenario.counts
        return [points(self.scenario, (complement(counts, i), i))[1] for i in range(len(self.table))]

    def said(self, sentence: list[int]) -> list[int]:
        """The dialogue with the sentence, up to the target's turn."""
        return [*self.before, VOCABULARY.them_id, *sentence, VOCABULARY.you_id]

    def gap(self, sentence: list[int]) -> float:
        """Largest logit of another word than `<selection>` less that of `<selection>`."""
        logits = self.logits(self.said(sentence))
        ending = float(logits[SELECTION_ID])
        logits[SELECTION_ID] = -torch.inf
        return float(logits.max()) - ending

    def end_probability(self, sentence: list[int]) -> float:
        logits = self.logits(self.said(sentence))
        return float((logits / self.target.temperature).softmax(0)[SELECTION_ID])

    def chosen(self, tokens: list[int]) -> tuple[float, tuple[int, int]]:
        """Loss and points of the target's choice after a whole dialogue."""
        scores = self.scores(tokens)
        ahead = [a - b for a, b in self.earned]
        inside = [i for i, value in enumerate(ahead) if value > 0]
        best = max(inside, key=lambda i: scores[i])
        chosen = max(range(len(scores)), key=lambda i: scores[i])
        if self.config.loss == "outcome":
            loss = float(-ahead[chosen])
        elif self.config.loss == "released":
            loss = 5 * (max(scores) - scores[best]) - ahead[best]
        else:
            loss = max(max(s for i, s in enumerate(scores) if i not in inside) - scores[best], -self.config.kappa)
        return loss, self.earned[chosen]

    def judge(self, sentence: list[int]) -> Verdict:
        """Eq. 5-7."""
        gap = self.gap(sentence)
        if self.config.constraint == "hard" and gap > -self.config.end_margin:
            return Verdict(True, 0.0 if self.config.loss == "outcome" else gap, (0, 0))
        loss, earned = self.chosen([*self.said(sentence), SELECTION_ID])
        if self.config.constraint == "soft":
            loss += self.config.penalty * max(0.0, gap / self.target.temperature)
        return Verdict(False, loss, earned)

    def reply(self, sentence: list[int], number: int) -> list[int]:
        """The target's words under the draws of one reply."""
        words: list[int] = []
        for draw in self.draws[number]:
            logits = self.logits(self.said(sentence) + words)
            cumulative = (logits.double() / self.target.temperature).softmax(0).cumsum(0)
            words.append(int(torch.searchsorted(cumulative, float(draw), right=True)))
            if words[-1] in (EOS_ID, SELECTION_ID):
                break
        return words

    def judge_replies(self, sentence: list[int], count: int) -> Verdict:
        """Eq. 8: means over replies, each of which the adversary answers with `<selection>` unless the target has said it."""
        found = []
        for number in range(count):
            reply = self.reply(sentence, number)
            end = [] if reply == [SELECTION_ID] else [VOCABULARY.them_id, SELECTION_ID]
            found.append(self.chosen([*self.said(sentence), *reply, *end]))
        adversary, target = (float(np.mean([earned[side] for _, earned in found])) for side in (0, 1))
        return Verdict(False, float(np.mean([loss for loss, _ in found])), (adversary, target))


@cache
def _passes(target: NegotiatorAgent, context: tuple[int, ...], tokens: tuple[int, ...]) -> tuple[Tensor, list[list[float]]]:
    whole, model = torch.tensor([tokens]), target.model
    with torch.no_grad():
        encoded = model.encode_context(torch.tensor([context]))
        read = model.read(whole, encoded)
        heads = model.selection_logits(whole, read, torch.tensor([len(tokens)]), encoded)[0]
        words = model.word_logits(read[0, -1])
    words[list(VOCABULARY.unspeakable_ids)] = -torch.inf
    return words, heads.tolist()


def _turn(rng: np.random.Generator, marker: int) -> list[int]:
    return [marker, *rng.choice(WORDS, size=int(rng.integers(1, 5))).tolist(), EOS_ID]


def generator(state: int) -> np.random.Generator:
    """The random numbers of one dialogue's search."""
    return stream(4, "search", state)


def states(indices: list[int]) -> tuple[ExchangeBatch, list[np.ndarray], list[np.random.Generator]]:
    """The dialogues of those numbers, the sentences to begin from, and the generators."""
    oracles = [Oracle(TARGET, i, SearchConfig()) for i in indices]
    lengths = np.array([len(oracle.before) for oracle in oracles])
    tokens = np.full((len(oracles), int(lengths.max()) + 2), PAD_ID, dtype=np.int64)
    for row, oracle in enumerate(oracles):
        tokens[row, : lengths[row]] = oracle.before
    contexts = np.array([[oracle.scenario.context(side) for oracle in oracles] for side in (0, 1)], dtype=np.int64)
    sentences = [np.array(oracle.sentence, dtype=np.int64) for oracle in oracles]
    return ExchangeBatch(contexts, tokens, lengths), sentences, [generator(i) for i in indices]
