"""Tables 2, 6 and 7 of Cheng et al. 2019: measured beside published figures, and which of these are reproduced.

A training is everything from the corpus on: supervised agent, RL agent, adversaries, adversarial training. Figures are means
over trainings with intervals over trainings and dialogues (`parley.engine.core.tables.table`); all trainings are measured on
the same scenarios. A published figure is compared with the forced one if there is one, which is the paper's protocol.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from parley.engine.core.stats.known import Round
from parley.engine.core.stats.statistics import LOST, Estimate, has_lost
from parley.engine.core.stats.trainings import over_trainings
from parley.engine.core.tables.table import ABSENT, BETWEEN, EstimateTable, figure, with_interval
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, ATTACKS, PublishedAttack
from parley.engine.negotiation.metrics.attack_table import TABLE_2, TURNS, AttackLine, attack_table, points_cell, share_cell
from parley.engine.negotiation.metrics.campaign import ROUND_METRICS, rounds_table

SV, RL, TURN, CONTROL, HARDENED = "sv", "rl", "turns", "control", "hardened"
"""Parts: what is attacked, or how. `CONTROL` is the RL agent after as much plain play as adversarial training has dialogues."""
PLAIN, KNOWN = "plain", "rl-known"
"""Rows that a table of attacks has not: the RL agent plays, both choose; the adversary that the target learned from last."""

ATTACKED = {
    SV: "supervised agent",
    RL: "RL agent",
    HARDENED: "RL agent after adversarial training",
    CONTROL: "RL agent after plain play alone",
}
"""What is attacked, by parts; table 7 is of the RL agent, too."""
YES, SIGN, NO, OPEN = "yes", "sign only", "no", "open"
"""Whether a figure is reproduced."""

_SPOKEN = {PLAIN: "RL agent, no attack, both choose", **TABLE_2, "none": "no attack, the target alone chooses"}
_TRAINED_AGAIN = {"rl": "RL attack, the best adversary", KNOWN: "RL attack, the adversary of training"}


class PaperTable(NamedTuple):
    """One of the tables.

    Args:
        heading: above it.
        rows: titles by row.
        published: key of `ATTACKS`; empty for none.
        names: of published rows, where they are not called as the measured ones.
    """

    heading: str
    rows: Mapping[str, str]
    published: str = ""
    names: Mapping[str, str] = {}

    def known(self, row: str) -> PublishedAttack | None:
        """Return the published figures of a row."""
        return ATTACKS.get(self.published, {}).get(self.names.get(row, row))


# In the published rows without an attack the RL agent speaks and both sides choose.
_WITHOUT = {PLAIN: "none", "none": ""}
_AGAIN = {
    name: title for row, old in _SPOKEN.items() for name, title in (_TRAINED_AGAIN if row == "rl" else {row: old}).items()
}
PARTS: Mapping[str, PaperTable] = {
    SV: PaperTable("Table 2: the supervised agent", _SPOKEN, "sv", _WITHOUT),
    RL: PaperTable("Table 2: the RL agent", _SPOKEN, "rl", _WITHOUT),
    TURN: PaperTable(
        "Table 7: the RL agent, attacked after n utterances", {row: f"reactive, n = {n}" for row, n in TURNS.items()}, "turns"
    ),
    HARDENED: PaperTable("Table 6: the RL agent after adversarial training", _AGAIN, "hardened", {**_WITHOUT, KNOWN: "rl"}),
    CONTROL: PaperTable("Control: the RL agent after as many dialogues of plain play alone", _SPOKEN),
}
"""The tables, in the order of the page."""
LEGEND = {
    f"{part}.{row}.{name}": metric for part, of in PARTS.items() for row in of.rows for name, metric in ATTACK_METRICS.items()
}

OfTraining = Mapping[str, Estimate]
"""The metrics of a row in one training."""


@dataclass(frozen=True)
class Reproduction:
    """The results of all finished trainings.

    Args:
        rows: the metrics of each training that measured a row, by "PART.ROW" and the training's number.
        rounds: the rounds of adversarial training, by the training's number.
    """

    rows: Mapping[str, Mapping[int, OfTraining]] = field(default_factory=dict)
    rounds: Mapping[int, Sequence[Round]] = field(default_factory=dict)

    def metrics(self) -> dict[str, Estimate]:
        """Return the figures over trainings, by "PART.ROW.METRIC"."""
        return {f"{row}.{name}": estimate for row in self.rows for name, estimate in self.over(row).items()}

    def each(self, row: str) -> dict[str, list[float]]:
        """Return the figures of each training, by metric."""
        trainings = list(self.rows[row].values())
        return {name: [metrics[name].value for metrics in trainings] for name in trainings[0]}

    def lines(self, part: str) -> list[AttackLine]:
        """Return the lines of a table, beside the RL agent's if the target was trained on from it."""
        of = PARTS[part]
        return [
            AttackLine(
                title,
                self.over(f"{part}.{row}"),
                of.known(row),
                self._before(row) if part in (HARDENED, CONTROL) else {},
                self.each(f"{part}.{row}")["advantage"] if len(self.rows[f"{part}.{row}"]) > 1 else (),
            )
            for row, title in of.rows.items()
            if f"{part}.{row}" in self.rows
        ]

    def tables(self, brief: bool = False) -> dict[str, EstimateTable]:
        """Return all tables by heading; the reproduced figures come first."""
        first = {
            "Published figures": self.figures(brief),
            "What the paper concludes": self.conclusions(),
            "Whether the agents still speak": self.languages(),
        }
        tables = {heading: table for heading, table in first.items() if table.rows}
        for part, of in PARTS.items():
            if lines := self.lines(part):
                table = attack_table(lines, brief)
                tables[of.heading] = replace(table, note=f"{table.note} {self._trained(part)}")
        if self.rounds:
            tables["Adversarial training by rounds"] = self._rounds()
        return tables

    def figures(self, brief: bool = False) -> EstimateTable:
        """Return each row of the paper's tables beside its measurement, and the verdict on its advantage.

        Args:
            brief: as a screen has room for it: advantages alone keep intervals.
        """
        rows = []
        for part, of in PARTS.items():
            for row, title in of.rows.items():
                published_row = of.known(row)
                if published_row is None or f"{part}.{row}" not in self.rows:
                    continue
                estimates = self.over(f"{part}.{row}")
                protocol = compared(estimates).removesuffix("advantage")
                cells = [
                    points_cell(estimates, protocol),
                    *(share_cell(estimates[protocol + name]) for name in ("par", "agreement")),
                ]
                points, par, agreement = (cell.split("\n")[0] if brief else cell.replace("\n", " ") for cell in cells)
                rows.append(
                    (
                        f"{_TABLES[part]}: {title}",
                        "forced" if protocol else "live",
                        with_interval(estimates[f"{protocol}advantage"]),
                        figure(published_row.advantage),
                        par,
                        f"{100 * published_row.par:.4g} %",
                        points,
                        BETWEEN.join(map(figure, published_row.points)),
                        agreement,
                        f"{100 * published_row.agreement:.4g} %",
                        ", ".join(_within(estimates, protocol, published_row)) or ABSENT,
                        str(len(self.rows[f"{part}.{row}"])),
                        _is_reproduced(estimates[f"{protocol}advantage"], published_row.advantage),
                    )
                )
        measured = (name for column in _COLUMNS for name in (column, "published"))
        columns = ("figure", "protocol", *measured, "within", "trainings", "reproduced")
        told = Counter(row[-1] for row in rows)
        counts = ", ".join(f"{told[word]} {word}" for word in (YES, SIGN, NO, OPEN) if told[word])
        return EstimateTable(columns, tuple(rows), f"Of {len(rows)}: {counts}. {_NOTE_FIGURES}")

    def conclusions(self) -> EstimateTable:
        """Return the paper's conclusions, as differences between rows within each training."""
        rows = []
        for title, (first, second) in _CLAIMS.items():
            if (difference := self._difference(first, second)) is not None:
                published_advantage = _known(first) - (_known(second) if second else 0.0)
                published = ABSENT if math.isnan(published_advantage) else figure(published_advantage)
                rows.append((title, with_interval(difference), published, _holds(difference)))
        note = f"{_NOTE_CLAIMS} {lost}" if (lost := self.lost()) else _NOTE_CLAIMS
        return EstimateTable(("difference, in points of advantage", "measured", "published", "holds"), tuple(rows), note)

    def languages(self) -> EstimateTable:
        """Return each attacked agent's repetition in plain play, by training."""
        rows = [
            (f"the {who}", *(figure(shares[number].value) if number in shares else ABSENT for number in self._numbers()))
            for part, who in ATTACKED.items()
            if (shares := self._repetition(part))
        ]
        columns = ("repetition in plain play", *(f"training {number}" for number in self._numbers()))
        return EstimateTable(columns, tuple(rows), f"{_NOTE_LANGUAGE} {self.lost()}".rstrip())

    def lost(self) -> str:
        """Return a sentence on the agents that have lost their language, by training; empty if all speak."""
        phrases = [
            f"the {who} in training{'s' * (len(lost) > 1)} {' and '.join(lost)}"
            for part, who in ATTACKED.items()
            if (lost := [str(number) for number, share in self._repetition(part).items() if has_lost(share.value)])
        ]
        return (
            f"Have lost their language, so that what is taken from them says little: {'; '.join(phrases)}." if phrases else ""
        )

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON types."""
        tables = {
            part: {
                row: {
                    "title": title,
                    "trainings": list(self.rows[f"{part}.{row}"]),
                    "measured": {name: estimate.to_json() for name, estimate in self.over(f"{part}.{row}").items()},
                    "each": self.each(f"{part}.{row}"),
                    "published": None if known is None else {"advantage": known.advantage, **asdict(known)},
                }
                for row, title in of.rows.items()
                if f"{part}.{row}" in self.rows
                for known in (of.known(row),)
            }
            for part, of in PARTS.items()
        }
        rounds = {
            str(number): [{name: estimate.to_json() for name, estimate in each.metrics.items()} for each in made]
            for number, made in self.rounds.items()
        }
        texts = {"figures": self.figures(), "conclusions": self.conclusions()}
        text_tables = {
            name: [dict(zip(_unlike(table.columns), row, strict=True)) for row in table.rows] for name, table in texts.items()
        }
        return {"tables": tables, "rounds": rounds, **text_tables}

    def over(self, row: str) -> dict[str, Estimate]:
        """Return the figures over trainings of a measured row, by metric."""
        trainings = list(self.rows[row].values())
        names = [name for name in trainings[0] if all(name in one for one in trainings)]
        return {name: over_trainings([one[name] for one in trainings], ATTACK_METRICS.get(name)) for name in names}

    def _repetition(self, part: str) -> dict[int, Estimate]:
        measured = self.rows.get(f"{part}.{PLAIN}", {})
        return {number: one["repetition_target"] for number, one in sorted(measured.items()) if "repetition_target" in one}

    def _numbers(self) -> list[int]:
        return sorted({number for part in ATTACKED for number in self._repetition(part)})

    def _before(self, row: str) -> dict[str, Estimate]:
        before = f"{RL}.{'rl' if row == KNOWN else row}"
        return self.over(before) if before in self.rows else {}

    def _trained(self, part: str) -> str:
        by_number: dict[int, list[str]] = {}
        for row, title in PARTS[part].rows.items():
            if f"{part}.{row}" in self.rows:
                by_number.setdefault(len(self.rows[f"{part}.{row}"]), []).append(title)
        phrases = [
            f"{number} {'all rows' if len(by_number) == 1 else ', '.join(titles)}" for number, titles in by_number.items()
        ]
        return f"Trainings: {'; '.join(phrases)}."

    def _rounds(self) -> EstimateTable:
        made = list(self.rounds.values())
        rounds = []
        for number in range(max(map(len, made))):
            there = [rounds_of_training[number].metrics for rounds_of_training in made if len(rounds_of_training) > number]
            rounds.append(
                Round(
                    number, {name: over_trainings([one[name] for one in there], ROUND_METRICS.get(name)) for name in there[0]}
                )
            )
        table = rounds_table(rounds)
        return replace(table, note=f"{table.note} Means over trainings: {len(made)}.")

    def _difference(self, first: str, second: str) -> Estimate | None:
        """Return the mean over trainings of one row less another, or of one alone; None if no training has both."""
        if first not in self.rows or (second and second not in self.rows):
            return None
        both = [number for number in self.rows[first] if not second or number in self.rows[second]]
        apart = [
            _apart(*(one[compared(one)] for one in (self.rows[row][number] for row in (first, second) if row)))
            for number in both
        ]
        return over_trainings(apart) if apart else None


_COLUMNS = {
    "advantage": ("advantage",),
    "PAR": ("par",),
    "points": ("score_adversary", "score_target"),
    "agreement": ("agreement",),
}
"""The paper's columns, and the metrics that each is of."""
_TABLES = {SV: "2, supervised", RL: "2, RL", TURN: "7", HARDENED: "6", CONTROL: "control"}
_SEARCHES = ("reactive", "preemptive", "ra-pa-da", "ra-pa-ta")
_CLAIMS: dict[str, tuple[str, str]] = {
    "the RL attack gains from the supervised agent": (f"{SV}.rl", ""),
    "the RL attack gains from the RL agent": (f"{RL}.rl", ""),
    **{
        f"{TABLE_2[row]}: gains more from the supervised agent than from the RL agent": (f"{SV}.{row}", f"{RL}.{row}")
        for row in ("rl", *_SEARCHES)
    },
    **{
        f"RA+PA+DA gains more than the reactive attack, {who}": (f"{part}.ra-pa-da", f"{part}.reactive")
        for part, who in ((SV, "supervised agent"), (RL, "RL agent"))
    },
    **{
        f"{title}: adversarial training takes from it": (f"{RL}.{'rl' if row == KNOWN else row}", f"{HARDENED}.{row}")
        for row, title in _AGAIN.items()
        if row in ("rl", KNOWN, *_SEARCHES)
    },
    **{
        f"{_AGAIN[row]}: adversarial training takes more than plain play alone": (f"{CONTROL}.{row}", f"{HARDENED}.{row}")
        for row in ("rl", *_SEARCHES)
    },
}
"""Rows by what the paper concludes from the first less the second, or the first alone; the control is not in the paper."""
_WIDEST = 1.0
"""Points on either side of an advantage from which its interval says too little of a published one that is within it."""
_NOTE_FIGURES = (
    "The paper's columns: its scores are points, adversary : target, 0 : 0 without agreement, and its PAR counts ties. "
    "Within: the columns whose published figure lies within the 95 % interval here, points those of both sides. "
    "Reproduced, by the advantage alone: yes, where the published advantage is within the 95 % interval; open, where it "
    f"is, and the interval is wider than {_WIDEST:g} point on a side, so that it says little; sign only, where it is not "
    "within and the measured one is certainly on the same side of 0; otherwise no. Forced: the target must end where an "
    "attack sentence satisfies the end constraint, as in the paper. Nothing is known of the published scenarios and seeds."
)
_NOTE_CLAIMS = (
    "First less second within each training, mean over trainings, by the same protocol as above. Holds: yes or no where the "
    "interval excludes 0, else not certain. The paper has no control: nothing is published of it."
)
_NOTE_LANGUAGE = (
    f"Share of the 4-grams of its utterances that stand in the same utterance before; above {LOST:g} it has lost its language."
)


def compared(metrics: OfTraining) -> str:
    """Return the name of the metric that is comparable to the published one."""
    forced = metrics.get("forced_advantage")
    return "forced_advantage" if forced is not None and math.isfinite(forced.value) else "advantage"


def _within(metrics: OfTraining, protocol: str, known: PublishedAttack) -> list[str]:
    """Return the columns whose published figures lie within the measured intervals."""
    published = {"advantage": (known.advantage,), "PAR": (known.par,), "points": known.points, "agreement": (known.agreement,)}
    return [
        column
        for column, names in _COLUMNS.items()
        if all(
            metrics[protocol + name].low <= value <= metrics[protocol + name].high
            for name, value in zip(names, published[column], strict=True)
        )
    ]


def _apart(first: Estimate, second: Estimate | None = None) -> Estimate:
    """The first less the second, as if they were of unlike dialogues, which makes the interval wide rather than narrow."""
    if second is None:
        return first
    half = math.hypot(first.high - first.low, second.high - second.low) / 2
    value = first.value - second.value
    return Estimate(value, value - half, value + half, min(first.n, second.n))


def _known(row: str) -> float:
    part, _, name = row.partition(".")
    known = PARTS[part].known(name)
    return math.nan if known is None else known.advantage


def _is_reproduced(estimate: Estimate, published: float) -> str:
    if estimate.low <= published <= estimate.high:
        return YES if estimate.high - estimate.low <= 2 * _WIDEST else OPEN
    return SIGN if (estimate.low > 0 < published) or (estimate.high < 0 > published) else NO


def _holds(difference: Estimate) -> str:
    if difference.low > 0:
        return YES
    return NO if difference.high < 0 else "not certain"


def _unlike(columns: Sequence[str]) -> list[str]:
    """Return the names of columns; of equal names the later one gets the column before it as a prefix."""
    return [f"{columns[index - 1]} {name}" if columns.index(name) < index else name for index, name in enumerate(columns)]
