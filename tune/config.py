"""What `parley sweep` is asked for. Torch-free and Ray-free, so that help starts fast."""

from __future__ import annotations

from dataclasses import dataclass

from envs.core.config import check, check_count

RESUME_SAFE = ("concurrent", "trial_workers", "gpus_per_worker", "address")
"""Settings that change how trials are run; a resumed sweep may differ in them."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Which knobs are turned, how often, and how trials are judged."""

    sweep: str
    """What is swept: a preset's name, or path/file.py:NAME of a tune.plan.Plan."""
    samples: int = 20
    """Trials."""
    repeats: int = 1
    """Runs of each trial at each budget, from different seeds; the search sees their mean."""
    budget: int = 0
    """Targets, dialogues or rounds of a whole trial; the preset's when 0."""
    rungs: int = 3
    """Budgets at which ASHA stops trials that fall behind; 1 gives every trial the whole budget."""
    reduction: int = 3
    """About the best 1/reduction of the trials go on from each budget, with so many times as much."""
    base: str = ""
    """Settings of all trials: KEY=VALUE words, such as "model=runs/seq2seq lm=runs/lm"."""
    concurrent: int = 0
    """Trials at a time; as many as there is room for when 0. Only 1 gives the same trials for the same seed: with more, what
    ends first decides what is tried next."""
    trial_workers: int = 0
    """Ray actors that each trial has of its own."""
    gpus_per_worker: float = 0.0
    """GPUs, or a fraction of one, for each of them."""
    seed: int = 1
    """Master seed of the search and of the trials."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""

    def __post_init__(self) -> None:
        for name in ("samples", "repeats", "rungs"):
            check_count(self, name)
        for name in ("budget", "concurrent", "trial_workers", "gpus_per_worker", "seed"):
            check(self, name, getattr(self, name) >= 0, "at least 0")
        check(self, "reduction", self.reduction >= 2, "at least 2")

    def budgets(self, whole: int) -> tuple[int, ...]:
        """The budgets of a trial, rising.

        Args:
            whole: that of the preset.
        """
        whole = self.budget or whole
        least = max(1, whole // self.reduction ** (self.rungs - 1))
        rising = [least * self.reduction**rung for rung in range(self.rungs - 1)]
        return (*(budget for budget in rising if budget < whole), whole)
