"""Adversarial training by rounds: what a round is measured by, which rounds may be the result, and the table of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.engine.core.stats.exploitability import EXPLOITABILITY, MEAN_FRESH
from parley.engine.core.stats.repetition import LOST, has_lost
from parley.engine.core.stats.rounds import Round
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.core.stats.tables import TextTable, figure, with_interval

PLAIN_SCORE, PLAIN_AGREEMENT, PERPLEXITY = "plain_score", "plain_agreement", "perplexity"
REPETITION = "repetition"
BEFORE, AFTER = "advantage_before", "advantage_after"
BY_THE_BEST = Metric(
    "exploitability", "lower: target", "advantage of the best of all known adversaries, in dialogues that did not choose it"
)
ON_AVERAGE = Metric(
    "mean of fresh adversaries", "lower: target", "mean advantage of those trained against it, frozen: an average training"
)
ROUND_METRICS = {
    BEFORE: Metric("adversary before", "lower: target", "advantage of the round's adversary over the target it was trained on"),
    AFTER: Metric("adversary after", "lower: target", "advantage of the same adversary over the target trained against it"),
    EXPLOITABILITY: BY_THE_BEST,
    MEAN_FRESH: ON_AVERAGE,
    PLAIN_SCORE: Metric("plain score", "higher: target", "target's points in ordinary play with its partner, both choose"),
    PLAIN_AGREEMENT: Metric("plain agreement", "higher: both", "share of those dialogues that end in a deal", "rate"),
    REPETITION: Metric(
        "repetition", "lower: better", "share of the target's 4-grams there that its utterance had before", "rate"
    ),
    PERPLEXITY: Metric("perplexity", "lower: better", "of the corpus' validation dialogues, released formula", "perplexity"),
}
"""What a round is measured by, in the order of the table's columns."""
_NOTE = (
    "Round 0 is the target before any training. Adversary: advantage of the round's adversary, in points, against the target "
    "before and after the target learned from it. Exploitability: advantage of the best adversary known by then, in dialogues "
    "that did not choose it. Mean of fresh adversaries: of those trained against the frozen target of that round on a fixed "
    "budget, what an average training finds. Plain: ordinary play with the partner. Repetition: what share of the "
    f"4-grams of the target's utterances there stand in the same utterance before; above {LOST:g} it has lost its language. "
    "Brackets: 95 % intervals."
)


def exploitability_of(one: Round) -> float:
    """What is to fall from round to round, in points."""
    return one.metrics[EXPLOITABILITY].value


def still_playing(rounds: Sequence[Round], plain_loss: float) -> list[Round]:
    """The rounds whose target still plays well with an ordinary partner, and still speaks, besides the start.

    One that refuses every deal is not exploitable either, nor may one be that says the same words over and over.

    Args:
        rounds: all, the start first.
        plain_loss: points of plain score that may be lost against the start.
    """
    least = rounds[0].metrics[PLAIN_SCORE].value - plain_loss
    return [
        one
        for one in rounds
        if one.number == 0 or (one.metrics[PLAIN_SCORE].value >= least and not has_lost_language(one.metrics))
    ]


def has_lost_language(metrics: Mapping[str, Estimate]) -> bool:
    """Whether the target of a round repeats itself too much; one that was measured before that was is taken to speak."""
    return has_lost(metrics.get(REPETITION, NOTHING).value)


def rounds_table(rounds: Sequence[Round]) -> TextTable:
    """One line per round."""
    columns = ("round", *(metric.title for metric in ROUND_METRICS.values()))
    return TextTable(columns, tuple(round_cells(one) for one in rounds), _NOTE)


def round_cells(one: Round) -> tuple[str, ...]:
    """A round's line of the table."""
    found = ((name, one.metrics.get(name, NOTHING)) for name in ROUND_METRICS)
    alone = (PLAIN_AGREEMENT, REPETITION, PERPLEXITY)
    cells = (figure(estimate.value) if name in alone else with_interval(estimate) for name, estimate in found)
    return (str(one.number), *cells)
