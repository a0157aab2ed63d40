"""Tables as Markdown, HTML, LaTeX, CSV and JSON.

Markdown, HTML and LaTeX show the texts of the cells. CSV and JSON hold numbers: a record for each figure of a cell, with the
ends of its 95 % interval and its sample size; a cell without figures has one record with its text alone.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import Any

from parley.engine.core.tables.table import EstimateTable, MarkedEstimate, figures_of
from parley.envs.core.visible import FORMULA

Tables = Mapping[str, EstimateTable]
RECORD = ("table", "row", "column", "part", "value", "low", "high", "n", "marks", "text")
"""Fields of a record: `part` counts the figures of a cell from 0; `value`, `low` and `high` are in the metric's own unit."""
_FORMULA = re.compile(FORMULA)
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$",
    "\N{DAGGER}": r"\dag{}",
    "\N{EN DASH}": "--",
    "\n": " ",
}


def latex(table: EstimateTable, heading: str = "") -> str:
    """Return a table as LaTeX for the package booktabs; special characters are escaped, the note is its caption."""

    def text(cell: str) -> str:
        return "".join(_LATEX.get(character, character) for character in cell)

    columns = "l" + "".join("r" if column in table.figures else "l" for column in table.columns[1:])
    lines = [" & ".join(map(text, row)) + r" \\" for row in (table.columns, *table.rows)]
    caption = text(f"{heading}. {table.note}" if heading else table.note).strip()
    body = "\n".join([r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
    tabular = f"\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}"
    return f"\\begin{{table}}\n\\centering\n{tabular}\n\\caption{{{caption}}}\n\\end{{table}}\n"


def records(tables: Tables) -> Iterator[dict[str, Any]]:
    """Yield a record for each figure of the tables, in the order of reading; numbers that are not finite are None."""
    for heading, table in tables.items():
        for row in table.rows:
            for column, cell in zip(table.columns[1:], row[1:], strict=True):
                shown = cell.replace("\n", " ")
                figures = figures_of(cell) or (None,)
                for part, figure in enumerate(figures):
                    yield dict(zip(RECORD, (heading, row[0], column, part, *_numbers(figure), shown), strict=True))


def _numbers(figure: MarkedEstimate | None) -> tuple[float | None, float | None, float | None, int | None, str]:
    if figure is None:
        return None, None, None, None, ""
    estimate = figure.estimate
    value, low, high = (x if math.isfinite(x) else None for x in (estimate.value, estimate.low, estimate.high))
    return value, low, high, estimate.n, figure.marks


def tables_as_csv(tables: Tables) -> str:
    """Return the records of tables as CSV with a header; numbers have all of their digits."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, RECORD, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _guarded(value) for name, value in record.items()} for record in records(tables))
    return buffer.getvalue()


def _guarded(value: Any) -> Any:
    """Return a value with an apostrophe in front if a spreadsheet would take it for a formula."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def tables_as_json(tables: Tables) -> str:
    """Return the tables as JSON: headings, notes and records."""
    notes = {heading: table.note.strip() for heading, table in tables.items()}
    return json.dumps({"notes": notes, "records": list(records(tables))}, ensure_ascii=False, indent=1) + "\n"


def _sections(tables: Tables, write: Callable[[EstimateTable, str], str]) -> str:
    return "\n".join(write(table, heading) for heading, table in tables.items())


WRITERS: Mapping[str, Callable[[Tables], str]] = MappingProxyType(
    {
        ".md": lambda tables: _sections(
            tables, lambda table, heading: f"## {heading}\n\n" * bool(heading) + table.to_markdown()
        ),
        ".csv": tables_as_csv,
        ".json": tables_as_json,
        ".tex": lambda tables: _sections(tables, latex),
        ".html": lambda tables: _sections(
            tables, lambda table, heading: f"<h2>{escape(heading)}</h2>" * bool(heading) + table.to_html() + "\n"
        ),
    }
)
"""Functions that write tables as text, by the ending of the file."""
