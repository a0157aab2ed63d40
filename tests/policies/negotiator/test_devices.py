"""A negotiator on a GPU says, chooses and scores what it does on the CPU."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from parley.envs.negotiation.game import NegotiationGame, play
from parley.policies.negotiator.inference import Endings, Prefixes, Tables
from parley.policies.negotiator.model import Negotiator, evaluate, utterance_nll
from parley.policies.negotiator.speaker import NegotiatorAgent
from tests.devices import CLOSE, SHARE, on_each_device
from tests.policies.negotiator.made_up import VOCABULARY, deal, dialogues, negotiator, played

NUM_DIALOGUES = 60


def on(device: str, seed: int) -> Negotiator:
    return copy.deepcopy(negotiator(seed)).to(device)


def spoken(device: str, temperature: float) -> NegotiationGame:
    agents = (NegotiatorAgent(on(device, 1), "one", temperature), NegotiatorAgent(on(device, 2), "two", temperature))
    return play(deal(NUM_DIALOGUES), agents)


@on_each_device
@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["likeliest", "drawn"])
def test_it_says_and_chooses_the_same(device: str, temperature: float) -> None:
    found, wanted = spoken(device, temperature), spoken("cpu", temperature)
    width = min(found.tokens.shape[2], wanted.tokens.shape[2])
    same = (found.num_tokens == wanted.num_tokens) & (found.tokens[0, :, :width] == wanted.tokens[0, :, :width]).all(1)
    same &= (found.selections == wanted.selections).all(1)
    assert same.mean() >= SHARE


@on_each_device
def test_it_scores_the_same(device: str) -> None:
    game, judge = played(NUM_DIALOGUES), on(device, 5)
    for side in (0, 1):
        nats, words = utterance_nll(judge, game, side)
        wanted_nats, wanted_words = utterance_nll(negotiator(5), game, side)
        np.testing.assert_allclose(nats, wanted_nats, **CLOSE)
        assert words.tolist() == wanted_words.tolist()


@on_each_device
def test_it_is_measured_the_same(device: str) -> None:
    made = dialogues(NUM_DIALOGUES)
    found, wanted = (vars(evaluate(model, made)) for model in (on(device, 0), negotiator(0)))
    assert found == pytest.approx(wanted, rel=1e-3)


@on_each_device
def test_figures_after_a_kept_beginning_are_the_same(device: str) -> None:
    """What a white-box search orders its candidates by."""
    made, count = dialogues(8, max_turns=5), 60
    tokens = np.zeros((8, int(made.lengths.max())), dtype=np.int64)
    for row, words in zip(tokens, made.words, strict=True):
        row[: len(words)] = words
    rng = np.random.default_rng(0)
    prefixes = rng.integers(8, size=count)
    words_CL, lengths_C = rng.integers(len(VOCABULARY), size=(count, 9)), rng.integers(1, 10, size=count)
    asked = Endings(prefixes, rng.integers(made.lengths[prefixes] + 1), words_CL, lengths_C)
    found, wanted = (Prefixes(Tables(model), made.contexts, tokens, made.lengths) for model in (on(device, 0), negotiator(0)))
    torch.testing.assert_close(found.states(asked).cpu(), wanted.states(asked), **CLOSE)
    torch.testing.assert_close(found.decide(asked).cpu(), wanted.decide(asked), **CLOSE)
