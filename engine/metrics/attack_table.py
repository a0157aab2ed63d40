"""The table of attacks on one target, one line each: measured beside published, as text for a screen, a page or Markdown.

Source of the rows: Cheng et al. 2019, table 2. Which figures stand in a line is decided here alone; what they mean is in
`attack.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.metrics.attack import UNUSUAL_PROBABILITY
from engine.metrics.published import ADVANTAGE
from engine.metrics.statistics import FEW, NOTHING, Estimate

ROWS: dict[str, str] = {
    "none": "no attack",
    "rl": "RL attack",
    "transfer": "transfer",
    "reactive": "reactive",
    "preemptive": "preemptive",
    "ra-pa-da": "RA+PA+DA",
    "ra-pa-ta": "RA+PA+TA",
}
"""The titles of the table's rows by name, in its order; "none" is the speaker without any attack."""

_MINUS, _ABSENT = "\N{MINUS SIGN}", "\N{EN DASH}"
_NOTE = (
    "Live: the target answers and decides itself; PAR (ties count), wins, points and agreement are live too. Forced: where an "
    "attack sentence satisfies the end constraint, the target must end. Points: adversary : target. Fluency: perplexity under "
    "the judge of the attack sentences, in rows without a search of all that the adversary says; unusual: attack sentences "
    f"with a special token or one that the judge finds less likely than 1 in {1 / UNUSUAL_PROBABILITY:,.0f}. Seconds: of one "
    "worker, per dialogue. Brackets: 95 % intervals."
)
_NOTE_PUBLISHED = " Published: advantage in Cheng et al. 2019 on scenarios that are not known."
_NOTE_BESIDE = " Before: the same attack, measured alike, on the other target named below."
_NOTE_FEW = f" Few: fewer than {FEW} dialogues; do not lean on the numbers."


@dataclass(frozen=True)
class TextTable:
    """Cells of text, the same wherever they are shown.

    Args:
        columns: headings; the first column names the row, the others hold figures.
        rows: cells in the order of the headings.
        note: how to read it, in a few sentences.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str

    def to_markdown(self) -> str:
        """The table as Markdown, its note below it; lines end in a newline."""
        rule = ("---", *("---:" for _ in self.columns[1:]))
        lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (self.columns, rule, *self.rows)]
        return "".join(f"| {line} |\n" for line in lines) + f"\n{self.note}\n"


@dataclass(frozen=True)
class AttackLine:
    """One attack of the table.

    Args:
        title: what it is called.
        metrics: estimates by name: `engine.metrics.attack.ATTACK_METRICS`, or the metrics of negotiation alone for an attack
            without a search.
        published: the published advantage; None where there is none.
        beside: what the same attack measured on another target, by name.
    """

    title: str
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    published: float | None = None
    beside: Mapping[str, Estimate] = field(default_factory=dict)


def table_lines(
    metrics: Mapping[str, Estimate], published: str, beside: Mapping[str, Estimate] | None = None
) -> list[AttackLine]:
    """The lines of a table from the metrics of all its attacks.

    Args:
        metrics: estimates by "ROW.METRIC", the row a name of `ROWS`.
        published: which figures to put beside them, a key of `published.ADVANTAGE`; any other name for none.
        beside: metrics of all attacks on another target, by "ROW.METRIC".

    Returns:
        One line per row with metrics, in the order of `ROWS`.
    """
    known, others = ADVANTAGE.get(published, {}), _by_row(beside or {})
    return [AttackLine(ROWS[row], found, known.get(row), others[row]) for row, found in _by_row(metrics).items() if found]


def _by_row(metrics: Mapping[str, Estimate]) -> dict[str, dict[str, Estimate]]:
    by_row: dict[str, dict[str, Estimate]] = {row: {} for row in ROWS}
    for name, estimate in metrics.items():
        row, _, metric = name.partition(".")
        by_row[row][metric] = estimate
    return by_row


def attack_table(lines: Sequence[AttackLine]) -> TextTable:
    """The table of some attacks, at least one; columns that no line has figures for are left out."""
    published = any(line.published is not None for line in lines)
    beside = any(line.beside for line in lines)
    absent = {*(() if published else (_PUBLISHED,)), *(() if beside else _BESIDE)}
    columns = {name: cell for name, cell in _COLUMNS.items() if name not in absent}
    rows = tuple(tuple(cell(line) for cell in columns.values()) for line in lines)
    few = any(_num(line).flagged for line in lines)
    return TextTable(tuple(columns), rows, _NOTE + published * _NOTE_PUBLISHED + beside * _NOTE_BESIDE + few * _NOTE_FEW)


def figure(value: float) -> str:
    """A number as tables show it: two places, a dash for none."""
    return f"{value:.2f}".replace("-", _MINUS) if math.isfinite(value) else _ABSENT


def _percent(estimate: Estimate) -> str:
    return f"{100 * estimate.value:.1f} %" if math.isfinite(estimate.value) else _ABSENT


def with_interval(estimate: Estimate) -> str:
    """An estimate as tables show it."""
    interval = f" [{figure(estimate.low)}, {figure(estimate.high)}]" if math.isfinite(estimate.low) else ""
    return figure(estimate.value) + interval


def _seconds(estimate: Estimate) -> str:
    return f"{estimate.value:.3g}" if math.isfinite(estimate.value) else _ABSENT


def _num(line: AttackLine) -> Estimate:
    return line.metrics.get("advantage", NOTHING)


def _metric(name: str, show: Callable[[Estimate], str], instead: str = "") -> Callable[[AttackLine], str]:
    """The cell of a metric, or of the metric `instead` where a line lacks it."""
    return lambda line: show(line.metrics.get(name, line.metrics.get(instead, NOTHING)))


def _scores(line: AttackLine) -> str:
    return " : ".join(figure(line.metrics.get(f"score_{side}", NOTHING).value) for side in ("adversary", "target"))


def _beside(name: str) -> Callable[[AttackLine], str]:
    return lambda line: with_interval(line.beside.get(name, NOTHING))


_PUBLISHED = "published"
_BESIDE = ("before, live", "before, forced")
_COLUMNS: dict[str, Callable[[AttackLine], str]] = {
    "attack": lambda line: line.title,
    "advantage, live": _metric("advantage", with_interval),
    "advantage, forced": _metric("forced_advantage", with_interval),
    _BESIDE[0]: _beside("advantage"),
    _BESIDE[1]: _beside("forced_advantage"),
    _PUBLISHED: lambda line: _ABSENT if line.published is None else figure(line.published),
    "PAR": _metric("par", _percent),
    "wins": _metric("par_strict", _percent),
    "points": _scores,
    "agreement": _metric("agreement", _percent),
    "fluency": _metric("attack_ppl", lambda estimate: figure(estimate.value), instead="fluency_ppl"),
    "unusual": _metric("unusual_share", _percent),
    "seconds": _metric("seconds", _seconds),
    "n": lambda line: f"{_num(line).n:,}{' few' if _num(line).flagged else ''}",
}
