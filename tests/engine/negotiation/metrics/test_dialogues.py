"""The negotiation metrics, on dialogues small enough to count by hand."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.runs.parts import error_row
from parley.engine.negotiation.metrics.dialogues import METRICS, negotiation_metrics


def dialogue(points: tuple[int, int], *, agreed: bool = True, pareto: bool = False, **more: Any) -> dict[str, Any]:
    turns = [(0, "i want the ball"), (1, "ok deal"), (0, "<selection>")]
    return {
        "item_key": "d0",
        "status": "ok",
        "points_adversary": points[0],
        "points_target": points[1],
        "agreed": agreed,
        "pareto": pareto,
        "forced": False,
        "ended_by": 0,
        "turns": [{"side": side, "words": words} for side, words in turns],
        "num_turns": 3,
        "num_words_adversary": 6,
        "num_words_target": 3,
        "nll_adversary": 12.0,
        "nll_target": 3.0,
        "selection_adversary": ["book=1"],
        "selection_target": ["book=0"],
        **more,
    }


def values(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {name: estimate.value for name, estimate in negotiation_metrics(rows).items()}


def test_names_are_those_of_the_table_in_its_order() -> None:
    assert list(negotiation_metrics([])) == list(METRICS)
    wanted = "advantage advantage_agreed par par_strict agreement score_adversary score_target score_adversary_agreed"
    wanted += " score_target_agreed pareto turns words_per_utterance ended_by_adversary forced_end distinct_adversary"
    wanted += " distinct_target fluency_ppl fluency_ppl_target"
    assert set(wanted.split()) <= set(METRICS)
    assert all(metric.title and metric.direction and "\n" not in metric.definition for metric in METRICS.values())


def test_a_failed_negotiation_is_a_tie_of_nothing() -> None:
    found = values([dialogue((8, 2)), dialogue((3, 3)), dialogue((1, 9)), dialogue((0, 0), agreed=False)])
    assert found["advantage"] == (6 + 0 - 8 + 0) / 4
    assert found["advantage_agreed"] == pytest.approx((6 + 0 - 8) / 3)
    assert found["agreement"] == 3 / 4
    assert found["score_adversary"] == (8 + 3 + 1 + 0) / 4
    assert found["score_adversary_agreed"] == (8 + 3 + 1) / 3
    assert found["score_target"] == (2 + 3 + 9 + 0) / 4
    assert found["score_target_agreed"] == pytest.approx((2 + 3 + 9) / 3)


def test_ties_count_for_the_positive_rate_and_not_for_the_strict_one() -> None:
    found = values([dialogue((8, 2)), dialogue((3, 3)), dialogue((1, 9)), dialogue((0, 0), agreed=False)])
    assert found["par"] == 3 / 4
    assert found["par_strict"] == 1 / 4
    assert found["par_strict_agreed"] == pytest.approx(1 / 3), "among deals, as printed of play without an attack"


def test_the_rate_counts_ties_as_the_released_logs_do() -> None:
    # 35 wins, 1 tie and 16 losses are printed as 69.23 % in Cheng et al. 2019.
    rows = [dialogue((7, 3))] * 35 + [dialogue((5, 5))] + [dialogue((3, 7))] * 16
    found = negotiation_metrics(rows)
    assert round(100 * found["par"].value, 2) == 69.23
    assert round(100 * found["par_strict"].value, 2) == 67.31


def test_pareto_is_a_share_of_agreed_dialogues() -> None:
    rows = [dialogue((8, 2), pareto=True), dialogue((3, 3)), dialogue((0, 0), agreed=False)]
    found = negotiation_metrics(rows)["pareto"]
    assert (found.value, found.n) == (0.5, 2)


def test_forced_turns_belong_to_nobody() -> None:
    forced = dialogue((0, 0), agreed=False, forced=True, ended_by=-1)
    found = values([dialogue((8, 2)), forced])
    assert found["turns"] == 3
    assert found["words_per_utterance"] == 18 / 5
    assert found["forced_end"] == 0.5
    assert found["ended_by_adversary"] == 0.5


def test_distinct_utterances_leave_the_selection_out() -> None:
    other = [{"side": 0, "words": "give me the book"}, {"side": 1, "words": "ok deal"}, {"side": 1, "words": "<selection>"}]
    found = negotiation_metrics([dialogue((8, 2)), dialogue((8, 2)), dialogue((8, 2), turns=other)])
    assert (found["distinct_adversary"].value, found["distinct_target"].value) == (2, 1)
    assert found["distinct_share_adversary"].value == pytest.approx(2 / 3)
    assert math.isnan(found["distinct_adversary"].low)
    assert found["distinct_target"].n == 3


def test_perplexity_pools_words_over_dialogues() -> None:
    long = dialogue((8, 2), nll_adversary=90.0, num_words_adversary=60)
    found = values([dialogue((8, 2)), long])
    assert found["fluency_ppl"] == pytest.approx(math.exp(102 / 66))
    assert found["fluency_ppl_target"] == pytest.approx(math.exp(6 / 6))


def test_dialogues_without_likelihoods_are_left_out_of_perplexity() -> None:
    unscored = dialogue((8, 2), nll_adversary=None, nll_target=None)
    assert values([dialogue((8, 2)), unscored])["fluency_ppl"] == pytest.approx(math.exp(2))
    assert negotiation_metrics([unscored])["fluency_ppl"].n == 0


def test_a_broken_model_has_no_perplexity(caplog: pytest.LogCaptureFixture) -> None:
    found = negotiation_metrics([dialogue((8, 2)), dialogue((8, 2), nll_adversary=math.nan)])
    assert math.isnan(found["fluency_ppl"].value)
    assert not math.isnan(found["fluency_ppl_target"].value)
    assert "not finite" in caplog.text


def test_failed_items_are_left_out_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = negotiation_metrics([dialogue((8, 2)), error_row("d1", 3, "it broke")])
    assert found["advantage"].n == 1
    assert "1 of 2 dialogues failed" in caplog.text


def test_no_agreement_at_all_leaves_agreed_metrics_empty() -> None:
    found = negotiation_metrics([dialogue((0, 0), agreed=False)] * 3)
    empty = {
        "advantage_agreed",
        "par_strict_agreed",
        "score_adversary_agreed",
        "score_target_agreed",
        "pareto",
        "repetition_target",
        "repeats_adversary",
        "repeats_target",
    }
    assert {name for name, estimate in found.items() if math.isnan(estimate.value)} == empty


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10), st.booleans()), min_size=1, max_size=40))
def test_metrics_fit_together(outcomes: list[tuple[int, int, bool]]) -> None:
    rows = [dialogue((a, b) if agreed else (0, 0), agreed=agreed) for a, b, agreed in outcomes]
    found = values(rows)
    assert found["par_strict"] <= found["par"]
    assert found["advantage"] == pytest.approx(found["score_adversary"] - found["score_target"])
    assert found["par"] + values([swapped(row) for row in rows])["par_strict"] == pytest.approx(1)
    if found["agreement"]:
        assert found["advantage"] == pytest.approx(found["advantage_agreed"] * found["agreement"])


def swapped(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"points_adversary": row["points_target"], "points_target": row["points_adversary"]}


def test_illegal_selections_are_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    none, some = [[dialogue((5, 5))], [dialogue((5, 5)), dialogue((0, 0), agreed=False, selection_target=["<illegal>"])]]
    assert (values(none)["illegal_adversary"], values(none)["illegal_target"]) == (0, 0)
    assert not caplog.records
    found = values(some)
    assert (found["illegal_adversary"], found["illegal_target"]) == (0, 1 / 2)
    assert caplog.messages == ["the target chose out of range in 1 of 2 dialogues, which count as no agreement"]


def test_who_says_the_same_words_over_and_over_is_told(caplog: pytest.LogCaptureFixture) -> None:
    # "a b c a", "b c a b", "c a b c", then the first two once more; what stands in another utterance is not repeated.
    turns = [{"side": 1, "words": "a b c a b c a b"}, {"side": 0, "words": "a b c a"}, {"side": 1, "words": "a b c a"}]
    short = [{"side": 1, "words": "no deal"}, {"side": 0, "words": "a b c a b"}]
    found = negotiation_metrics([dialogue((8, 2), turns=turns), dialogue((8, 2), turns=short)])
    assert (found["repetition_adversary"].value, found["repetition_target"].value) == (0, 2 / 6)
    assert found["repetition_target"].n == 1, "in one dialogue the target says nothing of four words"
    assert caplog.messages == [
        "the target repeats itself, in 33 % of the 4-grams of its utterances: it may have lost its language"
    ]
    assert negotiation_metrics([dialogue((8, 2), turns=short)])["repetition_target"].n == 0, "it has none"


def test_a_demand_that_is_made_again_in_a_later_turn_is_counted() -> None:
    ball, hat = "i need the ball", "i want the hat"
    turns = [{"side": side, "words": words} for side, words in ((1, ball), (0, ball), (1, ball), (0, hat), (1, ball), (1, hat))]
    turns.append({"side": 1, "words": "<selection>"})
    found = negotiation_metrics([dialogue((8, 2), turns=turns), dialogue((8, 2), turns=turns[:1])])
    assert (found["repeats_target"].value, found["repeats_adversary"].value) == (2 / 3, 0), (
        "the partner's words are not its own"
    )
    assert found["repeats_target"].n == 1, "who speaks once cannot say it again"
    assert found["repetition_target"].value == 0


def test_wins_stand_before_the_rate_that_counts_ties() -> None:
    assert list(METRICS).index("par_strict") < list(METRICS).index("par")
