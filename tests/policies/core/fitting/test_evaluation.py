"""Measured losses against the plain forward pass."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from parley.envs.corpora.pairs.vocabulary import EOS_ID
from parley.policies.core.fitting import batches as evaluation
from parley.policies.core.fitting import batches as predictor
from parley.policies.core.fitting.batches import evaluate
from parley.policies.seq2seq.model import PairExamples, SentenceExamples
from tests.policies.seq2seq.made_up import LM_SIZES, language_model, seq2seq, sizes, split


@torch.no_grad()
def test_it_is_the_mean_over_words_with_the_end_of_each_reply() -> None:
    model, examples = seq2seq(), PairExamples(split(20), sizes())
    sums = []
    for index in range(20):
        batch = examples.batch(np.array([index]))
        log_p = model(batch.source_BN, batch.lengths_B, batch.reply.words_in_BT)[0].log_softmax(1)
        targets = batch.targets_BT[0]
        assert int(targets[-1]) == EOS_ID
        sums.append(-float(log_p[torch.arange(len(targets)), targets].sum()))
    fitness = evaluate(model, examples)
    assert sorted(fitness.nll_sums.tolist()) == pytest.approx(sorted(sums), rel=1e-5)
    assert fitness.nll == pytest.approx(sum(sums) / examples.num_targets.sum(), rel=1e-5)
    assert fitness.perplexity == pytest.approx(math.exp(fitness.nll))


def test_it_does_not_depend_on_what_is_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model, examples = language_model(), SentenceExamples(split(20).utterances, LM_SIZES)
    together = evaluate(model, examples)
    monkeypatch.setattr(evaluation, "_ROWS", 3)
    monkeypatch.setattr(predictor, "BLOCK", 4)
    apart = evaluate(model, examples)
    np.testing.assert_allclose(apart.nll_sums, together.nll_sums, rtol=1e-5)
    assert apart.num_targets.tolist() == together.num_targets.tolist() == sorted(examples.num_targets.tolist())


def test_figures_name_the_dialogue_of_each_pair() -> None:
    pairs = np.array([[0, 1], [1, 2], [4, 5], [2, 3], [6, 7]])
    examples = PairExamples(replace(split(8), pairs=pairs), sizes())
    order = np.argsort(examples.num_targets, kind="stable")
    assert evaluate(seq2seq(), examples).units.tolist() == np.array([0, 0, 4, 0, 6])[order].tolist()
    alone = PairExamples(replace(split(8), pairs=pairs[:2]), sizes())
    assert evaluate(seq2seq(), alone).units is None, "of one dialogue each pair counts"


def test_dropout_is_off_while_it_runs() -> None:
    model = seq2seq()
    model.dropout.p = 0.9
    examples = PairExamples(split(20), sizes())
    expected = evaluate(model, examples).nll
    assert evaluate(model.train(), examples).nll == expected
    assert model.training
