"""Metrics of rows of rankers: what counts, against what, by which names."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.ranking.metrics.ranking import RankedRows, describe, ranking_metrics
from tests.engine.ranking.metrics.ranked_rows import attacked, context, scored

RIGHT, WRONG, TIED = [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 2.0, 1.0]


def rows() -> list[dict[str, Any]]:
    """Eight contexts of four dialogues: three stay right under IIW, three go wrong, one is a tie, one is untouched."""
    after = [RIGHT] * 3 + [WRONG] * 3 + [TIED]
    return [*(attacked(number, scores) for number, scores in enumerate(after)), attacked(7, RIGHT, touched=False)]


def test_every_ranker_is_measured_clean_and_under_every_rule() -> None:
    metrics = ranking_metrics(RankedRows(rows()))
    assert {name: metrics[f"r@1.{name}"].value for name in ("mine.clean", "constant.clean", "constant.iiw")} == {
        "mine.clean": 1.0,
        "constant.clean": pytest.approx(1 / 3),
        "constant.iiw": pytest.approx(1 / 3),
    }
    assert metrics["r@1.mine.iiw"].value == pytest.approx(3.5 / 7), "a tie is worth its share, the untouched context nothing"
    assert metrics["r@1_ties_right.mine.iiw"].value == pytest.approx(4 / 7)
    assert metrics["r@1_ties_wrong.mine.iiw"].value == pytest.approx(3 / 7)
    assert "r@1_ties_right.mine.clean" not in metrics
    assert metrics["mrr.mine.iiw"].value == pytest.approx((3 + 3 / 3 + 0.75) / 7)
    assert metrics["a@1.mine.sow"].value == 1.0
    assert "r@1.mine.sow" not in metrics
    assert metrics["untouched.iiw"].value == 1 / 8
    assert (metrics["untouched.iiw"].n, metrics["r@1.mine.iiw"].n) == (4, 4), "contexts of a dialogue are drawn together"
    assert metrics["words_changed.sow"].value == 3
    assert (metrics["failed.mine"].value, metrics["failed.mine"].n) == (0, 8)


def test_contexts_of_equal_words_are_one_unit_whatever_their_dialogues() -> None:
    alike = {"context": ["it is broken"]}
    metrics = ranking_metrics(RankedRows([*rows(), *(attacked(number, WRONG) | alike for number in range(8, 20))]))
    assert (metrics["r@1.mine.iiw"].value, metrics["r@1.mine.iiw"].n) == (pytest.approx(3.5 / 19), 5)


def test_the_change_is_among_the_same_contexts_as_they_are() -> None:
    metrics = ranking_metrics(RankedRows(rows()))
    change = metrics["r@1_change.mine.iiw"]
    assert change.value == pytest.approx(3.5 / 7 - 1)
    assert -1 <= change.low < change.value < change.high
    assert metrics["r@1_change.constant.iiw"].value == 0
    assert metrics["r@1_p.constant.iiw"].value == 1
    assert metrics["a@1_change.mine.sow"].value == 0


def test_untouched_contexts_may_count_as_attacks_that_failed() -> None:
    kept = ranking_metrics(RankedRows(rows(), untouched="kept"))
    assert kept["r@1.mine.iiw"].value == pytest.approx(4.5 / 8)
    assert kept["untouched.iiw"].value == 1 / 8


def test_contexts_with_nothing_to_rank_are_counted() -> None:
    nothing = attacked(8, RIGHT) | {"labels": [False] * 3}
    left, zero = (RankedRows([*rows(), nothing], unranked=unranked) for unranked in ("left-out", "zero"))  # type: ignore[arg-type]
    assert ranking_metrics(left)["unranked"].value == ranking_metrics(zero)["unranked"].value == 1
    assert ranking_metrics(left)["r@1.mine.clean"].value == 1.0
    assert ranking_metrics(zero)["r@1.mine.clean"].value == pytest.approx(8 / 9)


def test_contexts_without_scores_count_for_the_others_alone() -> None:
    whole = attacked(8, WRONG)
    lost = whole | {
        "ranked": [scored("mine", rule, None, "it died: at once") for rule in ("clean", "iiw", "sow")]
        + [entry for entry in whole["ranked"] if entry["model"] == "constant"]
    }
    failed = context(9, [], [], status="error", error="everything died")
    found = RankedRows([*rows(), lost, failed], controls=["constant"])
    metrics = ranking_metrics(found)
    assert found.errors == {"mine": {"everything died": 1, "it died: at once": 1}}, (
        "a context in which all failed is one of each"
    )
    assert (metrics["failed.mine"].value, metrics["failed.mine"].n) == (2, 10)
    assert metrics["failed.constant"].value == 0
    assert (metrics["r@1.mine.clean"].n, metrics["r@1.constant.clean"].n) == (4, 5)


def test_no_rows_have_no_metrics() -> None:
    assert ranking_metrics(RankedRows([])) == {}
    assert ranking_metrics(RankedRows([context(1, [], [], status="error", error="died")])) == {}


def test_every_metric_says_what_it_is() -> None:
    for name in ranking_metrics(RankedRows(rows())):
        assert describe(name, 3).definition
    assert describe("r@1.mine.iiw", 10).title == "R10@1, mine, iiw"
    assert describe("a@2.mine.sow").title == "A@2, mine, sow"
    assert describe("ap@1.mine.sow", 10).title == "A@1, mine, sow"
    assert describe("arr.mine.sow", 10).direction == "lower: better"
    assert describe("a@1_change.mine.sow", 10).title == "A10@1, change, mine, sow"
    assert describe("untouched.iiw").title == "untouched, iiw"
    assert describe("map_among_random.mine.clean").title == "MAP, random wrong replies, mine, clean"
    assert describe("unranked").title == "nothing to rank"
