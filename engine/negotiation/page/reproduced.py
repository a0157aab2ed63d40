"""Published tables on the page: measured advantages beside published ones, and what of them is reproduced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from parley.engine.core.page import plots
from parley.engine.core.page.figure import Figure
from parley.engine.core.page.runs import Run
from parley.engine.core.page.verdicts import listed
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.stats.tables import TextTable
from parley.engine.negotiation.metrics.reproduction import (
    ATTACKED,
    NO,
    OPEN,
    PARTS,
    SIGN,
    YES,
    Reproduction,
    compared,
)
from parley.engine.negotiation.verbs.reproduction import REPRODUCE_CHENG2019

_MARKED = ("rl", "ra-pa-da")
"""Attacks whose advantages stand beside the verdict: the one that learns, and the strongest that searches."""


@dataclass(frozen=True, kw_only=True)
class ShownReproduction:
    """What trainings came to, as far as they are finished."""

    found: Reproduction

    @property
    def tables(self) -> list[tuple[str, TextTable]]:
        """All that there are, by heading."""
        return list(self.found.tables().items())

    @property
    def figures(self) -> list[Figure]:
        """Each table's advantages beside those that were published of it."""
        found = []
        for part, of in PARTS.items():
            measured = {title: estimate for row, title in of.rows.items() if (estimate := self._gained(part, row)) is not None}
            published = {
                title: Estimate(known.advantage, known.advantage, known.advantage, 1)
                for row, title in of.rows.items()
                if title in measured and (known := of.known(row)) is not None
            }
            if measured:
                series = {"measured": measured, "published": published}
                drawn = plots.dots_svg(of.heading, "adversary's points ahead", list(measured), series)
                told = "forced where the attack searches for an end; bars: 95 % intervals over trainings and dialogues"
                found.append(Figure(of.heading, told, Markup(drawn)))
        return found

    @property
    def sentence(self) -> str:
        """How many published advantages are reproduced, and what the paper concludes that holds."""
        figures, conclusions = self.found.figures(), self.found.conclusions()
        if not figures.rows:
            return ""
        told = Counter(row[-1] for row in figures.rows)
        words = {
            YES: "within the interval measured here",
            SIGN: "on the same side of 0",
            NO: "not reproduced",
            OPEN: "open, the interval being wide",
        }
        counts = ", ".join(f"{told[word]} {said}" for word, said in words.items() if told[word])
        said = f"Of {len(figures.rows)} published advantages: {counts}."
        num = len(conclusions.rows)
        for holds, how in ((YES, "hold"), (NO, "do not hold")):
            if titles := [row[0] for row in conclusions.rows if row[-1] == holds]:
                said += f" Of {num} differences looked at {len(titles)} certainly {how}: {listed(titles)}."
        return f"{said} {self.found.lost()}".rstrip()

    @property
    def marks(self) -> dict[str, Estimate]:
        """The estimates behind the sentence."""
        return {
            f"{PARTS[part].rows[row]}: {target}": estimate
            for row in _MARKED
            for part, target in ATTACKED.items()
            if (estimate := self._gained(part, row)) is not None
        }

    def _gained(self, part: str, row: str) -> Estimate | None:
        """The advantage in the paper's protocol."""
        name = f"{part}.{row}"
        if name not in self.found.rows:
            return None
        metrics = self.found.over(name)
        return metrics.get(compared(metrics))


def reproductions(runs: Sequence[Run]) -> list[ShownReproduction]:
    """Those of some runs, finished or not."""
    found = (REPRODUCE_CHENG2019.found(run.folder) for run in runs if run.job == REPRODUCE_CHENG2019.name)
    return [ShownReproduction(found=each) for each in found]
