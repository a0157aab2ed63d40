"""HTML of items: words, marked changes, facts, badges and tables; every value is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

ARROW = "\N{RIGHTWARDS ARROW}"
_CHANGES = {"": "{}", "before": "<del>{}</del>", "after": "<mark>{}</mark>"}


def line(pattern: str, *values: Any, **named: Any) -> Markup:
    """Return one line of HTML, `pattern` in the syntax of `str.format`; values are escaped."""
    return Markup(pattern).format(*values, **named)


def breakable(text: str) -> Markup:
    """Return a title whose names of files may break behind their signs, so that a narrow page breaks no word or number."""
    return joined(re.split(r"(?<=[/#=,;_&?])(?=\S)", text), "<wbr>")


def joined(parts: Iterable[Any], between: str = "") -> Markup:
    """Return parts one after the other."""
    return Markup(between).join(parts)


def marked(pieces: Iterable[tuple[str, str]]) -> Markup:
    """Return a text in pieces (text, change), where a change is "before", "after" or empty; empty texts are left out."""
    shown = [line(_CHANGES[change], text) for text, change in pieces if text]
    return joined(shown, " ") if shown else Markup('<span class="muted">(nothing)</span>')


def paragraphs(texts: Iterable[str | Markup]) -> Markup:
    """Return utterances, one a paragraph."""
    return joined(line('<p class="words" dir="auto">{}</p>', text) for text in texts)


def badges(notes: Iterable[tuple[str, bool | None]]) -> Markup:
    """Return short remarks (text, mood), where a mood is True for good, False for bad, None for neither."""
    moods = {True: " good", False: " bad", None: ""}
    return line(
        '<p class="notes">{}</p>', joined(line('<span class="note{}">{}</span>', moods[mood], text) for text, mood in notes)
    )


def facts(pairs: Iterable[tuple[str, str | Markup] | tuple[str, str | Markup, str]]) -> Markup:
    """Return a list of (name, text) or (name, words, side); the side "adversary" or "target" has its colour."""
    shown = []
    for name, text, *side in pairs:
        words = line(' class="words {}" dir="auto"', side[0]) if side else ""
        shown.append(line("<div><dt>{}</dt><dd{}>{}</dd></div>", name, words, text))
    return line('<dl class="facts">{}</dl>', joined(shown))


def sides(columns: Sequence[str], rows: Iterable[Sequence[str | Markup]]) -> Markup:
    """Return a table of words.

    Args:
        columns: headings of all columns but the first; none for a table without headings.
        rows: a heading and the cells; a single cell spans all columns.
    """
    shown = []
    for heading, *cells in rows:
        span = line(' colspan="{}"', len(columns)) if len(cells) == 1 < len(columns) else ""
        names = columns if len(cells) == len(columns) else [""] * len(cells)
        body = joined(
            line('<td class="words" dir="auto" data-label="{}"{}>{}</td>', name, span, cell)
            for name, cell in zip(names, cells, strict=True)
        )
        shown.append(line('<tr><th scope="row">{}</th>{}</tr>', heading, body))
    head = joined(line('<th scope="col">{}</th>', name) for name in columns)
    head = line("<thead><tr><td></td>{}</tr></thead>", head) if columns else Markup("")
    return line('<table class="sides">{}<tbody>{}</tbody></table>', head, joined(shown))
