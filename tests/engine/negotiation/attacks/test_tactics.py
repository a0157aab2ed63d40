"""What attackers that write tactics are told, and what is read of their answers."""

from __future__ import annotations

import math

import pytest

from parley.engine.negotiation.attacks.settings import TacticSettings
from parley.engine.negotiation.attacks.tactics import (
    BLIND,
    GAINS,
    REFINED,
    TriedTactic,
    questions,
    repair_request,
    spread_out,
    transcript,
)
from parley.policies.chat.model import Answer
from parley.policies.chat.questions import EMPTY, REFUSAL, read_line, repaired
from tests.engine.negotiation.page.dialogues import row

SETTINGS = TacticSettings(memory=2)
TRIED = [TriedTactic("Beg.", 3.0), TriedTactic("Lie.", math.nan), TriedTactic("Sulk.", -1.5, ["first game", "second game"])]

READ = {
    "Tactic: Ask for both hats.": ("Ask for both hats.", ""),
    'Sure! Here it is:\n\n**Tactic:** "Hold  out."\nGood luck!': ("Hold out.", ""),
    "I will not give up the ball.": ("I will not give up the ball.", ""),
    "Tactic:": ("", EMPTY),
    " \n ": ("", "it is no reply: empty"),
    "I'm sorry, but I can't assist with that.": ("I'm sorry, but I can't assist with that.", REFUSAL),
    "Tactic: I cannot help with manipulation.": ("I cannot help with manipulation.", REFUSAL),
    "Unfortunately, I'm unable to help.": ("Unfortunately, I'm unable to help.", REFUSAL),
    "As an AI, I do not bargain.": ("As an AI, I do not bargain.", REFUSAL),
    "a b c d e f": ("a b c d e f", "it has 6 words, and 5 are allowed"),
    "half a \ud800": ("half a \ufffd", ""),
}


@pytest.mark.parametrize("text", READ)
def test_a_tactic_is_one_line_and_no_refusal(text: str) -> None:
    assert read_line(Answer(text), "tactic", 5 if text.startswith("a b") else 50) == READ[text]


def test_a_line_that_was_cut_is_too_long_and_one_before_the_cut_is_not() -> None:
    assert "more than 2 words" in read_line(Answer("Hold out", finish_reason="length"), "tactic", 50)[1]
    assert read_line(Answer("Hold out.\nThis is", finish_reason="length"), "tactic", 50) == ("Hold out.", "")


def test_an_attacker_sees_what_is_its_own_to_see() -> None:
    asked = {arm: next(questions(arm, "Rules.", TRIED, SETTINGS))[-1].content for arm in (REFINED, GAINS, BLIND)}
    assert "first game" in asked[REFINED]
    assert "first game" not in asked[GAINS] + asked[BLIND]
    for arm in (REFINED, GAINS):
        assert "1. gain +3.00: Beg." in asked[arm], "the best, in the place of the older one"
        assert "2. gain -1.50: Sulk." in asked[arm]
        assert "Lie." not in asked[arm]
    assert asked[BLIND] == next(questions(REFINED, "Rules.", [], SETTINGS))[-1].content, "all begin alike"


def test_questions_grow_shorter_to_the_one_of_the_beginning() -> None:
    forms = [chat[-1].content for chat in questions(REFINED, "Rules.", TRIED, SETTINGS)]
    assert [len(form) for form in forms] == sorted({len(form) for form in forms}, reverse=True)
    assert forms[-1] == next(questions(BLIND, "Rules.", TRIED, SETTINGS))[-1].content
    assert ("second game" in forms[0], "second game" in forms[1], "first game" in forms[1]) == (True, False, True)


def test_a_repair_tells_why() -> None:
    (chat,) = questions(BLIND, "Rules.", [], SETTINGS)
    *before, said, asked = repaired(chat, " ", repair_request(EMPTY, SETTINGS.max_words))
    assert tuple(before) == chat
    assert (said.role, said.content, asked.role) == ("assistant", "...", "user")
    assert EMPTY in asked.content


def test_a_transcript_tells_the_players_own_values_and_both_sides_points() -> None:
    told = transcript(row(points=(6, 4)))
    assert told.splitlines() == [
        "Items: 1 book (worth 0 each to the player), 2 hat (worth 2 each to the player), 3 ball (worth 2 each to the player)",
        "player: i would like the hats",
        "partner: fine , the rest for me",
        "(player ends the talk)",
        "Points: player 6, partner 4",
    ]
    lost = transcript(row(points=(0, 0), forced=True))
    assert lost.endswith("(a limit ends the talk)\nPoints: player 0, partner 0 (no deal)")


def test_dialogues_are_shown_from_the_worst_to_the_best() -> None:
    rows = [row(key, points) for key, points in {"a": (6, 4), "b": (0, 10), "c": (10, 0), "d": (5, 5), "e": (5, 5)}.items()]
    assert [each["item_key"] for each in spread_out(rows, 3)] == ["b", "e", "c"]
    assert [each["item_key"] for each in spread_out(rows[:1], 3)] == ["a"]
    assert spread_out([], 3) == []
