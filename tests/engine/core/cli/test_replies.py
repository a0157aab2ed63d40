"""`parley perturb RULE --context FILE`: candidate replies before and after rules."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.core.cli.conftest import Parley

BUILT_IN = "--set perturb.lexicon=built-in"
ROWS = """1\thow do i start the old machine ?\twhich disk is it\tWe buy a big house, and it begins quickly
0\thow do i start the old machine ?\twhich disk is it\tyou can open the file on a new disk
0\tthe disk is full\ti install the packages on the system
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "rows.tsv").write_text(ROWS)
    return tmp_path / "rows.tsv"


def test_replies_stand_before_and_after_below_their_context(parley: Parley, rows: Path) -> None:
    outcome = parley(f"perturb iiw,rsw --set replies.rule=careful --context {rows} {BUILT_IN}")
    assert outcome.status == 0
    assert [" ".join(line.split()) for line in outcome.out.splitlines()] == [
        "1 context how do i start the old machine ? <eot> which disk is it",
        "1 rsw - we buy a [big] house , and it [begins] quickly",
        "+ we buy a [large] house , and it [starts] quickly",
        "2 iiw - you can [open] the [file] on a new disk",
        "+ you can [start] the [machine] on a new disk",
        "3 context the disk is full",
        "3 iiw - i install the packages on the [system]",
        "+ i install the packages on the [disk]",
    ]
    table = [line.split() for line in outcome.err.splitlines()]
    assert ["iiw", "negatives", "2", "2", "0"] in table
    assert ["rsw", "positives", "1", "1", "0"] in table
    assert "weighs words by the contexts of" in outcome.err


def test_json_has_one_object_for_each_reply_that_a_rule_is_for(parley: Parley, rows: Path) -> None:
    outcome = parley(f"perturb all --json --seed 3 --context {rows} {BUILT_IN}")
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(record["line"], record["rule"]) for record in found] == [
        *((1, name) for name in ("rsw", "sow", "rlw-half", "rlw-1", "rnpv", "ngr")),
        (2, "iiw"),
        (3, "iiw"),
    ]
    assert found[-1] == {
        "line": 3,
        "rule": "iiw",
        "label": 0,
        "before": "i install the packages on the system",
        "after": "i install the packages on the disk",
        "changed": 1,
        "untouched": False,
    }
    assert all((record["before"] == record["after"]) is record["untouched"] for record in found)


def test_a_group_becomes_the_same_wherever_it_stands(parley: Parley, rows: Path) -> None:
    last = rows.with_name("last.tsv")
    last.write_text("".join(reversed(ROWS.splitlines(keepends=True)[2:])) + "".join(ROWS.splitlines(keepends=True)[:2]))
    found = []
    for path in (rows, last):
        out = parley(f"perturb sow,rlw-1 --json --context {path} {BUILT_IN}").out
        found.append({record["rule"]: record["after"] for record in map(json.loads, out.splitlines())})
    assert found[0] == found[1]


def test_settings_of_rules_are_set_and_listed(parley: Parley, rows: Path) -> None:
    command = f"perturb ngr --json --context {rows} {BUILT_IN} --set replies.generic=ok"
    (found,) = [json.loads(line) for line in parley(command).out.splitlines()]
    assert found["after"] == "ok"
    assert "replies.generic" in parley("settings perturb").err
    assert {"iiw", "copy-3", "typos"} <= set(json.loads(parley("list --json").out)["rules"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("2\ta\tb\n", "a label is 0 or 1"),
        ("1\ta\tb\n1\tonly\n", "rows.tsv:2"),
        ("1\ta\t\n", "a response has a word"),
        ("1\ta\t\udcff\n", "UTF-8"),
    ],
)
def test_a_broken_line_is_named(parley: Parley, rows: Path, content: str, said: str) -> None:
    rows.write_bytes(content.encode("utf-8", "surrogateescape"))
    outcome = parley(f"perturb sow --context {rows}")
    assert (outcome.status, outcome.out) == (2, "")
    assert said in outcome.err
    assert "rows.tsv:" in outcome.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("perturb iiv --context ROWS", "did you mean 'iiw'"),
        ("perturb antonym --context ROWS", "no reply rule is called 'antonym'"),
        ("perturb iiw", "--context FILE"),
        ("perturb iiw --context ROWS --input ROWS", "leave one of them out"),
        ("perturb iiw --context nowhere.tsv", "nowhere.tsv"),
        ("perturb iiw --context ROWS --set replies.num_important=0", "at least 1"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(parley: Parley, rows: Path, command: str, said: str) -> None:
    outcome = parley(command.replace("ROWS", str(rows)))
    assert (outcome.status, outcome.out) == (2, "")
    assert said in outcome.err


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_records_are_candidates_as_lines_are(parley: Parley, rows: Path, kind: str) -> None:
    fields = [line.split("\t") for line in ROWS.splitlines()]
    # A cell of CSV is one turn.
    fields = [[label, turn, reply] for label, turn, *_, reply in fields] if kind == "csv" else fields
    rows.write_text("".join("\t".join(line) + "\n" for line in fields))
    said = parley(f"perturb iiw --json --context {rows} {BUILT_IN}").out
    objects = [{"label": label, "context": context, "answer": reply} for label, *context, reply in fields]
    path = rows.parent / f"rows.{kind}"
    if kind == "csv":
        flat = [{**entry, "context": entry["context"][0]} for entry in objects]
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(flat[0]))
            writer.writeheader()
            writer.writerows(flat)
    elif kind == "jsonl":
        path.write_text("".join(f"{json.dumps(entry)}\n" for entry in objects))
    else:
        parquet.write_table(pa.Table.from_pylist(objects), path)
    outcome = parley(f"perturb iiw --json --context {path} {BUILT_IN}")
    assert outcome.status == 0
    read, wanted = ([json.loads(line) for line in text.splitlines()] for text in (outcome.out, said))
    assert len(read) == len(wanted) == 2
    assert [entry["after"] for entry in read] == [entry["after"] for entry in wanted]
    assert [entry["line"] for entry in read] == [2 + (kind == "csv"), 3 + (kind == "csv")]


def test_records_without_labels_and_broken_ones_are_told(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for content, said in (
        ("context,reply\na,b\n", "a column of labels"),
        ("context,reply,label\na,b,1\na,c,2\n", "a label is 0 or 1"),
        ("context,reply,label\na,b,1\na,c\n", "does not fit the header"),
        ("one,two,three\na,b,1\n", "a.csv#context="),
    ):
        path.write_text(content)
        outcome = parley(f"perturb sow --context {path}")
        assert (outcome.status, outcome.out) == (2, "")
        assert said in "".join(outcome.err.split("\n")), content


def test_a_file_without_lines_has_no_replies(parley: Parley, rows: Path) -> None:
    rows.write_text("")
    outcome = parley(f"perturb all --context {rows} {BUILT_IN}")
    assert (outcome.status, outcome.out) == (0, "")
