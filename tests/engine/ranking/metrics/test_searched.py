"""What rows of attacks on rankers amount to, worked out by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from parley.engine.core.stats.statistics import NOTHING, clustered_rate, rate
from parley.engine.core.tables.table import figure
from parley.engine.ranking.metrics.searched import (
    REACHED_REASON,
    TRANSFER_TABLE,
    SearchedRows,
    describe_search,
    points_of,
    search_metrics,
    success_table,
    tables_of_searches,
)
from tests.engine.ranking.metrics.searched_rows import attacked_context, left, search


def test_contexts_of_equal_words_are_one_unit_whatever_their_dialogues() -> None:
    rows = [attacked_context(number, search("smn", "greedy", 4), context=["it is broken"]) for number in range(40)]
    success = search_metrics(SearchedRows(rows), 50)["success@50.smn.greedy"]
    assert (success.value, success.n) == (1.0, 1)


def test_success_is_read_at_every_smaller_budget() -> None:
    spent = [3, 10, 11, 50, None, None, 100, 51]
    rows = [attacked_context(number, search("smn", "greedy", queries)) for number, queries in enumerate(spent)]
    metrics = search_metrics(SearchedRows(rows), 100)
    assert points_of(100) == [10, 50, 100]
    assert points_of(70) == [10, 50, 70]
    assert [metrics[f"success@{at}.smn.greedy"].value for at in (10, 50, 100)] == [2 / 8, 4 / 8, 6 / 8]
    assert metrics["success@50.smn.greedy"].low == pytest.approx(rate(4, 8).low), "dialogues of one context are Wilson's trials"
    assert metrics["queries.smn.greedy"].value == 30.5
    assert metrics["queries_asked.smn.greedy"].value == (3 + 10 + 11 + 50 + 50 + 50 + 100 + 51) / 8
    assert metrics["ranks_moved.smn.greedy"].value == 6 / 8
    assert metrics["score_moved.smn.greedy"].value == (6 * 2.0 + 2 * 0.5) / 8
    assert "slopes.smn.greedy" not in metrics
    assert metrics["untouched.smn.greedy"].value == 0
    rows[4]["searches"][0]["queries"] = 0
    assert search_metrics(SearchedRows(rows), 100)["untouched.smn.greedy"].value == 1


def test_contexts_that_are_not_attacked_are_counted_and_in_no_rate() -> None:
    rows = [
        attacked_context(0, search("smn", "greedy", 5), search("smn", "random", None)),
        attacked_context(1, left("smn", "greedy", "skipped", REACHED_REASON), left("smn", "random", "skipped", REACHED_REASON)),
        attacked_context(2, left("smn", "greedy", "skipped", "no reply"), left("smn", "random", "skipped", "no reply")),
        attacked_context(3, left("smn", "greedy", "error", "it died"), search("smn", "random", 5)),
        attacked_context(4, status="error", error="all died"),
    ]
    found = SearchedRows(rows)
    metrics = search_metrics(found, 10)
    assert [metrics[f"{kind}.smn"].value for kind in ("attacked", "already", "nothing_to_attack", "failed")] == [2, 1, 1, 2]
    assert metrics["failed.smn"].n == 5, "a context in which all failed is one of them"
    assert found.errors == {"smn": Counter(["all died", "it died"])}
    assert (metrics["success@10.smn.greedy"].value, metrics["success@10.smn.greedy"].n) == (1, 1)
    assert (metrics["success@10.smn.random"].value, metrics["success@10.smn.random"].n) == (0.5, 2)
    assert (metrics["ahead@10.smn.greedy"].value, metrics["ahead@10.smn.greedy"].n) == (1, 1), "on the contexts of both"


def test_a_method_is_compared_with_random_edits_in_the_same_contexts() -> None:
    rows = [
        attacked_context(number, search("smn", "greedy", 20), search("smn", "random", 5 if number % 4 == 0 else None))
        for number in range(40)
    ]
    metrics = search_metrics(SearchedRows(rows), 50)
    assert metrics["ahead@10.smn.greedy"].value == -0.25
    assert metrics["ahead@50.smn.greedy"].value == 0.75
    assert metrics["ahead_p@50.smn.greedy"].value < 0.001
    assert "ahead@50.smn.random" not in metrics
    cells = dict(zip(success_table(metrics).columns, success_table(metrics).rows[0], strict=True))
    assert cells["50 queries"].splitlines()[2].startswith("+0.75*")
    assert cells["10 queries"].splitlines()[2].startswith("\N{MINUS SIGN}0.25*")


def test_gaslite_is_compared_with_its_steps_at_random_and_those_with_random_words() -> None:
    rows = [
        attacked_context(
            number,
            search("minilm", "gaslite", 20),
            search("minilm", "random-steps", 30 if number % 4 else None),
            search("minilm", "random-words", 30 if number % 2 else None),
            search("minilm", "random", 5),
        )
        for number in range(40)
    ]
    metrics = search_metrics(SearchedRows(rows), 50)
    assert metrics["ahead@50.minilm.gaslite"].value == 0.25
    assert metrics["ahead@50.minilm.random-steps"].value == 0.25
    assert metrics["ahead@10.minilm.gaslite"].value == 0
    assert metrics["ahead@50.minilm.random-words"].value == -0.5
    assert "ahead@50.minilm.random" not in metrics


def test_transfer_is_of_successes_where_the_other_ranker_was_right_before() -> None:
    cases = [(5, True), (5, True), (5, False), (5, None), (None, True)]
    rows = [
        attacked_context(number, search("smn", "greedy", queries, "bm25", reached), search("bm25", "greedy", None, "smn", None))
        for number, (queries, reached) in enumerate(cases)
    ]
    metrics = search_metrics(SearchedRows(rows), 10)
    assert (metrics["transfer.smn.bm25.greedy"].value, metrics["transfer.smn.bm25.greedy"].n) == (2 / 3, 3)
    assert metrics["transfer.bm25.smn.greedy"] == NOTHING
    table = tables_of_searches(metrics)["Transfer to other rankers"]
    assert table.columns == ("found on, by", "shown to smn", "shown to bm25")
    assert table.rows[0][1] == "\N{EN DASH}"
    assert table.rows[0][2].endswith("n 3 few")
    assert all(describe_search(name).definition for name in metrics)


def test_clustered_rates_lie_between_those_of_dialogues_and_of_contexts() -> None:
    alone, trials = clustered_rate([1, 0, 0, 1, 1, 0, 1, 1], range(8)), rate(5, 8)
    assert (alone.value, alone.n) == (trials.value, trials.n)
    assert (alone.low, alone.high) == pytest.approx((trials.low, trials.high))
    same = clustered_rate([1, 1, 0, 0] * 20, [0, 0, 1, 1] * 20)
    assert same.n == 2
    hits, dialogues = [1, 1, 0, 0] * 20, [place // 2 for place in range(80)]
    whole = clustered_rate(hits, dialogues)
    assert whole.n == 40
    assert (whole.low, whole.high) == pytest.approx((rate(20, 40).low, rate(20, 40).high)), "two that are alike are as one"
    mixed = clustered_rate([1, 0] * 40, dialogues)
    trials = rate(40, 80)
    assert (mixed.low, mixed.high) == pytest.approx((trials.low, trials.high), abs=0.002), "never more than there are"
    assert mixed.low < trials.low, "how they hang together is an estimate too"
    sure = clustered_rate([True] * 80, dialogues)
    assert (sure.value, sure.low, sure.high) == (1, rate(40, 40).low, 1)
    assert clustered_rate([], []) == NOTHING
    assert not math.isnan(clustered_rate([1, 0], [0, 0]).low)


def test_what_rounds_to_nothing_has_no_sign() -> None:
    assert [figure(value) for value in (-0.004, 0.004, -0.006, 0.0)] == ["0.00", "0.00", "\N{MINUS SIGN}0.01", "0.00"]
    rows = [
        attacked_context(number, search("smn", "greedy", 5 if number else None), search("smn", "random", 5))
        for number in range(300)
    ]
    assert success_table(search_metrics(SearchedRows(rows), 10)).rows[0][1].splitlines()[2].startswith("0.00")


def test_transfer_has_no_table_where_no_success_was_shown_to_another_ranker() -> None:
    rows = [attacked_context(0, search("smn", "greedy", None), search("tfidf", "greedy", None))]
    assert TRANSFER_TABLE not in tables_of_searches(search_metrics(SearchedRows(rows), 50))
