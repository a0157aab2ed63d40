"""Sheets to label: which lines are drawn, what a spreadsheet may do to them, and what is told of broken ones."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parley.engine.perturb.metrics.audit import CONTROL
from parley.engine.perturb.verbs.sheet import COLUMNS, DrawnLine, drawn_lines, read_sheet, sheet
from parley.envs.core.errors import DataError


def touched(before: str, after: str, strategy: str = "antonym", place: int = 0) -> dict[str, Any]:
    nats = {"nats_before": 1.0, "nats_after": 2.0}
    return {"strategy": strategy, "place": place, "before": before, "after": after, **nats}


def row(key: str, *edits: dict[str, Any], status: str = "ok") -> dict[str, Any]:
    return {"item_key": key, "status": status, "touched": list(edits)}


ROWS = [row(f"test-{number:03d}", touched(f"line {number} is up", f"line {number} is down")) for number in range(40)]


def cells(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def lines(num: int = 5) -> dict[str, DrawnLine]:
    return drawn_lines(ROWS, ["antonym"], num, 1)


def labelled(path: Path, labels: list[str], delimiter: str = ",", found: dict[str, DrawnLine] | None = None) -> Path:
    rows = cells(sheet((found or lines()).values()))
    for each, label in zip(rows, labels, strict=True):
        each["label"] = label
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_lines_are_drawn_by_the_seed_alone_and_not_by_the_order_of_rows() -> None:
    found = drawn_lines(ROWS, ["antonym"], 10, 1)
    assert len(found) == 10
    assert [*drawn_lines(ROWS[::-1], ["antonym"], 10, 1)] == [*found]
    assert [*found] != sorted(found), "neighbours of a dialogue would tell the same story"
    assert {*drawn_lines(ROWS, ["antonym"], 10, 2)} != {*found}
    assert {*drawn_lines(ROWS, ["antonym"], 5, 1)} < {*found}


def test_every_touched_utterance_has_the_same_chance() -> None:
    few = ROWS[:8]
    times = Counter(key for seed in range(800) for key in drawn_lines(few, ["antonym"], 2, seed))
    assert len(times) == 8
    assert all(140 < number < 260 for number in times.values()), "each is drawn 200 times of 800"


def test_a_text_is_drawn_once_and_neither_failures_nor_the_control_are() -> None:
    rows = [row("a", touched("x", "y")), row("b", touched("x", "y")), row("c", touched("x", "z"), touched("x", "q", CONTROL))]
    found = drawn_lines([*rows, row("d", touched("x", "w"), status="error")], ["antonym", "random-swap"], 10, 1)
    assert sorted(line.after for line in found.values()) == [("y",), ("z",)]


def test_however_many_rows_there_are_the_same_lines_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = drawn_lines(ROWS, ["antonym"], 3, 1)
    monkeypatch.setattr("parley.engine.perturb.verbs.sheet._SLACK", 0)
    assert drawn_lines(ROWS, ["antonym"], 3, 1) == whole


def test_a_sheet_marks_what_changed_and_leaves_room_for_labels() -> None:
    found = drawn_lines([row("test-7", touched("it is up now", "it is down", place=2))], ["antonym"], 1, 1)
    (each,) = cells(sheet(found.values()))
    assert [*each] == [*COLUMNS]
    assert each["key"].startswith("antonym/test-7/2/")
    assert (each["before"], each["after"], each["label"], each["note"]) == ("it is [up now]", "it is [down]", "", "")


@pytest.mark.parametrize("text", ["=cmd()", "+1", "-rf", "@me", "'s", " =x", '\N{GRINNING FACE} , " ; 中文'])
def test_what_a_spreadsheet_would_obey_is_text_and_comes_back(tmp_path: Path, text: str) -> None:
    found = drawn_lines([row("a", touched(f"{text} is up", f"{text} is down"))], ["antonym"], 1, 1)
    (each,) = cells(sheet(found.values()))
    assert not each["before"].lstrip().startswith(("=", "+", "-", "@"))
    assert each["before"].removeprefix("'") == " ".join(f"{text} is [up]".split())
    assert [*read_sheet(labelled(tmp_path / "a.csv", ["wrong"], found=found), found).labels.values()] == [True]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_labels_come_back_as_spreadsheets_save_them(tmp_path: Path, delimiter: str) -> None:
    path = labelled(tmp_path / "a.csv", ["ok", " WRONG ", "", "Ok", "wrong"], delimiter)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    keys = [*lines()]
    assert read_sheet(path, lines()).labels == {keys[0]: False, keys[1]: True, keys[3]: False, keys[4]: True}


def test_deleted_lines_are_not_labelled_and_notes_are_kept(tmp_path: Path) -> None:
    path = labelled(tmp_path / "a.csv", ["ok"] * 5)
    content = path.read_text().splitlines()
    path.write_text("\n".join([content[0], f"{content[1]}another sense", "", content[4]]))
    found, keys = read_sheet(path, lines()), [*lines()]
    assert found.labels == {keys[0]: False, keys[3]: False}
    assert found.notes == {keys[0]: "another sense"}


def test_broken_sheets_are_named_with_their_line(tmp_path: Path) -> None:
    path = labelled(tmp_path / "a.csv", ["ok"] * 5)
    content = path.read_text()
    first, *rest = content.splitlines()
    one, (key, another, *_) = rest[0], lines()
    mistakes = {
        content.replace(",ok,", ",okay,", 1): r"a label is ok or wrong, or empty, did you mean 'ok'(.|\n)*line 2",
        content.replace(key, "", 1): "a line has no key",
        content.replace(key, "antonym/test-001/0/00000000", 1): r"a line of another run(.|\n)*antonym/test-001/0/00000000",
        "\n".join([first, one, one]): r"a line stands twice(.|\n)*line 3(.|\n)*the other is line 2",
        first.replace("label", "verdict"): "lacks columns(.|\n)*without label",
        "": "lacks columns",
        "\n".join([first, f"{one},yes"]): r"more cells than (the sheet has )?columns(.|\n)*line 2(.|\n)*yes",
        "\n".join([first, f'{one.replace(key, "")}"two\nlines"']): r"a line has no key(.|\n)*line 2\n",
        "\n".join([first, one.replace(key, another)]): "a key stands beside the text of another line",
    }
    for text, message in mistakes.items():
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_sheet(path, lines())
    path.write_bytes(b"key\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_sheet(path, lines())
    with pytest.raises(DataError, match="cannot be read"):
        read_sheet(tmp_path / "nothing.csv", lines())
