"""What people see at the end: result tables, files, next commands, errors. Everything goes to standard error.

Texts may hold what agents said or files are called, so nothing in them is taken for markup or obeyed by a terminal.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from parley.engine.core.ray import logs
from parley.engine.core.stats.statistics import FEW, NOTHING, Estimate, Metric
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.job import TOLD, Comparison, Result
from parley.envs.core.errors import ParleyError
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible

logger = logging.getLogger(__name__)

_PLAIN_WIDTH = 140
_UNLIMITED = 10_000


class VisibleConsole(Console):
    """A console that spells what a terminal would obey, whatever is printed; its own colours and movements go through."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The parts of what is printed, all of their text visible."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=visible(part.text, keep="\n"))


def make_console(stderr: bool = True) -> Console:
    """Standard error or output, with colours when it is a terminal and room for a table when it is not."""
    console = VisibleConsole(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PLAIN_WIDTH
    return console


def show_error(error: ParleyError) -> None:
    """What is wrong in red, where, what was found and how to mend it below."""
    if logs.is_json():
        parts = {"where": error.where, "got": error.got, "fix": error.fix}
        logger.error(error.what, extra={name: str(part) for name, part in parts.items() if part is not None})
        return
    first, *rest = str(error).split("\n")
    console = make_console()
    # Not wrapped, so that paths and commands can be copied.
    console.print(Text(f"error: {first}", style="bold red"), soft_wrap=True)
    if rest:
        console.print(Text("\n".join(rest), style="red"), soft_wrap=True)


def show_result(result: Result) -> None:
    """The last screen of a job: its table, the files written, the next command, and what was promised and not kept."""
    if logs.is_json():
        metrics = {name: estimate.to_json() for name, estimate in result.metrics.items()}
        about = {"metrics": metrics, "files": list(map(str, result.files)), "next": result.next_commands}
        about |= {"warnings": list(result.warnings)} if result.warnings else {}
        about |= {"chat_usage": dict(result.chat_usage)} if result.chat_usage else {}
        logger.info(result.title, extra=about | ({"failure": result.failure} if result.failure else {}))
        return
    console = make_console()
    _show_tables(console, result.title, result.tables)
    if result.metrics and not result.tables:
        columns, rows = _alone(result) if result.comparison is None else _compared(result, result.comparison)
        show_table(console, result.title, columns, rows, right=columns[2:])
        if any(estimate.flagged and estimate.n for estimate in result.metrics.values()):
            console.print(f"few: fewer than {FEW} independent dialogues or targets; do not lean on the number")
    _show_tables(console, result.title, result.more)
    show_lines(console, "files", [display_path(path) for path in result.files])
    show_lines(console, "next", result.next_commands)
    if sentence := result.chat_usage.get(TOLD):
        console.print(Text(f"\n{sentence}"), soft_wrap=True)
    for warning in result.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    if result.failure:
        console.print(Text(f"failed: {result.failure}", style="bold red"), soft_wrap=True)


def _show_tables(console: Console, title: str, tables: Mapping[str, TextTable]) -> None:
    for heading, table in tables.items():
        show_table(console, f"{title}: {heading}" if heading else title, table.columns, table.rows, right=table.figures)
        console.print(Text(f"\n{table.note}"))


def show_lines(console: Console, heading: str, lines: Sequence[str]) -> None:
    """A heading and lines that can be copied."""
    if lines:
        console.print(Text("\n".join([f"\n{heading}:", *(f"  {line}" for line in lines)])), soft_wrap=True)


def show_table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """A table of text without lines.

    Where no terminal limits it, each row is one line, whole, so that it can be searched for. On a terminal the first column,
    the name, is not folded unless it takes more than half of the width.

    Args:
        console: where it goes.
        title: above it.
        columns: headings.
        rows: cells in the order of the headings.
        right: headings of columns that are set flush right.
    """
    table = Table(box=None, pad_edge=False)
    unlimited = not console.is_terminal and "COLUMNS" not in os.environ
    name_fits = 2 * max((len(line) for row in rows for line in row[0].split("\n")), default=0) <= console.width
    for place, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if column in right else "left"
        whole = unlimited or (place == 0 and name_fits)
        table.add_column(column, justify=justify, header_style="dim", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if unlimited:
        console.width = max(console.width, Measurement.get(console, console.options.update_width(_UNLIMITED), table).maximum)
    console.print()
    console.print(Text(title, style="bold"))
    console.print(table)


def number(value: float, counted: bool = False) -> str:
    """A number at the precision that tables show.

    Args:
        value: NaN is "none".
        counted: whether it is exact; then whole numbers stay whole.
    """
    if math.isnan(value):
        return "none"
    if counted and value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def interval(estimate: Estimate) -> str:
    """The 95 % interval; empty when there is none."""
    return "" if math.isnan(estimate.low) else f"[{number(estimate.low)}, {number(estimate.high)}]"


_Cells = tuple[tuple[str, ...], list[list[str]]]


def _alone(result: Result) -> _Cells:
    rows = [
        [*_name(result, name), number(estimate.value, math.isnan(estimate.low)), interval(estimate), _num(estimate)]
        for name, estimate in result.metrics.items()
    ]
    return ("metric", "direction", "value", "95 % interval", "n"), rows


def _compared(result: Result, comparison: Comparison) -> _Cells:
    rows = []
    for name, estimate in result.metrics.items():
        three = (comparison.metrics.get(name, NOTHING), estimate, comparison.differences.get(name, NOTHING))
        rows.append([*_name(result, name), *map(_both, three), _num(estimate)])
    return ("metric", "direction", comparison.title, comparison.here, "difference", "n"), rows


def _name(result: Result, name: str) -> list[str]:
    metric = result.legend.get(name, Metric(name, "", ""))
    return [metric.title, metric.direction]


def _both(estimate: Estimate) -> str:
    if estimate is NOTHING:
        return ""
    return f"{number(estimate.value, math.isnan(estimate.low))} {interval(estimate)}".rstrip()


def _num(estimate: Estimate) -> str:
    return f"{estimate.n:,}{' few' if estimate.flagged and estimate.n else ''}"
