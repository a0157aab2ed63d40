"""Matching models asked in words, stored, and found by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from parley.envs.core.errors import CheckpointError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.ranking.matching.fit import FORMATS, MatcherRanker, format_of, load_matcher
from parley.policies.ranking.ranker import BatchRanker, scores_of
from parley.policies.ranking.rankers import load_ranker
from parley.policies.seq2seq.model import Seq2Seq
from parley.policies.seq2seq.scoring import SEQ2SEQ
from tests.policies.ranking.matching.made_up import KINDS, matcher, pairs
from tests.policies.seq2seq.made_up import VOCABULARY as SEQ2SEQ_WORDS
from tests.policies.seq2seq.made_up import sizes as seq2seq_sizes


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_model_is_a_ranker_of_the_same_scores(kind: str, tmp_path: Path) -> None:
    model, asked = matcher(kind, unknowns=3), pairs(5)
    format_of(model.sizes).save(model, tmp_path / "checkpoint", {"seed": 1})
    wanted = MatcherRanker(model).score_all(asked)
    for found in (load_matcher(tmp_path), load_ranker(str(tmp_path))):
        assert isinstance(found, BatchRanker)
        assert all(map(np.array_equal, scores_of(found, asked), wanted))
    assert FORMATS[kind].provenance(tmp_path) == {"seed": 1}


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    SEQ2SEQ.save(Seq2Seq(SEQ2SEQ_WORDS, seq2seq_sizes()), tmp_path / "other", {})
    with pytest.raises(CheckpointError, match="holds no matching model"):
        load_matcher(tmp_path / "other")
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        load_matcher(tmp_path / "nothing")


def test_blocks_hold_as_many_words_as_are_read_at_once() -> None:
    ranker, asked = MatcherRanker(matcher("smn")), pairs(40)
    whole = ranker.score_all(asked)
    ranker.model.words_at_once = 100
    assert np.allclose(np.concatenate(ranker.score_all(asked)), np.concatenate(whole), atol=1e-6, rtol=0)
    assert len(list(ranker._blocks(asked))) > 10


def test_scores_are_probabilities_that_float32_would_not_tell_apart() -> None:
    model = matcher("smn")
    first, second = model.scores(torch.tensor([[20.0], [21.0]])).tolist()
    assert 0 < first < second < 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unknowns", [0, 3])
def test_slopes_are_what_a_small_step_to_another_word_changes(kind: str, unknowns: int) -> None:
    model = matcher(kind, unknowns=unknowns)
    ranker, step = MatcherRanker(model), 2e-3
    context: Context = (("w1", "w2", "w3"), ("w4", "w9", "w5"))
    reply: Utterance = ("w6", "w7", "w1", "w8")
    other, here = model.vocabulary.index["w20"], model.vocabulary.index["w7"]
    far_E = model.embedding.weight[other].detach().clone()

    def log_odds(words: Utterance) -> float:
        with torch.no_grad():
            return float(model(model.reader.read([(context, [words])], torch.device("cpu"))).mean())

    slopes_TW = ranker.slopes(context, reply, ["w20", "w3", "nobody"])
    assert slopes_TW.shape == (4, 3)
    with torch.no_grad():
        model.embedding.weight[other] = model.embedding.weight[here] + step * (far_E - model.embedding.weight[here])
    if kind == "mrfn":
        # The letters of the word stay: only its vector is followed.
        return_to = model.reader._alphabet
        assert return_to is not None
        return_to.spell = lambda words, spell=return_to.spell: spell(["w7" if word == "w20" else word for word in words])  # type: ignore[method-assign,misc]
    moved = log_odds(("w6", "w20", "w1", "w8")) - log_odds(reply)
    # A difference of two log-odds in float32 is told to some 6e-7.
    assert slopes_TW[1, 0] * step == pytest.approx(moved, rel=0.03, abs=1.2e-6)
    assert np.count_nonzero(slopes_TW) > 8


def test_slopes_of_a_reply_that_is_cut_and_of_one_without_words() -> None:
    ranker = MatcherRanker(matcher("smn"))
    long: Utterance = tuple(f"w{number}" for number in range(14))
    slopes_TW = ranker.slopes((("w1", "w2"),), long, ["w20"])
    assert slopes_TW[:3].tolist() == [[0.0]] * 3
    assert slopes_TW[3:].all()
    assert ranker.slopes((("w1",),), (), ["w20"]).shape == (0, 1)
    assert ranker.slopes((("w1",),), ("w2",), []).shape == (1, 0)
