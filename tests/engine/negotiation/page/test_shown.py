"""What the page shows of a dialogue and of the attacks in it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.engine.core.page.pages import words
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.negotiation.page.dialogues import attack_row, match, metrics, negotiations, page_of, row, searched


def test_dialogue_shows_the_scenario_the_talk_and_the_deal() -> None:
    text = words(page_of(negotiations(match(name="m", rows=[row(points=(6, 8))]))))
    assert "adversary 6 : 8 target deal Pareto optimal ended by the adversary 3 turns" in text
    assert "book 1 0 0 4 1 hat 2 2 2 0 0 ball 3 2 1 2 2" in text
    assert "adversary i would like the hats target fine , the rest for me the adversary ends the talk" in text


def refusal(**changes: Any) -> str:
    return words(page_of(negotiations(match(name="m", rows=[row(points=(0, 0), **changes)]))))


def test_dialogue_without_a_deal_says_why() -> None:
    no = ["<no_agreement>"] * 6
    assert "no deal: both refused" in refusal(selection_adversary=no, selection_target=no)
    assert "no deal: the target refused" in refusal(selection_target=no)
    assert "no deal: the choices do not fit together" in refusal()
    assert "book 1 0 – 4 1" in refusal(selection_adversary=no)


def test_forced_end_belongs_to_nobody() -> None:
    text = refusal(forced=True, ended_by=-1)
    assert "ended by a limit" in text
    assert "a limit ends the talk" in text
    assert "the adversary ends" not in text


def test_replaced_words_are_marked_and_can_be_told_without_colour() -> None:
    page = page_of(negotiations(searched()))
    assert 'the <mark>hats</mark> <del><span class="unseen">instead of </span>ball</del></span>' in page
    assert page.count("<mark>") == page.count("<del>") == 2
    text = words(page)
    assert "adversary reactive, 1 word replaced, target ends with 63 %: it did i would like the hats instead of ball" in text


def test_both_protocols_stand_over_a_dialogue() -> None:
    text = words(page_of(negotiations(searched())))
    assert "adversary 8 : 2 target as played; with the end forced, 9 : 1 deal" in text
    assert "Advantage, end forced higher: adversary" in text
    plain = words(page_of(negotiations(match(name="m", metrics=metrics(), rows=[row()]))))
    assert "end forced" not in plain


def test_a_sentence_plugged_in_stands_beside_what_it_replaced() -> None:
    page = page_of(negotiations(searched(attempts=[attempt(base="ok deal", replaced=[], kind="transfer")])))
    assert 'like the hats <del><span class="unseen">instead of </span>ok deal</del></span>' in page


def test_budget_curves_of_reactive_attacks_have_figures() -> None:
    page = page_of(negotiations(searched()))
    assert "Advantage by replaced words" in words(page)
    text = words(page)
    assert text.count("mean over 2 dialogues with a reactive attack; with 95 % intervals; ") == 2
    assert (
        text.count("asks whether a sentence makes the target end the talk, or what it would then choose; gradients do not") == 1
    )
    assert text.count("combined ones only those that succeeded: these have no curve") == 2
    figures = re.findall(r"<figcaption><strong>(.*?)</strong>", page)
    assert [figure for figure in figures if figure.startswith("Advantage")] == [
        "Advantage by replaced words",
        "Advantage by queries of the target",
    ]


def test_every_attack_has_a_budget_curve_of_its_own_even_under_an_equal_name() -> None:
    page = page_of(negotiations(searched(), searched(attempts=[attempt(accepted=False)])))
    assert words(page).count("mean over 2, 2 dialogues with a reactive attack") == 2
    few = " \\(few: n = 2\\)</text>"
    assert [len(re.findall(rf">reactive \({number}\){few}", page)) for number in (1, 2)] == [2, 2]


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param([attempt(), attempt(kind="preemptive", steps=[])], id="only-successes-on-record"),
        pytest.param([attempt(kind="preemptive", steps=[])], id="not-reactive"),
        pytest.param([], id="none"),
    ],
)
def test_other_attacks_have_no_budget_curve(attempts: list[dict[str, Any]]) -> None:
    rows = [attack_row(key, attempts=attempts) for key in "ab"]
    assert "Advantage by" not in page_of(negotiations(match(name="m", rows=rows)))


def test_attacks_that_record_only_successes_have_no_budget_curve_even_when_all_were_reactive() -> None:
    rows = [attack_row(key) for key in "ab"]
    assert "Advantage by" not in page_of(negotiations(match(job="attack-ra-pa-da", rows=rows)))
    assert "Advantage by" not in page_of(negotiations(match(rows=rows, config={"surrogate": "another"})))
    assert "Advantage by" in page_of(negotiations(match(rows=rows)))


def test_a_search_that_never_went_a_step_has_no_curve() -> None:
    rows = [attack_row(attempts=[attempt(steps=attempt()["steps"][:1])])]
    assert "Advantage by" not in page_of(negotiations(match(name="m", rows=rows)))
