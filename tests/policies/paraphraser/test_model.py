"""The network against the paper's equations, written out word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, UNK_ID
from parley.policies.core.fitting.batches import OutputLoss
from parley.policies.paraphraser.model import PointerGenerator, RewriteExamples
from tests.policies.paraphraser.made_up import KNOWN, NUM_WORDS, SIZES, copies, network, split

SOURCE = [5, KNOWN + 3, 6, KNOWN + 1, KNOWN + 3]
TARGET = [KNOWN + 3, 5, 9, KNOWN + 7, KNOWN + 1]
"""Copied only; written or copied; written only; neither, as <unk>; copied only."""


def by_hand(model: PointerGenerator, source: list[int], target: list[int]) -> tuple[list[float], float]:
    """Negative log-likelihoods of the words of one target, and its coverage loss: equations 1 to 13, place by place."""
    weights = dict(model.named_parameters())

    def linear(name: str, value: Tensor) -> Tensor:
        bias = weights.get(f"{name}.bias")
        return weights[f"{name}.weight"] @ value + (0 if bias is None else bias)

    ids = [*source, EOS_ID]
    read = torch.tensor([[i if i < KNOWN else UNK_ID for i in ids]])
    states, (hidden_2H, cell_2H) = model.encoder(model.embedding(read)[0])
    hidden = linear("reduce_hidden", hidden_2H.flatten()).relu()
    cell = linear("reduce_cell", cell_2H.flatten()).relu()
    context, covered = torch.zeros(2 * SIZES.hidden).double(), torch.zeros(len(ids)).double()
    losses, coverage, before = [], 0.0, BOS_ID
    for wanted in [*target, EOS_ID]:
        word = model.embedding.weight[before if before < KNOWN else UNK_ID]
        x = linear("join", torch.cat([word, context]))
        hidden, cell = (each[0] for each in model.decoder(x[None], (hidden[None], cell[None])))
        state = torch.cat([hidden, cell])
        scores = []
        for place, h in enumerate(states):
            inner = linear("key", h) + linear("query", state)
            if bool(model.covers):
                inner = inner + linear("coverage", covered[place : place + 1])
            scores.append(linear("score", inner.tanh())[0])
        attention = torch.stack(scores).softmax(0)
        context = attention @ states
        p_gen = linear("gate", torch.cat([context, state, x])).sigmoid()[0]
        vocabulary = linear("output", linear("mix", torch.cat([hidden, context]))).softmax(0)
        p = torch.zeros(NUM_WORDS).double()
        p[:KNOWN] = p_gen * vocabulary
        for place, i in enumerate(ids):
            p[i] += (1 - p_gen) * attention[place]
        losses.append(-math.log(p[wanted if wanted < KNOWN or wanted in ids else UNK_ID]))
        coverage += float(torch.minimum(attention, covered).sum())
        covered = covered + attention
        before = wanted
    return losses, coverage


@pytest.mark.parametrize("covers", [False, True])
@torch.no_grad()
def test_losses_are_those_of_the_equations(covers: bool) -> None:
    # 1 - p_gen, as the paper writes it, is near nothing for some words.
    model = network(covers=covers).double()
    # A longer pair beside it: what is padded must not be seen.
    pairs = split([SOURCE, TARGET, [5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8, 9, 10, 11]])
    batch = RewriteExamples(pairs, SIZES).batch(np.array([1, 0]))
    losses, coverage = by_hand(model, SOURCE, TARGET)
    assert model.nll(batch)[-len(losses) :].tolist() == pytest.approx(losses, rel=1e-9)
    alone = RewriteExamples(pairs, SIZES).batch(np.array([0]))
    loss = model.loss(alone, OutputLoss(model.output))
    assert float(loss.nll) == pytest.approx(sum(losses), rel=1e-9)
    assert float(loss.total - loss.nll) == pytest.approx(coverage if covers else 0.0, rel=1e-9, abs=1e-9)


def test_gradients_are_finite_where_nothing_can_be_copied_or_written() -> None:
    model = network(covers=True)
    batch = RewriteExamples(copies(8), SIZES).batch(np.arange(8))
    model.loss(batch, OutputLoss(model.output)).total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_coverage_begins_without_effect() -> None:
    model = network()
    model.initialise(torch.Generator().manual_seed(1))
    batch = RewriteExamples(copies(8), SIZES).batch(np.arange(8))
    before = model.nll(batch)
    model.cover(True)
    assert torch.equal(model.nll(batch), before)
