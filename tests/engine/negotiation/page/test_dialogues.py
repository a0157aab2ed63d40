"""Which dialogues are shown, and what is told of the attacks in them."""

from __future__ import annotations

import re
from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from parley.engine.core.page.content import Item
from parley.engine.negotiation.page import dialogue, extremes, spoken, story
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.negotiation.page.dialogues import attack_row, row

POINTS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=12)


@given(POINTS, st.integers(1, 4))
def test_best_and_worst_are_the_ends_of_one_order(points: list[tuple[int, int]], limit: int) -> None:
    rows = [row(f"{i:02d}", pair) for i, pair in enumerate(points)]
    best, worst = ([dialogue(row) for row in ends] for ends in extremes(rows, limit))
    shown = [item.key for item in best + worst]
    assert len(set(shown)) == len(shown) == min(len(rows), 2 * limit)
    leads = sorted((a - b for a, b in points), reverse=True)
    assert [item.values["points ahead"] for item in best] == leads[: len(best)]
    assert [item.values["points ahead"] for item in worst] == leads[::-1][: len(worst)]


@given(POINTS.flatmap(lambda points: st.permutations(list(enumerate(points)))))
def test_order_of_rows_does_not_matter(numbered: list[tuple[int, tuple[int, int]]]) -> None:
    rows = [row(f"{i:02d}", pair) for i, pair in numbered]
    assert extremes(rows) == extremes(sorted(rows, key=lambda row: row["item_key"]))


def test_among_equal_dialogues_those_with_an_attack_sentence_come_first() -> None:
    rows = [attack_row(key, points, attempts=[]) for key, points in (("a", (9, 1)), ("b", (1, 9)))]
    rows += [attack_row(key, points) for key, points in (("y", (9, 1)), ("z", (1, 9)))]
    best, worst = extremes(rows, 1)
    assert [row["item_key"] for row in best + worst] == ["y", "z"]


def first_turn(said: str, **changes: object) -> str:
    """The first turn of an attacked dialogue."""
    turns = [{"side": 0, "words": said}, {"side": 1, "words": "<selection>"}]
    return str(shown(attempts=[attempt(**changes)], turns=turns).body).split("<li")[1]


def shown(**changes: object) -> Item:
    return dialogue(attack_row(**changes))  # type: ignore[arg-type]


MARKED = re.compile(r'<mark>(.*?)</mark> <del><span class="unseen">instead of </span>(.*?)</del>', re.DOTALL)


def marks(html: str) -> list[tuple[str, str]]:
    """The replaced words, each with the one before."""
    return MARKED.findall(html)


def test_replaced_words_are_marked_with_what_stood_there() -> None:
    turn = first_turn("i need two hats", base="i want the hats", replaced=[1, 2])
    assert marks(turn) == [("need", "want"), ("two", "the")]
    assert "i <mark>need" in turn
    assert "</del> hats</span>" in turn


def test_other_turns_are_left_in_one_piece() -> None:
    body = str(shown().body)
    assert '<span class="speaker">target</span><span class="words" dir="auto">fine , the rest for me</span>' in body
    assert "with the end forced, <strong>9 : 1</strong>" in body
    assert "forced" not in dialogue(row()).body


def test_a_sentence_of_another_length_is_set_against_the_whole_base() -> None:
    """What the game does not let through, such as a speaker's marker, leaves no place in the sentence."""
    turn = first_turn("i need hats", base="i want the hats", replaced=[1, 2])
    assert 'i need hats <del><span class="unseen">instead of </span>i want the hats</del>' in turn
    assert "<mark>" not in turn


def test_what_is_told_of_an_attempt() -> None:
    told = {
        "reactive, 1 word replaced, target ends with 50 %: it did": {},
        "reactive, 2 words replaced, target ends with 0 %: it did not": {
            "replaced": [0, 1],
            "end_probability": 0.001,
            "ended": False,
        },
        "reactive, 0 words replaced, goal not reached, target ends with 50 %: it did": {"replaced": [], "accepted": False},
        "preemptive, 1 word replaced": {"kind": "preemptive", "end_probability": None, "ended": False},
        "transfer": {"kind": "transfer", "replaced": [], "accepted": False, "end_probability": None},
    }
    assert {text: story(attempt(**changes)) for text, changes in told.items()} == {text: text for text in told}
    assert all(text in first_turn("i want the hat", **changes) for text, changes in told.items())


def test_an_attack_sentence_without_words_says_so() -> None:
    assert ">(says nothing)</span>" in first_turn("", base="", replaced=[])


@given(st.lists(st.text(st.characters(exclude_characters=" "), min_size=1), min_size=1, max_size=6), st.data())
def test_marks_change_no_word(words: list[str], data: st.DataObject) -> None:
    base = [data.draw(st.sampled_from([word, f"{word}x"])) for word in words]
    replaced = [place for place, (word, before) in enumerate(zip(words, base, strict=True)) if word != before]
    html = str(spoken(" ".join(words), attempt(base=" ".join(base), replaced=replaced)))
    assert [tuple(map(unescape, pair)) for pair in MARKED.findall(html)] == [(words[place], base[place]) for place in replaced]
    assert unescape(re.sub("<mark>|</mark>", "", MARKED.sub(r"\1", html))) == " ".join(words)
