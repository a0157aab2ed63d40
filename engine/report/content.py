"""What a report shows, as plain values: matches with their metrics and dialogues, curves, commands and files.

Anything that can fill a `ReportData` can be shown: `collect.py` fills it from a run folder, a notebook may fill it by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.metrics.negotiation.attack import ATTACK_METRICS
from engine.metrics.statistics import Estimate, Metric, Row
from engine.metrics.tables import TextTable
from engine.metrics.triggers import hits as search
from engine.store.schemas import OK


@dataclass(frozen=True, kw_only=True)
class MatchSection:
    """One match, or one stage of training: what was measured in it.

    Args:
        name: a short heading, such as "adversary vs target".
        description: one sentence for a reader who does not know the run.
        metrics: estimates by metric name.
        legend: what the names mean, by its own job; names that it lacks are shown as they are.
        rows: its dialogues, in any order; empty for a stage that holds none.
        large: whether its advantage is worth large figures; not where a table of attacks says it.
        only_successes: whether only those searches are on record that succeeded, which say nothing of a budget.
    """

    name: str
    description: str = ""
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    legend: Mapping[str, Metric] = field(default_factory=lambda: ATTACK_METRICS)
    rows: Sequence[Row] = ()
    large: bool = True
    only_successes: bool = False

    @property
    def dialogues(self) -> list[Row]:
        """The rows that hold a finished dialogue."""
        return [row for row in self.rows if row["status"] == OK]

    @property
    def kinds(self) -> set[str]:
        """Of the attack sentences in its dialogues."""
        return {attempt["kind"] for row in self.dialogues for attempt in row.get("attempts", ())}

    @property
    def failures(self) -> list[Row]:
        """The rows of dialogues that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]


@dataclass(frozen=True, kw_only=True)
class SearchSection:
    """One trigger search.

    Args:
        name: a short heading.
        description: one sentence for a reader who does not know the run.
        metrics: estimates by metric name; `engine.metrics.triggers.hits.describe` says what the names mean.
        rows: its targets, columns of `engine.jobs.triggers.rows.TRIGGERS`.
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
    hit: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    skipped: Sequence[tuple[str, str]] = ()
    candidates: int = 0
    alike: str = ""

    @property
    def legend(self) -> dict[str, Metric]:
        """What the names of its metrics mean."""
        return {name: search.describe(name) for name in self.metrics}

    @property
    def targets(self) -> list[Row]:
        """The rows that hold a finished search."""
        return [row for row in self.rows if row["status"] == OK]

    @property
    def failures(self) -> list[Row]:
        """The rows of searches that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]


@dataclass(frozen=True, kw_only=True)
class RobustnessSection:
    """One evaluation under perturbations.

    Args:
        name: a short heading.
        description: one sentence for a reader who does not know the run.
        metrics: estimates by metric name; `engine.metrics.perturb.robustness.describe` says what the names mean.
        rows: its examples, columns of `engine.jobs.perturb.rows.ROBUSTNESS`.
        tables: what was measured, in the layout of the paper, by heading.
        strategies: what a good model does with the contexts of each strategy, "should-not-change" or "should-change".
        unscored: why activities and entities were not scored; empty if they were.
    """

    name: str
    description: str = ""
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    rows: Sequence[Row] = ()
    tables: Mapping[str, TextTable] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    unscored: str = ""

    @property
    def examples(self) -> list[Row]:
        """The rows of examples that were answered."""
        return [row for row in self.rows if row["status"] == OK]

    @property
    def failures(self) -> list[Row]:
        """The rows of examples that ended in an error."""
        return [row for row in self.rows if row["status"] != OK]


@dataclass(frozen=True)
class SweepTrial:
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
class SweepSection:
    """One sweep.

    Args:
        name: a short heading.
        objective: what trials were measured by.
        direction: "max" or "min".
        trials: those that worked, in the order in which they were started.
        failures: how many others failed.
    """

    name: str
    objective: str
    direction: str
    trials: Sequence[SweepTrial]
    failures: int = 0

    def ranked(self) -> list[SweepTrial]:
        """The trials, whole ones first, of these the best first; of two alike the earlier one, as the sweep itself has it."""
        sign = -1 if self.direction == "max" else 1
        return sorted(self.trials, key=lambda trial: (not trial.whole, sign * trial.value.value, trial.number))


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Some series over the same steps of training.

    Args:
        title: what is shown.
        x_label: the step, such as "epoch".
        y_label: the quantity and its unit.
        series: (step, value) points by name, each in the order of its steps.
        smoothed: draws a moving average in front of the single points, for quantities that jump from step to step.
        bands: (step, low, high) 95 % intervals of some series, by name.
    """

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    smoothed: bool = False
    bands: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """A whole report.

    Args:
        title: the heading of the page.
        lead: one or two sentences under it.
        attack_tables: attacks beside each other, each table with its heading, which may be empty.
        sections: matches and stages, in the order in which they are shown.
        searches: trigger searches, in the order in which they are shown.
        robustness: evaluations under perturbations, in the order in which they are shown.
        sweeps: sweeps of settings, in the order in which they are shown.
        curves: training curves.
        commands: what to type to get the same figures again.
        files: (path, what it is) of the files beside the report.
        config: settings by dotted name.
        environment: versions, device and the like by name.
    """

    title: str
    lead: str = ""
    attack_tables: Sequence[tuple[str, TextTable]] = ()
    sections: Sequence[MatchSection] = ()
    searches: Sequence[SearchSection] = ()
    robustness: Sequence[RobustnessSection] = ()
    sweeps: Sequence[SweepSection] = ()
    curves: Sequence[Curve] = ()
    commands: Sequence[str] = ()
    files: Sequence[tuple[str, str]] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
