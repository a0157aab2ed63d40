from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.envs.core.errors import DataError
from parley.envs.core.seeds import stream
from parley.envs.corpora.lines import FileLine, read_lines
from parley.envs.negotiation.corpora.dealornodeal import (
    DialogueRecord,
    Turn,
    format_line,
    parse_line,
    parse_lines,
    parse_scenarios,
)
from parley.envs.negotiation.dealornodeal_rules import DISAGREE_ID, random_scenario, selection_table
from tests.envs.corpora.made_up import LINE, SCENARIO

OUTPUT = "item0=0 item1=2 item2=0 item0=1 item1=0 item2=3"
TAGS = [f"<{slash}{tag}>" for tag in ("input", "dialogue", "output", "partner_input") for slash in ("", "/")]
RESERVED = {"YOU:", "THEM:", "<eos>", "<unk>", "<selection>", "<pad>", *TAGS}

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda word: word.split() == [word] and word not in RESERVED
)


@st.composite
def records(draw: st.DrawFn) -> DialogueRecord:
    scenario = random_scenario(stream(draw(st.integers(0, 2**32)), "scenario"))
    is_you = draw(st.booleans())
    turns = []
    for said in draw(st.lists(st.lists(words, max_size=6), max_size=6)):
        turns.append(Turn(is_you, tuple(said)))
        is_you = not is_you
    turns.append(Turn(is_you, ("<selection>",)))
    legal = [*map(tuple, selection_table(scenario.counts).tolist()), (DISAGREE_ID,) * 6]
    return DialogueRecord(scenario, tuple(turns), draw(st.sampled_from(legal)))


@given(records(), st.integers(1, 10**6))
def test_a_record_survives_writing_and_reading(record: DialogueRecord, line: int) -> None:
    read = parse_line(format_line(record), "file.txt", line)
    assert read == record
    assert read.line == line


@given(records())
def test_a_written_line_survives_a_file(record: DialogueRecord) -> None:
    line = format_line(record)
    assert "\n" not in line
    assert format_line(parse_line(line)) == line


def test_a_line_is_read() -> None:
    record = parse_line(LINE, "file.txt", 7)
    assert record.scenario == SCENARIO
    assert record.turns == (
        Turn(True, ("both", "hats", "for", "me", "?")),
        Turn(False, ("fine", ",", "the", "rest", "is", "mine")),
        Turn(True, ("<selection>",)),
    )
    assert record.output == (0, 7, 10, 1, 5, 13)
    assert record.line == 7
    assert " ".join(record.tokens) == LINE.split("<dialogue> ")[1].split(" </dialogue>")[0]
    assert format_line(record) == LINE


@pytest.mark.parametrize("refusal", ["<disagree>", "<no_agreement>", "<disconnect>"])
def test_every_refusal_is_an_output(refusal: str) -> None:
    record = parse_line(LINE.replace(OUTPUT, " ".join([refusal] * 6)))
    assert len(set(record.output)) == 1


BROKEN = [
    ("", "<input> opens section 1"),
    (LINE.replace("<input>", "input"), "<input> opens section 1"),
    (LINE.replace("</input>", "</inputs>"), "</input> closes section 1"),
    (LINE.replace("<dialogue> ", ""), "<dialogue> opens section 2"),
    (LINE.replace(" </dialogue>", ""), "</dialogue> closes section 2"),
    (LINE.replace("<output>", "<out>"), "<output> opens section 3"),
    (LINE.split(" <partner_input>")[0], "</output> closes section 3"),
    (LINE.replace("<partner_input>", "<partner>"), "<partner_input> opens section 4"),
    (LINE.removesuffix(" </partner_input>"), "</partner_input> closes section 4"),
    (LINE + " ", "the line ends with </partner_input>"),
    (LINE + " " + LINE, "the line ends with </partner_input>"),
    (LINE.replace("<input> 1 1 2 3 3 1", "<input> 1 1 2 3 3"), "a context is 6 numbers"),
    (LINE.replace("<input> 1 1 2 3 3 1", "<input> 1 1 2 3 3 one"), "a context is 6 numbers"),
    (LINE.replace("<input> 1 1 2 3 3 1", "<input> 1 1 2 3 3 01"), "a context is 6 numbers"),
    (LINE.replace("<input> 1 1 2 3 3 1", "<input> 1 1 2 3 3 11"), "a context is 6 numbers"),
    (LINE.replace("<input> 1 1 2 3 3 1", "<input> 1 1 2 3 3 2"), "worth 10 in total"),
    (
        LINE.replace("<input> 1 1 2 3 3 1", "<input> 1 10 2 0 3 0").replace("1 4 2 0 3 2", "1 10 2 0 3 0"),
        "every item is wanted by someone",
    ),
    (LINE.replace("1 4 2 0 3 2", "1 4 3 0 2 3"), "do not describe one scenario"),
    (LINE.replace("YOU: both", "both"), "every turn starts with YOU: or THEM:"),
    (LINE.replace("YOU: both", "ME: both"), "every turn starts with YOU: or THEM:"),
    (LINE.replace("YOU: both", "YOU:  both"), "separated by one space"),
    (LINE.replace("both hats", "both\thats"), "separated by one space"),
    (LINE.replace("? <eos> THEM:", "? THEM:"), "THEM: within a turn"),
    (LINE.replace("mine <eos> ", "mine "), "every turn ends with <eos>, and the last is <selection> alone"),
    (LINE.replace("YOU: <selection>", "YOU: <selection> now"), "the last is <selection> alone"),
    (LINE.replace("YOU: <selection>", "YOU: ok <selection>"), "the last is <selection> alone"),
    (LINE.replace("YOU: <selection>", "YOU: deal <eos>"), "the last turn is <selection> alone"),
    (LINE.replace("YOU: <selection>", "YOU: <selection> <eos> THEM: <selection>"), "<selection> within a turn"),
    (LINE.replace("both hats", "both <selection>"), "<selection> within a turn"),
    (LINE.replace("both hats", "both <pad>"), "<pad> within a turn"),
    (LINE.replace("both hats", "both <output>"), "<output> within a turn"),
    (LINE.replace("THEM: fine", "YOU: fine"), "the speakers alternate"),
    (LINE.replace(OUTPUT, "item0=0 item1=2 item2=0"), "6 of the 18 item tokens"),
    (LINE.replace("item1=2", "item1=5"), "6 of the 18 item tokens"),
    (LINE.replace("item1=2", "item2=2"), "a deal that can be chosen"),
    (LINE.replace("item2=3 </output>", "item2=2 </output>"), "a deal that can be chosen"),
    (LINE.replace(OUTPUT, " ".join(["<disagree>"] * 5 + ["<disconnect>"])), "one refusal 6 times"),
    (LINE.replace("both hats", "both \udcff"), "the file is UTF-8 text"),
]


@pytest.mark.parametrize(("text", "rule"), BROKEN)
def test_a_broken_line_is_an_error_with_its_place(text: str, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_line(text, "folder/train.txt", 12)
    assert caught.value.where == FileLine("folder/train.txt", 12)
    assert "folder/train.txt:12" in str(caught.value)
    assert rule in str(caught.value)
    assert caught.value.got is not None


def test_a_long_line_is_shortened_in_its_error() -> None:
    with pytest.raises(DataError) as caught:
        parse_line("x" * 100_000)
    assert len(str(caught.value)) < 1_000


def test_errors_with_places_cross_process_borders() -> None:
    with pytest.raises(DataError) as caught:
        parse_line("", "train.txt", 3)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # a round trip within the test
    assert (copy.what, copy.where, copy.got, copy.fix) == (
        caught.value.what,
        caught.value.where,
        caught.value.got,
        caught.value.fix,
    )


def test_all_broken_lines_are_collected_and_the_good_ones_kept() -> None:
    good, broken = parse_lines([LINE, "nonsense", LINE, LINE.replace("item1=2", "item1=1")], "train.txt")
    assert [record.line for record in good] == [1, 3]
    assert [error.where for error in broken] == [FileLine("train.txt", 2), FileLine("train.txt", 4)]


def test_selfplay_pairs_are_scenarios() -> None:
    scenarios, broken = parse_scenarios(["1 1 2 3 3 1", "1 4 2 0 3 2", "1 4 2 0 3 2", "1 1 2 3 3 1"], "selfplay.txt")
    assert scenarios == [SCENARIO, SCENARIO.swapped()]
    assert not broken


@pytest.mark.parametrize(
    ("lines", "line", "rule"),
    [
        (["1 1 2 3 3 1", "1 4 2 0 3 2", "1 4 2 0 3 2"], 3, "every scenario is a pair of lines"),
        (["1 1 2 3 3 1", "1 4 3 0 2 3"], 2, "do not describe one scenario"),
        (["1 1 2 3 3", "1 4 2 0 3 2"], 1, "a context is 6 numbers"),
        (["1 1 2 3 3 1", "", "1 1 2 3 3 1", "1 4 2 0 3 2"], 2, "a context is 6 numbers"),
        (["1 1 2 3 3 1", "1 4 2 0 3 1"], 2, "worth 10 in total"),
    ],
)
def test_a_broken_pair_is_an_error_with_its_line(lines: list[str], line: int, rule: str) -> None:
    scenarios, broken = parse_scenarios(lines, "selfplay.txt")
    assert len(scenarios) == (len(lines) - 1) // 2
    assert len(broken) == 1
    assert broken[0].where == FileLine("selfplay.txt", line)
    assert rule in broken[0].what


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\x0cb\n", ["a\x0cb"]),
        (b"\xff\n", ["\udcff"]),
    ],
)
def test_lines_are_what_an_editor_counts(content: bytes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes(content)
    assert read_lines(tmp_path / "file.txt") == lines
