"""Tables of figures as text: cells with intervals, columns that line up."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from parley.engine.core.stats.statistics import FEW, Estimate

_MARKDOWN = re.compile(r"[\\`*_{}\[\]()<>#+!~$&]")
MINUS, ABSENT, BETWEEN, FEW_MARK = "\N{MINUS SIGN}", "\N{EN DASH}", " : ", " few"


@dataclass(frozen=True)
class TextTable:
    """Cells of text, the same wherever they are shown.

    Args:
        columns: headings; the first column names the row, the others hold figures.
        rows: cells in the order of the headings; what stands below a figure, such as its interval, is on a line of its own.
        note: how to read it, in a few sentences.
        texts: columns of what agents said, set flush left; Markdown in them is spelled.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    texts: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[str, ...]:
        """Columns that are set flush right."""
        return tuple(column for column in self.columns[1:] if column not in self.texts)

    def to_markdown(self) -> str:
        """The table as Markdown, its note below it; lines end in a newline."""
        rule = tuple("---:" if column in self.figures else "---" for column in self.columns)
        cells = [
            tuple(_plain_text(cell) if column in self.texts else cell for column, cell in zip(self.columns, row, strict=True))
            for row in self.rows
        ]
        lines = [" | ".join(map(_in_one_line, row)) for row in (self.columns, rule, *cells)]
        return "".join(f"| {line} |\n" for line in lines) + f"\n{self.note}\n"


def figure(value: float | None) -> str:
    """A number as tables show it: two places, a dash for none."""
    # What rounds to nothing has no sign.
    return ABSENT if value is None or not math.isfinite(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", MINUS)


def num_measured(estimate: Estimate) -> str:
    """From how many an estimate is, marked where they are few; a dash for none."""
    return f"{estimate.n:,}{FEW_MARK * estimate.flagged}" if estimate.n else ABSENT


def few_note(unit: str) -> str:
    """What the mark of few says, in a table's note."""
    return f" Few: fewer than {FEW} {unit}; do not lean on the numbers."


def with_interval(estimate: Estimate) -> str:
    """An estimate as tables show it, on one line."""
    return number(estimate).replace("\n", " ")


def _in_one_line(cell: str) -> str:
    """A cell as Markdown has it."""
    return cell.replace("\n", " ").replace("|", "\\|")


def _plain_text(text: str) -> str:
    """Return a text whose Markdown and HTML are shown and not obeyed."""
    return _MARKDOWN.sub(r"\\\g<0>", text)


def above(shown: str, *below: str) -> str:
    """Figures above what there is of their intervals."""
    return "\n".join(filter(None, (shown, BETWEEN.join(filter(None, below)))))


def interval(estimate: Estimate, places: Callable[[float], str] = figure) -> str:
    """The 95 % interval of an estimate in brackets; empty where it has none."""
    return f"[{places(estimate.low)}, {places(estimate.high)}]" if math.isfinite(estimate.low) else ""


def number(estimate: Estimate) -> str:
    """An estimate above its interval."""
    return above(figure(estimate.value), interval(estimate))
