"""A fit with weighted replies: what it minimises, and what it reports."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parley.envs.corpora.pairs.vocabulary import EOS_ID
from parley.policies.core.fitting.batches import OutputLoss
from parley.policies.core.response_weights import ResponseWeights, WeightedReplies
from parley.policies.seq2seq.model import PairExamples
from tests.policies.seq2seq.made_up import VOCABULARY, seq2seq, sizes, split


def test_a_reply_counts_by_its_weight_and_the_reported_loss_has_none() -> None:
    model, examples = seq2seq(), PairExamples(split(8), sizes())
    batch = examples.batch(np.arange(8))
    with torch.no_grad():
        nll_M = model.nll(batch)
    rows_M = batch.real_BT.nonzero()[:, 0]
    nats_B = torch.zeros(8).index_add(0, rows_M, nll_M)
    replies = [
        [word for word in row[real].tolist() if word != EOS_ID]
        for row, real in zip(batch.targets_BT, batch.real_BT, strict=True)
    ]
    weights = ResponseWeights.of(replies[:4], len(VOCABULARY), [EOS_ID])
    assert len(set(weights(replies).round(6))) > 1
    loss = WeightedReplies(model, weights).loss(batch, OutputLoss(model.output))
    assert float(loss.nll) == pytest.approx(float(nll_M.sum()), rel=1e-5)
    assert float(loss.total) == pytest.approx(float((nats_B * torch.from_numpy(weights(replies))).sum()), rel=1e-5)


def test_equal_weights_have_the_gradient_of_the_models_own_loss() -> None:
    model, examples = seq2seq(), PairExamples(split(8), sizes())
    batch, gradients = examples.batch(np.arange(8)), []
    every_word_stops = ResponseWeights.of([], len(VOCABULARY), range(len(VOCABULARY)))
    for loss in (model.loss, WeightedReplies(model, every_word_stops).loss):
        model.zero_grad()
        loss(batch, OutputLoss(model.output)).total.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0])
