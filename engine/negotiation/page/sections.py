"""What the chapter of negotiation reads: matches, campaigns of adversarial training, tables of attacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from parley.engine.core.page.content import ShownRun
from parley.engine.core.page.figure import Curve
from parley.engine.core.stats.rounds import Round
from parley.engine.core.stats.rows import Row
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric, Points
from parley.engine.core.stats.tables import TextTable
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS
from parley.engine.negotiation.metrics.defences import DEFENCE_METRICS
from parley.engine.negotiation.page.populations import ShownPopulation
from parley.engine.negotiation.page.reproduced import ShownReproduction
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, Domain, domain_of, domain_recorded

if TYPE_CHECKING:
    from parley.engine.negotiation.page.tactics import ShownTactics

PLAIN = "selfplay"
"""The job of matches without an attack."""


def domain_of_row(row: Row) -> Domain:
    """What a finished dialogue is about."""
    return domain_recorded(row["counts"], (row["values_adversary"], row["values_target"]))


@dataclass(frozen=True, kw_only=True)
class Match(ShownRun):
    """One match, or one attack; its items are dialogues.

    Args:
        job: what was run.
        stepless: whether what is on record says nothing of a budget: searches that succeeded alone, or no steps between.
    """

    unit = "dialogues"
    legend: Mapping[str, Metric] = field(default_factory=lambda: ATTACK_METRICS | DEFENCE_METRICS)
    job: str = PLAIN
    stepless: bool = False

    @property
    def kinds(self) -> set[str]:
        """Of the attack sentences in its dialogues."""
        return {attempt["kind"] for row in self.done for attempt in row.get("attempts", ())}

    @property
    def advantage(self) -> Estimate:
        """Points that the adversary is ahead; `NOTHING` where that was not measured."""
        return self.metrics.get("advantage", NOTHING)

    @property
    def is_attack(self) -> bool:
        """Whether somebody attacks in it, and what that gains was measured."""
        return self.job != PLAIN and math.isfinite(self.advantage.value)

    @property
    def defended(self) -> bool:
        """Whether its target had a defence around it."""
        return any(row.get(name) is not None for row in self.done for name in ("stopped", "refused"))

    @property
    def changed_words(self) -> bool:
        """Whether an attack that edits sentences said any word that its speaker would not have; true of other matches."""
        edited = [(row, attempt) for row in self.done for attempt in row.get("attempts", ())]
        if not any("attempts" in row for row in self.done):
            return True
        return any(row["turns"][attempt["turn"]]["words"] != attempt["base"] for row, attempt in edited)

    @property
    def best(self) -> int:
        """Points that the best deal of its game is worth to a side; of Deal or No Deal where no dialogue tells the game."""
        return (domain_of_row(self.done[0]) if self.done else domain_of(DEAL_OR_NO_DEAL)).best

    @property
    def points(self) -> tuple[tuple[str, int, int], ...]:
        """What both sides earned, dialogue by dialogue."""
        return tuple(sorted((str(row["item_key"]), row["points_adversary"], row["points_target"]) for row in self.done))


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
    budgets: Mapping[str, Points] = field(default_factory=dict)
    populations: Sequence[ShownPopulation] = ()
    tactics: Sequence[ShownTactics] = ()
    reproductions: Sequence[ShownReproduction] = ()
