"""Rankers that are networks do on a GPU what they do on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra hugging-face is not installed")

from parley.policies.ranking.encoders import BiEncoder, CrossEncoder
from parley.policies.ranking.likelihood import ReplyLikelihood, UtteranceLikelihood
from parley.policies.ranking.matching.fit import MatcherRanker
from parley.policies.ranking.ranker import Pair, Ranker, SlopedRanker, scores_of
from parley.policies.seq2seq.decoding import Seq2SeqResponder
from parley.policies.seq2seq.scoring import WordScores
from tests.devices import CLOSE, on_each_device
from tests.policies.ranking.folders import WORDS, bert, tokenizer
from tests.policies.ranking.matching.made_up import KINDS, matcher, pairs
from tests.policies.seq2seq.made_up import language_model, seq2seq

MADE: dict[str, Callable[[str], Ranker]] = {
    "cross-encoder": lambda device: CrossEncoder(bert(1).to(device), tokenizer()),
    "bi-encoder": lambda device: BiEncoder(bert().to(device), tokenizer()),
    "seq2seq": lambda device: ReplyLikelihood(Seq2SeqResponder(seq2seq().to(device))),
    "language model": lambda device: UtteranceLikelihood(WordScores(language_model().to(device))),
    **{kind: lambda device, kind=kind: MatcherRanker(copy.deepcopy(matcher(kind)).to(device)) for kind in KINDS},  # type: ignore[misc]  # a default that binds the name
}


def asked(words: bool) -> list[Pair]:
    """Pairs of words that the networks know: Hugging Face's own, or those of the others."""
    names = {f"w{number}": word for number, word in enumerate(WORDS[4:])} if words else {}
    return [
        (
            tuple(tuple(names.get(word, word) for word in turn) for turn in context),
            [tuple(names.get(word, word) for word in reply) for reply in candidates],
        )
        for context, candidates in pairs(12)
    ]


@on_each_device
@pytest.mark.parametrize("name", MADE)
def test_it_scores_the_same(name: str, device: str) -> None:
    given = asked(words="encoder" in name)
    found, wanted = (np.concatenate(scores_of(MADE[name](where), given)) for where in (device, "cpu"))
    np.testing.assert_allclose(found, wanted, **CLOSE)
    assert len(np.unique(wanted)) > 10


@on_each_device
@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_the_same_slopes(kind: str, device: str) -> None:
    ranker, base = MADE[kind](device), MADE[kind]("cpu")
    assert isinstance(ranker, SlopedRanker)
    assert isinstance(base, SlopedRanker)
    context, (reply, *_) = pairs(3)[2]
    found, wanted = (each.slopes(context, reply, ["w3", "w9"]) for each in (ranker, base))
    np.testing.assert_allclose(found, wanted, **CLOSE)
