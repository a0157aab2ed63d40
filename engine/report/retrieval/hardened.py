"""Campaigns that harden rankers, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from engine.jobs.retrieval.campaign import CONTROL, RESULT, START
from engine.jobs.retrieval.minmax import MINMAX_RANKING, OUTCOME, ROUNDS
from engine.jobs.rounds import rounds_of
from engine.metrics.retrieval.campaign import (
    AS_CONTROL,
    BEFORE_HARDENING,
    GAIN,
    GAIN_BEYOND_CONTROL,
    HELD,
    outcome_table,
    rounds_table,
)
from engine.metrics.statistics import Estimate
from engine.metrics.tables import TextTable
from engine.report.content import Chapter, Section, Stages, Verdict
from engine.report.curves import Curve, CurveSource, curve_figure, read_curves
from engine.report.runs import Run
from engine.report.verdicts import SHARE, caveat, certain_sign, number

CURVES = (
    CurveSource(
        "round",
        "what adversaries reach",
        "share of the attacked contexts",
        {
            "fresh policy": "exploitability",
            "search": "search_success",
            "last policy, before": "policy_before",
            "after": "policy_after",
        },
    ),
    CurveSource(
        "round", "right replies first", "share of the contexts", {"as they are": "clean", "under attack": "under_attack"}
    ),
)
"""What the rounds of a campaign tell."""
_HELD = SHARE._replace(title="Right reply first under attack", definition="share of the contexts")


@dataclass(frozen=True, kw_only=True)
class ShownCampaign:
    """One campaign.

    Args:
        heading: what it is called on the page.
        metrics: of its end; empty before.
        tables: with their headings.
        curves: by round.
    """

    heading: str
    metrics: Mapping[str, Estimate]
    tables: Sequence[tuple[str, TextTable]]
    curves: Sequence[Curve]


class HardenedRankers(Chapter[Sequence[ShownCampaign]]):
    """The chapter of campaigns."""

    name, title = "hardened-rankers", "Hardened rankers"
    stages: ClassVar = {
        MINMAX_RANKING.name: Stages(
            {
                f"{START}-attack": "attacks on the start",
                f"{RESULT}-attack": "attacks on the result",
                f"{CONTROL}-attack": "attacks on the control",
            },
            others="hidden",
        )
    }
    terms: ClassVar = {
        r"\bpolic(y|ies)\b": ("Policy", "a network that chooses which word of a reply becomes which word of the context."),
        r"\bcontrol\b": ("Control", "the same ranker, trained as long on replies as they are."),
    }

    def owns(self, job: str) -> bool:
        return job == MINMAX_RANKING.name

    def collect(self, runs: Sequence[Run]) -> Sequence[ShownCampaign] | None:
        return [each for run in runs if (each := _campaign(run)).tables or each.curves] or None

    def verdict(self, found: Sequence[ShownCampaign]) -> Verdict | None:
        """On the first campaign: right replies that stay first under attack, start, control and result."""
        ended = [each.metrics for each in found if each.metrics]
        if not ended:
            return None
        metrics = ended[0]
        held = {
            told: metrics[f"{HELD}{ending}"]
            for told, ending in (("before", BEFORE_HARDENING), ("control", AS_CONTROL), ("after", ""))
            if f"{HELD}{ending}" in metrics
        }
        said = (
            f"Under attack the right reply stays first in {number(SHARE, held['after'].value)} of the contexts, before the "
            f"hardening in {number(SHARE, held['before'].value)}{_told(metrics[GAIN])}"
        )
        if GAIN_BEYOND_CONTROL in metrics:
            said += f", after as much training on replies as they are in {number(SHARE, held['control'].value)}"
            said += _told(metrics[GAIN_BEYOND_CONTROL])
        return Verdict(sentence=f"{said}.{caveat(*held.values(), unit='dialogues')}", metric=_HELD, marks=held)

    def render(self, found: Sequence[ShownCampaign]) -> Section:
        return Section(
            tables=[table for each in found for table in each.tables],
            figures=[curve_figure(curve) for each in found for curve in each.curves],
        )


def _campaign(run: Run) -> ShownCampaign:
    rounds = rounds_of(run.folder)
    tables = [(OUTCOME, outcome_table(run.metrics))] if run.metrics else []
    tables += [(ROUNDS, rounds_table(rounds))] if rounds else []
    named = [(f"{run.heading}: {title.lower()}" if run.name else title, table) for title, table in tables]
    return ShownCampaign(heading=run.heading, metrics=run.metrics, tables=named, curves=read_curves(CURVES, [run]))


def _told(gain: Estimate) -> str:
    return {1: " (certainly fewer)", 0: "", -1: " (certainly more)"}[certain_sign(gain)]
