"""What a success is called, by what judges replies; and which inputs a screen shows."""

from __future__ import annotations

from typing import Any

import pytest

from parley.engine.triggers.metrics.hits import successful_reply
from parley.engine.triggers.metrics.text import NUM_SHOWN, ShownInput, shown_inputs


@pytest.mark.parametrize(
    ("success", "end", "clause"),
    [
        ({"by": "target"}, True, "that is the target"),
        ({"by": "target"}, False, "that begins with the target"),
        ({"by": "target"}, None, "that begins with the target, or is the target where its search wanted that"),
        ({"by": "exact"}, False, "that is the target"),
        ({"by": "prefix"}, True, "that begins with the target"),
        ({"by": "pattern", "pattern": "stu+pid\x1b"}, False, "that matches the pattern stu+pid\\u001b"),
        ({"by": "no-refusal"}, False, "without a sign of refusal"),
        ({"by": "classifier", "label": "rude"}, False, "that the classifier calls rude"),
        ({"by": "classifier", "label": ""}, False, "that the classifier gives its last label"),
        ({"by": "judge"}, False, "that does what is wanted, as the judge says"),
    ],
)
def test_each_way_to_judge_has_a_clause(success: dict[str, Any], end: bool | None, clause: str) -> None:
    assert successful_reply(success, end=end) == clause


def shown(success: bool, reply: str, merit: float = 0.0, no_reply: str = "") -> ShownInput:
    return ShownInput(success, "ask", ["x", "", "y"], "yes", reply, no_reply, merit)


def test_successes_are_shown_first_then_the_closest_and_at_most_some() -> None:
    inputs = [shown(False, f"no {number}", number) for number in range(9)]
    inputs += [shown(True, "yes", 1.5), shown(False, "", 9.0, "filtered")]
    ((heading, table),) = shown_inputs(inputs).items()
    assert heading == "inputs that worked"
    assert len(table.rows) == NUM_SHOWN
    assert [row[-1] for row in table.rows] == ["yes", "no 8", "no 7", "no 6", "no 5"]
    assert table.rows[0] == ("success", "ask", "x ... y", "yes")
    assert table.note.startswith("1 success of 11 inputs;")
    assert shown_inputs([]) == {}


def test_hostile_texts_are_spelled_on_the_screen_and_in_markdown() -> None:
    evil = "\x1b[31m <script> | `code` [a](b)\u202e\nnext"
    ((_, table),) = shown_inputs([shown(True, evil)]).items()
    cell = table.rows[0][-1]
    assert "\x1b" not in cell
    assert "\u202e" not in cell
    line = table.to_markdown().splitlines()[2]
    assert "\\<script\\>" in line
    assert "\\`code\\`" in line
    assert "\\[a\\]\\(b\\)" in line
    assert line.count(" | ") == 3, "a bar in a text ends no cell"
