"""First-order changes against a network that knows one more word: one between the word that stands there and another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.engine.negotiation.attacks.choices import Values, end_gaps, losses, word_changes
from parley.envs.negotiation.dealornodeal import DIVISION
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import PAD_ID, Vocabulary
from parley.policies.negotiator.model import Negotiator
from parley.policies.negotiator.speaker import selection_scores
from tests.policies.negotiator.made_up import TINY, VOCABULARY, dialogues, negotiator

LossOf = Callable[[Tensor, Tensor], Tensor]
NUM_WORDS = len(VOCABULARY)
BETWEEN = NUM_WORDS
"""Id of the word that only the other network knows."""


@dataclass(frozen=True)
class Asked:
    """Dialogues of different lengths with what the adversary has at stake in them."""

    contexts: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    values: Values

    def only(self, rows: list[int]) -> Asked:
        width = int(self.lengths[rows].max())
        return Asked(self.contexts[rows], self.tokens[rows, :width], self.lengths[rows], self.values.rows(np.array(rows)))


def asked(size: int) -> Asked:
    rng = np.random.default_rng(8)
    scenarios = [random_scenario(rng) for _ in range(size)]
    contexts = np.array([[scenario.context(side) for scenario in scenarios] for side in (0, 1)], dtype=np.int64)
    made = dialogues(size, seed=3)
    tokens = np.full((size, int(made.lengths.max())), PAD_ID, dtype=np.int64)
    for row, words in enumerate(made.words):
        tokens[row, : len(words)] = words
    return Asked(contexts[1], tokens, made.lengths, Values.of(contexts, DIVISION))


def choice_loss(question: Asked) -> LossOf:
    """How far the target is from a favourable choice."""

    def loss(words: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return losses(selection_scores(items, question.contexts, DIVISION), question.values, "hinge", float("inf"))

    return loss


def both_losses(question: Asked) -> LossOf:
    """The choice, and how far the target was from ending the talk before its last word."""
    places = torch.from_numpy(question.lengths - 2)

    def loss_of(words_nTV: Tensor, items_n6K: Tensor) -> Tensor:
        return choice_loss(question)(words_nTV, items_n6K) + 0.5 * end_gaps(words_nTV[torch.arange(len(places)), places])

    return loss_of


def exact() -> Negotiator:
    """In double precision, so that small differences can be seen."""
    return negotiator(4).double()


def changes(model: Negotiator, question: Asked, loss_of: LossOf) -> Tensor:
    return word_changes(model, question.contexts, question.tokens, question.lengths, loss_of)


def moved(model: Negotiator, question: Asked, loss_of: LossOf, row: int, place: int, word: int, share: float) -> float:
    """The loss if, at one place, a word stood whose embedding lies that share of the way from the old one to another."""
    stands = int(question.tokens[row, place])
    other = Negotiator(Vocabulary((*VOCABULARY.words, "between")), TINY).double().eval()
    weights = model.state_dict()
    embedding = weights["word_embedding.weight"]
    between = embedding[stands] + share * (embedding[word] - embedding[stands])
    other.load_state_dict({**weights, "word_embedding.weight": torch.cat([embedding, between[None]])})
    tokens = torch.from_numpy(question.tokens).clone()
    tokens[row, place] = BETWEEN
    with torch.no_grad():
        words, items = other(torch.from_numpy(question.contexts), tokens, torch.from_numpy(question.lengths))
    return float(loss_of(words[..., :NUM_WORDS], items)[row])


@pytest.mark.parametrize("loss_of", [choice_loss, both_losses])
def test_changes_are_those_of_a_small_step_towards_each_word(loss_of: Callable[[Asked], LossOf]) -> None:
    model, question = exact(), asked(5)
    loss, rng, step = loss_of(question), np.random.default_rng(0), 1e-5
    found = changes(model, question, loss)
    assert found.shape == (5, question.tokens.shape[1], NUM_WORDS)
    sizes = []
    for _ in range(60):
        row = int(rng.integers(5))
        place, word = int(rng.integers(question.lengths[row])), int(rng.integers(NUM_WORDS))
        ahead, back = (moved(model, question, loss, row, place, word, share) for share in (step, -step))
        change = (ahead - back) / (2 * step)
        assert float(found[row, place, word]) == pytest.approx(change, rel=1e-4, abs=1e-7)
        sizes.append(abs(change))
    assert sum(size > 1e-3 for size in sizes) > 30, "a test of zeros would prove little"


def test_a_word_in_its_own_place_changes_nothing() -> None:
    question = asked(6)
    found = changes(negotiator(4), question, both_losses(question))
    own = found.gather(2, torch.from_numpy(question.tokens).unsqueeze(2))
    assert not own.any()
    assert found.abs().amax(2)[:, 0].min() > 0


def test_padding_is_worth_nothing() -> None:
    question = asked(6)
    found = changes(negotiator(4), question, both_losses(question))
    padding = np.arange(question.tokens.shape[1]) >= question.lengths[:, None]
    assert padding.any()
    assert not found[torch.from_numpy(padding)].any()


def test_a_dialogue_promises_the_same_in_any_company() -> None:
    model, question = exact(), asked(6)
    together = changes(model, question, both_losses(question))
    for row in range(6):
        alone = question.only([row])
        found = changes(model, alone, both_losses(alone))[0]
        torch.testing.assert_close(found, together[row, : alone.lengths[0]], rtol=1e-6, atol=1e-9)


def test_it_asks_for_gradients_where_they_are_turned_off() -> None:
    question = asked(2)
    model = negotiator(4)
    with torch.no_grad():
        found = changes(model, question, both_losses(question))
    assert torch.equal(found, changes(model, question, both_losses(question)))
    assert not found.requires_grad


def test_it_leaves_no_trace_on_the_network_even_when_a_loss_fails() -> None:
    model, question = negotiator(4), asked(2)

    def broken(words: Tensor, items: Tensor) -> Tensor:
        raise ZeroDivisionError

    changes(model, question, both_losses(question))
    with pytest.raises(ZeroDivisionError):
        changes(model, question, broken)
    assert not model.word_embedding._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())
