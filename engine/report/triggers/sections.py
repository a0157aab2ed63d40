"""What the chapter of triggers reads: searches, and tables of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.metrics.statistics import NOTHING, Estimate, Metric, Row
from engine.metrics.tables import TextTable
from engine.metrics.triggers.hits import HIT_RATE, describe
from engine.report.content import Measured
from engine.store.schemas import OK


@dataclass(frozen=True, kw_only=True)
class ShownSearch:
    """One trigger search.

    Args:
        name: a short heading.
        description: one sentence for a reader who does not know the run.
        metrics: estimates by metric name; `engine.metrics.triggers.hits.describe` says what the names mean.
        rows: its targets, columns of `engine.jobs.triggers.rows.TRIGGERS`.
        targets: the list of sentences that was searched for.
        hit: the type of hit that was searched for.
        thresholds: what separates usual words from unusual ones, in nats, by name.
        skipped: sentences that no target could be made of, each with its unknown words.
        candidates: inputs tried at each visit.
        alike: equal for searches that differ in `candidates` alone.
    """

    name: str
    description: str = ""
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    rows: Sequence[Row] = ()
    targets: str = ""
    hit: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    skipped: Sequence[tuple[str, str]] = ()
    candidates: int = 0
    alike: str = ""

    @property
    def legend(self) -> dict[str, Metric]:
        """What the names of its metrics mean."""
        return {name: describe(name) for name in self.metrics}

    @property
    def rate(self) -> Estimate:
        """The share of targets that are hits as wanted."""
        return self.metrics.get(f"{HIT_RATE}{self.hit}", NOTHING)

    @property
    def done(self) -> list[Row]:
        """The rows that hold a finished search."""
        return [row for row in self.rows if row["status"] == OK]

    @property
    def failures(self) -> list[Row]:
        """The rows of searches that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """All searches of a page, tables of several, and enumerations of all inputs."""

    searches: Sequence[ShownSearch] = ()
    tables: Sequence[tuple[str, TextTable]] = ()
    enumerations: Sequence[Measured] = ()
