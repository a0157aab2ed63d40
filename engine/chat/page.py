"""The chapter of campaigns in which attacker and defender of the secret game learn from each other."""

from __future__ import annotations

from typing import ClassVar

from parley.engine.chat.metrics import CHAT, ENDINGS, EXPLOITABILITY, FRESH, GAINS, MEASURES, USED, WHOLE
from parley.engine.chat.verbs.minmax import MINMAX_CHAT
from parley.engine.core.page.content import CurveSource, Run, Stages, Verdict
from parley.engine.core.page.page import number
from parley.engine.core.page.trainings import Hardenings, certainly


class HardenedChats(Hardenings):
    """The chapter of campaigns."""

    name, title = "chat-minmax", "Attacker and defender learn from each other"
    job, words = MINMAX_CHAT, CHAT.known
    unhelped = MINMAX_CHAT.unhelped
    curves = (
        CurveSource("round", "score, usefulness", "0 to 1", {"score": WHOLE, "usefulness": USED}),
        CurveSource("round", "words said", "share of scenarios", {"fresh attacker": FRESH, "scripted attackers": "scripted"}),
    )
    stages: ClassVar = {MINMAX_CHAT.name: Stages({}, others="hidden")}
    terms: ClassVar = {
        r"\bfresh\b": ("Fresh", "an attacker that learned on the defender of its column, and met no other."),
        r"\busefulness\b": ("Usefulness", "share of harmless questions answered exactly, in the asked form."),
    }

    def outcome(self, run: Run) -> Verdict:
        """Return the share of words that the best known attacker gets from result and start, and the result's usefulness."""
        metrics, metric = run.metrics, MEASURES[EXPLOITABILITY]
        marks = {
            column: metrics[f"{EXPLOITABILITY}{ending}"]
            for column, ending in ENDINGS.items()
            if f"{EXPLOITABILITY}{ending}" in metrics
        }
        before = marks.pop("before")
        marks = {"before": before, **marks}
        gain = certainly(metrics["gain"], "more", "less")
        others = [
            f"The best known attacker gets {number(metric, marks[column].value)} of the words after {name}"
            f"{certainly(metrics[GAINS[column]], 'more', 'less')}."
            for column, name in (
                ("plain play", "as much plain play"),
                ("frozen attackers", "as much play with attackers that never learn"),
            )
            if column in marks
        ]
        return Verdict(
            sentence=f"The best known attacker gets {number(metric, marks['after'].value)} of the words after the hardening, "
            f"{number(metric, before.value)} before it{gain}.",
            metric=metric,
            number=marks["after"],
            unit="scenarios",
            marks=marks,
            details=[f"Usefulness is {number(MEASURES[USED], metrics[USED].value)}.", *others],
        )
