"""Trainings of any model: their curves, and what was measured at the end.

Runs that no other chapter knows, such as a demonstration among others or a job of another version: their metrics.

Curves of events: which fields of which events make one, and how it is read from a run.

Campaigns that harden models by rounds, from run folders to what their report shows; a system says which job is its own.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from markupsafe import Markup

from parley.engine.core.page.content import Chapter, Curve, Figure, Run, Section, ShownRun, Verdict
from parley.engine.core.page.page import caveat, certain_sign, number
from parley.engine.core.stats.known import AdversaryWords, KnownAdversaries, known_of
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.job import Job, noted


class Measurements(Chapter[list[ShownRun]]):
    """The chapter of all other runs."""

    name, title = "measurements", "Measurements"

    def owns(self, job: str) -> bool:
        return True

    def collect(self, runs: Sequence[Run]) -> list[ShownRun] | None:
        found = [ShownRun.of(run, description="") for run in runs if run.shown]
        return [each for each in found if each.metrics or each.failures] or None

    def verdict(self, found: list[ShownRun]) -> None:
        """Nobody knows which of its metrics matters."""
        return None

    def render(self, found: list[ShownRun]) -> Section:
        return Section(measured=found)


STEP = "number"
"""The field of an event that says which epoch or iteration it was."""

Steps = Mapping[float, Mapping[str, Any]]
"""Events by step; a step that a resumed run did twice counts as it was done last."""


@dataclass(frozen=True)
class CurveSource:
    """Which fields of which events make a curve.

    Args:
        kind: the kind of event, which is also the name of the step.
        title: what is shown.
        y_label: the quantity and its unit.
        fields: fields of the event by name of the series.
        smoothed: as in `Curve`.
    """

    kind: str
    title: str
    y_label: str
    fields: Mapping[str, str]
    smoothed: bool = False

    def read(self, heading: str, events: Sequence[Mapping[str, Any]]) -> Curve | None:
        """The curve of a run of that heading; None where it has no such event."""
        steps = {event[STEP]: event for event in events if event["kind"] == self.kind}
        series = {label: points for label, name in self.fields.items() if (points := _series(steps, name))}
        if not series:
            return None
        return Curve(
            title=f"{heading}: {self.title}",
            x_label=self.kind,
            y_label=self.y_label,
            series=series,
            smoothed=self.smoothed,
            bands={label: band for label, name in self.fields.items() if (band := _band(steps, name))},
        )


def read_curves(sources: Sequence[CurveSource], runs: Sequence[Run]) -> list[Curve]:
    """The curves of some runs, run by run."""
    needs = {source.kind: {STEP: float} for source in sources}
    logs = [(run.heading, run.folder.events(needs)) for run in runs]
    return [curve for heading, events in logs for source in sources if (curve := source.read(heading, events))]


def curve_figure(curve: Curve) -> Figure:
    """A curve as the page shows it."""
    # matplotlib costs a second, which readers of curves need not pay.
    from parley.engine.core.page import plots

    smoothed = ", moving average in front of the single values" if curve.smoothed else ""
    return Figure(curve.title, f"{curve.y_label} per {curve.x_label}{smoothed}", Markup(plots.curve_svg(curve)))


def _series(steps: Steps, name: str) -> list[tuple[float, float]]:
    points = [(float(step), event[name]) for step, event in sorted(steps.items()) if name in event]
    return [(step, math.nan if value is None else float(value)) for step, value in points]


def _band(steps: Steps, name: str) -> list[tuple[float, float, float]]:
    """The intervals of one field, where events hold estimates."""
    found = [(step, event.get("estimates", {}).get(name)) for step, event in sorted(steps.items())]
    return [(float(step), parts["low"], parts["high"]) for step, parts in found if parts and parts["low"] is not None]


@dataclass(frozen=True, kw_only=True)
class ShownCampaign:
    """One campaign.

    Args:
        heading: what it is called on the page.
        metrics: of its end; empty before.
        tables: with their headings.
        curves: by round.
        known: what all known adversaries do, once they have met.
    """

    heading: str
    metrics: Mapping[str, Estimate]
    tables: Sequence[tuple[str, TextTable]]
    curves: Sequence[Curve]
    known: KnownAdversaries | None = None


class Hardenings(Chapter[Sequence[ShownCampaign]]):
    """A chapter of campaigns."""

    job: ClassVar[Job[Any, Any, Any]]
    words: ClassVar[AdversaryWords]
    """The words in which known adversaries are shown."""
    unhelped: ClassVar[str] = ""
    """What is said where the start is the result."""
    sources: ClassVar[Sequence[CurveSource]]
    """What the rounds of a campaign tell."""

    @abstractmethod
    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """What a campaign that has ended comes to."""

    def owns(self, job: str) -> bool:
        return job == self.job.name

    def collect(self, runs: Sequence[Run]) -> Sequence[ShownCampaign] | None:
        return [each for run in runs if (each := self._campaign(run)).tables or each.curves] or None

    def verdict(self, found: Sequence[ShownCampaign]) -> Verdict | None:
        """Return what the first campaign has come to, who is best against its result, and how many have learned nothing."""
        ended = [campaign for campaign in found if campaign.metrics]
        if not ended:
            return None
        verdict, known = self.verdict_of(ended[0].metrics), ended[0].known
        if known is None:
            return verdict
        before, *_, after = verdict.marks
        gains = dict(zip(known.targets, known.gains_TA, strict=True))
        is_start = gains[before] == gains[after] and verdict.marks[before] == verdict.marks[after]
        unhelped = f"{self.unhelped[:1].upper()}{self.unhelped[1:]}. " if is_start and self.unhelped else ""
        return replace(verdict, sentence=f"{unhelped}{verdict.sentence} {known.best_and_idle(after)}")

    def render(self, found: Sequence[ShownCampaign]) -> Section:
        return Section(
            tables=[table for each in found for table in each.tables],
            figures=[curve_figure(curve) for each in found for curve in each.curves],
        )

    def _campaign(self, run: Run) -> ShownCampaign:
        tables = noted(self.job.tables(run.folder), self.job.note(run.folder)).items()
        named = [(f"{run.heading}: {title.lower()}" if run.name else title, table) for title, table in tables]
        known = known_of(run.folder.summary(), self.words)
        curves = read_curves(self.sources, [run])
        return ShownCampaign(heading=run.heading, metrics=run.metrics, tables=named, curves=curves, known=known)


def certainly(gain: Estimate, less: str, more: str) -> str:
    """How sure a gain of the result is, of what stood before: " (certainly LESS)", " (certainly MORE)" or nothing."""
    return {1: f" (certainly {less})", 0: "", -1: f" (certainly {more})"}[certain_sign(gain)]


CURVES = (
    CurveSource("epoch", "words", "perplexity", {"training": "train_perplexity", "validation": "perplexity_reference"}),
    CurveSource("epoch", "selections", "selection perplexity", {"validation": "selection_perplexity"}),
    CurveSource("epoch", "pairs", "nats per pair", {"training": "train_loss", "validation": "validation_loss"}),
    CurveSource("epoch", "ranking", "R@1 of the validation groups", {"validation": "validation_recall_at_1"}),
    CurveSource("epoch", "mixture and likelihood", "nats per word", {"mixture": "mixture", "likelihood": "recorded_nll"}),
    CurveSource("epoch", "reward", "nats per word", {"sampled replies": "reward", "greedy replies": "greedy_reward"}),
    CurveSource("epoch", "what contexts tell replies", "nats per word", {"greedy replies": "specificity"}),
    CurveSource("epoch", "perplexity of replies", "another language model's", {"greedy replies": "reply_ppl"}),
    CurveSource("epoch", "length", "words of a reply", {"greedy replies": "reply_words"}),
    CurveSource(
        "epoch",
        "variety",
        "share",
        {"distinct-1": "distinct_1", "distinct-2": "distinct_2", "rare words": "rare_words", "<unk>": "unknown_words"},
    ),
    CurveSource("update", "reward of choices", "mean reward of an example", {"reward": "reward"}, smoothed=True),
    CurveSource("iteration", "reward", "mean reward", {"reward": "reward"}, smoothed=True),
    CurveSource("iteration", "agreement", "share of dialogues", {"agreement": "agreement"}, smoothed=True),
    CurveSource(
        "iteration", "points", "points per dialogue", {"adversary": "score_adversary", "target": "score_target"}, smoothed=True
    ),
)
_NUM_SAID = 3


@dataclass(frozen=True, kw_only=True)
class ShownTraining:
    """Some trainings."""

    curves: Sequence[Curve]
    measured: Sequence[ShownRun]
    tables: Sequence[tuple[str, TextTable]] = ()


class Trainings(Chapter[ShownTraining]):
    """The chapter of all jobs that fit a model."""

    name, title = "training", "Training"
    terms: ClassVar = {
        r"perplexity": ("Perplexity", "e to the mean loss in nats per token: how many words a model hesitates between."),
        r"released formula": ("Released formula", "the perplexity as the paper's code computes it, over batches of its own."),
    }

    def owns(self, job: str) -> bool:
        return job.startswith("train-")

    def collect(self, runs: Sequence[Run]) -> ShownTraining | None:
        curves = read_curves(CURVES, runs)
        measured = [each for run in runs if run.shown and ((each := ShownRun.of(run)).metrics or each.failures)]
        tables = [table for run in runs for table in run.trainings]
        return ShownTraining(curves=curves, measured=measured, tables=tables) if curves or measured else None

    def verdict(self, found: ShownTraining) -> Verdict | None:
        """What the first training came to, by the metrics that its job calls the main ones."""
        measured = [each for each in found.measured if each.metrics]
        if not measured:
            return None
        first = measured[0]
        known = {name: first.legend.get(name) or Metric(name.replace("_", " "), "", "") for name in first.metrics}
        main = [name for name in first.metrics if known[name].main] or list(first.metrics)
        said = ", ".join(f"{known[name].title} {number(known[name], first.metrics[name].value)}" for name in main[:_NUM_SAID])
        more = f" {len(measured) - 1} more trainings are below." if len(measured) > 1 else ""
        return Verdict(
            sentence=f"{first.name}: {said}.{caveat(first.metrics[main[0]])}{more}",
            metric=known[main[0]],
            marks={each.name: each.metrics[main[0]] for each in measured if main[0] in each.metrics},
            minor=True,
        )

    def render(self, found: ShownTraining) -> Section:
        drawn = [curve for curve in found.curves if any(curve.series.values())]
        return Section(tables=found.tables, measured=found.measured, figures=[curve_figure(curve) for curve in drawn])
