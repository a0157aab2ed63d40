from __future__ import annotations

import math
from typing import Any

import pytest

from parley.engine.triggers.metrics.hits import he2018
from parley.engine.triggers.metrics.text import LEGEND, TITLES, enumeration_metrics, enumeration_table

LISTS = {"norm": ("on", "to", "ton", "not"), "rev": ("no", "ot"), "random": (), "mal": ("fool",)}


def row(inputs: int, outside: int, *finds: tuple[str, str, bool]) -> dict[str, Any]:
    listed = [{"list": name, "string": string, "whole": whole, "input": "a"} for name, string, whole in finds]
    return {"inputs": inputs, "outside": outside, "finds": listed}


ROWS = [
    row(30, 3, ("norm", "on", True), ("norm", "to", False), ("rev", "no", False)),
    row(70, 7, ("norm", "on", False), ("norm", "to", True), ("norm", "ton", False)),
]


def test_strings_found_in_several_branches_count_once() -> None:
    metrics = enumeration_metrics(ROWS, LISTS)
    assert metrics["said.norm"].value == 2 / 4
    assert metrics["contained.norm"].value == 3 / 4
    assert (metrics["said.rev"].value, metrics["contained.rev"].value) == (0, 1 / 2)
    assert metrics["said.mal"].value == 0
    assert metrics["said.norm"].n == 4
    assert math.isnan(metrics["said.norm"].low), "every input was tried"
    assert math.isnan(metrics["said.random"].value), "an empty list has no share"


def test_replies_that_are_no_word_are_a_share_of_all_inputs() -> None:
    metrics = enumeration_metrics(ROWS, LISTS)
    assert (metrics["outside"].value, metrics["outside"].n) == (0.1, 100)
    assert metrics["inputs"].value == 100
    assert set(metrics) < set(LEGEND)


def test_the_table_shows_both_counts_beside_the_published_ones() -> None:
    table = enumeration_table(enumeration_metrics(ROWS, LISTS), "general")
    assert table.rows[0] == ("words", "4", "50.00", "9.06", "75.00", "13.78")
    assert table.rows[2][3:] == ("0.00", "\N{EN DASH}", "0.0054"), "what is rare keeps its digits"
    assert table.rows[-1][:4] == ("replies that are no word", "100", "10.00", "50.72")


def test_attention_that_was_not_published_has_nothing_beside_it() -> None:
    table = enumeration_table(enumeration_metrics(ROWS, LISTS), "released")
    assert {cells[3] for cells in table.rows} == {"\N{EN DASH}"}


@pytest.mark.parametrize("attention", ["none", "general"])
def test_published_figures_are_shares_of_what_the_table_shows(attention: str) -> None:
    published = he2018()[f"enumeration {attention}"]
    assert set(published) == {*TITLES, "outside"}
    assert set(published["outside"]) == {"said"}
    for name in TITLES:
        assert 0 <= published[name]["said"] <= published[name]["contained"] <= 1
