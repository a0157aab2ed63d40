"""The metrics of an evaluation under perturbations, against rows that can be counted by hand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from parley.engine.core.stats.statistics import count, rate
from parley.engine.perturb.metrics.activity import CONSTANTS, reference_metrics
from parley.engine.perturb.metrics.table import describe, robustness_metrics
from tests.engine.perturb.metrics.robustness_rows import asked, failed, perturbed, replied

SWAP = "random-swap"


def example(number: int, trained: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """An example with one strategy, and a trained model when asked for; `changes` are of the base's perturbed reply."""
    replies = [replied(activity_f1=0.5), replied("base", SWAP, **changes)]
    if trained is not None:
        replies += [replied(SWAP, **trained), replied(SWAP, SWAP, **trained)]
    return asked(f"test-{number:06d}", [perturbed(SWAP, changed=number % 4 != 0)], replies)


def test_shares_are_counted_over_all_and_over_touched_contexts() -> None:
    rows = [example(number, same=number % 4 == 0 or number % 2 == 0) for number in range(8)]
    metrics = robustness_metrics(rows, num_resamples=10)
    assert metrics["perturbed_share.random-swap"] == rate(6, 8)
    assert metrics["change_rate.base.random-swap"] == rate(4, 8)
    assert metrics["change_rate_touched.base.random-swap"] == rate(4, 6)


def test_means_leave_out_what_has_no_number() -> None:
    rows = [
        example(0, activity_f1=None, entity_f1=None, context_similarity=None, bleu=0.5),
        example(1, activity_f1=1.0, entity_f1=0.5, reply_similarity=None, bleu=1.0),
        example(2, activity_f1=0.0, entity_f1=0.0, reply_similarity=None, bleu=0.0),
    ]
    metrics = robustness_metrics(rows, num_resamples=10)
    found = {name: (each.value, each.n) for name, each in metrics.items() if name.endswith(".base.random-swap")}
    assert found == {
        "change_rate.base.random-swap": (1.0, 3),
        "change_rate_touched.base.random-swap": (1.0, 2),
        "activity_f1.base.random-swap": (0.5, 2),
        "entity_f1.base.random-swap": (0.25, 2),
        "context_similarity.base.random-swap": (pytest.approx(0.9), 2),
        "reply_similarity.base.random-swap": (0.5, 1),
        "bleu.base.random-swap": (0.5, 3),
    }
    assert metrics["activity_f1.base.clean"].value == 0.5
    assert "change_rate.base.clean" not in metrics
    assert "bleu.base.clean" not in metrics


def test_kinds_that_nothing_was_measured_of_are_absent() -> None:
    unscored: dict[str, Any] = {"activity_f1": None, "entity_f1": None}
    row = asked("test-0", [perturbed(SWAP)], [replied(**unscored), replied("base", SWAP, **unscored)])
    assert not any("_f1" in name for name in robustness_metrics([row], num_resamples=10))


def test_a_trained_model_is_compared_with_the_base_on_the_same_contexts() -> None:
    # Before training 0.5 on clean contexts and 0.25 on perturbed ones, after it 0.75 on both, up to a little noise.
    rows = [
        example(number, trained={"activity_f1": 0.75 + 0.01 * (number % 3), "entity_f1": None}, activity_f1=0.25)
        for number in range(30)
    ]
    metrics = robustness_metrics(rows, num_resamples=500)
    assert metrics["activity_f1_gain.random-swap.clean"].value == pytest.approx(0.26)
    assert metrics["activity_f1_gain.random-swap.random-swap"].value == pytest.approx(0.51)
    assert metrics["activity_f1_p.random-swap.random-swap"].to_json() == count(1 / 501, 30).to_json()
    assert not any(name.startswith(("entity_f1_gain", "entity_f1_p")) for name in metrics)
    assert not any(name.startswith("activity_f1_gain.base") for name in metrics)


def test_change_rates_of_a_trained_model_are_paired_with_the_base_s() -> None:
    rows = [example(number, trained={"same": True}, same=number < 6) for number in range(40)]
    metrics = robustness_metrics(rows, num_resamples=500)
    assert metrics["change_rate_gain.random-swap.random-swap"].value == pytest.approx(-34 / 40)
    assert metrics["change_rate_p.random-swap.random-swap"].value < 0.05
    alike = robustness_metrics([example(number, trained={}) for number in range(40)], num_resamples=500)
    assert alike["change_rate_p.random-swap.random-swap"].value == 1.0


def test_no_training_is_no_gain() -> None:
    rows = [example(number, trained={"activity_f1": 0.5}, activity_f1=0.5) for number in range(5)]
    metrics = robustness_metrics(rows, num_resamples=50)
    assert metrics["activity_f1_p.random-swap.random-swap"].value == 1.0


def test_failed_examples_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        metrics = robustness_metrics([example(0), failed("test-9")], num_resamples=10)
    assert metrics["perturbed_share.random-swap"].n == 1
    assert "1 of 2 examples failed" in caplog.text
    assert robustness_metrics([failed("test-9")]) == {}


def test_every_metric_is_described() -> None:
    metrics = robustness_metrics([example(number, trained={}) for number in range(3)], num_resamples=10)
    titles = {name: describe(name).title for name in {**metrics, **reference_metrics([CONSTANTS["constant-use"]], [0])}}
    assert titles["change_rate.base.random-swap"] == "changed replies, base, random-swap"
    assert titles["entity_f1.truth"] == "entity F1, truth"
    assert len(set(titles.values())) == len(titles)
