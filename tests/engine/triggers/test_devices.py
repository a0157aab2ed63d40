"""A search on a GPU measures what it measures on the CPU in float32, and chooses the same words."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch

from parley.engine.triggers.catalogue import searches
from parley.engine.triggers.hits import HitType, Thresholds
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.lstm.scorer import LstmScorer
from parley.engine.triggers.scorers.scorer import PlainScorer, Scorer
from parley.engine.triggers.searches.batch import Outcome, Task
from parley.engine.triggers.victims import Seq2SeqVictim
from parley.envs.corpora.pairs.vocabulary import EOS_ID
from tests.devices import CLOSE, SHARE, on_each_device
from tests.engine.triggers.made_up import bound, searched
from tests.engine.triggers.scorers.lstm.judge import LmInputModel
from tests.policies.seq2seq.made_up import FIRST, VOCABULARY, language_model, seq2seq

THRESHOLDS = Thresholds(t_out=-2.5, t_in=-3.0)
HIT = HitType.parse("io-sample-min-k2")
SETTINGS = SearchSettings(candidates=6, max_sweeps=2, words_per_position=3, beams=2)
NUM_TARGETS = 6
KINDS = ("plain", "bounded")


def scorer(kind: str, device: str) -> Scorer:
    model, lm = (copy.deepcopy(network).to(device) for network in (seq2seq(), language_model()))
    objective = HIT.objective(THRESHOLDS)
    if kind == "plain":
        return PlainScorer(Seq2SeqVictim(model), objective, LmInputModel(lm))
    return LstmScorer(Seq2SeqVictim(model, lm), objective)


@cache
def found(method: str, kind: str, device: str) -> list[Outcome]:
    """What a search finds for as many targets, in their order."""
    generator = torch.Generator().manual_seed(4)
    drawn = [torch.randint(FIRST, len(VOCABULARY), (length % 3 + 1,), generator=generator) for length in range(NUM_TARGETS)]
    targets = [torch.cat([words, torch.tensor([EOS_ID])]).to(device) for words in drawn]
    technique = bound(searches.get(method), scorer(kind, device), SETTINGS, lambda reading: HIT.is_hit(reading, THRESHOLDS))
    tasks = [Task(f"{number:02d}", target, 0, number) for number, target in enumerate(targets)]
    return sorted(searched(technique, tasks, 16), key=lambda outcome: outcome.task.key)


@on_each_device
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["gibbs-enum", "hotflip", "gcg", "arca", "beam"])
def test_it_chooses_the_same_words(method: str, kind: str, device: str) -> None:
    here, there = found(method, "plain", "cpu"), found(method, kind, device)
    same = [ours.words == theirs.words for ours, theirs in zip(here, there, strict=True)]
    assert sum(same) >= SHARE * NUM_TARGETS
    for agrees, ours, theirs in zip(same, here, there, strict=True):
        if agrees:
            assert theirs.loss == pytest.approx(ours.loss, rel=CLOSE["rtol"], abs=CLOSE["atol"])
