"""HotFlip moves its beam to the flips of least estimated loss, and returns the best input that it measured."""

from __future__ import annotations

import itertools

import pytest
import torch

from parley.engine.triggers.methods.hotflip import HotFlip
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.scorer import BestInput
from tests.engine.triggers.made_up import LENGTH, SEARCHABLE, TARGET, bound, scorer, searched, tasks

LIKELIHOOD = TriggerObjective(kind="likelihood")
Words = tuple[int, ...]


def search(beams: int | None, max_sweeps: int = 3, max_candidates: int = 0) -> HotFlip:
    settings = SearchSettings(beams=beams, max_sweeps=max_sweeps, max_candidates=max_candidates)
    return bound(HotFlip, scorer(LIKELIHOOD), settings)


def words_of(incumbent: BestInput) -> Words:
    return tuple(incumbent.words.tolist())


def estimates(incumbent: BestInput) -> dict[Words, float]:
    """By the definition: each single flip, and what the loss would be if it were linear."""
    there, found = words_of(incumbent), {}
    for place in range(LENGTH):
        slopes_V = scorer(LIKELIHOOD).slopes([incumbent], torch.tensor([place]))[0]
        for word in SEARCHABLE:
            if word != there[place]:
                flipped = (*there[:place], word, *there[place + 1 :])
                found[flipped] = incumbent.loss + float(slopes_V[word] - slopes_V[there[place]])
    return found


@pytest.mark.parametrize("beams", [1, 3, 10])
def test_a_visit_keeps_the_flips_of_least_estimated_loss(beams: int) -> None:
    method = search(beams)
    for state in method.start(tasks(restarts=2)[:2]):
        measured = {words_of(state.best)}
        while not state.finished:
            ranked: dict[Words, float] = {}
            for incumbent in state.beam:
                for flipped, estimate in estimates(incumbent).items():
                    ranked[flipped] = min(estimate, ranked.get(flipped, torch.inf))
            wanted = sorted((words for words in ranked if words not in measured), key=ranked.__getitem__)[:beams]
            method.step([state])
            assert {words_of(incumbent) for incumbent in state.beam} == set(wanted)
            measured |= set(wanted)


def test_the_best_input_that_was_measured_is_returned() -> None:
    method = search(beams=3)
    astray = 0
    for state in method.start(tasks(restarts=4)[:4]):
        seen = [state.best.loss]
        while not state.finished:
            method.step([state])
            seen += [incumbent.loss for incumbent in state.beam]
        assert state.outcome().loss == min(seen)
        astray += min(incumbent.loss for incumbent in state.beam) > min(seen)
    assert astray > 0


def test_a_visit_costs_as_many_candidates_as_the_beam_is_wide() -> None:
    for beams, tried in ((1, 1), (3, 3), (None, 10)):
        for outcome in searched(search(beams), tasks(restarts=2), 4):
            assert (outcome.candidates, outcome.visits, outcome.stopped) == (tried * 3 * LENGTH, 3 * LENGTH, "limit")


def test_no_input_is_measured_twice_and_in_the_end_all_are() -> None:
    method = search(beams=400, max_sweeps=20)
    for state in method.start(tasks(restarts=1)[:1]):
        while not state.finished:
            method.step([state])
        outcome = state.outcome()
        assert (outcome.candidates, outcome.stopped) == (len(SEARCHABLE) ** LENGTH - 1, "converged")
        every = torch.tensor(list(itertools.product(SEARCHABLE, repeat=LENGTH)))
        assert outcome.loss == pytest.approx(float(scorer(LIKELIHOOD).losses([TARGET] * len(every), every).min()), abs=1e-5)


def test_a_wider_beam_gets_further_or_as_far() -> None:
    one, many = (sum(outcome.loss for outcome in searched(search(beams), tasks(restarts=10), 20)) for beams in (1, 10))
    assert many < one
