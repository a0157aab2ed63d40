"""Attackers that refine tactics, on the page: their table, what they wrote, and what that gained after so many dialogues.

Tactics are what a model wrote, so that they are made visible before they are shown; the page escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from parley.engine.core.page.figure import Figure
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import POINTS, caveat, certain_sign, number
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.core.stats.tables import TextTable, with_interval
from parley.engine.negotiation.attacks.tactics import ARMS, ATTACKERS, NONE, REFINED
from parley.engine.negotiation.metrics.tactics import TACTIC_METRICS, TacticsPlayed, tactics_table
from parley.engine.negotiation.page.sections import PLAIN, Match
from parley.engine.negotiation.verbs.tactic import ATTACK_TACTIC, played_tactics
from parley.envs.core.visible import visible

_MOST_SHOWN = 600
"""Characters of a tactic that the page shows."""


@dataclass(frozen=True)
class ShownTactics:
    """One run of an attack by tactics.

    Args:
        name: a short heading, empty on the run's own page.
        metrics: of the run, by "ARM.METRIC".
        played: its dialogues and tactics.
        source: the run that its tactics are of, where they were refined against another target; empty where here.
    """

    name: str
    metrics: Mapping[str, Estimate]
    played: TacticsPlayed
    source: str = ""

    def heading(self, what: str) -> str:
        """What something of this run is called on the page."""
        return f"{self.name}: {what}" if self.name else what[:1].upper() + what[1:]

    @property
    def tables(self) -> list[tuple[str, TextTable]]:
        """The attackers beside each other; none before the run is finished."""
        return [(self.heading("tactics beside their controls"), tactics_table(self.metrics))] if self.metrics else []

    @property
    def matches(self) -> list[Match]:
        """The held-out dialogues of each attacker's best tactic, and those without one, as matches."""
        found = []
        legend: Mapping[str, Metric] = TACTIC_METRICS
        for arm in self.played.chosen:
            own = {name: estimate for name in legend if (estimate := self.metrics.get(f"{arm}.{name}")) is not None}
            rows = self.played.held_out(arm)
            job = PLAIN if arm == NONE else ATTACK_TACTIC.name
            if own or rows:
                found.append(Match(name=self.heading(ARMS[arm]), job=job, metrics=own, legend=legend, rows=rows))
        return found

    @property
    def lists(self) -> dict[str, list[tuple[str, str]]]:
        """Everything that attackers wrote, attacker by attacker: what was chosen first; nothing of a source beside its own."""
        found: dict[str, list[tuple[str, str]]] = {}
        if self.source and self.name:
            return found
        for arm, title in ATTACKERS.items():
            best = self.played.chosen.get(arm)
            own = [each for each in self.played.written if each.arm == arm]
            own.sort(key=lambda each: (not each.number or each.number != best, each.round, each.stream))
            pairs = []
            for each in own:
                text = visible(each.text)
                shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}\N{HORIZONTAL ELLIPSIS}"
                gain = f"gain {with_interval(self.played.gain(each.number))}" if each.number else f"no tactic: {each.problem}"
                chosen = "chosen, " if each.number and each.number == best else ""
                pairs.append((f"{chosen}round {each.round}, stream {each.stream}: {gain}", shown or "(nothing)"))
            if pairs:
                found[self.heading(f"tactics, {title}")] = pairs
        return found

    @property
    def figures(self) -> list[Figure]:
        """What the best tactic so far gained, by dialogues that were played to find it."""
        from parley.engine.core.page import plots

        curves = {title: points for arm, title in ATTACKERS.items() if len(points := self.played.curve(arm)) > 1}
        if not curves:
            return []
        title = self.heading("gain by dialogues with the target")
        caption = (
            "advantage of each attacker's best tactic so far in the development dialogues, which chose it, so too high; at 0 "
            "without a tactic; bands are 95 % intervals; the table has the held-out advantage of the last"
        )
        label = "development dialogues played"
        return [Figure(title, caption, Markup(plots.budget_svg(title, label, curves, "points ahead, development")))]

    @property
    def sentence(self) -> str:
        """Whether refining did anything: beside no tactic, and beside attackers that see less; not of a source's tactics."""
        over = {arm: self.metrics.get(f"{REFINED}.over_{arm}", NOTHING) for arm in ARMS if arm != REFINED}
        if not over[NONE].n or self.source:
            return ""
        if not any(each.number for each in self.played.written):
            return "The attacker wrote no tactic that could be tried."
        told = {1: "certainly more", 0: "no certain difference", -1: "certainly less"}
        parts = [
            f"{number(POINTS, each.value)} points more than {what} ({told[certain_sign(each)]})"
            for arm, what in ((NONE, "no tactic"), *((arm, f"one {title}") for arm, title in _OTHERS.items()))
            if (each := over[arm]).n
        ]
        who = f"{self.name[:1].upper()}{self.name[1:]}: the" if self.name else "The"
        return f"{who} tactic refined from transcripts gains {', '.join(parts)}.{caveat(over[NONE], unit='dialogues')}"


_OTHERS = {"gains": "of an attacker that is told gains alone", "blind": "drawn blind"}


def shown_tactics(runs: Sequence[Run]) -> list[ShownTactics]:
    """The attacks by tactics among some runs, finished or not."""
    return [
        ShownTactics(run.heading if run.name else "", run.metrics, played, run.config.get("source", ""))
        for run in runs
        if run.shown and run.job == ATTACK_TACTIC.name and (played := played_tactics(run.folder)).rows
    ]
