"""Adversarial training by rounds: what a round measured, which one is the best, and when rounds no longer help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parley.engine.core.stats.known import AdversaryWords
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.core.stats.tables import TextTable, with_interval


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


@dataclass(frozen=True, kw_only=True)
class HardeningMetrics:
    """By what the models of a campaign are measured.

    Args:
        what: is hardened.
        of_round: metrics of a round by name, in the order of the table's columns.
        at_end: those by which start, controls and result are measured once more.
        endings: of the names of these, by column.
        gains: what the line of gains is called, and by column the metric that says what the result has over it.
        loss: what is to fall from round to round.
        stalled: why a campaign ends whose loss has not fallen, in words.
        note_rounds: below the table of rounds.
        note_outcome: below that of start, controls and result.
        known: the words in which known adversaries are shown.
    """

    what: str
    of_round: Mapping[str, Metric]
    at_end: Mapping[str, Metric]
    endings: Mapping[str, str]
    gains: tuple[str, Mapping[str, str]]
    loss: Loss
    stalled: str
    note_rounds: str
    note_outcome: str
    known: AdversaryWords

    def rounds_table(self, rounds: Sequence[Round]) -> TextTable:
        """One line per round, one column for each metric."""
        columns = ("round", *(metric.title for metric in self.of_round.values()))
        rows = [(str(one.number), *(with_interval(one.metrics.get(name, NOTHING)) for name in self.of_round)) for one in rounds]
        return TextTable(columns, tuple(rows), self.note_rounds)

    def outcome_table(self, metrics: Mapping[str, Estimate]) -> TextTable:
        """Start, controls and result of a campaign side by side; what has no figures has no column."""
        columns = {
            told: ending for told, ending in self.endings.items() if any(f"{name}{ending}" in metrics for name in self.at_end)
        }
        rows = [
            (metric.title, *(with_interval(metrics[f"{name}{ending}"]) for ending in columns.values()))
            for name, metric in self.at_end.items()
            if any(f"{name}{ending}" in metrics for ending in columns.values())
        ]
        title, ahead = self.gains
        more = [f"+ {with_interval(metrics[ahead[told]])}" if told in ahead else "" for told in columns]
        rows.append((title, *(each.replace("+ \N{MINUS SIGN}", "\N{MINUS SIGN} ") for each in more)))
        return TextTable((self.what, *columns), tuple(rows), self.note_outcome)
