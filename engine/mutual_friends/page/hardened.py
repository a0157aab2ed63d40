"""Campaigns that harden bots against liars, from run folders to what their report shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from parley.engine.core.page.content import Stages, Verdict
from parley.engine.core.page.page import caveat, number
from parley.engine.core.page.trainings import CurveSource, Hardenings, certainly
from parley.engine.core.stats.known import EXPLOITABILITY
from parley.engine.core.stats.statistics import Estimate
from parley.engine.mutual_friends.metrics.hardening import ENDINGS, GAINS, LIARS, ON_RANDOM_LIES, WITHOUT_LIES
from parley.engine.mutual_friends.metrics.lying import COMPLETION, HARM, HONEST, LYING, RANDOM
from parley.engine.mutual_friends.verbs.minmax import MINMAX_FRIENDS


class HardenedFriends(Hardenings):
    """The chapter of campaigns."""

    name, title = "hardened-friends", "Hardened against liars"
    job, unhelped = MINMAX_FRIENDS, MINMAX_FRIENDS.unhelped
    words = LIARS
    sources: ClassVar = (
        CurveSource(
            "round",
            "harm",
            "mean over chats",
            {"fresh liar": HARM, "random lies": f"{HARM}{RANDOM}", "no lies": f"{HARM}{HONEST}"},
        ),
        CurveSource(
            "round", "common friend found", "share of chats", {"fresh liar": COMPLETION, "no lies": f"{COMPLETION}{HONEST}"}
        ),
    )
    stages: ClassVar = {MINMAX_FRIENDS.name: Stages({}, others="hidden")}
    terms: ClassVar = {
        r"\bliars?\b": ("Liar", "a network that chooses when a side claims a friend that nobody of its table is, and which."),
        r"\bharm\b": ("Harm", "1 for a chat without agreement, else less, the sooner it agrees."),
    }

    def verdict_of(self, metrics: Mapping[str, Estimate]) -> Verdict:
        """Return the harm of the best known liar to start, controls and result."""
        # A campaign of an older version was measured by fresh liars alone.
        figure, who = (EXPLOITABILITY, "best known") if EXPLOITABILITY in metrics else (HARM, "fresh")
        marks = {told: metrics[name] for told, ending in ENDINGS.items() if (name := f"{figure}{ending}") in metrics}
        told = [f"{number(LYING[HARM], marks['after'].value)} after the hardening"]
        names = {"before": "before it", WITHOUT_LIES: "after as much training without lies", ON_RANDOM_LIES: "on random lies"}
        told += [
            f"{number(LYING[HARM], marks[column].value)} {names[column]}{certainly(metrics[gain], 'more', 'less')}"
            for column, gain in GAINS.items()
            if gain in metrics
        ]
        sentence = f"The {who} liar's harm is {', '.join(told)}.{caveat(*marks.values(), unit='chats')}"
        return Verdict(sentence=sentence, metric=LYING[HARM]._replace(title=f"Harm of the {who} liar"), marks=marks)
