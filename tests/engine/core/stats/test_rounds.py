"""Rounds of adversarial training: which is the best, and when they no longer help."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.stats.known import NEGOTIATORS, CampaignMetrics, LanguageWatch, Round, best_round, has_stalled
from parley.engine.core.stats.statistics import Estimate, Metric

courses = st.lists(st.integers(-40, 40).map(lambda tenths: tenths / 8), min_size=1, max_size=12)


def rounds(*losses: float) -> list[Round]:
    return [Round(number, {"loss": Estimate(value, value - 0.5, value + 0.5, 100)}) for number, value in enumerate(losses)]


def loss(one: Round) -> float:
    return one.metrics["loss"].value


@given(courses)
def test_the_best_round_loses_least_the_earliest_of_equals(course: list[float]) -> None:
    found = best_round(rounds(*course), loss)
    assert loss(found) == min(course)
    assert found.number == course.index(min(course))


@given(courses, st.integers(1, 4), st.sampled_from([0.0, 0.125, 0.5, 2.0]))
def test_rounds_have_stalled_when_none_of_the_last_gained_enough(course: list[float], patience: int, least_gain: float) -> None:
    split = len(course) - patience
    gained = [min(course[:split]) - later >= least_gain for later in course[split:]] if split > 0 else [True]
    assert has_stalled(rounds(*course), loss, patience, least_gain) == (not any(gained))


@pytest.mark.parametrize(
    ("course", "stalled"),
    [
        ((3.0,), False),
        ((3.0, 3.5), False),
        ((3.0, 3.5, 3.25), True),
        ((3.0, 3.5, 2.5), False),
        ((3.0, 2.5, 3.5), False),
        ((3.0, 2.75, 2.625), True),
        ((3.0, 1.0, 2.0, 1.75), True),
    ],
)
def test_two_rounds_may_pass_without_half_a_point_of_gain(course: tuple[float, ...], stalled: bool) -> None:
    assert has_stalled(rounds(*course), loss, patience=2, least_gain=0.5) == stalled


def test_the_last_line_of_an_outcome_says_what_the_result_has_over_each_column() -> None:
    found = {"loss_before": 0.5, "loss": 0.25, "loss_control": 0.125, "gain": 0.25, "gain_control": -0.125}
    metrics = {name: Estimate(value, value - 0.5, value + 0.5, 100) for name, value in found.items()}
    measures = CampaignMetrics(
        what="model",
        of_round={},
        at_end={"loss": Metric("loss", "", "")},
        endings={"before": "_before", "control": "_control", "random": "_random", "after": ""},
        gains=("less", {"before": "gain", "control": "gain_control", "random": "gain_random"}),
        loss=loss,
        watch=LanguageWatch("loss"),
        stalled="",
        note_rounds="",
        note_outcome="note",
        known=NEGOTIATORS,
    )
    table = measures.outcome_table(metrics)
    assert table.columns == ("model", "before", "control", "after"), "nothing is known of the others"
    assert [cell.split(" [")[0] for cell in table.rows[-1]] == ["less", "+ 0.25", "\N{MINUS SIGN} 0.12", ""]
