"""Flat files of runs: what becomes of lists, of rows that failed, and of runs that hold nothing or something else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import read_table

from parley.engine.core.runs.parts import BASE, error_row, ok_row, row_schema
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import clustered_rate, count
from parley.engine.core.verbs.catalogue import ENTRIES
from parley.engine.core.verbs.export import each_of, metrics_table, write_flat
from parley.engine.core.verbs.job import Silent
from parley.engine.perturb.verbs.config import AUDIT
from parley.engine.triggers.verbs.config import UNIVERSAL
from parley.envs.core.errors import RunError

BRANCHES = row_schema({"inputs": int, "finds": [{"input": str}]})


@dataclass(frozen=True)
class Config:
    """Nothing to set."""


def stored(path: Path, job: str, schema: pa.Schema, **shards: list[dict[str, object]]) -> str:
    """A run of a job with those rows; its folder."""
    with RunFolder.open(path, Config(), job=job, schema=schema) as run:
        for name, rows in shards.items():
            run.write_shard(name, rows)
    return str(path)


def test_each_entry_of_a_list_is_a_line_and_an_empty_list_is_one() -> None:
    schema = row_schema({"kind": str, "pairs": [{"hit": bool}]})
    flat = each_of(schema, "pairs")
    assert flat.schema.names == [*BASE.names, "kind", "hit"]
    row = ok_row("a", 7) | {"kind": "found", "pairs": [{"hit": True}, {"hit": False}]}
    base = ok_row("a", 7) | {"kind": "found"}
    assert list(flat.lines(row)) == [base | {"hit": True}, base | {"hit": False}]
    assert list(flat.lines(row | {"pairs": []})) == [base]


def test_lists_of_audits_and_universal_searches_have_no_column_of_their_rows() -> None:
    for schema, column, renamed in ((AUDIT, "touched", {}), (UNIVERSAL, "pairs", {"kind": "reply_kind"})):
        names = each_of(schema, column, renamed).schema.names
        assert len(names) == len(set(names)) > len(schema.names)


def test_flat_columns_of_every_job_begin_with_those_of_every_row(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", Config(), job="none").close()
    jobs = [entry.load() for entry in ENTRIES if entry.words != ("evaluate", "adversarial")]
    found = {job.name: flat for job in jobs if (flat := job.flat(RunFolder.load(tmp_path / "run"))) is not None}
    assert {"evaluate-ranking", "attack-ranking", "evaluate-robustness"} <= found.keys()
    for name, flat in found.items():
        assert flat.schema.names[: len(BASE)] == BASE.names, name
        assert len(set(flat.schema.names)) == len(flat.schema), name


def test_rows_of_a_job_that_says_nothing_of_its_own_stay_as_they_are(tmp_path: Path) -> None:
    good = ok_row("a", 1) | {"inputs": 3, "finds": [{"input": "hello"}]}
    run = stored(tmp_path / "run", "search-enumerate", BRANCHES, b=[error_row("c", 3, "out of memory")], a=[good])
    written = write_flat(run, str(tmp_path / "rows.parquet"), Silent())
    assert read_table(tmp_path / "rows.parquet").equals(RunFolder.load(tmp_path / "run").read_rows())
    assert (written.num_rows, written.num_lines, written.num_failed) == (2, 2, 1)
    write_flat(run, str(tmp_path / "rows.csv"), Silent())
    assert '"[{""input"": ""hello""}]"' in (tmp_path / "rows.csv").read_text()


def test_runs_without_rows_say_what_to_do(tmp_path: Path) -> None:
    for job, told in (("train-negotiator", "name an evaluation"), ("search", "parley resume .* makes some")):
        with pytest.raises(RunError, match=f"the run holds no rows(.|\n)*a run of {job}(.|\n)*{told}"):
            write_flat(stored(tmp_path / job, job, BASE), str(tmp_path / "rows.csv"), Silent())
    stored(tmp_path / "train-negotiator" / "match" / "again", "selfplay", BASE, a=[ok_row("a", 1)])
    with pytest.raises(RunError, match=r"the runs below it that do: .*/train-negotiator/match/again$"):
        write_flat(str(tmp_path / "train-negotiator"), str(tmp_path / "rows.csv"), Silent())
    with pytest.raises(RunError, match="there is no run here"):
        write_flat(str(tmp_path / "nothing"), str(tmp_path / "rows.csv"), Silent())
    assert not (tmp_path / "rows.csv").exists()


def test_rows_of_another_version_and_damaged_parts_are_told_of_and_leave_no_file(tmp_path: Path) -> None:
    old = stored(tmp_path / "old", "evaluate-ranking", BRANCHES, a=[ok_row("a", 1)])
    with pytest.raises(RunError, match=r"other columns than are known(.|\n)*the version of Parley that made the run"):
        write_flat(old, str(tmp_path / "rows.csv"), Silent())
    damaged = stored(tmp_path / "damaged", "search-enumerate", BRANCHES, a=[ok_row("a", 1)], b=[ok_row("b", 1)])
    (tmp_path / "damaged/rows/part-b.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunError, match=r"a part of the run is damaged(.|\n)*parley resume"):
        write_flat(damaged, str(tmp_path / "rows.csv"), Silent())
    assert not list(tmp_path.glob("rows*"))


def test_counts_stand_in_a_table_without_decimals() -> None:
    table = metrics_table({"distinct": count(1200, 3000), "share": count(0.5, 4), "hits": clustered_rate([0, 1])}, {})
    assert [row[2] for row in table.rows] == ["1,200", "0.50", "0.50 [0.09, 0.91]"]
