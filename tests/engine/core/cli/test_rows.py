"""`parley rows`, as it is typed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from parley.engine.core.runs import remote_sync as remote_lock
from parley.envs.corpora.arrow import CACHE_VARIABLE
from tests.engine.core.cli.conftest import Parley


def test_a_run_becomes_a_file_and_is_told_of(parley: Parley) -> None:
    parley("evaluate ranking --limit 6 --lexicon built-in --rules iiw --set num_erased=0 --no-controls")
    written = parley("rows runs/ranking new/ranking.csv")
    assert (written.status, written.out) == (0, ""), written.err
    assert all(told in written.err for told in ("runs/ranking: evaluate-ranking", "240, of 6 rows", "num_changed, score, rank"))
    assert "files:\n  new/ranking.csv\n" in written.err
    assert "next:" not in written.err
    with Path("new/ranking.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6 * 10 * 2 * 2
    told = json.loads(parley("rows runs/ranking ranking.jsonl --json").out)
    assert (told["file"], told["num_lines"], told["finished"], told["columns"]) == ("ranking.jsonl", 240, True, [*lines[0]])


def test_a_run_that_is_not_finished_names_the_command_that_goes_on(parley: Parley) -> None:
    parley("selfplay scripted --dialogues 3")
    Path("runs/selfplay/summary.json").unlink()
    written = parley("rows runs/selfplay dialogues.csv")
    assert "these are the rows that it has so far" in written.err
    assert "next:\n  parley resume runs/selfplay" in written.err


def test_texts_that_begin_as_formulas_do_are_counted(parley: Parley) -> None:
    Path("mine.tsv").write_text("".join(f"1\thello {n}\t= {n}\n0\thello {n}\tno {n}\n" for n in range(40)))
    parley("evaluate ranking --corpus mine.tsv --rules none --model longest --lexicon built-in --no-controls")
    written = parley("rows runs/ranking ranking.csv")
    assert "texts begin as a formula does" in written.err, written.err
    assert "\"'= " in Path("ranking.csv").read_text()
    assert "formula" not in parley("rows runs/ranking ranking.parquet").err


def test_mistakes_say_what_to_do_and_leave_no_file(parley: Parley) -> None:
    parley("selfplay scripted --dialogues 3")
    Path("there.csv").write_text("mine")
    for command, told in (
        ("rows runs/nothing rows.csv", "there is no run here"),
        ("rows runs rows.csv", "there is no run here"),
        ("rows runs/selfplay rows.xlsx", "name a file that ends in .csv, .parquet, .jsonl"),
        ("rows runs/selfplay there.csv", "name another file, or delete this one"),
        ("rows runs/selfplay there.csv/rows.csv", "the table cannot be written"),
        ("rows runs/selfplay", "FILE"),
    ):
        outcome = parley(command)
        assert (outcome.status, told in outcome.err) == (2, True), outcome.err
    assert Path("there.csv").read_text() == "mine"
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "there.csv"]


def test_the_run_and_the_file_may_be_at_uris(parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lock, "SETTLE_S", 0.0)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    store = f"file://{tmp_path}/store"
    parley(f"selfplay scripted --dialogues 3 --run {store}/selfplay")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "other"))
    written = parley(f"rows {store}/selfplay {store}/tables/dialogues.csv")
    assert f"files:\n  {store}/tables/dialogues.csv" in written.err
    assert len((tmp_path / "store/tables/dialogues.csv").read_text().splitlines()) == 4
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "third"))
    assert "there is no run here" in parley(f"rows {store}/nothing {store}/tables/dialogues.csv").err
    assert "the file is there already" in parley(f"rows {store}/selfplay {store}/tables/dialogues.csv").err
