"""Pages read back: their outline, their words, and whether hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

from parley.engine.core.page.content import Chapter, Report, Run, Verdict, read_curves
from parley.engine.core.page.page import headed_tables, load_chapters, render
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.table import EstimateTable
from parley.envs.core.config import to_dict
from parley.envs.core.visible import visible

HOSTILE = (
    "😀 \x1b[31m\u202e\u2066 "
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) {{ 7*7 }} </style></title> & $x_{"
)
"""Markup, and marks that a terminal or a reader's eyes would obey."""
VOID = {"meta", "br", "img", "hr", "input", "link", "wbr"}


class Outline(HTMLParser):
    """Tags, attributes, ids and headings of a page; fails on tags that do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            return
        self.text.append(data)
        if self.open and re.fullmatch("h[1-4]", self.open[-1]):
            self.headings.append((self.open[-1], data))

    def count(self, tag: str, **wanted: str) -> int:
        return sum(name == tag and all(attrs.get(k.rstrip("_")) == v for k, v in wanted.items()) for name, attrs in self.tags)


def words(page: str) -> str:
    """What a reader sees of a page, its blanks made one."""
    return " ".join(" ".join(Outline(page).text).split())


def assert_harmless(page: str) -> Outline:
    """Nothing on a page is loaded or runs but the viewer's script, which the content policy knows by its hash."""
    outline = Outline(page)
    assert visible(page, keep="\n") == page, "marks of direction and controls are spelled"
    assert {tag for tag, _ in outline.tags} & {"img", "iframe", "object", "embed", "link", "base", "form"} == set()
    assert not [name for _, attrs in outline.tags for name in attrs if name.startswith("on")]
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == outline.count("script") == page.count("<script") <= 1
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    policy = next(attrs["content"] or "" for _, attrs in outline.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src {allowed};" in policy, "no other script may run"
    return outline


class MadeUp:
    """What a page reads of a run folder, without a folder."""

    path = Path("nowhere")

    def __init__(
        self, job: str, rows: Sequence[Any], summary: dict[str, Any], config: dict[str, Any], events: Sequence[Any]
    ) -> None:
        self.job, self.config, self._rows, self._summary, self._events = job, config, rows, summary, events

    def summary(self) -> dict[str, Any]:
        return self._summary

    def metrics(self) -> dict[str, Estimate]:
        return {name: Estimate.from_json(parts) for name, parts in self._summary.get("metrics", {}).items()}

    def events(self, needs: object = None) -> Sequence[Any]:
        return self._events

    def rows(self) -> list[Any]:
        return list(self._rows)


def run_of(
    job: str,
    rows: Sequence[Any] = (),
    metrics: Mapping[str, Estimate] | None = None,
    heading: str = "run",
    config: Any = None,
    events: Sequence[Any] = (),
    **summary: Any,
) -> Run:
    """A run of a job with these rows and metrics, as one of several of a page."""
    if metrics:
        summary |= {"metrics": {name: estimate.to_json() for name, estimate in metrics.items()}}
    settings = config if isinstance(config, dict) else {} if config is None else json.loads(json.dumps(to_dict(config)))
    return Run(name=heading, heading=heading, folder=cast("RunFolder", MadeUp(job, rows, summary, settings, events)))


def page_of(report: Report) -> str:
    """The page of a report, with verdicts of at most 25 words and a number."""
    chapters = load_chapters()
    for chapter in chapters:
        if chapter.name in report.found and (verdict := chapter.verdict(report.found[chapter.name])) is not None:
            assert_brief(verdict)
    return render(report, chapters)


def assert_brief(verdict: Verdict) -> None:
    """A verdict is one sentence of at most 25 words, and has a number; a hostile name counts as one word."""
    assert len(verdict.sentence.replace(HOSTILE, "name").split()) <= 25, verdict.sentence
    assert verdict.sentence.endswith((".", "\N{HORIZONTAL ELLIPSIS}")), verdict.sentence
    assert verdict.number.n > 0
    assert math.isfinite(verdict.number.value)


def chapter_of(name: str) -> Chapter:
    """The chapter of a name."""
    return next(chapter for chapter in load_chapters() if chapter.name == name)


def tables_on(report: Report, name: str) -> list[tuple[str, EstimateTable]]:
    """The tables of a chapter, each with its heading."""
    return headed_tables(chapter_of(name), report.found[name])


def curves_on(report: Report, name: str) -> list[str]:
    """The titles of the curves of a chapter."""
    return [curve.title.rpartition(": ")[2] for curve in read_curves(chapter_of(name).curves, report.found[name])]
