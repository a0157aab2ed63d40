"""Adversarial training by rounds: what a round measured, which one is the best, and when rounds no longer help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.metrics.statistics import NOTHING, Estimate, Metric
from engine.metrics.tables import TextTable, with_interval


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


def rounds_table(rounds: Sequence[Round], measured: Mapping[str, Metric], note: str) -> TextTable:
    """One line per round, one column for each metric."""
    columns = ("round", *(metric.title for metric in measured.values()))
    rows = [(str(one.number), *(with_interval(one.metrics.get(name, NOTHING)) for name in measured)) for one in rounds]
    return TextTable(columns, tuple(rows), note)


def outcome_table(
    metrics: Mapping[str, Estimate],
    measured: Mapping[str, Metric],
    endings: Mapping[str, str],
    gains: tuple[str, Mapping[str, str]],
    note: str,
    what: str,
) -> TextTable:
    """Start, controls and result of a campaign side by side.

    Args:
        metrics: of a campaign.
        measured: by what each is measured.
        endings: of the names of these metrics by column; a column without figures is left out.
        gains: what the last line is called, and by column the metric that says what the result has over it.
        note: below the table.
        what: is hardened, above the lines' names.
    """
    columns = {told: ending for told, ending in endings.items() if any(f"{name}{ending}" in metrics for name in measured)}
    rows = [
        (metric.title, *(with_interval(metrics[f"{name}{ending}"]) for ending in columns.values()))
        for name, metric in measured.items()
    ]
    title, ahead = gains
    more = [f"+ {with_interval(metrics[ahead[told]])}" if told in ahead else "" for told in columns]
    rows.append((title, *(each.replace("+ \N{MINUS SIGN}", "\N{MINUS SIGN} ") for each in more)))
    return TextTable((what, *columns), tuple(rows), note)
