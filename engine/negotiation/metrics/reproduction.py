"""Tables 2, 6 and 7 of Cheng et al. 2019: measured beside published figures, and which of these are reproduced.

A training is everything from the corpus on: supervised agent, RL agent, adversaries, adversarial training. Figures are means
over trainings with intervals over trainings and dialogues (`parley.engine.core.stats.trainings`); all trainings are measured on
the same scenarios. A published figure is compared with the forced one if there is one, which is the paper's protocol.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from parley.engine.core.stats.known import Round
from parley.engine.core.stats.statistics import LOST, NOTHING, Estimate, has_lost
from parley.engine.core.stats.trainings import over_trainings
from parley.engine.core.tables.table import (
    ABSENT,
    DECIMAL,
    PERCENT,
    EstimateTable,
    Form,
    published_cell,
    with_interval,
)
from parley.engine.negotiation.metrics.attack import ATTACK_METRICS, ATTACKS, PublishedAttack
from parley.engine.negotiation.metrics.attack_table import (
    TABLE_2,
    TURNS,
    attack_table,
    points_pair,
    published_pair,
)
from parley.engine.negotiation.metrics.campaign import ROUND_METRICS, rounds_table

SV, RL, TURN, CONTROL, HARDENED = "sv", "rl", "turns", "control", "hardened"
"""Parts, by target or protocol. `CONTROL` is the RL agent after as much plain play as adversarial training has dialogues."""
PLAIN, KNOWN = "plain", "rl-known"
"""Rows that no table of attacks has: the RL agent plays and both choose; the adversary that the target learned from last."""

ATTACKED = {
    SV: "supervised agent",
    RL: "RL agent",
    HARDENED: "RL agent after adversarial training",
    CONTROL: "RL agent after plain play alone",
}
"""Titles of the attacked agents by part; table 7 is also of the RL agent."""
YES, SIGN, NO, OPEN = "yes", "sign only", "no", "open"
"""Verdicts on a figure."""

_SPOKEN = {PLAIN: "RL agent, no attack, both choose", **TABLE_2, "none": "no attack, the target alone chooses"}
_TRAINED_AGAIN = {"rl": "RL attack, the best adversary", KNOWN: "RL attack, the adversary of training"}


class PaperTable(NamedTuple):
    """A table of the paper.

    Args:
        heading: its heading.
        rows: titles by row.
        published: key of `ATTACKS`; empty for none.
        names: names of published rows that differ from those of the measured ones.
    """

    heading: str
    rows: Mapping[str, str]
    published: str = ""
    names: Mapping[str, str] = {}

    def attack(self, row: str) -> PublishedAttack | None:
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
    f"{part}.{row}.{name}": metric
    for part, paper_table in PARTS.items()
    for row in paper_table.rows
    for name, metric in ATTACK_METRICS.items()
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

    def by_training(self, row: str) -> dict[str, list[float]]:
        """Return the figures of each training, by metric."""
        trainings = list(self.rows[row].values())
        return {name: [metrics[name].value for metrics in trainings] for name in trainings[0]}

    def attacks(self, part: str, brief: bool = False) -> EstimateTable | None:
        """Return the table of a part, beside the RL agent's figures if the target was trained from it; None without rows."""
        titles = {row: title for row, title in PARTS[part].rows.items() if f"{part}.{row}" in self.rows}
        if not titles:
            return None
        before = [row for row in titles if part in (HARDENED, CONTROL)]
        table = attack_table(
            {f"{row}.{name}": estimate for row in titles for name, estimate in self.over(f"{part}.{row}").items()},
            titles,
            published={row: attack for row in titles if (attack := PARTS[part].attack(row)) is not None},
            baseline={f"{row}.{name}": estimate for row in before for name, estimate in self._before(row).items()},
            trainings={
                f"{row}.advantage": values
                for row in titles
                if len(values := self.by_training(f"{part}.{row}")["advantage"]) > 1
            },
            brief=brief,
        )
        return replace(table, note=f"{table.note} {self._trained(part)}")

    def tables(self, brief: bool = False) -> dict[str, EstimateTable]:
        """Return all tables by heading; the reproduced figures come first."""
        first = {
            "Published figures": self.figures(brief),
            "What the paper concludes": self.conclusions(),
            "Whether the agents still speak": self.languages(),
        }
        tables = {heading: table for heading, table in first.items() if table.rows}
        for part, paper_table in PARTS.items():
            if (table := self.attacks(part, brief)) is not None:
                tables[paper_table.heading] = table
        if self.rounds:
            tables["Adversarial training by rounds"] = self._rounds()
        return tables

    def figures(self, brief: bool = False) -> EstimateTable:
        """Return each row of the paper's tables beside its measurement, and the verdict on its advantage.

        Args:
            brief: True for a screen: only advantages have intervals.
        """
        decimal, percent = (replace(form, inline=True, bounded=not brief) for form in (DECIMAL, PERCENT))
        rows: list[tuple[str, ...]] = []
        for part, paper_table in PARTS.items():
            for row, title in paper_table.rows.items():
                published = paper_table.attack(row)
                if published is None or f"{part}.{row}" not in self.rows:
                    continue
                estimates = self.over(f"{part}.{row}")
                protocol = compared(estimates).removesuffix("advantage")
                advantage = estimates[f"{protocol}advantage"]
                rows.append(
                    (
                        f"{_TABLES[part]}: {title}",
                        "forced" if protocol else "live",
                        with_interval(advantage),
                        published_cell(published.advantage),
                        percent.cell(estimates[f"{protocol}par"]),
                        published_cell(published.par, _PRINTED),
                        points_pair(decimal, estimates, protocol),
                        published_pair(published.points),
                        percent.cell(estimates[f"{protocol}agreement"]),
                        published_cell(published.agreement, _PRINTED),
                        ", ".join(_within(estimates, protocol, published)) or ABSENT,
                        str(len(self.rows[f"{part}.{row}"])),
                        _is_reproduced(advantage, published.advantage),
                    )
                )
        measured = (name for column in _COLUMNS for name in (column, "published"))
        columns = ("figure", "protocol", *measured, "within", "trainings", "reproduced")
        verdicts = Counter(row[-1] for row in rows)
        counts = ", ".join(f"{verdicts[word]} {word}" for word in (YES, SIGN, NO, OPEN) if verdicts[word])
        return EstimateTable(columns, tuple(rows), f"Of {len(rows)}: {counts}. {_NOTE_FIGURES}")

    def conclusions(self) -> EstimateTable:
        """Return the paper's conclusions, as differences between rows within each training."""
        rows = []
        for title, (first, second) in _CLAIMS.items():
            if (difference := self._difference(first, second)) is not None:
                published = _published_advantage(first) - (_published_advantage(second) if second else 0.0)
                rows.append((title, with_interval(difference), published_cell(published), _holds(difference)))
        note = f"{_NOTE_CLAIMS} {lost}" if (lost := self.lost()) else _NOTE_CLAIMS
        return EstimateTable(("difference, in points of advantage", "measured", "published", "holds"), tuple(rows), note)

    def languages(self) -> EstimateTable:
        """Return each attacked agent's repetition in plain play, by training."""
        rows = [
            (f"the {who}", *(_SHARE.cell(shares.get(number, NOTHING)) for number in self._numbers()))
            for part, who in ATTACKED.items()
            if (shares := self._repetition(part))
        ]
        columns = ("repetition in plain play", *(f"training {number}" for number in self._numbers()))
        return EstimateTable(columns, tuple(rows), f"{_NOTE_LANGUAGE} {self.lost()}".rstrip())

    def lost(self) -> str:
        """Return a sentence on the agents that have lost their language, by training; empty if there are none."""
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
                    "each": self.by_training(f"{part}.{row}"),
                    "published": None if attack is None else {"advantage": attack.advantage, **asdict(attack)},
                }
                for row, title in paper_table.rows.items()
                if f"{part}.{row}" in self.rows
                for attack in (paper_table.attack(row),)
            }
            for part, paper_table in PARTS.items()
        }
        rounds = {
            str(number): [{name: estimate.to_json() for name, estimate in row.metrics.items()} for row in rounds]
            for number, rounds in self.rounds.items()
        }
        texts = {"figures": self.figures(), "conclusions": self.conclusions()}
        text_tables = {
            name: [dict(zip(_distinct_names(table.columns), row, strict=True)) for row in table.rows]
            for name, table in texts.items()
        }
        return {"tables": tables, "rounds": rounds, **text_tables}

    def over(self, row: str) -> dict[str, Estimate]:
        """Return the figures over trainings of a measured row, by metric."""
        trainings = list(self.rows[row].values())
        names = [name for name in trainings[0] if all(name in metrics for metrics in trainings)]
        return {name: over_trainings([metrics[name] for metrics in trainings], ATTACK_METRICS.get(name)) for name in names}

    def _repetition(self, part: str) -> dict[int, Estimate]:
        measured = self.rows.get(f"{part}.{PLAIN}", {})
        return {
            number: metrics["repetition_target"]
            for number, metrics in sorted(measured.items())
            if "repetition_target" in metrics
        }

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
        trainings = list(self.rounds.values())
        rounds = []
        for number in range(max(map(len, trainings))):
            measured = [training[number].metrics for training in trainings if len(training) > number]
            means = {
                name: over_trainings([metrics[name] for metrics in measured], ROUND_METRICS.get(name)) for name in measured[0]
            }
            rounds.append(Round(number, means))
        table = rounds_table(rounds)
        return replace(table, note=f"{table.note} Means over trainings: {len(trainings)}.")

    def _difference(self, first: str, second: str) -> Estimate | None:
        """Return the mean over trainings of one row less another, or of one alone; None if no training has both."""
        if first not in self.rows or (second and second not in self.rows):
            return None
        both = [number for number in self.rows[first] if not second or number in self.rows[second]]
        differences = [
            _independent_difference(
                *(metrics[compared(metrics)] for metrics in (self.rows[row][number] for row in (first, second) if row))
            )
            for number in both
        ]
        return over_trainings(differences) if differences else None


_COLUMNS = {
    "advantage": ("advantage",),
    "PAR": ("par",),
    "points": ("score_adversary", "score_target"),
    "agreement": ("agreement",),
}
"""The paper's columns, with their metrics."""
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
"""Pairs of rows by the paper's conclusion from the first less the second, or the first alone; the paper has no control."""
_WIDEST = 1.0
"""Half width in points from which an interval is too wide to say that a published advantage is reproduced."""
_NOTE_FIGURES = (
    "The paper's columns: points are adversary : target, 0 : 0 without agreement, and PAR counts ties. Within: columns whose "
    "published figures are within the 95 % intervals here. Reproduced, by the advantage alone: yes, if the published one is "
    f"within the interval; open, if that is wider than {_WIDEST:g} point on a side; sign only, if it is not within and the "
    "measured one is certainly on the same side of 0; otherwise no. Forced: the target must end where an attack sentence "
    "satisfies the end constraint, as in the paper. Scenarios and seeds of the paper are unknown."
)
_NOTE_CLAIMS = (
    "First less second within each training, mean over trainings, by the same protocol as above. Holds: yes or no if the "
    "interval excludes 0, else not certain. The paper has no control."
)
_NOTE_LANGUAGE = (
    f"Share of the 4-grams of its utterances that the same utterance had before; above {LOST:g} it has lost its language."
)
_PRINTED = Form(places=4, factor=100.0, unit=" %", digits=True)
_SHARE = Form(bounded=False)


def compared(metrics: OfTraining) -> str:
    """Return the name of the metric that is comparable to the published one."""
    forced = metrics.get("forced_advantage")
    return "forced_advantage" if forced is not None and math.isfinite(forced.value) else "advantage"


def _within(metrics: OfTraining, protocol: str, attack: PublishedAttack) -> list[str]:
    """Return the columns whose published figures lie within the measured intervals."""
    published = {
        "advantage": (attack.advantage,),
        "PAR": (attack.par,),
        "points": attack.points,
        "agreement": (attack.agreement,),
    }
    return [
        column
        for column, names in _COLUMNS.items()
        if all(
            metrics[protocol + name].low <= value <= metrics[protocol + name].high
            for name, value in zip(names, published[column], strict=True)
        )
    ]


def _independent_difference(first: Estimate, second: Estimate | None = None) -> Estimate:
    """Return the first less the second, as if their dialogues were independent, so that the interval is rather too wide."""
    if second is None:
        return first
    half = math.hypot(first.high - first.low, second.high - second.low) / 2
    value = first.value - second.value
    return Estimate(value, value - half, value + half, min(first.n, second.n))


def _published_advantage(row: str) -> float:
    part, _, name = row.partition(".")
    attack = PARTS[part].attack(name)
    return math.nan if attack is None else attack.advantage


def _is_reproduced(estimate: Estimate, published: float) -> str:
    if estimate.low <= published <= estimate.high:
        return YES if estimate.high - estimate.low <= 2 * _WIDEST else OPEN
    return SIGN if (estimate.low > 0 < published) or (estimate.high < 0 > published) else NO


def _holds(difference: Estimate) -> str:
    if difference.low > 0:
        return YES
    return NO if difference.high < 0 else "not certain"


def _distinct_names(columns: Sequence[str]) -> list[str]:
    """Return the names of columns; of equal names the later one gets the column before it as a prefix."""
    return [f"{columns[index - 1]} {name}" if columns.index(name) < index else name for index, name in enumerate(columns)]
