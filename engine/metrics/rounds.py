"""Adversarial training by rounds: what a round measured, which one is the best, and when rounds no longer help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.metrics.statistics import Estimate


@dataclass(frozen=True)
class Round:
    """What one round of a campaign measured.

    Args:
        number: 0 for the start.
        metrics: estimates by name.
    """

    number: int
    metrics: Mapping[str, Estimate]


Loss = Callable[[Round], float]
"""What must fall from round to round."""


def best_round(rounds: Sequence[Round], loss: Loss) -> Round:
    """The one that loses least, the earliest of equals."""
    return min(rounds, key=loss)


def has_stalled(rounds: Sequence[Round], loss: Loss, patience: int, least_gain: float) -> bool:
    """Whether the last rounds have not lowered the loss.

    Args:
        rounds: all so far, the start among them.
        loss: of a round.
        patience: how many rounds may pass without gain.
        least_gain: by how much the best of them must be below the best before to count.
    """
    if len(rounds) <= patience:
        return False
    earlier, recent = rounds[:-patience], rounds[-patience:]
    return min(map(loss, recent)) > min(map(loss, earlier)) - least_gain
