"""Drawings, and the moving average."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

from parley.engine.core.page import plots
from parley.engine.core.page.content import Curve
from parley.engine.core.page.plots import drawn, moving_average, svg
from parley.engine.core.stats.statistics import Estimate
from parley.engine.negotiation.page import draw_outcomes
from tests.engine.negotiation.page.dialogues import row


def test_bubbles_count_dialogues() -> None:
    rows = [row(str(i), (6, 4)) for i in range(8)] + [row("x", (2, 8)), row("y", (2, 8), pareto=False), row("z", (0, 0))]
    drawing = svg((4.2, 4.2), "m", partial(draw_outcomes, rows))
    bubbles = {name: drawing.count(f"fill: var(--{name})") for name in ("tint", "good", "dull")}
    assert bubbles == {"tint": 2, "good": 2, "dull": 1}


def test_curve_leaves_gaps_at_missing_values() -> None:
    gap = Curve(title="c", x_label="x", y_label="y", series={"a": [(0, 1.0), (1, float("nan")), (2, 3.0)]}, smoothed=True)
    assert "nan" not in drawn(plots.curve(gap)).svg.lower()


def budget_svg(title: str, x_label: str, series: dict[str, list[tuple[int, Estimate]]], y_label: str) -> str:
    return drawn(plots.budget(title, "", x_label, series, y_label)).svg


def budget(budgets: list[int]) -> list[tuple[int, Estimate]]:
    return [(limit, Estimate(i, i - 0.5, i + 0.5, 40)) for i, limit in enumerate(budgets)]


def labels(svg: str) -> list[str]:
    return [found for found in re.findall(r">([\d,]+)</text>", svg) if found]


def test_few_budgets_are_each_labelled_and_many_on_a_logarithmic_axis() -> None:
    assert labels(budget_svg("t", "words", {"a": budget([0, 1, 2])}, "y"))[:3] == ["0", "1", "2"]
    doubling = labels(budget_svg("t", "decisions", {"a": budget([2**i for i in range(13)])}, "y"))
    assert doubling[:7] == ["1", "4", "16", "64", "256", "1,024", "4,096"]


def test_every_budget_curve_has_a_band_and_a_name_where_there_are_several() -> None:
    one = budget_svg("t", "words", {"a": budget([0, 1])}, "y")
    two = budget_svg("t", "words", {"a": budget([0, 1]), "b": budget([0, 1, 2])}, "y")
    assert [svg.count("fill-opacity: 0.16") for svg in (one, two)] == [1, 2]
    assert [">a</text>" in svg for svg in (one, two)] == [False, True]


def test_an_interval_that_is_not_there_leaves_the_line() -> None:
    single = [(limit, Estimate(1.0, float("nan"), float("nan"), 1)) for limit in (0, 1)]
    assert "nan" not in budget_svg("t", "words", {"a": single}, "y").lower()


def test_moving_average_is_a_mean_over_the_window() -> None:
    values = np.arange(40.0)
    assert moving_average(values)[20] == pytest.approx(20.0)
    assert moving_average(values)[0] == pytest.approx(values[:3].mean())
    values[20] = np.nan
    assert np.isfinite(moving_average(values)).all()
    assert np.isnan(moving_average(np.array([np.nan, np.nan]))).all()
    assert moving_average(np.ones(7)).tolist() == [1.0] * 7


def test_a_budget_curve_over_few_dialogues_says_so() -> None:
    thin = [(limit, Estimate(1.0, 0.5, 1.5, 12)) for limit in (0, 1)]
    assert "(few: n = 12)</text>" in budget_svg("t", "words", {"a": thin}, "y")
    assert "few" not in budget_svg("t", "words", {"a": budget([0, 1])}, "y")
