"""Random search keeps the best of inputs that belong to the restart alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parley.engine.triggers.methods.gibbs_enum import RandomSearch
from parley.engine.triggers.methods.objective import TriggerObjective
from parley.engine.triggers.methods.settings import SearchSettings
from parley.engine.triggers.scorers.scorer import PlainScorer
from tests.engine.triggers.made_up import LENGTH, bound, every_input, scorer, searched, tasks

LIKELIHOOD = TriggerObjective(kind="likelihood")


def settings(candidates: int, max_sweeps: int) -> SearchSettings:
    return SearchSettings(candidates=candidates, max_sweeps=max_sweeps)


def test_it_returns_the_best_of_all_that_it_has_tried() -> None:
    class Listening(PlainScorer):
        least = torch.inf

        def losses(self, targets: Sequence[Tensor], words_RN: Tensor) -> Tensor:
            found_R = super().losses(targets, words_RN)
            self.least = min(self.least, float(found_R.min()))
            return found_R

    plain = Listening(scorer(LIKELIHOOD).victim, LIKELIHOOD)
    (outcome,) = searched(bound(RandomSearch, plain, settings(20, 3)), tasks(restarts=1)[:1], 1)
    assert abs(outcome.loss - min(plain.least, outcome.loss_by_sweep[0])) < 1e-5
    assert (outcome.stopped, outcome.visits, outcome.candidates) == ("limit", 3 * LENGTH, 3 * LENGTH * 20)


def test_its_inputs_are_drawn_as_first_inputs_are() -> None:
    asked: list[int] = []

    def some(seeds: Sequence[int]) -> Tensor:
        asked.extend(seeds)
        return every_input()[[seed % 2401 for seed in seeds]]

    search = bound(RandomSearch, scorer(LIKELIHOOD), settings(5, 1), initial=some)
    outcomes = list(searched(search, tasks(restarts=2), 4))
    assert len(asked) == len(set(asked)) == 4 * (1 + 5 * LENGTH), "each draw has a seed of its own"
    tried = {tuple(every_input()[seed % 2401].tolist()) for seed in asked}
    assert {outcome.words for outcome in outcomes} <= tried
