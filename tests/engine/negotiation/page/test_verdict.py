"""The verdict on a negotiator: in both directions, with what is uncertain, few, unfinished or without effect."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.core.page.content import Run, Verdict
from parley.engine.core.stats.statistics import NOTHING, Estimate, count
from parley.engine.negotiation.page import HardenedNegotiators, Negotiations
from tests.engine.core.page.pages import assert_brief, run_of
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.negotiation.page.dialogues import NAN, attack_row, match, metrics, row


def verdict(*runs: Run) -> Verdict:
    chapter = HardenedNegotiators() if runs[0].job == "minmax" else Negotiations()
    found = chapter.verdict(runs)
    assert found is not None
    assert_brief(found)
    return found


def told_by(found: Verdict) -> str:
    """All that a verdict says, with plain blanks."""
    return " ".join([found.sentence, *found.cautions, *found.details]).replace("\N{NO-BREAK SPACE}", " ")


def attack(advantage: float, **changes: Any) -> Run:
    return match(**{"name": "RL attack", "job": "attack-rl", "metrics": metrics(advantage), **changes})


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
    found = verdict(match(name="plain", metrics=metrics(-0.5)), attack(3.0), *others)
    assert found.sentence.endswith("leaves the target 3.50: it is certainly ahead.")
    assert found.details == ["Certainly ahead are 2 of 3 attacks."]
    assert (found.number.value, found.label) == (3.0, "Points ahead, RL attack")
    assert list(found.marks) == ["plain", "RL attack", "reactive", "transfer"]


def test_few_dialogues_and_a_missing_interval_are_said() -> None:
    assert verdict(attack(3.0, metrics=metrics(3.0, n=12))).cautions == ["Few dialogues (12): do not lean on it."]
    single = metrics(3.0) | {"advantage": Estimate(3.0, NAN, NAN, 40)}
    found = verdict(attack(3.0, metrics=single))
    assert found.sentence.endswith("it is not certainly ahead.")
    assert found.cautions == ["There is no interval."]


def test_of_more_attacks_than_there_is_room_for_the_strongest_are_shown() -> None:
    plain = [match(name=f"plain {i}", metrics=metrics(0.0)) for i in range(4)]
    found = verdict(*plain, *(attack(float(i), name=f"attack {i}") for i in range(12)))
    assert [*found.marks] == ["plain 0", *(f"attack {i}" for i in range(11, 0, -1))]


def test_plain_play_speaks_where_nobody_attacks() -> None:
    found = verdict(match(name="a against b", metrics=metrics(1.0)), match(name="b against a", metrics=metrics(0.0)))
    assert told_by(found) == (
        "a against b: 5.50 to 4.50 of 10 points, a deal in 80.0 % of the dialogues. 1 more matches are below."
    )
    assert found.rank > verdict(attack(1.0)).rank, "not beside the verdict on an attack or a campaign"


def campaign(drop: float, n: int = 1000, name: str = "x hardened", **more: Estimate) -> Run:
    figures = {"exploitability_before": 3.0, "exploitability": 3.0 - drop, "exploitability_drop": drop}
    found = {name: Estimate(value, value - 0.2, value + 0.2, n) for name, value in figures.items()}
    return run_of("minmax", metrics=found | more, heading=name)


def around(width: float = 0.2, **figures: float) -> dict[str, Estimate]:
    return {name: Estimate(value, value - width, value + width, 1000) for name, value in figures.items()}


@pytest.mark.parametrize(
    ("drop", "told"),
    [
        (0.5, "Hardening helped, by 0.50 points: {} 2.50 after it."),
        (0.1, "Hardening did not certainly help: {} 2.90 after it."),
        (-0.5, "Hardening made it worse, by 0.50 points: {} 3.50 after it."),
    ],
)
def test_hardening_in_either_direction(drop: float, told: str) -> None:
    found = verdict(campaign(drop))
    assert found.sentence == told.format("the best known adversary was 3.00 points ahead before it,")
    assert [estimate.value for name, estimate in found.marks.items() if "hardening" in name] == [3.0, 3.0 - drop, drop]
    assert found.number.value == drop


def test_hardening_over_few_dialogues_or_several_trainings_says_so() -> None:
    assert "Few dialogues (5): do not lean on it." in verdict(campaign(0.5, n=5)).cautions
    known = verdict(campaign(0.5, adversaries_known=count(13, 13)))
    assert known.warnings == ["It is still exploitable."]
    assert known.details == ["The best of 13 known adversaries, in dialogues that did not choose it."]


@pytest.mark.parametrize(
    ("more", "told"), [(0.5, ["The second half of their budget added 0.50: a larger one would find more."]), (0.1, [])]
)
def test_what_an_average_training_finds_stands_beside_the_best(more: float, told: list[str]) -> None:
    figures = {"mean_fresh": Estimate(-0.25, -1.0, 0.5, 1000), **around(gained_by_second_half=more)}
    found = verdict(campaign(0.5, **figures))
    assert found.details == ["Fresh adversaries gain −0.25 in the mean."]
    assert found.warnings == ["It is still exploitable.", *told]
    assert verdict(campaign(3.0)).warnings == []


@pytest.mark.parametrize(
    ("agreed", "told"), [(0.6, ""), (0.1, "In plain play it comes to a deal in 10.0 % of the dialogues (70.0 % before).")]
)
def test_a_hardened_target_that_hardly_agrees_is_told(agreed: float, told: str) -> None:
    found = verdict(campaign(0.5, **around(0.05, plain_agreement_before=0.7, plain_agreement=agreed)))
    assert told_by(found).endswith(f" It is still exploitable. {told}".rstrip())


@pytest.mark.parametrize(
    ("after", "control", "told"),
    [
        (0.45, 0.1, "It has lost its language: it repeats itself in 45.0 % of its 4-grams."),
        (0.1, 0.5, "The target of plain play alone has lost its language: it repeats itself in 50.0 % of its 4-grams."),
        (0.0, 0.0, ""),
    ],
)
def test_a_target_that_repeats_itself_is_told(after: float, control: float, told: str) -> None:
    figures = around(0.05, repetition_before=0.9, repetition=after, repetition_control=control)
    assert told_by(verdict(campaign(0.5, **figures))).endswith(f" It is still exploitable. {told}".rstrip())


@pytest.mark.parametrize(
    ("usual", "after", "control", "warnings"),
    [
        (0.02, 0.5, 0.1, ["It says again, word for word, 50.0 % of its later utterances (2.0 % before)."]),
        (0.3, 0.35, 0.3, []),
        (
            0.0,
            0.0,
            0.2,
            ["The target of plain play alone says again, word for word, 20.0 % of its later utterances (0.0 % before)."],
        ),
    ],
)
def test_a_target_that_says_its_demands_again_is_told(usual: float, after: float, control: float, warnings: list[str]) -> None:
    found = verdict(campaign(0.5, **around(0.05, repeats_before=usual, repeats=after, repeats_control=control)))
    told = [warning.replace("\N{NO-BREAK SPACE}", " ") for warning in found.warnings]
    assert [warning for warning in told if "word for word" in warning] == warnings


PLAINLY = "As many dialogues of plain play, without an adversary, help "


@pytest.mark.parametrize(
    ("control", "told"), [(2.9, []), (2.6, [f"{PLAINLY}as much, within the intervals."]), (2.1, [f"{PLAINLY}more."])]
)
def test_training_alone_stands_in_the_sentence_and_takes_the_credit_that_is_its(control: float, told: list[str]) -> None:
    figures = {"exploitability_control": control, "exploitability_drop_beyond_control": control - 2.5}
    found = verdict(campaign(0.5, **around(**figures)))
    assert found.sentence.endswith(f", {control:.2f} after plain play alone.")
    assert [warning for warning in found.warnings if warning.startswith(PLAINLY)] == told
    assert found.marks["best adversary, after plain play alone"].value == control


@pytest.mark.parametrize(("control", "told"), [(2.9, []), (2.5, []), (2.1, [f"{PLAINLY}more."])])
def test_training_alone_may_help_where_hardening_does_not(control: float, told: list[str]) -> None:
    figures = {"exploitability_control": control, "exploitability_drop_beyond_control": control - 2.5}
    found = verdict(campaign(0.0, **around(**figures)))
    assert found.sentence.startswith("Hardening did not certainly help")
    assert [warning for warning in found.warnings if warning.startswith(PLAINLY)] == told


def test_each_of_several_campaigns_is_told_by_its_name() -> None:
    found = verdict(campaign(1.0, name="one"), campaign(-0.5, name="two"), run_of("minmax", heading="begun"))
    assert found.sentence.startswith("Hardening helped, by 1.00 points: ")
    (other,) = found.details
    assert other.startswith("two: Hardening made it worse, by 0.50 points: ")
    assert "begun" not in told_by(found)


def test_a_campaign_that_goes_on_says_how_far_it_is() -> None:
    rounds = [
        {"kind": "round", "number": number, "estimates": {"exploitability": Estimate(3.0 - number, 2.0, 4.0, 100).to_json()}}
        for number in (0, 1)
    ]
    found = verdict(run_of("minmax", events=rounds))
    assert found.sentence == "Round 1 is measured: the best adversary known is 2.00 points ahead."
    assert found.warnings == ["The campaign is not finished."]
    assert list(found.marks) == ["best adversary, round 0", "best adversary, round 1"]
    assert HardenedNegotiators().verdict([run_of("minmax")]) is None


def searched(name: str, points: tuple[int, int], **changes: Any) -> Run:
    said = {"base": "i would like the hats", "replaced": []} | changes
    rows = [attack_row(key, points, attempts=[attempt(**said)]) for key in "ab"]
    return attack(1.0, name=name, job=f"attack-{name}", rows=rows)


def test_attacks_that_changed_nothing_say_so() -> None:
    plain = match(name="no attack", metrics=metrics(-1.0), rows=[row(key, (5, 5)) for key in "ab"])
    idle, same, real = (
        searched("reactive", (5, 5)),
        searched("preemptive", (5, 5), base="i would like the ball"),
        searched("ra-pa-da", (8, 2), base="i would like the ball"),
    )
    assert verdict(plain, idle, same, real, attack(1.0, rows=[row(key, (9, 1)) for key in "ab"])).warnings == [
        "No word was changed by: reactive.",
        "The same points in every dialogue have: no attack, reactive and preemptive.",
    ]
    assert verdict(plain, real).warnings == []


def test_what_was_not_measured_has_no_verdict() -> None:
    assert Negotiations().verdict([attack(0.0, metrics={"advantage": NOTHING})]) is None
