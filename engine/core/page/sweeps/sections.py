"""What the chapter of sweeps reads: trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parley.engine.core.stats.statistics import NOTHING, Estimate


@dataclass(frozen=True)
class Trial:
    """One trial.

    Args:
        number: of the trial, from 0, in the order in which they were started.
        parameters: its settings by dotted key.
        value: what it was worth at its largest budget.
        whole: whether that was the whole one.
        by_budget: what it was worth at every budget that it was given.
    """

    number: int
    parameters: Mapping[str, str | float]
    value: Estimate
    whole: bool
    by_budget: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class ShownSweep:
    """One sweep.

    Args:
        name: a short heading.
        objective: what trials were measured by.
        direction: "max" or "min".
        trials: those that worked, in the order in which they were started.
        failures: how many others failed.
        again: the best settings in runs that chose nothing; `NOTHING` before the end.
    """

    name: str
    objective: str
    direction: str
    trials: Sequence[Trial]
    failures: int = 0
    again: Estimate = NOTHING

    def ranked(self) -> list[Trial]:
        """The trials, whole ones first, of these the best first; of two alike the earlier one, as the sweep itself has it."""
        sign = -1 if self.direction == "max" else 1
        return sorted(self.trials, key=lambda trial: (not trial.whole, sign * trial.value.value, trial.number))
