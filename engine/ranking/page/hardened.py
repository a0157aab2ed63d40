"""Campaigns that harden rankers, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from parley.engine.core.page.content import Stages, Verdict
from parley.engine.core.page.curves import CurveSource
from parley.engine.core.page.hardening import Hardenings, certainly
from parley.engine.core.page.verdicts import SHARE, caveat, number
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.hardening import CONTROL, RESULT, START
from parley.engine.ranking.metrics.campaign import ATTACKS, GAIN, GAIN_BEYOND_CONTROL, HELD, RANKERS
from parley.engine.ranking.verbs.minmax import MINMAX_RANKING

_HELD = SHARE._replace(title="Right reply first under attack", definition="share of the contexts")


class HardenedRankers(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-rankers", "Hardened rankers"
    job, unhelped = MINMAX_RANKING, MINMAX_RANKING.unhelped
    words = ATTACKS
    sources: ClassVar = (
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

    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """Right replies that stay first under attack: start, control and result."""
        held = {told: metrics[f"{HELD}{ending}"] for told, ending in RANKERS.endings.items() if f"{HELD}{ending}" in metrics}
        said = (
            f"Under attack the right reply stays first in {number(SHARE, held['after'].value)} of the contexts, before the "
            f"hardening in {number(SHARE, held['before'].value)}{_told(metrics[GAIN])}"
        )
        if GAIN_BEYOND_CONTROL in metrics:
            said += f", after as much training on replies as they are in {number(SHARE, held['control'].value)}"
            said += _told(metrics[GAIN_BEYOND_CONTROL])
        return Verdict(sentence=f"{said}.{caveat(*held.values(), unit='dialogues')}", metric=_HELD, marks=held)


def _told(gain: Estimate) -> str:
    return certainly(gain, "fewer", "more")
