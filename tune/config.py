"""The settings of `parley sweep`. Torch-free and Ray-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass

from parley.envs.core.config import AtLeastTwo, Configuration, NonNegativeFloat, NonNegativeInt, NumItems

RESUME_SAFE = ("concurrent", "trial_workers", "gpus_per_worker", "address")
"""Settings that change how trials are run; a resumed sweep may differ in them."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig(Configuration):
    """The settings to tune, the number of trials, and the measure of a trial."""

    sweep: str
    """The plan of the sweep: a preset's name, or path/file.py:NAME of a parley.tune.plan.Plan."""
    num_trials: NumItems = 20
    """Trials."""
    repeats: NumItems = 1
    """Runs of each trial at each budget, from different seeds; the search sees their mean."""
    measured_again: NumItems = 3
    """Runs of the best settings with the whole budget, from seeds that chose nothing; they say what these are worth."""
    budget: NonNegativeInt = 0
    """Targets, dialogues or rounds of a whole trial; the preset's when 0."""
    rungs: NumItems = 3
    """Budgets at which ASHA stops trials that fall behind; 1 gives every trial the whole budget."""
    reduction: AtLeastTwo = 3
    """About the best 1/reduction of the trials go on from each budget, with `reduction` times as much."""
    base: str = ""
    """Settings of all trials: KEY=VALUE words, such as "model=runs/seq2seq lm=runs/lm"."""
    concurrent: NonNegativeInt = 0
    """Trials at a time; as many as there is room for when 0. Only 1 gives the same trials for the same seed: with more, what
    ends first decides what is tried next."""
    trial_workers: NonNegativeInt = 0
    """Ray actors that each trial has of its own."""
    gpus_per_worker: NonNegativeFloat = 0.0
    """GPUs, or a fraction of one, for each of them."""
    seed: NonNegativeInt = 1
    """Master seed of the search and of the trials."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""

    def budgets(self, full: int) -> tuple[int, ...]:
        """Return the budgets of a trial, rising.

        Args:
            full: the budget of the preset.
        """
        full = self.budget or full
        least = max(1, full // self.reduction ** (self.rungs - 1))
        rising = [least * self.reduction**rung for rung in range(self.rungs - 1)]
        return (*(budget for budget in rising if budget < full), full)
