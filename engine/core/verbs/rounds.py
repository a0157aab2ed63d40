"""Campaigns of adversarial training: rounds are made until the last is done or none has helped for a while.

A round that is measured is an event of the run, so that a campaign that was interrupted goes on with the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parley.engine.core.runs.layout import EVENTS
from parley.engine.core.runs.manifest import whole
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.rounds import Loss, Round, has_stalled
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Reporter, Steps
from parley.engine.core.verbs.scalars import Scalars

ROUND, STOPPED = "round", "stopped"
"""Kinds of events: a round is measured; the campaign ends before its last round."""
ROUNDS_MADE = Steps(ROUND, "rounds", lambda config: config["rounds"] if isinstance(config.get("rounds"), int) else None)
"""The progress of a campaign."""


@dataclass(frozen=True)
class StopRule:
    """When a campaign ends.

    Args:
        rounds: at most.
        patience: rounds without gain after which it ends.
        least_gain: by how much the loss must fall to count as gain.
        loss: of a round.
        told: why it ends, in words that "by X in N rounds" follow.
    """

    rounds: int
    patience: int
    least_gain: float
    loss: Loss
    told: str


def make_rounds(
    run: RunFolder,
    rule: StopRule,
    measured: Callable[[int], Mapping[str, Estimate]],
    show: Callable[[Sequence[Round]], None],
    reporter: Reporter,
) -> list[Round]:
    """Makes what is left of the rounds; all of them, the start as number 0.

    Args:
        run: where they are noted.
        rule: when to stop.
        measured: makes a round, and says what it is measured by.
        show: tells of rounds, of those that were there already at once.
        reporter: who looks on.
    """
    rounds = rounds_of(run)
    if rounds:
        show(rounds)
    with Scalars(run.path, len(rounds) - 1) as scalars:
        while len(rounds) <= rule.rounds:
            if has_stalled(rounds, rule.loss, rule.patience, rule.least_gain):
                _stop(run, rule, len(rounds) - 1, reporter)
                break
            one = Round(len(rounds), measured(len(rounds)))
            figures = {name: estimate.value for name, estimate in one.metrics.items()}
            estimates = {name: estimate.to_json() for name, estimate in one.metrics.items()}
            run.event(ROUND, number=one.number, estimates=estimates, **figures)
            rounds.append(one)
            show([one])
            scalars.add(one.number, figures)
    return rounds


def rounds_of(run: RunFolder) -> list[Round]:
    """The rounds of a campaign that have been measured."""
    needs = {ROUND: {"number": int, "estimates": dict}}
    found = {event["number"]: event["estimates"] for event in run.events(needs) if event["kind"] == ROUND}
    with whole(run.path / EVENTS):
        return [
            Round(number, {name: Estimate.from_json(parts) for name, parts in estimates.items()})
            for number, estimates in sorted(found.items())
        ]


def _stop(run: RunFolder, rule: StopRule, number: int, reporter: Reporter) -> None:
    reason = f"{rule.told} by {rule.least_gain:g} in {rule.patience} round{'s' * (rule.patience > 1)}"
    reporter.say(f"stopped after round {number}: {reason}")
    if not any(event["kind"] == STOPPED for event in run.events({})):
        run.event(STOPPED, number=number, reason=reason)
