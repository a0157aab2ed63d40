"""One kind of table for all figures: cells that keep their estimates, and a layout from metrics by name.

A cell is a text that remembers its figures. So a table looks the same on the screen, on the page and in Markdown, and the same
table gives numbers as CSV and JSON (`formats.py`). `metric_table` lays a table out: a row names fields such as a ranker and a
rule, a column names a metric with these fields in braces, such as "r@1.{ranker}.{rule}".
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, Self

from parley.engine.core.stats.statistics import FEW, NOTHING, Estimate
from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine, utf8_text

MINUS, ABSENT, BETWEEN, FEW_MARK = "\N{MINUS SIGN}", "\N{EN DASH}", " : ", " few"
_MARKDOWN = re.compile(r"[\\`*_{}\[\]()<>#+!~$&]")
SIGNIFICANT = 0.05
"""A star stands where the p-value is below this."""
STAR, PUBLISHED = "*", "published"
STAR_NOTE = " Star: p < 0.05, paired bootstrap, two-sided, not corrected for their number."


class MarkedEstimate(NamedTuple):
    """An estimate of a cell, with the marks behind it."""

    estimate: Estimate
    marks: str = ""


class TableCell(str):
    """The text of a cell that keeps the figures it shows, the main one first."""

    __slots__ = ("figures",)
    figures: tuple[MarkedEstimate, ...]

    def __new__(cls, text: str, *figures: MarkedEstimate) -> Self:
        """Return the text with its figures."""
        cell = super().__new__(cls, text)
        cell.figures = figures
        return cell


def figures_of(cell: str) -> tuple[MarkedEstimate, ...]:
    """Return the figures of a cell; none of a plain text."""
    return cell.figures if isinstance(cell, TableCell) else ()


def above(shown: str, *below: str) -> TableCell:
    """Return a text above others on a line of their own, without the empty ones; the figures of all stay."""
    parts = (shown, *below)
    text = "\n".join(filter(None, (shown, BETWEEN.join(filter(None, below)))))
    return TableCell(text, *(figure for part in parts for figure in figures_of(part)))


def stacked(*parts: str) -> TableCell:
    """Return the texts one below the other, without the empty ones; the figures of all stay."""
    return TableCell("\n".join(filter(None, parts)), *(figure for part in parts for figure in figures_of(part)))


@dataclass(frozen=True)
class Form:
    """The form of numbers in a column.

    Args:
        places: decimals; significant digits if `digits` is true.
        factor: multiplies the number; 100 for shares in percent.
        unit: text behind the number, not within its interval.
        digits: whether `places` counts significant digits.
        grouped: whether thousands are parted by commas.
        inline: whether the interval stands on the line of the number.
        bounded: whether intervals are shown.
    """

    places: int = 2
    factor: float = 1.0
    unit: str = ""
    digits: bool = False
    grouped: bool = False
    inline: bool = False
    bounded: bool = True

    def value(self, value: float | None) -> str:
        """Return a number as text; a dash for none."""
        return ABSENT if value is None or not math.isfinite(value) else f"{self._plain(value)}{self.unit}"

    def interval(self, estimate: Estimate) -> str:
        """Return the 95 % interval in brackets; empty if there is none."""
        if not (self.bounded and math.isfinite(estimate.low)):
            return ""
        return f"[{self._plain(estimate.low)}, {self._plain(estimate.high)}]"

    def cell(self, estimate: Estimate, marks: str = "", signed: bool = False) -> TableCell:
        """Return an estimate above its interval.

        Args:
            estimate: the figure; a dash stands for one without a value.
            marks: characters behind the number, such as a star.
            signed: whether a number above 0 gets a plus sign.
        """
        shown = self.value(estimate.value)
        plus = "+" * (signed and math.isfinite(estimate.value) and float(self._rounded(estimate.value)) > 0)
        text = (" " if self.inline else "\n").join(filter(None, (f"{plus}{shown}{marks}", self.interval(estimate))))
        return TableCell(text, MarkedEstimate(estimate, marks))

    def pair(self, first: Estimate, second: Estimate) -> TableCell:
        """Return two estimates side by side above their intervals, such as the points of two sides; a dash if one lacks."""
        if not (math.isfinite(first.value) and math.isfinite(second.value)):
            return TableCell(ABSENT)
        shown = BETWEEN.join((self.value(first.value), self.value(second.value)))
        below = BETWEEN.join(filter(None, (self.interval(first), self.interval(second))))
        text = (" " if self.inline else "\n").join(filter(None, (shown, below)))
        return TableCell(text, MarkedEstimate(first), MarkedEstimate(second))

    def _rounded(self, value: float) -> str:
        if self.digits:
            return f"{self.factor * value:.{self.places}g}"
        # A number that rounds to 0 has no sign.
        return f"{round(self.factor * value, self.places) + 0.0:.{self.places}f}"

    def _plain(self, value: float) -> str:
        text = self._rounded(value)
        return (f"{float(text):,.{self.places}f}" if self.grouped else text).replace("-", MINUS)


DECIMAL, THOUSANDTHS = Form(), Form(places=3)
PERCENT, PERCENT_2 = Form(places=1, factor=100.0, unit=" %"), Form(places=2, factor=100.0)
WHOLE, DIGITS = Form(places=0, grouped=True, bounded=False), Form(places=3, digits=True, bounded=False)


def figure(value: float | None) -> str:
    """Return a number with two decimals; a dash for none."""
    return DECIMAL.value(value)


def number(estimate: Estimate) -> TableCell:
    """Return an estimate with two decimals above its interval."""
    return DECIMAL.cell(estimate)


def interval(estimate: Estimate, places: Callable[[float], str] = figure) -> str:
    """Return the 95 % interval of an estimate in brackets; empty if it has none."""
    return f"[{places(estimate.low)}, {places(estimate.high)}]" if math.isfinite(estimate.low) else ""


def with_interval(estimate: Estimate) -> TableCell:
    """Return an estimate and its interval on one line."""
    return Form(inline=True).cell(estimate)


def num_measured(estimate: Estimate) -> str:
    """Return the sample size of an estimate, marked if it is small; a dash for none."""
    return f"{estimate.n:,}{FEW_MARK * estimate.flagged}" if estimate.n else ABSENT


def few_note(unit: str) -> str:
    """Return the note that explains the mark of a small sample."""
    return f" Few: fewer than {FEW} {unit}; do not lean on the numbers."


@dataclass(frozen=True)
class EstimateTable:
    """A table, equal wherever it is shown.

    Args:
        columns: headings; the first column names the row, the others hold figures.
        rows: cells in the order of the headings; a text below a figure, such as its interval, has a line of its own.
        note: a few sentences on how to read the table.
        texts: columns of agents' words, set flush left; Markdown in them is escaped.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    texts: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[str, ...]:
        """The columns that are set flush right."""
        return tuple(column for column in self.columns[1:] if column not in self.texts)

    def to_markdown(self) -> str:
        """Return the table as Markdown, with its note below; lines end in a newline."""
        rule = tuple("---:" if column in self.figures else "---" for column in self.columns)
        cells = [
            tuple(
                _MARKDOWN.sub(r"\\\g<0>", cell) if column in self.texts else cell
                for column, cell in zip(self.columns, row, strict=True)
            )
            for row in self.rows
        ]
        lines = [" | ".join(map(_in_one_line, row)) for row in (self.columns, rule, *cells)]
        return "".join(f"| {line} |\n" for line in lines) + f"\n{self.note}\n"

    def to_html(self) -> str:
        """Return the table as HTML without styles, with its note below; every text is escaped."""
        head, *body = (
            [f"<{tag}>{escape(cell).replace(chr(10), '<br>')}</{tag}>" for cell in cells]
            for tag, cells in (("th", self.columns), *(("td", row) for row in self.rows))
        )
        rows = "".join(f"<tr>{''.join(cells)}</tr>" for cells in body)
        return f"<table><thead><tr>{''.join(head)}</tr></thead><tbody>{rows}</tbody></table><p>{escape(self.note.strip())}</p>"

    def _repr_html_(self) -> str:
        return self.to_html()


def _in_one_line(cell: str) -> str:
    return cell.replace("\n", " ").replace("|", "\\|")


@dataclass(frozen=True)
class Column:
    """A column of `metric_table`.

    Args:
        heading: its heading.
        metric: name of its metric, with fields of the row in braces.
        form: how its numbers are written.
        p_value: name of the metric that holds its p-value; a star stands behind significant figures. Empty for none.
        signed: whether a figure above 0 has a plus sign.
        below: a figure that stands under it, if it was measured.
        cell: makes the cell from metrics and row instead, for what is more than one metric.
        optional: whether the column is left out if no row has the metric.
    """

    heading: str
    metric: str = ""
    form: Form = DECIMAL
    p_value: str = ""
    signed: bool = False
    below: Column | None = None
    cell: Callable[[Mapping[str, Estimate], TableRow], str] | None = None
    optional: bool = False

    def estimate(self, metrics: Mapping[str, Estimate], row: TableRow) -> Estimate:
        """Return the estimate of a row; `NOTHING` if it was not measured."""
        return metrics.get(self.metric.format(**row.fields), NOTHING)

    def text(self, metrics: Mapping[str, Estimate], row: TableRow) -> str:
        """Return the cell of a row."""
        if self.cell is not None:
            return self.cell(metrics, row)
        shown = self.form.cell(self.estimate(metrics, row), self.marks(metrics, row), self.signed)
        if self.below is None or not self.below.estimate(metrics, row).n:
            return shown
        return stacked(shown, self.below.text(metrics, row))

    def marks(self, metrics: Mapping[str, Estimate], row: TableRow) -> str:
        """Return a star for a significant figure."""
        # NaN, for no test, is not below it.
        return STAR * (metrics.get(self.p_value.format(**row.fields), NOTHING).value < SIGNIFICANT) if self.p_value else ""

    def has(self, metrics: Mapping[str, Estimate], row: TableRow) -> bool:
        """Return whether a row has a figure in this column."""
        return self.cell is not None or self.estimate(metrics, row).n > 0


@dataclass(frozen=True)
class TableRow:
    """A row of `metric_table`.

    Args:
        label: its name, the first cell.
        fields: values for the braces of the columns, by name.
        published: published figures by heading of the column, in a line below; none for no line.
        cells: cells by heading that stand instead of what the column says; `ABSENT` for a figure that does not apply.
    """

    label: str
    fields: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)


def metric_table(
    metrics: Mapping[str, Estimate],
    corner: str,
    rows: Sequence[TableRow],
    columns: Sequence[Column],
    note: str,
    *,
    n: str = "",
    unit: str = "dialogues",
    n_heading: str = "n",
    published: Form = DECIMAL,
) -> EstimateTable:
    """Lay metrics out as a table, with a line of published figures below each row that has some.

    Args:
        metrics: estimates by name.
        corner: heading of the first column.
        rows: the rows, from top to bottom.
        columns: the columns, without those of names and sample sizes; an optional one that no row has is left out.
        note: how to read the table; a sentence on small samples is added where one is marked.
        n: name of the metric whose sample size ends each row, with fields in braces; empty for no such column.
        unit: what the sample size counts, in the plural.
        n_heading: heading of the sample size.
        published: form of published figures.
    """
    kept = [column for column in columns if not column.optional or any(column.has(metrics, row) for row in rows)]
    size = Column(n_heading, n)
    lines: list[tuple[str, ...]] = []
    for row in rows:
        cells = [row.cells[column.heading] if column.heading in row.cells else column.text(metrics, row) for column in kept]
        sizes = [row.cells.get(n_heading, num_measured(size.estimate(metrics, row)))] if n else []
        if sizes and not sizes[0].endswith(FEW_MARK):
            cells = list(map(_marked_if_few, cells))
        lines.append((row.label, *cells, *sizes))
        if row.published:
            figures = [row.published.get(column.heading, math.nan) for column in kept]
            lines.append((PUBLISHED, *(published_cell(value, published) for value in figures), *[""] * bool(n)))
    few = bool(n) and any(FEW_MARK in cell for line in lines for cell in line[1:])
    headings = (corner, *(column.heading for column in kept), *[n_heading] * bool(n))
    return EstimateTable(headings, tuple(lines), note + few_note(unit) * few)


def _marked_if_few(cell: str) -> str:
    """Return a cell with the mark of figures from few units, which the size of its row does not show; counts have none."""
    figures = figures_of(cell)
    are_few = [figure.estimate.flagged and math.isfinite(figure.estimate.low) for figure in figures]
    if FEW_MARK in cell or not any(are_few):
        return cell
    shown, *below = cell.split("\n")
    marked = (figure._replace(marks=figure.marks + FEW_MARK * few) for figure, few in zip(figures, are_few, strict=True))
    return TableCell("\n".join((shown + FEW_MARK, *below)), *marked)


def published_cell(value: float, form: Form = DECIMAL) -> TableCell:
    """Return a published figure, which has no interval of ours; a dash for NaN."""
    return TableCell(form.value(value), MarkedEstimate(Estimate(value, math.nan, math.nan, 0)))


def read_published(package: str, file: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures that a paper printed, by table, row and column.

    Args:
        package: package of the system, such as "parley.engine.ranking.metrics".
        file: name of a CSV file in its folder `published`, as `read_figures` takes it.
    """
    return read_figures(Path(str(files(package).joinpath("published", file))))


def read_figures(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of a CSV file with the columns table, row, column and value, by table, row and column.

    Raises:
        DataError: the file cannot be read, or a line has no number.
    """
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for number, record in enumerate(csv.DictReader(utf8_text(path).splitlines()), start=2):
        try:
            figures.setdefault(record["table"], {}).setdefault(record["row"], {})[record["column"]] = float(record["value"])
        except (KeyError, TypeError, ValueError):
            fix = "write the columns table,row,column,value, the value a number"
            got = ",".join(map(str, record.values()))
            raise DataError("this is no published figure", where=FileLine(str(path), number), got=got, fix=fix) from None
    return figures
