"""Which settings come next: Optuna's tree-structured Parzen estimator, told what earlier trials were worth.

Source: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization", section 4, as Optuna has it.

A trial that was stopped early counts as pruned at the budget that it reached, so its value is never set against one of the
whole budget. What a trial is given is drawn from a stream of its own number: it depends on the seed and on what was known when
it was asked for, and not on how often the sweep was interrupted before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import optuna
from optuna.samplers import TPESampler
from optuna.trial import Trial, TrialState

from parley.envs.core.seeds import derive_seed
from parley.tune.space import Space


class Study:
    """What is known of a sweep's trials, by their numbers, which rise from trial to trial.

    Args:
        space: which settings, by dotted key.
        direction: which way is better.
        seed: the sweep's.
    """

    def __init__(self, space: Space, direction: Literal["max", "min"], seed: int) -> None:
        self._study = optuna.create_study(direction="maximize" if direction == "max" else "minimize")
        self._distributions = {key: domain.distribution() for key, domain in space.items()}
        self._seed = seed
        self._running: dict[int, Trial] = {}

    def propose(self, number: int) -> dict[str, Any]:
        """Settings for a new trial, by dotted key."""
        self._study.sampler = TPESampler(seed=derive_seed(self._seed, "optuna", number) % 2**32)
        return self._ask(number)

    def recall(self, number: int, parameters: Mapping[str, Any]) -> None:
        """Notes a trial that was given its settings before."""
        self._study.enqueue_trial(dict(parameters))
        self._ask(number)

    def tell(self, number: int, values: Mapping[int, float], *, whole: bool) -> None:
        """Notes what a trial was worth, which has ended.

        Args:
            number: of the trial.
            values: by rising budget, at least one.
            whole: whether the last budget is the whole one.
        """
        trial = self._running.pop(number)
        for budget, value in values.items():
            trial.report(value, budget)
        if whole:
            self._study.tell(trial, value)
        else:
            self._study.tell(trial, state=TrialState.PRUNED)

    def fail(self, number: int) -> None:
        """Notes that a trial ended without a value."""
        self._study.tell(self._running.pop(number), state=TrialState.FAIL)

    def _ask(self, number: int) -> dict[str, Any]:
        trial = self._running[number] = self._study.ask(self._distributions)
        return trial.params
