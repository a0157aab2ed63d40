"""Tables as Markdown, HTML, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json

from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.tables.formats import WRITERS
from parley.engine.core.tables.table import EstimateTable, Form, stacked

FIRST = stacked(Form().cell(Estimate(0.123456, 0.1, 0.15, 40)), Form().cell(Estimate(-0.2, -0.3, -0.1, 40), "*"))
TABLES = {"R@1 & more": EstimateTable(("ranker", "first", "n"), (("=smn_1|<b>", FIRST, "40"),), "50 % of them.")}


def test_csv_has_a_record_for_each_figure_with_all_digits() -> None:
    records = list(csv.DictReader(io.StringIO(WRITERS[".csv"](TABLES))))
    assert [(r["row"], r["column"], r["part"], r["value"], r["low"], r["high"], r["n"], r["marks"]) for r in records] == [
        ("'=smn_1|<b>", "first", "0", "0.123456", "0.1", "0.15", "40", ""),
        ("'=smn_1|<b>", "first", "1", "-0.2", "-0.3", "-0.1", "40", "*"),
        ("'=smn_1|<b>", "n", "0", "", "", "", "", ""),
    ]
    assert records[2]["text"] == "40"


def test_json_holds_notes_and_the_same_records() -> None:
    document = json.loads(WRITERS[".json"](TABLES))
    assert document["notes"] == {"R@1 & more": "50 % of them."}
    assert [record["value"] for record in document["records"]] == [0.123456, -0.2, None]
    assert document["records"][0]["row"] == "=smn_1|<b>"


def test_markdown_html_and_latex_escape_their_own_characters() -> None:
    text = "0.12 [0.10, 0.15] −0.20* [−0.30, −0.10]"
    assert WRITERS[".md"](TABLES) == (
        f"## R@1 & more\n\n| ranker | first | n |\n| --- | ---: | ---: |\n| =smn_1\\|<b> | {text} | 40 |\n\n50 % of them.\n"
    )
    html = WRITERS[".html"](TABLES)
    assert "<h2>R@1 &amp; more</h2>" in html
    assert "<td>=smn_1|&lt;b&gt;</td><td>0.12<br>[0.10, 0.15]<br>−0.20*<br>[−0.30, −0.10]</td>" in html
    latex = WRITERS[".tex"](TABLES)
    assert r"=smn\_1\textbar{}\textless{}b\textgreater{} & 0.12 [0.10, 0.15] $-$0.20* [$-$0.30, $-$0.10] & 40 \\" in latex
    assert r"\begin{tabular}{lrr}" in latex
    assert r"\caption{R@1 \& more. 50 \% of them.}" in latex
