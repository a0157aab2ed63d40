"""The chapters of campaigns in which chat models learn from each other: the secret game, and negotiations."""

from __future__ import annotations

from typing import ClassVar

from parley.engine.chat.metrics import CHAT, ENDINGS, EXPLOITABILITY, FRESH, GAINS, MEASURES, USED, WHOLE
from parley.engine.chat.verbs import negotiator
from parley.engine.chat.verbs.minmax import MINMAX_CHAT
from parley.engine.chat.verbs.negotiator import MINMAX_CHAT_NEGOTIATOR, PLAYED
from parley.engine.core.page.content import CurveSource, Run, Stages, Verdict
from parley.engine.core.page.page import number
from parley.engine.core.page.trainings import Hardenings, certainly, comparison
from parley.engine.core.stats.known import NEGOTIATORS
from parley.engine.negotiation.metrics.campaign import PLAIN_SCORE


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


class HardenedChatNegotiators(Hardenings):
    """The chapter of campaigns of negotiators."""

    name, title = "chat-negotiators", "Negotiators that are chat models harden each other"
    job, words = MINMAX_CHAT_NEGOTIATOR, NEGOTIATORS
    unhelped = MINMAX_CHAT_NEGOTIATOR.unhelped
    curves = (
        CurveSource("round", "advantage", "points", {"best known by that round": EXPLOITABILITY, "fresh adversary": FRESH}),
        CurveSource("round", "plain score", "points", {"target": PLAIN_SCORE}),
    )
    stages: ClassVar = {MINMAX_CHAT_NEGOTIATOR.name: Stages({}, others="hidden")}

    def outcome(self, run: Run) -> Verdict:
        """Return the points of the best known adversary over result and start, and the result's score in ordinary play."""
        metrics, metric = run.metrics, PLAYED[EXPLOITABILITY]
        marks = {
            column: metrics[f"{EXPLOITABILITY}{ending}"]
            for column, ending in negotiator.ENDINGS.items()
            if f"{EXPLOITABILITY}{ending}" in metrics
        }
        after, before = marks["after"], marks["before"]
        plain = (
            [comparison(metrics["gain_over_plain"], "after as much plain play", "less", "more")]
            if "plain play" in marks
            else []
        )
        return Verdict(
            sentence=f"The best known adversary is {number(metric, after.value)} points ahead after the hardening, "
            f"{number(metric, before.value)} before it{certainly(metrics['gain'], 'more', 'less')}.",
            metric=metric,
            number=after,
            unit="dialogues",
            marks=marks,
            details=[f"In ordinary play it gets {number(PLAYED[PLAIN_SCORE], metrics[PLAIN_SCORE].value)} points.", *plain],
        )
