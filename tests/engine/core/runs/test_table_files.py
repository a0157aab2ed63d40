"""Tables as files: the same values in every form, cells that no spreadsheet runs, whole or not at all."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

from parley.engine.core.runs.parts import ENDINGS, arrow_type, require_new, write_tables
from parley.envs.core.errors import ConfigError, RunError

SCHEMA = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("label", pa.bool_()),
        pa.field("turns", arrow_type([{"side": int, "words": str}])),
    ]
)
ROWS = [
    {"text": 'so "be" it,\nor not', "score": 0.1 + 0.2, "label": True, "turns": [{"side": 0, "words": "=1+1 ü"}]},
    {"text": "", "score": -1e-300, "label": None, "turns": []},
    {"text": None, "score": None, "label": False, "turns": None},
]


def table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_every_form_holds_the_same_values(tmp_path: Path) -> None:
    for ending in ENDINGS:
        written = write_tables(tmp_path / f"new/rows{ending}", SCHEMA, [table(ROWS[:2]), table([]), table(ROWS[2:])])
        assert written == (3, 0), ending
    folder = tmp_path / "new"
    assert pq.read_table(folder / "rows.parquet").equals(table(ROWS))
    assert [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()] == ROWS
    read = pv.read_csv(
        folder / "rows.csv",
        parse_options=pv.ParseOptions(newlines_in_values=True),
        convert_options=pv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
    ).to_pylist()
    for row in read:
        row["turns"] = row["turns"] and json.loads(row["turns"])
    assert read == ROWS
    assert sorted(path.name for path in folder.iterdir()) == ["rows.csv", "rows.jsonl", "rows.parquet"]


def test_numbers_that_are_none_are_null_in_json_lines(tmp_path: Path) -> None:
    write_tables(tmp_path / "rows.jsonl", SCHEMA, [table([ROWS[0] | {"score": math.nan}])])
    assert json.loads((tmp_path / "rows.jsonl").read_text())["score"] is None


def test_cells_of_csv_that_begin_as_formulas_do_have_an_apostrophe_in_front(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "- yes", "@you", " =1", "\t=1", "'s fine", "a=1", "1-1", ""]
    rows = [{"text": text, "score": -1.5, "label": True, "turns": []} for text in texts]
    assert write_tables(tmp_path / "rows.csv", SCHEMA, [table(rows), table(rows)]) == (20, 14)
    with (tmp_path / "rows.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["text"] for row in found[:10]] == [*(f"'{text}" for text in texts[:7]), *texts[7:]]
    assert [row["text"].removeprefix("'") for row in found[10:]] == texts
    assert {row["score"] for row in found} == {"-1.5"}, "numbers stay numbers"
    for ending in (".parquet", ".jsonl"):
        assert write_tables(tmp_path / f"rows{ending}", SCHEMA, [table(rows)]).num_guarded == 0
    assert pq.read_table(tmp_path / "rows.parquet")["text"].to_pylist() == texts


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    def broken() -> Iterator[pa.Table]:
        yield table(ROWS)
        raise RunError("a part of the run is damaged")

    with pytest.raises(RunError, match="a part of the run is damaged"):
        write_tables(tmp_path / f"rows{ending}", SCHEMA, broken())
    assert not list(tmp_path.iterdir())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"the table cannot be written(.|\n)*No space left(.|\n)*make room"):
        write_tables(tmp_path / f"rows{ending}", SCHEMA, [table(ROWS)])
    assert not list(tmp_path.iterdir())


def test_other_endings_and_files_that_are_there_are_refused(tmp_path: Path) -> None:
    for name, told in (("rows.xlsx", "a file of that kind"), ("rows", "no ending"), ("rows.jsnl", "did you mean '.jsonl'")):
        with pytest.raises(ConfigError, match=told):
            require_new(tmp_path / name)
    require_new(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").touch()
    with pytest.raises(ConfigError, match="the file is there already"):
        require_new(tmp_path / "rows.csv")
