"""The verdict on a negotiator: in both directions, with what is uncertain, few, unfinished or without effect."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.core.page.content import Verdict
from parley.engine.core.stats.known import Round
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.negotiation.page.chapter import verdict_on
from parley.engine.negotiation.page.populations import Hardening, Match, Negotiation
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.negotiation.page.dialogues import NAN, attack_row, metrics, row


def verdict(*matches: Match, campaigns: tuple[Hardening, ...] = ()) -> Verdict:
    found = verdict_on(Negotiation(matches=matches, campaigns=campaigns))
    assert found is not None
    return found


def attack(advantage: float, **changes: Any) -> Match:
    return Match(**{"name": "RL attack", "job": "attack-rl", "metrics": metrics(advantage), **changes})


@pytest.mark.parametrize(
    ("advantage", "told"),
    [
        (3.0, "takes 6.50 of 10 points and leaves the target 3.50: it is certainly ahead."),
        (0.2, "takes 5.10 of 10 points and leaves the target 4.90: it is not certainly ahead."),
        (-3.0, "takes 3.50 of 10 points and leaves the target 6.50: it stays certainly behind."),
    ],
)
def test_one_attack(advantage: float, told: str) -> None:
    found = verdict(attack(advantage))
    assert found.sentence == f"A trained adversary {told}"
    assert found.marks == {"RL attack": metrics(advantage)["advantage"]}


def test_of_several_attacks_the_strongest_speaks() -> None:
    others = [attack(1.0, name="reactive", job="attack-reactive"), attack(0.1, name="transfer", job="attack-transfer")]
    found = verdict(Match(name="plain", metrics=metrics(-0.5)), attack(3.0), *others)
    assert found.sentence.endswith("leaves the target 3.50: it is certainly ahead (2 of 3 attacks are).")
    assert list(found.marks) == ["plain", "RL attack", "reactive", "transfer"]


def test_few_dialogues_and_a_missing_interval_are_said() -> None:
    assert verdict(attack(3.0, metrics=metrics(3.0, n=12))).sentence.endswith(" Few dialogues (12): do not lean on it.")
    single = metrics(3.0) | {"advantage": Estimate(3.0, NAN, NAN, 40)}
    assert verdict(attack(3.0, metrics=single)).sentence.endswith("it is not certainly ahead. There is no interval.")


def test_of_more_attacks_than_there_is_room_for_the_strongest_are_shown() -> None:
    plain = [Match(name=f"plain {i}", metrics=metrics(0.0)) for i in range(4)]
    found = verdict(*plain, *(attack(float(i), name=f"attack {i}") for i in range(12)))
    assert [*found.marks] == ["plain 0", *(f"attack {i}" for i in range(11, 0, -1))]


def test_plain_play_speaks_where_nobody_attacks() -> None:
    found = verdict(Match(name="a against b", metrics=metrics(1.0)), Match(name="b against a", metrics=metrics(0.0)))
    assert found.sentence == (
        "a against b: 5.50 to 4.50 of 10 points, a deal in 80.0 % of the dialogues. 1 more matches are below."
    )


def campaign(drop: float, n: int = 1000) -> Hardening:
    figures = {"exploitability_before": 3.0, "exploitability": 3.0 - drop, "exploitability_drop": drop}
    return Hardening(
        name="x hardened",
        metrics={name: Estimate(value, value - 0.2, value + 0.2, n) for name, value in figures.items()},
        rounds=[],
    )


@pytest.mark.parametrize(
    ("drop", "told"),
    [
        (0.5, "Hardening helped, by 0.50 points: {} 2.50 ahead after it."),
        (0.1, "Hardening did not certainly help: {} 2.90 ahead after it."),
        (-0.5, "Hardening made it worse, by 0.50 points: {} 3.50 ahead after it."),
    ],
)
def test_hardening_in_either_direction(drop: float, told: str) -> None:
    told = told.format("the best known adversary was 3.00 points ahead before it and is")
    found = verdict(attack(3.0), campaigns=(campaign(drop),))
    assert f". {told}" in found.sentence
    assert [estimate.value for name, estimate in found.marks.items() if "hardening" in name] == [3.0, 3.0 - drop, drop]
    assert verdict(campaigns=(campaign(drop),)).sentence.startswith(told)


def test_a_match_that_a_campaign_measures_by_stands_in_the_figures_once() -> None:
    before = campaign(0.5).metrics["exploitability_before"]
    measured_by = Match(name="best known adversary, before", metrics={"advantage": before}, job="evaluate-exploitability")
    marks = verdict(measured_by, campaigns=(campaign(0.5),)).marks
    assert [name for name, estimate in marks.items() if estimate == before] == ["best adversary, before hardening"]


def test_hardening_over_few_dialogues_or_several_trainings_says_so() -> None:
    assert "Few dialogues (5): do not lean on it." in verdict(campaigns=(campaign(0.5, n=5),)).sentence
    once = campaign(0.5)
    known = Hardening(name="x", metrics={**once.metrics, "adversaries_known": count(13, 13)}, rounds=[])
    told = ": the best of 13 known adversaries was 3.00 points ahead before it and is 2.50 ahead after it."
    assert verdict(campaigns=(known,)).sentence.endswith(f"{told} It is still exploitable.")


@pytest.mark.parametrize(
    ("more", "told"), [(0.5, " The second half of their budget added 0.50: a larger one would find more."), (0.1, "")]
)
def test_what_an_average_training_finds_stands_beside_the_best(more: float, told: str) -> None:
    figures = {
        "mean_fresh": Estimate(-0.25, -1.0, 0.5, 1000),
        "gained_by_second_half": Estimate(more, more - 0.2, more + 0.2, 1000),
    }
    said = verdict(campaigns=(Hardening(name="x", metrics={**campaign(0.5).metrics, **figures}, rounds=[]),)).sentence
    assert said.endswith(f" Fresh adversaries gain −0.25 in the mean.{told} It is still exploitable.")
    assert "still exploitable" not in verdict(campaigns=(campaign(3.0),)).sentence


@pytest.mark.parametrize(
    ("agreed", "told"),
    [(0.6, ""), (0.1, " But in plain play it comes to a deal in 10.0 % of the dialogues (70.0 % before).")],
)
def test_a_hardened_target_that_hardly_agrees_is_told(agreed: float, told: str) -> None:
    once = campaign(0.5)
    figures = {"plain_agreement_before": 0.7, "plain_agreement": agreed}
    found = {name: Estimate(value, value - 0.05, value + 0.05, 1000) for name, value in figures.items()}
    said = verdict(campaigns=(Hardening(name="x", metrics={**once.metrics, **found}, rounds=[]),)).sentence
    assert said.replace("\N{NO-BREAK SPACE}", " ").endswith(f" 2.50 ahead after it. It is still exploitable.{told}")


@pytest.mark.parametrize(
    ("after", "control", "told"),
    [
        (0.45, 0.1, " But it has lost its language: it repeats itself in 45.0 % of its 4-grams."),
        (0.1, 0.5, " But the target of plain play alone has lost its language: it repeats itself in 50.0 % of its 4-grams."),
        (0.0, 0.0, ""),
    ],
)
def test_a_target_that_repeats_itself_is_told(after: float, control: float, told: str) -> None:
    figures = {"repetition_before": 0.9, "repetition": after, "repetition_control": control}
    found = {name: Estimate(value, value - 0.05, value + 0.05, 1000) for name, value in figures.items()}
    said = verdict(campaigns=(Hardening(name="x", metrics={**campaign(0.5).metrics, **found}, rounds=[]),)).sentence
    assert said.replace("\N{NO-BREAK SPACE}", " ").endswith(f" 2.50 ahead after it. It is still exploitable.{told}")


@pytest.mark.parametrize(("control", "told"), [(2.9, "2.90."), (2.6, "2.60, no certain difference.")])
def test_training_alone_stands_beside_hardening(control: float, told: str) -> None:
    once, beyond = campaign(0.5), control - 2.5
    figures = {"exploitability_control": control, "exploitability_drop_beyond_control": beyond}
    found = {name: Estimate(value, value - 0.2, value + 0.2, 1000) for name, value in figures.items()}
    said = verdict(campaigns=(Hardening(name="x", metrics={**once.metrics, **found}, rounds=[]),))
    alone = "As much training in plain play alone, without an adversary, brings it to"
    assert said.sentence.endswith(f" 2.50 ahead after it. {alone} {told} It is still exploitable.")
    assert said.marks["best adversary, after plain play alone"].value == control


def test_each_of_several_campaigns_is_told_by_its_name() -> None:
    campaigns = [
        Hardening(name=name, metrics=campaign(drop).metrics, rounds=[]) for name, drop in (("one", 1.0), ("two", -0.5))
    ]
    found = verdict(campaigns=(*campaigns, Hardening(name="begun", metrics={}, rounds=[])))
    assert found.sentence.startswith("one: hardening helped, by 1.00 points: ")
    assert " two: hardening made it worse, by 0.50 points: " in found.sentence
    assert "begun" not in found.sentence
    drops = {name: estimate.value for name, estimate in found.marks.items() if "takes off" in name}
    assert drops == {"one: points that hardening takes off": 1.0, "two: points that hardening takes off": -0.5}


def test_a_campaign_that_goes_on_says_how_far_it_is() -> None:
    rounds = [Round(number, {"exploitability": Estimate(3.0 - number, 2.0, 4.0, 100)}) for number in (0, 1)]
    found = verdict(campaigns=(Hardening(name="x", metrics={}, rounds=rounds),))
    assert (
        found.sentence == "Round 1 is measured and the campaign is not finished: the best adversary known is 2.00 points ahead."
    )
    assert list(found.marks) == ["best adversary, round 0", "best adversary, round 1"]
    assert verdict_on(Negotiation(campaigns=[Hardening(name="x", metrics={}, rounds=[])])) is None


def searched(name: str, points: tuple[int, int], **changes: Any) -> Match:
    said = {"base": "i would like the hats", "replaced": []} | changes
    rows = [attack_row(key, points, attempts=[attempt(**said)]) for key in "ab"]
    return attack(1.0, name=name, job=f"attack-{name}", rows=rows)


def test_attacks_that_changed_nothing_say_so() -> None:
    plain = Match(name="no attack", metrics=metrics(-1.0), rows=[row(key, (5, 5)) for key in "ab"])
    idle, same, real = (
        searched("reactive", (5, 5)),
        searched("preemptive", (5, 5), base="i would like the ball"),
        searched("ra-pa-da", (8, 2), base="i would like the ball"),
    )
    sentence = verdict(plain, idle, same, real, attack(1.0, rows=[row(key, (9, 1)) for key in "ab"])).sentence
    assert "No word was changed by: reactive." in sentence
    assert "The same points in every dialogue have: no attack, reactive and preemptive." in sentence
    assert "No word" not in verdict(plain, real).sentence
    assert "The same points" not in verdict(plain, real).sentence


def test_what_was_not_measured_has_no_verdict() -> None:
    assert verdict_on(Negotiation(matches=[attack(0.0, metrics={"advantage": NOTHING})])) is None
