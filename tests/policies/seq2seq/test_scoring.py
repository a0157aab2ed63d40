"""Scores of utterances by a language model: those of its forward pass, whatever is scored beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from parley.envs.corpora.pairs.vocabulary import BOS_ID, EOS_ID, UNK_ID
from parley.policies.seq2seq.scoring import WordScores
from tests.policies.seq2seq.made_up import language_model

UTTERANCES = [("w1", "w2", "w3"), (), ("w4",), tuple(f"w{number}" for number in range(20)), ("nowhere", "w1")]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_every_word_and_the_end_are_scored_as_the_model_predicts_them(batch_size: int) -> None:
    model = language_model()
    found = WordScores(model, batch_size).log_probabilities(UTTERANCES)
    for words, scores in zip(UTTERANCES, found, strict=True):
        ids = [BOS_ID, *(model.vocabulary.index.get(word, UNK_ID) for word in words), EOS_ID]
        with torch.no_grad():
            logits = model(torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        wanted = [float(logits[place, word]) for place, word in enumerate(ids[1:])]
        assert scores.shape == (len(words) + 1,)
        np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-6)


def test_nothing_has_no_scores() -> None:
    assert WordScores(language_model()).log_probabilities([]) == []
