"""What the chapter of negotiation reads: matches, campaigns of adversarial training, tables of attacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.metrics.negotiation.attack import ATTACK_METRICS
from engine.metrics.negotiation.campaign import Round
from engine.metrics.statistics import NOTHING, Estimate, Metric, Row
from engine.metrics.tables import TextTable
from engine.report.curves import Curve
from engine.store.schemas import OK

TOTAL = 10
"""Points that all items of a dialogue are worth to a side."""
PLAIN = "selfplay"
"""The job of matches without an attack."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """One match, or one attack.

    Args:
        name: a short heading, such as "adversary vs target".
        job: what was run.
        description: one sentence for a reader who does not know the run.
        metrics: estimates by metric name.
        legend: what the names mean, by its own job; names that it lacks are shown as they are.
        rows: its dialogues, in any order.
        only_successes: whether only those searches are on record that succeeded, which say nothing of a budget.
    """

    name: str
    job: str = PLAIN
    description: str = ""
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    legend: Mapping[str, Metric] = field(default_factory=lambda: ATTACK_METRICS)
    rows: Sequence[Row] = ()
    only_successes: bool = False

    @property
    def dialogues(self) -> list[Row]:
        """The rows that hold a finished dialogue."""
        return [row for row in self.rows if row["status"] == OK]

    @property
    def failures(self) -> list[Row]:
        """The rows of dialogues that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]

    @property
    def kinds(self) -> set[str]:
        """Of the attack sentences in its dialogues."""
        return {attempt["kind"] for row in self.dialogues for attempt in row.get("attempts", ())}

    @property
    def advantage(self) -> Estimate:
        """Points that the adversary is ahead; `NOTHING` where that was not measured."""
        return self.metrics.get("advantage", NOTHING)

    @property
    def is_attack(self) -> bool:
        """Whether somebody attacks in it, and what that gains was measured."""
        return self.job != PLAIN and math.isfinite(self.advantage.value)

    @property
    def changed_words(self) -> bool:
        """Whether an attack that edits sentences said any word that its speaker would not have; true of other matches."""
        edited = [(row, attempt) for row in self.dialogues for attempt in row.get("attempts", ())]
        if not any("attempts" in row for row in self.dialogues):
            return True
        return any(row["turns"][attempt["turn"]]["words"] != attempt["base"] for row, attempt in edited)

    @property
    def points(self) -> tuple[tuple[str, int, int], ...]:
        """What both sides earned, dialogue by dialogue."""
        return tuple(sorted((str(row["item_key"]), row["points_adversary"], row["points_target"]) for row in self.dialogues))


@dataclass(frozen=True, kw_only=True)
class Hardening:
    """A campaign of adversarial training: what it came to, and its rounds so far."""

    name: str
    metrics: Mapping[str, Estimate]
    rounds: Sequence[Round]


@dataclass(frozen=True, kw_only=True)
class Negotiation:
    """All negotiations of a page."""

    matches: Sequence[Match] = ()
    campaigns: Sequence[Hardening] = ()
    tables: Sequence[tuple[str, TextTable]] = ()
    curves: Sequence[Curve] = ()
