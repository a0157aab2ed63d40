"""Rankers beside one another: who is compared with whom, and differences that are known beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.core.stats.statistics import paired_bootstrap, rate_difference
from parley.engine.ranking.metrics.ranking import RankedRows, describe
from parley.engine.ranking.metrics.table import control_of, differences, rankers_beside
from tests.engine.ranking.metrics.ranked_rows import attacked, scored

RIGHT, WRONG, TIED = [3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 2.0, 1.0]
TRAININGS = {"hard": (["iiw"], "smn"), "plain": ([], "smn"), "again": ([], "smn"), "far": (["sow"], "")}


def rows(num: int = 80) -> list[dict[str, Any]]:
    """Two contexts a dialogue: under IIW "mine" is always wrong, "hard" in the last quarter; both are right elsewhere."""
    found = [attacked(number, WRONG) for number in range(num)]
    for number, row in enumerate(found):
        row["ranked"] += attacked(number, RIGHT if number < num * 3 / 4 else WRONG, model="hard")["ranked"][:3]
    return found


def test_a_difference_is_drawn_by_dialogue_and_told_from_chance() -> None:
    found = differences(RankedRows(rows()), [("hard", "mine")])
    beside = found["r@1_less.hard.mine.iiw"]
    assert (beside.value, beside.n) == (0.75, 40)
    # Both contexts of a dialogue are alike, so that there are 40 trials and not 80.
    half = rate_difference([1] * 30 + [0] * 10, [0] * 40)
    assert (beside.low, beside.high) == pytest.approx((half.low, half.high))
    assert found["r@1_less_p.hard.mine.iiw"].value == paired_bootstrap([1] * 30 + [0] * 10, [0] * 40).p_value < 1e-4
    assert (found["r@1_less.hard.mine.clean"].value, found["r@1_less_p.hard.mine.clean"].value) == (0.0, 1.0)
    assert found["a@1_less.hard.mine.sow"].value == 0.0, "a rule that spoils the right reply has another metric"
    assert len(found) == 6


def test_the_sign_says_which_is_ahead() -> None:
    found = differences(RankedRows(rows()), [("mine", "hard")])
    assert found["r@1_less.mine.hard.iiw"].value == -0.75
    assert found["r@1_less_p.mine.hard.iiw"].value < 1e-4


def test_only_contexts_that_both_scored_and_that_the_rule_changed_count() -> None:
    known = rows()
    # "hard" has no scores where it is wrong, and the rule leaves one context as it is, in which "mine" has a tie.
    for number in range(60, 80):
        known[number]["ranked"] = [
            entry if entry["model"] != "hard" else scored("hard", entry["rule"], None, "it died")
            for entry in known[number]["ranked"]
        ]
    known[0]["attacks"][0]["changed"] = []
    known[0]["ranked"][1] = scored("mine", "iiw", TIED)
    found = differences(RankedRows(known), [("hard", "mine")])
    assert (found["r@1_less.hard.mine.iiw"].value, found["r@1_less.hard.mine.iiw"].n) == (pytest.approx(1.0), 30)
    assert found["r@1_less.hard.mine.clean"].n == 30
    kept = differences(RankedRows(known, untouched="kept"), [("hard", "mine")])
    assert kept["r@1_less.hard.mine.iiw"].value == pytest.approx((59 + 0.5) / 60)


def test_a_training_is_beside_its_base_and_its_control_and_others_beside_each_other() -> None:
    rankers = ["tfidf", "smn", "hard", "plain", "again", "far"]
    assert control_of("hard", TRAININGS) == "plain", "the first of several"
    assert [control_of(label, TRAININGS) for label in ("plain", "far", "smn")] == ["", "", ""]
    assert rankers_beside(rankers, TRAININGS) == [
        ("smn", "tfidf"),
        ("far", "tfidf"),
        ("far", "smn"),
        ("hard", "smn"),
        ("hard", "plain"),
        ("plain", "smn"),
        ("again", "smn"),
    ]
    assert rankers_beside(["tfidf"], {}) == []


def test_every_difference_says_what_it_is() -> None:
    assert describe("r@1_less.hard.mine.iiw", 10).title == "R10@1, less that of another, hard, mine, iiw"
    assert describe("a@1_less_p.hard.mine.sow", 10).title == "A10@1, p of the difference, hard, mine, sow"
    assert describe("r@1_p.mine.iiw", 10).title == "R10@1, p of the change, mine, iiw"
