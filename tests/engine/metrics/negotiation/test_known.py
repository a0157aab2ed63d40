"""Known adversaries as a table and in sentences: who is best against whom, and who has learned nothing."""

from __future__ import annotations

from engine.metrics.negotiation.known import KnownAdversaries
from engine.metrics.statistics import Estimate

GAINED, NONE = Estimate(1.5, 1.0, 2.0, 40), Estimate(0.1, -0.5, 0.7, 40)
MADE_UP = KnownAdversaries(
    targets=["runs/t", "01-target"],
    adversaries=["00-exploitability/adversary", "control-exploitability/adversary", "scripted"],
    gains_TA=[[GAINED, NONE, NONE], [NONE, GAINED, NONE]],
    best=[0, 1],
    measured=[GAINED, NONE],
    learned={"00-exploitability/adversary": GAINED, "control-exploitability/adversary": NONE},
)


def test_the_table_marks_the_best_and_those_that_learned_nothing() -> None:
    table = MADE_UP.table()
    assert table.columns == ("adversary", "runs/t", "01-target", "more than its start")
    shown, none = "1.50 [1.00, 2.00]", "0.10 [−0.50, 0.70]"
    assert table.rows == (
        ("00-exploitability/adversary", f"{shown} best", none, shown),
        ("control-exploitability/adversary", none, f"{shown} best", f"{none}: nothing"),
        ("scripted", none, none, ""),
        ("exploitability", shown, none, ""),
    )


def test_sentences_say_who_is_best_and_name_those_that_learned_nothing() -> None:
    assert MADE_UP.best_of("01-target") == "control-exploitability/adversary"
    assert MADE_UP.sentences() == [
        "best of 3 known adversaries against runs/t: 00-exploitability/adversary, "
        "1.50 [1.00, 2.00] points ahead in dialogues that did not choose it",
        "best of 3 known adversaries against 01-target: control-exploitability/adversary, "
        "0.10 [−0.50, 0.70] points ahead in dialogues that did not choose it",
        "learned nothing, 1 of 2 trained: control-exploitability/adversary",
    ]


def test_it_comes_back_from_a_summary_as_it_was() -> None:
    assert KnownAdversaries.from_json(MADE_UP.to_json()) == MADE_UP
