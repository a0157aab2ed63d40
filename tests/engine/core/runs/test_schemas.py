"""Rows of attacks go to disk and come back."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from parley.engine.core.runs import parts
from parley.engine.core.runs.parts import BASE, SCHEMA_VERSION, error_row, ok_row, row_schema, to_table
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.negotiation.verbs.match import ATTACKS, DIALOGUES
from parley.envs.core.errors import RunError
from tests.engine.core.runs.rows import SmallConfig
from tests.engine.negotiation.metrics.attacks import attacked, attempt


def test_rows_of_attacks_come_back_as_they_were(tmp_path: Path) -> None:
    unscored = attempt(kind="transfer", end_probability=None, nll=None, nll_base=None, lowest_probability=None, steps=[])
    base = {"error": None, "seed": 7, "schema_version": SCHEMA_VERSION}
    row = attacked((4, 6), (8, 2), (attempt(), unscored)) | base
    with RunFolder.open(tmp_path, SmallConfig(), job="attack", schema=ATTACKS) as run:
        run.write_shard("00000", [row, attacked((5, 5), item_key="d1") | base, error_row("d2", 3, "it broke")])
    first, second, failed = RunFolder.load(tmp_path).read_rows().to_pylist()
    assert {name: first[name] for name in row} == row
    assert second["attempts"] == []
    assert failed["attempts"] is None
    with RunFolder.open(tmp_path, SmallConfig(), job="attack", schema=ATTACKS) as run:
        assert run.done_keys() == {"d0", "d1"}, "types come back unchanged, so that the part still counts"


HALVES: list[tuple[Any, Any]] = [
    (pa.int64(), 3.5),
    (pa.int8(), np.float32(-0.5)),
    (pa.int64(), math.nan),
    (pa.int64(), math.inf),
    ([int], [1, 2.5]),
    ([[pa.int32()]], [[1], None, [2.25]]),
    (pa.struct([("a", pa.string()), ("b", pa.int64())]), {"a": "x", "b": 1.5}),
    ([{"b": [pa.uint8()]}], [{"b": [1]}, {"b": [0.1]}]),
]


def test_columns_are_named_with_the_types_of_python() -> None:
    schema = row_schema({"before after": str, "edits": [{"place": int, "score": float}]})
    edit = pa.struct([("place", pa.int64()), ("score", pa.float64())])
    edits = pa.list_(pa.field("element", edit))
    assert schema == pa.schema([*BASE, ("before", pa.string()), ("after", pa.string()), ("edits", edits)])
    assert row_schema({"right": bool}, schema).names == [*schema.names, "right"]


@pytest.mark.parametrize(("kind", "value"), HALVES)
def test_a_column_of_whole_numbers_takes_no_other(tmp_path: Path, kind: Any, value: Any) -> None:
    schema = row_schema({"number": kind})
    with RunFolder.open(tmp_path, SmallConfig(), job="attack", schema=schema) as run:
        with pytest.raises(RunError, match=r"the column number holds whole numbers, and this is none"):
            run.write_shard("00000", [ok_row("a", 1) | {"number": value}])
        assert not list(run.path.glob("rows/*"))


@pytest.mark.parametrize("value", [2, np.int64(2), 2.0, np.float32(2.0), None])
def test_whole_numbers_of_any_kind_are_taken(value: Any) -> None:
    schema = row_schema({"number": int, "share": float})
    (row,) = to_table([ok_row("a", 1) | {"number": value, "share": 2.5}], schema).to_pylist()
    assert (row["number"], row["share"]) == (None if value is None else 2, 2.5)


def test_an_attack_is_a_dialogue_and_more() -> None:
    assert ATTACKS.names[: len(DIALOGUES.names)] == DIALOGUES.names
    assert all(ATTACKS.field(name).equals(DIALOGUES.field(name)) for name in DIALOGUES.names)


def test_a_small_part_is_decoded_once_until_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, path, decoded = row_schema({"number": int}), tmp_path / "part-00000.parquet", []
    plain = parts.pq.ParquetFile
    monkeypatch.setattr(parts.pq, "ParquetFile", lambda *args, **options: decoded.append(1) or plain(*args, **options))

    def numbers(times: int) -> list[list[int]]:
        tables = [parts.read_part(path) for _ in range(times)]
        return [table["number"].to_pylist() for table in tables if table is not None]

    parts.write_part(path, to_table([ok_row("a", 1) | {"number": 3}], schema))
    assert numbers(2) == [[3], [3]]
    assert len(decoded) == 2, "a file that was written just now may change again under the same time"
    os.utime(path, (1e9, 1e9))
    assert numbers(3) == [[3]] * 3
    assert len(decoded) == 3
    parts.write_part(path, to_table([ok_row("a", 1) | {"number": 4}], schema))
    os.utime(path, (1e9, 1e9))
    assert numbers(2) == [[4], [4]]
    content = path.read_bytes()
    path.write_bytes(content[:-8] + bytes(8))
    os.utime(path, (2e9 - 1, 1e9 + 1))
    assert numbers(2) == [], "a damaged part has no rows"
