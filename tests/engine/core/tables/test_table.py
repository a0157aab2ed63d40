"""Cells keep their figures, and `metric_table` lays metrics out."""

from __future__ import annotations

import math

import pytest

from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.core.tables.formats import WRITERS
from parley.engine.core.tables.table import (
    ABSENT,
    DIGITS,
    PERCENT,
    THOUSANDTHS,
    WHOLE,
    Column,
    Form,
    TableRow,
    above,
    figures_of,
    metric_table,
    number,
    stacked,
    with_interval,
)

SHARE = Estimate(0.4, 0.25, 0.5, 40)
LOSS = Estimate(-0.004, -0.021, 0.013, 12)
METRICS = {
    "r@1.smn": SHARE,
    "r@1.dam": Estimate(0.5, 0.4, 0.6, 12),
    "change.smn": Estimate(-0.2, -0.3, -0.1, 40),
    "p.smn": count(0.01, 40),
    "change.dam": Estimate(0.1, -0.1, 0.3, 12),
    "p.dam": count(0.3, 12),
    "steps.dam": count(3.0, 12),
}
ROWS = [TableRow("SMN", {"model": "smn"}, {"first": 0.726}), TableRow("DAM", {"model": "dam"})]
CHANGE = Column("", "change.{model}", p_value="p.{model}", signed=True)


@pytest.mark.parametrize(
    ("form", "estimate", "text"),
    [
        (Form(), SHARE, "0.40\n[0.25, 0.50]"),
        (Form(), LOSS, "0.00\n[−0.02, 0.01]"),
        (Form(inline=True), SHARE, "0.40 [0.25, 0.50]"),
        (THOUSANDTHS, LOSS, "−0.004\n[−0.021, 0.013]"),
        (PERCENT, SHARE, "40.0 %\n[25.0, 50.0]"),
        (WHOLE, count(12345.4, 3), "12,345"),
        (DIGITS, count(0.012345, 3), "0.0123"),
        (Form(), NOTHING, ABSENT),
    ],
)
def test_a_form_writes_a_number_above_its_interval(form: Form, estimate: Estimate, text: str) -> None:
    cell = form.cell(estimate)
    assert cell == text
    assert [figure.estimate for figure in figures_of(cell)] == [estimate]


def test_a_plus_stands_before_what_is_above_nothing_when_it_is_rounded() -> None:
    shown = [Form().cell(count(value, 1), signed=True) for value in (0.2, 0.004, -0.2, math.nan)]
    assert shown == ["+0.20", "0.00", "−0.20", ABSENT]


def test_two_sides_stand_beside_each_other_above_their_intervals() -> None:
    pair = Form().pair(SHARE, LOSS)
    assert pair == "0.40 : 0.00\n[0.25, 0.50] : [−0.02, 0.01]"
    assert [figure.estimate for figure in figures_of(pair)] == [SHARE, LOSS]
    assert Form().pair(SHARE, NOTHING) == ABSENT


def test_cells_that_are_put_together_keep_the_figures_of_all() -> None:
    for cell, text in (
        (above(number(SHARE), "n 40"), "0.40\n[0.25, 0.50]\nn 40"),
        (stacked(number(SHARE), "", with_interval(LOSS)), "0.40\n[0.25, 0.50]\n0.00 [−0.02, 0.01]"),
    ):
        assert cell == text
        assert figures_of(cell)[0].estimate == SHARE
    assert figures_of("40") == ()


def test_metrics_are_laid_out_with_stars_differences_published_figures_and_sizes() -> None:
    columns = [Column("first", "r@1.{model}", below=CHANGE), Column("steps", "steps.{model}", WHOLE, optional=True)]
    table = metric_table(METRICS, "ranker", ROWS, columns, "R@1.", n="r@1.{model}", published=THOUSANDTHS)
    assert table.columns == ("ranker", "first", "steps", "n")
    assert table.rows == (
        ("SMN", "0.40\n[0.25, 0.50]\n−0.20*\n[−0.30, −0.10]", ABSENT, "40"),
        ("published", "0.726", ABSENT, ""),
        ("DAM", "0.50\n[0.40, 0.60]\n+0.10\n[−0.10, 0.30]", "3", "12 few"),
    )
    assert table.note == "R@1. Few: fewer than 30 dialogues; do not lean on the numbers."
    marks = [figure.marks for figure in figures_of(table.rows[0][1])]
    assert marks == ["", "*"]


def test_a_cell_of_few_units_in_a_row_of_more_is_marked_wherever_the_table_is_written() -> None:
    metrics = {"a": Estimate(0.5, 0.4, 0.6, 200), "b": Estimate(0.5, 0.1, 0.9, 7), "c": count(3, 1)}
    columns = [Column(name, name) for name in "abc"]
    table = metric_table(metrics, "row", [TableRow("x")], columns, "Note.", n="a")
    assert table.rows[0] == ("x", "0.50\n[0.40, 0.60]", "0.50 few\n[0.10, 0.90]", "3.00", "200")
    assert table.note == "Note. Few: fewer than 30 dialogues; do not lean on the numbers."
    assert ',0.5,0.1,0.9,7, few,"0.50 few [0.10' in WRITERS[".csv"]({"t": table})
    assert all("0.50 few" in write({"t": table}) for write in WRITERS.values())


def test_a_column_that_no_row_has_is_left_out_and_a_cell_may_be_given() -> None:
    columns = [Column("first", "r@1.{model}"), Column("steps", "steps.{model}", optional=True)]
    rows = [TableRow("SMN", {"model": "smn"}), TableRow("none", {"model": "none"}, cells={"first": "not asked"})]
    table = metric_table(METRICS, "ranker", rows, columns, "")
    assert (table.columns, [row[1] for row in table.rows]) == (("ranker", "first"), ["0.40\n[0.25, 0.50]", "not asked"])
