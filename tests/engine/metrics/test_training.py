"""What figures of trainings are called."""

from __future__ import annotations

from engine.metrics.training import AGAINST, LEARNING, PREDICTION, READING, describe


def test_figures_of_one_kind_of_training_keep_their_definitions() -> None:
    assert describe("context_gain") == READING["context_gain"]
    assert describe("share_outside_networks") == LEARNING["share_outside_networks"]
    assert describe("margin_met") == AGAINST["margin_met"]


def test_figures_that_trainings_define_differently_keep_titles_and_directions_alone() -> None:
    described = describe("test_nll")
    assert described is not None
    assert (described.title, described.direction) == (PREDICTION["test_nll"].title, PREDICTION["test_nll"].direction)
    assert described.definition == ""


def test_a_figure_of_no_training_is_not_described() -> None:
    assert describe("hit_rate.o_greedy") is None
