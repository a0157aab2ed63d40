"""Metrics of trigger searches, counted by hand."""

from __future__ import annotations

import logging

import pytest

from parley.engine.core.stats.statistics import Estimate, count, rate
from parley.engine.triggers.metrics.hits import (
    COST_METRICS,
    LISTS,
    choose_restart,
    describe,
    he2018,
    hits_by_restarts,
    is_hit,
    mean_by_step,
    published_rates,
    search_metrics,
    unread_failure,
    unread_note,
)
from parley.envs.core.errors import RunError
from tests.engine.triggers.metrics.searches import KINDS, failed, restart, searched

GREEDY, LIKELY = KINDS
PACE = count(680.0, 3)


def test_the_least_loss_is_kept_unless_a_restart_is_a_hit() -> None:
    losses = [restart(0, 0.4), restart(1, 0.2), restart(2, 0.2)]
    assert choose_restart(losses)["restart"] == 1, "ties go to the first"
    assert choose_restart([*losses, restart(3, 0.9, stopped="satisfied")])["restart"] == 3
    assert choose_restart(reversed(losses))["restart"] == 1


def test_rates_are_over_targets_and_costs_over_restarts() -> None:
    rows = [
        searched("a", restart(0, 0.5, (GREEDY,), sweeps=1), restart(1, 1.5, sweeps=4)),
        searched("b", restart(0, 1.5, (GREEDY, LIKELY), sweeps=1)),
        searched("c", restart(0, 2.5, candidates=50, sweeps=2)),
    ]
    found = search_metrics(rows, PACE, num_skipped=2)
    prefixes = ("hit_rate", "least_loss")
    assert list(found) == [f"{prefix}.{kind}" for prefix in prefixes for kind in KINDS] + [*COST_METRICS, "tokens"]
    assert found[f"hit_rate.{GREEDY}"] == rate(2, 3)
    assert found[f"hit_rate.{LIKELY}"] == rate(1, 3)
    assert found["loss"].value == 1.5
    assert found["tokens"].value == 700 * 4 / 3
    assert found["candidates_per_s"] == PACE
    assert (found["targets"].value, found["skipped"].value, found["skipped"].n) == (3, 2, 5)
    assert (found["restarts"].value, found["candidates"].value) == (4, 350)
    assert (found["sweeps"].value, found["sweeps"].n) == (2.0, 3), "restarts of a target hang together"
    assert all(describe(name).definition for name in found)


def test_the_paper_reads_all_types_off_the_least_loss() -> None:
    rows = [
        searched("late", restart(1, 1.5, (GREEDY,), stopped="satisfied"), restart(0, 1.0, (LIKELY,))),
        searched("tie", restart(0, 2.0, (GREEDY,)), restart(1, 2.0)),
    ]
    found = search_metrics(rows, PACE, num_skipped=0)
    assert found[f"hit_rate.{GREEDY}"] == rate(2, 2)
    assert found[f"least_loss.{GREEDY}"] == rate(1, 2)
    assert found[f"least_loss.{LIKELY}"] == rate(1, 2)


def test_drawn_replies_that_never_say_it_leave_room_for_doubt() -> None:
    drawn = [searched(key, restart(), verified=False, samples=5, sampled=0) for key in "ab"]
    assert search_metrics(drawn, PACE, 0)["sampled"] == rate(0, 2)
    assert search_metrics(drawn[:1], PACE, 0)["sampled"] == rate(0, 1)


def test_a_judge_of_whom_nothing_can_be_read_is_a_failure() -> None:
    def judged(answers: int, unread: int, lost: int = 0) -> dict[str, Estimate]:
        counts = {"judge_answers": answers, "judge_unparsable": unread, "judge_no_reply": lost}
        return {f"gcg | {name}": count(num, 2) for name, num in counts.items()}

    assert "of 98 replies" in unread_failure(judged(196, 98))
    assert not unread_failure(judged(196, 97))
    assert not unread_failure(judged(0, 0))
    assert "of 0 replies; 3 of its answers are no reply" in unread_failure(judged(3, 0, 3))
    assert not unread_failure(judged(4, 0, 3)), "one of four was a verdict"
    assert unread_note(judged(4, 0, 3)) == " 3 answers of the judge are no reply, and judge nothing."
    assert unread_note(judged(4, 1), judged(4, 2)).startswith(" Of 3 replies")
    assert not unread_note(judged(4, 0))


def test_failed_targets_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    rows = [searched("a", restart(hits=(GREEDY,))), failed("b", "boom")]
    with caplog.at_level(logging.WARNING):
        found = search_metrics(rows, PACE, num_skipped=0)
    assert found[f"hit_rate.{GREEDY}"] == rate(1, 1)
    assert "1 of 2 targets failed" in caplog.text


def test_of_nothing_there_are_no_rates() -> None:
    found = search_metrics([], PACE, num_skipped=3)
    assert list(found) == list(COST_METRICS)
    assert found["skipped"].value == 3


def test_with_fewer_restarts_targets_keep_the_best_of_those() -> None:
    rows = [
        searched("late", restart(0, 2.0), restart(1, 1.0, (GREEDY,)), restart(2, 0.5)),
        searched("early", restart(0, 0.0, (GREEDY,), stopped="satisfied")),
        searched("never", restart(0, 2.0), restart(1, 3.0), restart(2, 1.0)),
    ]
    shares = [(number, estimate.value) for number, estimate in hits_by_restarts(rows, [GREEDY])[GREEDY]]
    # The last restart of the late one has a lower loss and is no hit.
    assert shares == [(1, pytest.approx(1 / 3)), (2, pytest.approx(2 / 3)), (3, pytest.approx(1 / 3))]
    assert hits_by_restarts([], [GREEDY]) == {GREEDY: []}


def test_restarts_that_have_ended_stay_at_their_last_loss() -> None:
    rows = [searched("a", restart(loss_by_sweep=[4.0, 2.0])), searched("b", restart(loss_by_sweep=[6.0, 3.0, 1.0]))]
    points = mean_by_step(rows)
    assert [(sweep, estimate.value, estimate.n) for sweep, estimate in points] == [(0, 5.0, 2), (1, 2.5, 2), (2, 1.5, 2)]
    assert mean_by_step([]) == []


def test_the_distance_from_words_is_told_by_position() -> None:
    rows = [
        searched("a", restart(largest=[0.5, 1.0]), restart(1, largest=[1.0, 1.0])),
        searched("b", restart(largest=[0.6, 0.4])),
    ]
    assert search_metrics(rows, PACE, 0)["largest"].value == pytest.approx((0.875 + 0.5) / 2)
    assert [estimate.value for _, estimate in mean_by_step(rows, "largest")] == pytest.approx([0.7, 0.8])
    assert "largest" not in search_metrics([searched("old", restart())], PACE, 0), "runs of before do not tell it"


def test_a_type_of_hit_that_was_not_read_is_named() -> None:
    with pytest.raises(RunError, match=r"not say whether an input is a hit(.|\n)*io-sample-avg-k1(.|\n)*o-greedy"):
        is_hit(searched("a", restart()), "io-sample-avg-k1")


def test_continuous_inputs_were_measured_on_one_model() -> None:
    assert published_rates("ubuntu", "general", "one-hot") is he2018()["relaxation one-hot"]
    assert not published_rates("ubuntu", "none", "one-hot")
    assert not published_rates("switchboard", "general", "embedding")


def test_published_figures_follow_the_corpus_and_the_attention() -> None:
    tables = {name: lists for name, lists in he2018().items() if name.endswith(("last-h", "attention"))}
    assert published_rates("ubuntu", "none") is tables["ubuntu last-h"]
    assert published_rates("ubuntu", "released") is tables["ubuntu attention"]
    assert not published_rates("none", "general")
    assert not published_rates("ubuntu", ""), "another kind of model"
    assert len(tables) == 6
    assert all(set(lists) == set(LISTS) for lists in tables.values())
    assert tables["opensubtitles attention"]["mal"]["o-sample-avg-k2"] == 0.882


def test_success_is_told_by_parts_of_what_a_target_may_cost() -> None:
    costs = {"a": (1, True), "b": (25, True), "c": (60, True), "d": (100, False), "e": (103, True)}
    rows = [
        searched(key, restart(candidates=tried, tokens=7 * tried), verified=success) for key, (tried, success) in costs.items()
    ]
    found = search_metrics(rows, PACE, num_skipped=0, limits={"queries": 100, "tokens": 700, "seconds": 9})
    for part in ("queries", "tokens"):
        # The last step of "e" was begun within the budget.
        assert [found[f"within.{part}.{share}"].value for share in (8, 4, 2, 1)] == [0.2, 0.4, 0.4, 0.8]
    assert found["within.queries.1"] == found["verified"]
    assert not any("seconds" in name for name in found), "rows do not say them"
