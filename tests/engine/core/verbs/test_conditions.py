"""Conditions on metrics: what they decide, what they refuse, and the exit status."""

from __future__ import annotations

import math

import pytest

from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.conditions import ConditionOutcome, decide_all, exit_status, parse_conditions
from parley.envs.core.errors import ConfigError

METRICS = {
    "r@1.tfidf.clean": Estimate(0.5, 0.4, 0.6, 100),
    "change_rate.base.random-swap": Estimate(0.1, math.nan, math.nan, 3),
    "none": Estimate(math.nan, math.nan, math.nan, 0),
    "two words": Estimate(-2.0, -3.0, -1.0, 40),
}


def decide(text: str) -> ConditionOutcome:
    (verdict,) = decide_all(parse_conditions([text]), METRICS)
    return verdict


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("r@1.tfidf.clean.low < 0.3", False),
        ("r@1.tfidf.clean.low < 4.1e-1", True),
        ("r@1.tfidf.clean.low<=.4", True),
        ("r@1.tfidf.clean.value > 0.5", False),
        ("r@1.tfidf.clean.value >= 0.5", True),
        ("r@1.tfidf.clean.n == 100", True),
        ("r@1.tfidf.clean.n != 100", False),
        ("0.1 < r@1.tfidf.clean.low < r@1.tfidf.clean.high <= 0.6", True),
        ("not r@1.tfidf.clean.low < 0.3", True),
        ("not (r@1.tfidf.clean.low < 0.3 or r@1.tfidf.clean.high > 0.55)", False),
        ("r@1.tfidf.clean.low < 0.5 and change_rate.base.random-swap.value < 0.2", True),
        ("'two words'.value < -1", True),
        ("change_rate.base.random-swap.low < 0.3", None),
        ("none.value < 0.3", None),
        ("absent.value < 0.3", None),
        ("not absent.value < 0.3", None),
        ("absent.value < 0.3 or r@1.tfidf.clean.n == 100", True),
        ("absent.value < 0.3 or r@1.tfidf.clean.n == 99", None),
        ("absent.value < 0.3 and r@1.tfidf.clean.n == 99", False),
        ("absent.value < 0.3 and r@1.tfidf.clean.n == 100", None),
        ("1 < r@1.tfidf.clean.low < absent.value", False),
    ],
)
def test_a_condition_is_true_false_or_undecided(text: str, holds: bool | None) -> None:
    verdict = decide(text)
    assert verdict.holds is holds
    assert bool(verdict.missing) == (holds is None)


def test_an_undecided_condition_says_why_and_what_to_do() -> None:
    assert "no interval (n=3); compare .value" in str(decide("change_rate.base.random-swap.low < 0.3"))
    assert "nothing was measured (n=0)" in str(decide("none.low < 0.3"))
    assert "did you mean 'r@1.tfidf.clean'?" in str(decide("r@1.tfidf.clear.low < 0.3"))
    assert str(decide("r@1.tfidf.clean.low < 0.3")) == "false: r@1.tfidf.clean.low < 0.3; r@1.tfidf.clean.low = 0.4"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "this is no condition"),
        ("(a.low < 1", "this is no condition"),
        ("a.low < 1; b.low < 2", "b.low"),
        ("a.low", "a condition compares"),
        ("a.low + 1 < 2", "a condition compares"),
        ("-a.low < 2", "a condition compares"),
        ("a.low < [1]", "a condition compares"),
        ("a.low is 3", "is names no part"),
        ("a.low in 3", "in names no part"),
        ("a < 1", "a names no part"),
        ("a.median < 1", "a.median names no part"),
        ("True", "True names no part"),
        ("1 < 2", "the condition names no metric"),
        ("__import__('os').system('true') < 1", "names no part"),
        ("a.low < (lambda: 1)()", "names no part"),
        ("a.low < b.__class__", "names no part"),
        ("a.low < 0x10", "names no part"),
        ("a.difference.low < 1", "one run has no difference"),
        ("(" * 2000 + "a.low < 1" + ")" * 2000, "this is no condition"),
    ],
)
def test_other_expressions_are_refused(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_conditions([text])
    assert what in str(refusal.value)
    assert refusal.value.fix


def test_a_metric_that_cannot_be_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'advantage'"):
        parse_conditions(["advantag.low < 0"], known=["advantage", "agreement"])


def test_parts_of_differences() -> None:
    (condition,) = parse_conditions(["advantage.difference.p < 0.05 and advantage.low < 0"], compares=True)
    parts = [(figure.metric, figure.part, figure.of_difference) for figure in condition.figures.values()]
    assert parts == [("advantage", "p", True), ("advantage", "low", False)]
    with pytest.raises(ConfigError, match=r"\.difference\.n names no part|names no part"):
        parse_conditions(["advantage.difference.n < 3"], compares=True)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [((), 0), ((False,), 0), ((True,), 1), ((None,), 2), ((False, None), 2), ((None, True), 1), ((True, False), 1)],
)
def test_the_exit_status(outcomes: tuple[bool | None, ...], status: int) -> None:
    assert exit_status([ConditionOutcome("it", holds, {}) for holds in outcomes]) == status
