"""Which dialogues are shown, and what is told of the attacks in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from parley.engine.negotiation.page.dialogues import Dialogue, MarkedTurn, MarkedWords, extremes, read_dialogue
from parley.envs.core.visible import visible
from tests.engine.negotiation.metrics.attacks import attempt
from tests.engine.negotiation.page.dialogues import attack_row, row

POINTS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=12)


@given(POINTS, st.integers(1, 4))
def test_best_and_worst_are_the_ends_of_one_order(points: list[tuple[int, int]], limit: int) -> None:
    rows = [row(f"{i:02d}", pair) for i, pair in enumerate(points)]
    best, worst = ([read_dialogue(row) for row in ends] for ends in extremes(rows, limit))
    shown = [dialogue.key for dialogue in best + worst]
    assert len(set(shown)) == len(shown) == min(len(rows), 2 * limit)
    leads = sorted((a - b for a, b in points), reverse=True)
    assert [d.points[0] - d.points[1] for d in best] == leads[: len(best)]
    assert [d.points[0] - d.points[1] for d in worst] == leads[::-1][: len(worst)]


@given(POINTS.flatmap(lambda points: st.permutations(list(enumerate(points)))))
def test_order_of_rows_does_not_matter(numbered: list[tuple[int, tuple[int, int]]]) -> None:
    rows = [row(f"{i:02d}", pair) for i, pair in numbered]
    assert extremes(rows) == extremes(sorted(rows, key=lambda row: row["item_key"]))


def test_among_equal_dialogues_those_with_an_attack_sentence_come_first() -> None:
    rows = [attack_row(key, points, attempts=[]) for key, points in (("a", (9, 1)), ("b", (1, 9)))]
    rows += [attack_row(key, points) for key, points in (("y", (9, 1)), ("z", (1, 9)))]
    best, worst = extremes(rows, 1)
    assert [row["item_key"] for row in best + worst] == ["y", "z"]


def first_turn(said: str, **changes: object) -> MarkedTurn:
    """The first turn of an attacked dialogue."""
    turns = [{"side": 0, "words": said}, {"side": 1, "words": "<selection>"}]
    return shown(attempts=[attempt(**changes)], turns=turns).turns[0]


def shown(**changes: object) -> Dialogue:
    return read_dialogue(attack_row(**changes))  # type: ignore[arg-type]


def test_replaced_words_are_marked_with_what_stood_there() -> None:
    turn = first_turn("i need two hats", base="i want the hats", replaced=[1, 2])
    assert turn.words == (
        MarkedWords("i"),
        MarkedWords("need", True, "want"),
        MarkedWords("two", True, "the"),
        MarkedWords("hats"),
    )
    assert turn.instead_of == ""


def test_other_turns_are_left_in_one_piece() -> None:
    dialogue = shown()
    assert dialogue.turns[1].words == (MarkedWords("fine , the rest for me"),)
    assert dialogue.turns[1].attempt == ""
    assert read_dialogue(row()).forced is None
    assert dialogue.forced == (9, 1)


def test_a_sentence_of_another_length_is_set_against_the_whole_base() -> None:
    """What the game does not let through, such as a speaker's marker, leaves no place in the sentence."""
    turn = first_turn("i need hats", base="i want the hats", replaced=[1, 2])
    assert turn.words == (MarkedWords("i"), MarkedWords("need"), MarkedWords("hats"))
    assert turn.instead_of == "i want the hats"


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
    assert {story: first_turn("i want the hat", **changes).attempt for story, changes in told.items()} == {s: s for s in told}


def test_an_attack_sentence_without_words_says_so() -> None:
    assert " ".join(part.text for part in first_turn("", base="", replaced=[]).words) == "(says nothing)"


@given(st.lists(st.text(st.characters(exclude_characters=" "), min_size=1), min_size=1, max_size=6), st.data())
def test_marks_change_no_word(words: list[str], data: st.DataObject) -> None:
    base = [data.draw(st.sampled_from([word, f"{word}x"])) for word in words]
    replaced = [place for place, (word, before) in enumerate(zip(words, base, strict=True)) if word != before]
    turn = first_turn(" ".join(words), base=" ".join(base), replaced=replaced)
    if turn.ends:
        return
    assert [part.text for part in turn.words] == [visible(word) for word in words]
    assert [place for place, part in enumerate(turn.words) if part.replaced] == replaced
    assert [part.before for part in turn.words if part.replaced] == [visible(base[place]) for place in replaced]
