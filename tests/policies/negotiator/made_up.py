"""Dialogues made up for the tests of the negotiator, and networks small enough to compute with at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from parley.envs.core.seeds import derive_seed
from parley.envs.negotiation.dealornodeal_rules import DISAGREE_ID, DISCONNECT_ID, random_scenario, selection_table
from parley.envs.negotiation.domain import EOS_ID, SELECTION_ID, Scenario
from parley.envs.negotiation.game import NegotiationGame, Rules, play
from parley.policies.negotiator.inference import Screening
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.settings import NegotiatorSizes
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.envs.negotiation.agents import VOCABULARY
from tests.policies.large_weights import with_large_weights

TINY = NegotiatorSizes(
    embed_word=8, embed_context=4, hidden_context=5, hidden_language=6, hidden_attention=7, hidden_selection=9
)
SHORT = Rules(max_turns=6, max_words=8, max_tokens=64)
WORDS = VOCABULARY.encode(["i", "want", "the", "book", "hat", "ball", "no", "deal", "."])


def always_screened() -> Screening:
    """However few choices, and however many of them are left to float32."""
    return Screening(lambda: -1.0, least_rows=1)


def never_screened() -> Screening:
    """As where bfloat16 is no faster."""
    return Screening(lambda: 1.0, least_rows=1)


@dataclass(frozen=True)
class MadeUp:
    """Dialogues in memory (as `parley.envs.negotiation.corpora.catalogue.Split`)."""

    contexts: np.ndarray
    outputs: np.ndarray
    words: list[np.ndarray]

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(words) for words in self.words], dtype=np.int64)

    def tokens(self, index: int, /) -> np.ndarray:
        return self.words[index]

    def __len__(self) -> int:
        return len(self.words)


def dialogues(size: int, seed: int = 0, max_turns: int = 4) -> MadeUp:
    """Random words by turns; every fifth dialogue is a `<disagree>`, every seventh a `<disconnect>`."""
    rng = np.random.default_rng(seed)
    scenarios = [random_scenario(rng) for _ in range(size)]
    outputs = []
    for place, scenario in enumerate(scenarios):
        table = selection_table(scenario.counts)
        chosen = table[rng.integers(len(table) - 1)]
        for every, token in ((5, DISAGREE_ID), (7, DISCONNECT_ID)):
            if place % every == every - 1:
                chosen = np.full(6, token)
        outputs.append(chosen)
    return MadeUp(
        contexts=np.array([scenario.context(0) for scenario in scenarios], dtype=np.int64),
        outputs=np.array(outputs, dtype=np.int64),
        words=[_said(rng, int(rng.integers(0, max_turns + 1))) for _ in range(size)],
    )


def _said(rng: np.random.Generator, num_turns: int) -> np.ndarray:
    markers = [VOCABULARY.you_id, VOCABULARY.them_id]
    first = int(rng.integers(2))
    tokens: list[int] = []
    for turn in range(num_turns):
        words = rng.choice(WORDS, size=int(rng.integers(1, 6))).tolist()
        tokens += [markers[(first + turn) % 2], *words, EOS_ID]
    return np.array([*tokens, markers[(first + num_turns) % 2], SELECTION_ID], dtype=np.int64)


def negotiator(seed: int = 0, sizes: NegotiatorSizes = TINY) -> Negotiator:
    """A network of random weights, in evaluation mode; they are large, biases too, so that every word read tells."""
    return with_large_weights(Negotiator(VOCABULARY, sizes), seed)


def deal(size: int, seed: int = 0, rules: Rules = SHORT) -> NegotiationGame:
    """Fresh dialogues on random scenarios."""
    rng = np.random.default_rng(seed)
    scenarios: list[Scenario] = [random_scenario(rng) for _ in range(size)]
    return NegotiationGame(scenarios, [derive_seed(seed, place) for place in range(size)], VOCABULARY, rules)


def played(size: int, seed: int = 0, rules: Rules = SHORT, temperature: float = 1.0) -> NegotiationGame:
    """Dialogues between two different networks, over."""
    agents = (NegotiatorAgent(negotiator(1), "one", temperature), NegotiatorAgent(negotiator(2), "two", temperature))
    return play(deal(size, seed, rules), agents)


def row(values: np.ndarray) -> Tensor:
    """One example as a batch of its own."""
    return torch.from_numpy(np.ascontiguousarray(values))[None]
