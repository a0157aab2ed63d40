"""HotFlip takes the best of its nested first-order flips, and only while that lowers the loss."""

from __future__ import annotations

import pytest
import torch

from engine.triggers.hotflip import HotFlip
from engine.triggers.objective import TriggerObjective
from engine.triggers.scorer import to_beat
from engine.triggers.settings import SearchSettings
from tests.engine.triggers.made_up import LENGTH, SEARCHABLE, TARGET, bound, scorer, searched, tasks

LIKELIHOOD = TriggerObjective(kind="likelihood")


def search(flips: int) -> HotFlip:
    return bound(HotFlip, scorer(LIKELIHOOD), SearchSettings(flips=flips, max_sweeps=9))


def nested_flips(words: list[int], flips: int) -> list[list[int]]:
    """By the definition: the best word of each position, then the best positions, one more at a time."""
    (incumbent,) = scorer(LIKELIHOOD).measure([TARGET], torch.tensor([words]))
    ranked = []
    for place, there in enumerate(words):
        slopes_V = scorer(LIKELIHOOD).slopes([incumbent], torch.tensor([place]))[0]
        best = min(SEARCHABLE, key=lambda word, slopes_V=slopes_V: float(slopes_V[word]))
        ranked.append((float(slopes_V[best] - slopes_V[there]), place, best))
    tried, flipped = [], list(words)
    for _, place, word in sorted(ranked)[:flips]:
        flipped = [word if at == place else kept for at, kept in enumerate(flipped)]
        tried.append(flipped)
    return tried


@pytest.mark.parametrize("flips", [1, 2, 14])
def test_a_visit_moves_to_the_best_of_the_nested_flips(flips: int) -> None:
    method = search(flips)
    moved = 0
    for state in method.start(tasks(restarts=10)[:10]):
        while not state.finished:
            before = state.best
            tried = torch.tensor(nested_flips(before.words.tolist(), flips))
            losses = scorer(LIKELIHOOD).losses([TARGET] * len(tried), tried)
            method.step([state])
            if losses.min() < to_beat(before.loss):
                assert state.best.words.tolist() == tried[losses.argmin()].tolist()
                moved += 1
            else:
                assert state.best is before
                assert state.stopped == "converged"
    assert moved >= 5


def test_a_visit_costs_one_candidate_for_each_flip() -> None:
    for flips, tried in ((2, 2), (14, LENGTH)):
        for outcome in searched(search(flips), tasks(restarts=2), 4):
            assert outcome.candidates == tried * outcome.visits


def test_several_flips_at_once_get_further_than_one_or_as_far() -> None:
    one, many = (
        [outcome.loss_by_sweep[-1] for outcome in searched(search(flips), tasks(restarts=20), 40)] for flips in (1, 14)
    )
    assert sum(many) < sum(one)
