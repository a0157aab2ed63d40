"""Perplexities against plain loops in the style of the released code: one padded batch of 16 at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.envs.negotiation.dealornodeal_rules import DISAGREE_ID, DISCONNECT_ID
from parley.envs.negotiation.domain import PAD_ID
from parley.policies.negotiator.model import Negotiator, evaluate
from tests.policies.negotiator.made_up import MadeUp, dialogues, negotiator


def alone(model: Negotiator, made: MadeUp, i: int) -> tuple[Tensor, Tensor]:
    """Word logits (T - 1, V) and item logits (6, 18) of one dialogue."""
    context, tokens = torch.from_numpy(made.contexts[[i]]), torch.from_numpy(made.words[i])[None]
    words, choice = model(context, tokens, torch.tensor([tokens.shape[1]]))
    return words[0], choice[0]


def released_figures(model: Negotiator, made: MadeUp) -> tuple[float, float]:
    """Word and selection perplexity as the released code prints them."""
    order = sorted(range(len(made)), key=lambda i: len(made.words[i]))
    word_total, num_words, selection_total, num_batches = 0.0, 0, 0.0, 0
    for start in range(0, len(made), 16):
        members = order[start : start + 16]
        longest = max(len(made.words[i]) for i in members)
        nats, num_targets, selection_nats, selection_weight = 0.0, 0, 0.0, 0
        for i in members:
            padded = [*made.words[i].tolist(), *[PAD_ID] * (longest - len(made.words[i]))]
            length = torch.tensor([len(made.words[i])])
            logits, choice = model(torch.from_numpy(made.contexts[[i]]), torch.tensor([padded]), length)
            log_probs, item_log_probs = logits[0].log_softmax(1).tolist(), choice[0].log_softmax(1).tolist()
            for place in range(longest - 1):
                nats -= log_probs[place][padded[place + 1]]
                num_targets += 1
            for head, token in enumerate(made.outputs[i].tolist()):
                if token not in (DISAGREE_ID, DISCONNECT_ID):
                    selection_nats -= item_log_probs[head][token]
                    selection_weight += 1
            num_words += len(made.words[i])
        word_total += num_targets * (nats / num_targets)
        selection_total += selection_nats / selection_weight
        num_batches += 1
    return math.exp(word_total / num_words), math.exp(selection_total / num_batches)


@pytest.mark.parametrize("size", [5, 16, 41])
def test_reference_figures_are_those_of_the_released_formulas(size: int) -> None:
    made, model = dialogues(size, seed=size, max_turns=8), negotiator()
    assert len(set(made.lengths.tolist())) > 2, "padding is the point"
    found = evaluate(model, made)
    with torch.no_grad():
        words, selection = released_figures(model, made)
    assert found.perplexity_reference == pytest.approx(words, rel=1e-5)
    assert found.selection_perplexity == pytest.approx(selection, rel=1e-5)
    assert found.selection_loss == pytest.approx(math.log(selection), rel=1e-5)


def test_hundreds_of_dialogues_take_several_passes_and_give_the_same_figures() -> None:
    # More than the 256 dialogues of one pass.
    made, model = dialogues(270, max_turns=2), negotiator()
    with torch.no_grad():
        words, selection = released_figures(model, made)
    found = evaluate(model, made)
    assert found.perplexity_reference == pytest.approx(words, rel=1e-5)
    assert found.selection_perplexity == pytest.approx(selection, rel=1e-5)


def test_perplexity_per_token_leaves_padding_and_first_tokens_out() -> None:
    made, model = dialogues(20, max_turns=8), negotiator()
    nats, num_words = 0.0, 0
    with torch.no_grad():
        for i in range(20):
            tokens = made.words[i]
            log_probs = alone(model, made, i)[0].log_softmax(1).tolist()
            nats -= sum(log_probs[t - 1][tokens[t]] for t in range(1, len(tokens)))
            num_words += len(tokens) - 1
    assert evaluate(model, made).perplexity == pytest.approx(math.exp(nats / num_words), rel=1e-5)


def test_accuracy_counts_what_can_be_predicted_alone() -> None:
    made, model = dialogues(35), negotiator()
    with torch.no_grad():
        guesses = [alone(model, made, i)[1].argmax(-1).numpy() for i in range(35)]
    outputs = made.outputs.copy()
    unpredictable = np.isin(outputs[:, 0], (DISAGREE_ID, DISCONNECT_ID))
    # Let the model be right in six dialogues, of which some end in what nobody can predict.
    for i in range(6):
        if not unpredictable[i]:
            outputs[i] = guesses[i]
    outputs[10] = guesses[10]
    outputs[10, 5] = (outputs[10, 5] + 1) % 15
    unpredictable = np.isin(outputs[:, 0], (DISAGREE_ID, DISCONNECT_ID))
    right = sum(outputs[i].tolist() == guesses[i].tolist() and not unpredictable[i] for i in range(35))
    assert 0 < right < 7
    found = evaluate(model, MadeUp(made.contexts, outputs, made.words))
    assert found.selection_accuracy == pytest.approx(right / int((~unpredictable).sum()))


@pytest.mark.parametrize("training", [True, False])
def test_it_leaves_the_model_as_it_was_and_drops_nothing(training: bool) -> None:
    model, made = negotiator().train(training), dialogues(8)
    assert evaluate(model, made) == evaluate(model, made)
    assert model.training == training
