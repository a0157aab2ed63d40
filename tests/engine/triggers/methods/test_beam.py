"""Beam search keeps the best few of all its swaps, is gibbs-enum with one, and gets further with more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from parley.engine.triggers.hits import Reading
from parley.engine.triggers.methods.beam import Beam
from parley.engine.triggers.methods.gibbs_enum import GibbsEnum
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.scorer import PlainScorer
from parley.engine.triggers.searches.batch import Task
from tests.engine.triggers.made_up import LENGTH, SEARCHABLE, TARGET, TinyVictim, bound, scorer, searched, tasks

LIKELIHOOD = TriggerObjective(kind="likelihood")
SETTINGS = SearchSettings(candidates=4)


def search(beams: int) -> Beam:
    return bound(Beam, scorer(LIKELIHOOD), replace(SETTINGS, beams=beams))


def test_one_beam_is_gibbs_enum() -> None:
    gibbs = bound(GibbsEnum, scorer(LIKELIHOOD), SETTINGS)
    for one, other in zip(searched(search(1), tasks(restarts=4), 8), searched(gibbs, tasks(restarts=4), 8), strict=True):
        assert (one.task.key, one.words, one.visits) == (other.task.key, other.words, other.visits)
        assert (one.accepted, one.candidates, one.stopped) == (other.accepted, other.candidates, other.stopped)


@pytest.mark.parametrize("beams", [2, 5])
def test_a_visit_keeps_the_best_of_the_beam_and_of_all_its_swaps(beams: int) -> None:
    method = search(beams)
    (state,) = method.start([Task("first", TARGET, 0, 3)])
    widest = 0
    while not state.finished:
        place = state.visits % LENGTH
        pool = {tuple(incumbent.words.tolist()) for incumbent in state.beam}
        for incumbent in state.beam:
            for word in method.steepest([incumbent], torch.tensor([place]), 4)[0].tolist():
                words = incumbent.words.tolist()
                pool.add((*words[:place], word, *words[place + 1 :]))
        inputs = torch.tensor(sorted(pool))
        losses = scorer(LIKELIHOOD).losses([TARGET] * len(inputs), inputs).sort().values
        method.step([state])
        kept = torch.tensor([incumbent.loss for incumbent in state.beam])
        torch.testing.assert_close(kept, losses[:beams], rtol=0, atol=1e-5)
        assert len({tuple(incumbent.words.tolist()) for incumbent in state.beam}) == len(kept), "no two alike"
        assert state.best is state.beam[0]
        widest = max(widest, len(kept))
    assert widest == beams
    assert state.stopped == "converged"


def test_more_beams_get_further_on_the_whole_and_cost_more() -> None:
    one, many = (list(searched(search(beams), tasks(restarts=6), 12)) for beams in (1, 4))
    assert sum(outcome.loss for outcome in many) < sum(outcome.loss for outcome in one)
    assert sum(outcome.candidates for outcome in many) > sum(outcome.candidates for outcome in one)


def test_it_ends_after_a_sweep_that_changes_no_beam() -> None:
    settings = SearchSettings(candidates=len(SEARCHABLE), beams=3)
    method = bound(Beam, scorer(LIKELIHOOD), settings)
    (state,) = method.start([Task("first", TARGET, 1, 3)])
    beams = []
    while not state.finished:
        method.step([state])
        beams.append([tuple(incumbent.words.tolist()) for incumbent in state.beam])
    assert beams[-LENGTH - 1] == beams[-1] != beams[-LENGTH - 2]


@pytest.mark.parametrize("beams", [1, 2])
def test_inputs_as_good_as_those_kept_do_not_send_it_round_in_circles(beams: int) -> None:
    class Rounding(PlainScorer):
        def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
            return super().losses(targets, words_RN) - 5e-7

    victim = TinyVictim.draw(0)
    victim.read_NEH[0] = 0
    method = bound(Beam, Rounding(victim, LIKELIHOOD), replace(SETTINGS, beams=beams))
    (outcome,) = searched(method, [Task("first", TARGET, 0, 3)], 1)
    assert outcome.stopped == "converged"


def test_any_hit_in_the_beam_ends_the_search_and_is_returned() -> None:
    method = search(3)
    (state,) = method.start([Task("first", TARGET, 0, 3)])
    method.step([state])
    second = state.beam[1]

    def the_second(reading: Reading) -> bool:
        return reading == second.reading

    (outcome,) = searched(
        bound(Beam, scorer(LIKELIHOOD), replace(SETTINGS, beams=3), the_second), [Task("first", TARGET, 0, 3)], 1
    )
    assert (outcome.words, outcome.loss) == (tuple(second.words.tolist()), second.loss)
    assert (outcome.stopped, outcome.visits) == ("satisfied", 1)
