"""Chapters on trainings, hardening campaigns and all other runs, and the curves that events of a run make.

`Trainings` shows the curves and final figures of any model. `Hardenings` shows campaigns that harden models by rounds; a system
derives its own chapter and names its job. `Measurements` shows runs that no other chapter knows, such as a job of another
version.
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
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import Job, noted

STEP = "number"
"""The field of an event that holds the number of the epoch or iteration."""

Steps = Mapping[float, Mapping[str, Any]]
"""Events by step; of a step that a resumed run did twice, the last one counts."""


@dataclass(frozen=True)
class CurveSource:
    """The event and the fields that make a curve.

    Args:
        kind: kind of the event, which is also the name of the step.
        title: title of the curve.
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
        """Return the curve of a run, under a heading; None if the run has no such event."""
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
    """Return the curves of some runs, run by run."""
    needs = {source.kind: {STEP: float} for source in sources}
    logs = [(run.heading, run.folder.events(needs)) for run in runs]
    return [curve for heading, events in logs for source in sources if (curve := source.read(heading, events))]


def curve_figure(curve: Curve) -> Figure:
    """Return a curve as the page shows it."""
    # Imported here, because matplotlib costs a second, which readers of curves need not pay.
    from parley.engine.core.page import plots

    smoothed = ", moving average in front of the single values" if curve.smoothed else ""
    return Figure(curve.title, f"{curve.y_label} per {curve.x_label}{smoothed}", Markup(plots.curve_svg(curve)))


def _series(steps: Steps, name: str) -> list[tuple[float, float]]:
    points = [(float(step), event[name]) for step, event in sorted(steps.items()) if name in event]
    return [(step, math.nan if value is None else float(value)) for step, value in points]


def _band(steps: Steps, name: str) -> list[tuple[float, float, float]]:
    """Return the intervals of one field, if events hold estimates."""
    estimates = [(step, event.get("estimates", {}).get(name)) for step, event in sorted(steps.items())]
    return [(float(step), parts["low"], parts["high"]) for step, parts in estimates if parts and parts["low"] is not None]


@dataclass(frozen=True, kw_only=True)
class ShownCampaign:
    """One campaign.

    Args:
        heading: heading on the page.
        metrics: final metrics; empty before the end.
        tables: tables with their headings.
        curves: curves over rounds.
        known: gains of all known adversaries, once they have been measured.
    """

    heading: str
    metrics: Mapping[str, Estimate]
    tables: Sequence[tuple[str, EstimateTable]]
    curves: Sequence[Curve]
    known: KnownAdversaries | None = None


class Hardenings(Chapter[Sequence[ShownCampaign]]):
    """A chapter of campaigns."""

    job: ClassVar[Job[Any, Any, Any]]
    words: ClassVar[AdversaryWords]
    """The words in which known adversaries are shown."""
    unhelped: ClassVar[str] = ""
    """The sentence if the start is the result."""
    sources: ClassVar[Sequence[CurveSource]]
    """The curves over the rounds of a campaign."""

    @abstractmethod
    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """Return the verdict on a finished campaign."""

    def owns(self, job: str) -> bool:
        return job == self.job.name

    def collect(self, runs: Sequence[Run]) -> Sequence[ShownCampaign] | None:
        campaigns = [self._campaign(run) for run in runs]
        return [campaign for campaign in campaigns if campaign.tables or campaign.curves] or None

    def verdict(self, campaigns: Sequence[ShownCampaign]) -> Verdict | None:
        """Return the verdict on the first campaign, with its best adversary and the number of those that learned nothing."""
        ended = [campaign for campaign in campaigns if campaign.metrics]
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

    def render(self, campaigns: Sequence[ShownCampaign]) -> Section:
        return Section(
            tables=[table for campaign in campaigns for table in campaign.tables],
            figures=[curve_figure(curve) for campaign in campaigns for curve in campaign.curves],
        )

    def _campaign(self, run: Run) -> ShownCampaign:
        tables = noted(self.job.tables(run.folder), self.job.note(run.folder)).items()
        headed = [(f"{run.heading}: {title.lower()}" if run.name else title, table) for title, table in tables]
        known = known_of(run.folder.summary(), self.words)
        curves = read_curves(self.sources, [run])
        return ShownCampaign(heading=run.heading, metrics=run.metrics, tables=headed, curves=curves, known=known)


def certainly(gain: Estimate, less: str, more: str) -> str:
    """Return the certainty of a gain over an earlier model: " (certainly LESS)", " (certainly MORE)" or nothing."""
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
    tables: Sequence[tuple[str, EstimateTable]] = ()


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
        shown = [ShownRun.of(run) for run in runs if run.shown]
        measured = [run for run in shown if run.metrics or run.failures]
        tables = [table for run in runs for table in run.trainings]
        return ShownTraining(curves=curves, measured=measured, tables=tables) if curves or measured else None

    def verdict(self, training: ShownTraining) -> Verdict | None:
        """Return the figures of the first training, by the main metrics of its job."""
        measured = [run for run in training.measured if run.metrics]
        if not measured:
            return None
        first = measured[0]
        legend = {name: first.legend.get(name) or Metric(name.replace("_", " "), "", "") for name in first.metrics}
        main = [name for name in first.metrics if legend[name].main] or list(first.metrics)
        figures = ", ".join(
            f"{legend[name].title} {number(legend[name], first.metrics[name].value)}" for name in main[:_NUM_SAID]
        )
        more = f" {len(measured) - 1} more trainings are below." if len(measured) > 1 else ""
        return Verdict(
            sentence=f"{first.name}: {figures}.{caveat(first.metrics[main[0]])}{more}",
            metric=legend[main[0]],
            marks={run.name: run.metrics[main[0]] for run in measured if main[0] in run.metrics},
            minor=True,
        )

    def render(self, training: ShownTraining) -> Section:
        drawn = [curve for curve in training.curves if any(curve.series.values())]
        return Section(tables=training.tables, measured=training.measured, figures=[curve_figure(curve) for curve in drawn])


class Measurements(Chapter[list[ShownRun]]):
    """The chapter of all other runs."""

    name, title = "measurements", "Measurements"

    def owns(self, job: str) -> bool:
        return True

    def collect(self, runs: Sequence[Run]) -> list[ShownRun] | None:
        shown = [ShownRun.of(run, description="") for run in runs if run.shown]
        return [run for run in shown if run.metrics or run.failures] or None

    def verdict(self, runs: list[ShownRun]) -> None:
        """Return None: the metric that matters is unknown."""
        return None

    def render(self, runs: list[ShownRun]) -> Section:
        return Section(measured=runs)
