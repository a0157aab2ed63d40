"""Adversarial training by rounds: what a round is measured by, when it no longer helps, and the table of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.metrics.statistics import NOTHING, Estimate, Metric
from engine.metrics.tables import TextTable, figure, with_interval

EXPLOITABILITY, PLAIN_SCORE, PLAIN_AGREEMENT, PERPLEXITY = "exploitability", "plain_score", "plain_agreement", "perplexity"
BEFORE, AFTER = "advantage_before", "advantage_after"
ROUND_METRICS = {
    BEFORE: Metric("adversary before", "lower: target", "advantage of the round's adversary over the target it was trained on"),
    AFTER: Metric("adversary after", "lower: target", "advantage of the same adversary over the target trained against it"),
    EXPLOITABILITY: Metric("exploitability", "lower: target", "mean advantage of fresh adversaries trained against it, frozen"),
    PLAIN_SCORE: Metric("plain score", "higher: target", "target's points in ordinary play with its partner, both choose"),
    PLAIN_AGREEMENT: Metric("plain agreement", "higher: both", "share of those dialogues that end in a deal"),
    PERPLEXITY: Metric("perplexity", "lower: better", "of the corpus' validation dialogues, released formula"),
}
"""What a round is measured by, in the order of the table's columns."""
_NOTE = (
    "Round 0 is the target before any training. Adversary: advantage of the round's adversary, in points, against the target "
    "before and after the target learned from it. Exploitability: mean advantage of fresh adversaries, trained against the "
    "frozen target of that round on a fixed budget. Plain: ordinary play with the partner. Brackets: 95 % intervals."
)


@dataclass(frozen=True)
class Round:
    """What one round of a campaign measured.

    Args:
        number: 0 for the start.
        metrics: estimates by name, those of `ROUND_METRICS` that were measured.
    """

    number: int
    metrics: Mapping[str, Estimate]

    @property
    def exploitability(self) -> float:
        """In points."""
        return self.metrics[EXPLOITABILITY].value


def best_round(rounds: Sequence[Round]) -> Round:
    """The least exploitable one, the earliest of equals."""
    return min(rounds, key=lambda one: one.exploitability)


def still_playing(rounds: Sequence[Round], plain_loss: float) -> list[Round]:
    """The rounds whose target still plays well with an ordinary partner; one that refuses every deal is not exploitable either.

    Args:
        rounds: all, the start first.
        plain_loss: points of plain score that may be lost against the start.
    """
    least = rounds[0].metrics[PLAIN_SCORE].value - plain_loss
    return [one for one in rounds if one.metrics[PLAIN_SCORE].value >= least]


def has_stalled(rounds: Sequence[Round], patience: int, least_gain: float) -> bool:
    """Whether the last rounds have not lowered exploitability.

    Args:
        rounds: all so far, the start among them.
        patience: how many rounds may pass without gain.
        least_gain: points by which the best of them must be below the best before to count.
    """
    if len(rounds) <= patience:
        return False
    earlier, recent = rounds[:-patience], rounds[-patience:]
    return best_round(recent).exploitability > best_round(earlier).exploitability - least_gain


def rounds_table(rounds: Sequence[Round]) -> TextTable:
    """One line per round."""
    columns = ("round", *(metric.title for metric in ROUND_METRICS.values()))
    return TextTable(columns, tuple(round_cells(one) for one in rounds), _NOTE)


def round_cells(one: Round) -> tuple[str, ...]:
    """A round's line of the table."""
    shown = {PLAIN_AGREEMENT: lambda estimate: figure(estimate.value), PERPLEXITY: lambda estimate: figure(estimate.value)}
    found = ((name, one.metrics.get(name, NOTHING)) for name in ROUND_METRICS)
    return (str(one.number), *(shown.get(name, with_interval)(estimate) for name, estimate in found))
