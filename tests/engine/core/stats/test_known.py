"""Known adversaries as a table and in sentences: who is best against whom, and who has learned nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parley.engine.core.stats.known import KNOWN, AdversaryWords, KnownAdversaries, best_of, known_of
from parley.engine.core.stats.statistics import Estimate, clustered_rate

GAINED, NONE = Estimate(1.5, 1.0, 2.0, 40), Estimate(0.1, -0.5, 0.7, 40)
MADE_UP = KnownAdversaries(
    targets=["runs/t", "01-target"],
    adversaries=["00-exploitability/adversary", "control-exploitability/adversary", "scripted"],
    gains_TA=[[GAINED, NONE, NONE], [NONE, GAINED, NONE]],
    best=[0, 1],
    measured=[GAINED, NONE],
    learned={"00-exploitability/adversary": GAINED, "control-exploitability/adversary": NONE},
    gained={"00-exploitability/adversary": GAINED, "control-exploitability/adversary": GAINED},
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


def test_who_is_best_and_how_many_are_idle_is_one_sentence() -> None:
    best = "Best of 3 known adversaries: 00-exploitability/adversary"
    assert MADE_UP.best_and_idle("runs/t") == f"{best}; learned nothing that shows: 1 of 2 trained."
    assert replace(MADE_UP, learned={}, gained={}).best_and_idle("runs/t") == f"{best}."


def test_where_all_are_tried_they_count_together_and_the_best_by_itself_is_named() -> None:
    together = replace(MADE_UP, words=AdversaryWords(cell="Share.", measured="of the contexts", tries_all=True))
    assert together.sentences()[0] == (
        "all 3 known adversaries against runs/t: 1.50 [1.00, 2.00] of the contexts; the best by itself: "
        "00-exploitability/adversary"
    )
    assert "Exploitability: all together" in together.table().note
    assert together.best_and_idle("runs/t").startswith("Best of 3 known adversaries by itself: ")
    unreached = replace(together, measured=[Estimate(0.0, 0.0, 0.1, 40), NONE])
    assert unreached.best_and_idle("runs/t").startswith("None of 3 known adversaries reaches any; learned nothing that shows: ")
    searched = replace(together, words=replace(together.words, made="searches", idle="found nothing"))
    assert searched.sentences()[-1] == "found nothing, 1 of 2 searches: control-exploitability/adversary"
    assert searched.best_and_idle("runs/t").endswith("; found nothing that shows: 1 of 2 searches.")


def test_an_older_summary_has_none() -> None:
    assert known_of(None) is known_of({"title": "x"}) is None
    without_gained = {name: parts for name, parts in MADE_UP.to_json().items() if name != "gained"}
    assert known_of({KNOWN: without_gained}) is None
    assert known_of({KNOWN: MADE_UP.to_json()}) == MADE_UP


def test_one_that_gains_more_than_its_start_and_no_more_than_0_has_learned_nothing() -> None:
    names = MADE_UP.learned.keys()
    more_alone = replace(MADE_UP, learned=dict.fromkeys(names, GAINED), gained=dict.fromkeys(names, NONE))
    assert more_alone.idle == list(names)
    assert more_alone.table().rows[0][-1] == "1.50 [1.00, 2.00]: nothing"
    assert "more than that and more than 0" in more_alone.table().note


def test_without_trained_adversaries_nothing_is_said_of_what_they_learned() -> None:
    table = replace(MADE_UP, learned={}, gained={}).table()
    assert table.columns == ("adversary", "runs/t", "01-target")
    assert table.rows[-1] == ("exploitability", "1.50 [1.00, 2.00]", "0.10 [−0.50, 0.70]")
    assert "start" not in table.note


def test_it_comes_back_from_a_summary_as_it_was() -> None:
    assert KnownAdversaries.from_json(MADE_UP.to_json()) == MADE_UP


def test_a_share_that_is_0_in_every_dialogue_has_an_interval() -> None:
    never = np.zeros((40, 3))
    share = best_of(never, None, clustered_rate)
    assert (share.value, share.low) == (0, 0)
    assert 0.05 < share.high < 0.15
