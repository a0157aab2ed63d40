"""Campaigns that harden models by rounds, from run folders to what their report shows; a system says which job is its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from parley.engine.core.page.content import Chapter, Section, Verdict
from parley.engine.core.page.curves import CurveSource, curve_figure, read_curves
from parley.engine.core.page.figure import Curve
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import certain_sign
from parley.engine.core.stats.known import AdversaryWords, KnownAdversaries, known_of
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.job import Job
from parley.engine.core.verbs.tables import noted


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
