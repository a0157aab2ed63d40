"""Run folders: starting, going on, and everything that may be wrong with one."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.engine.core.runs import parts
from parley.engine.core.runs.parts import BASE, Outcomes, count_part, error_row, read_part
from parley.engine.core.runs.run_folder import RunFolder, seconds_of
from parley.engine.core.stats.statistics import Estimate, rate
from parley.engine.negotiation.verbs.match import DIALOGUES
from parley.envs.core.config import fingerprint
from parley.envs.core.errors import RunError
from tests.engine.core.runs.rows import SmallConfig, row, rows

CONFIG = SmallConfig()


def start(path: Path, config: SmallConfig = CONFIG, **options: object) -> RunFolder:
    return RunFolder.open(path, config, job="attack", **({"schema": DIALOGUES} | options))  # type: ignore[arg-type]


def begin(path: Path, **options: object) -> None:
    """Make a run that has done something; one that has done nothing may become another one."""
    with start(path, **options) as run:
        run.event("first row")


def part(run: RunFolder, name: str) -> Path:
    return run.path / "rows" / f"part-{name}.parquet"


def test_a_new_run_says_what_was_asked_and_where(tmp_path: Path) -> None:
    with start(tmp_path / "runs" / "new") as run:
        config = json.loads((run.path / "config.json").read_text())
        environment = json.loads((run.path / "environment.json").read_text())
    assert config["job"] == "attack"
    assert config["config"] == {"num_items": 8, "temperature": 0.5, "num_workers": 0}
    assert config["fingerprint"] == fingerprint(CONFIG)
    assert environment["packages"]["pyarrow"] == pa.__version__
    assert {"python", "platform", "git_commit", "device", "cpus", "threads"} <= set(environment)
    assert [event["kind"] for event in RunFolder.load(run.path).events()] == ["started"]


def test_rows_come_back_in_the_order_of_part_names(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00001", rows(["c", "d"]))
        run.write_shard("00000", rows(["a", "b"]))
        table = run.read_rows()
    assert table.schema.equals(DIALOGUES)
    assert table["item_key"].to_pylist() == ["a", "b", "c", "d"]
    assert table["turns"].to_pylist()[2] == [{"side": 0, "words": "i am c"}]
    assert RunFolder.load(run.path).read_rows().equals(table)


def test_a_run_without_rows_reads_as_an_empty_table(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        assert run.read_rows().equals(DIALOGUES.empty_table())


def test_going_on_skips_what_is_done(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a", "b"]))
    with start(tmp_path / "run") as run:
        assert run.done_keys() == {"a", "b"}
        assert run.num_done == 2
        assert run.is_done("00000", ["a", "b"])
        assert not run.is_done("00001", ["c"])
        assert [event["kind"] for event in run.events()] == ["started", "shard", "resumed"]


def test_failed_items_are_not_done_and_their_part_is_replaced(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", [row("a"), error_row("b", 7, "it broke")])
        assert run.done_keys() == {"a"}
        assert run.num_done == 1
        assert not run.is_done("00000", ["a", "b"])
    with start(tmp_path / "run") as run:
        assert not run.is_done("00000", ["a", "b"])
        run.write_shard("00000", rows(["a", "b"]))
        assert run.is_done("00000", ["a", "b"])
        assert run.read_rows()["item_key"].to_pylist() == ["a", "b"]


def test_outcomes_are_counted_without_reading_parts_in_which_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a", "b"]))
        run.write_shard("00001", [row("c"), error_row("d", 7, "it broke")])
        run.write_shard("00002", rows(["e"]))
        run.write_shard("00003", rows(["f", "g"]))
    part(run, "00002").write_bytes(part(run, "00003").read_bytes())
    part(run, "00003").write_bytes(b"garbage")
    opened: list[str] = []

    def look(path: Path) -> Outcomes:
        opened.append(path.name)
        return count_part(path)

    monkeypatch.setattr(parts, "count_part", look)
    assert RunFolder.load(run.path).outcomes() == Outcomes(done=5, errors=Counter({"it broke": 1}), damaged=1)
    assert opened == [f"part-{number:05d}.parquet" for number in (1, 2, 3)]


def test_error_rows_keep_reason_and_seed(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", [error_row("b", 2**63 - 1, "it broke")])
        (only,) = run.read_rows().to_pylist()
    assert (only["status"], only["error"], only["seed"], only["counts"]) == ("error", "it broke", 2**63 - 1, None)


def test_a_changed_configuration_is_an_error_that_shows_the_difference(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    with pytest.raises(RunError, match=r"temperature: 0\.5 -> 0\.9"):
        start(tmp_path / "run", replace(CONFIG, temperature=0.9))


def test_what_does_not_change_rows_may_change(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    with pytest.raises(RunError, match="num_workers: 0 -> 2"):
        start(tmp_path / "run", replace(CONFIG, num_workers=2))
    start(tmp_path / "run", replace(CONFIG, num_workers=2), resume_safe=["num_workers"]).close()


def test_a_run_that_has_done_nothing_becomes_another_one(tmp_path: Path) -> None:
    start(tmp_path / "run").close()
    (tmp_path / "run" / "answers").mkdir()
    (tmp_path / "run" / "answers" / "answers.jsonl").touch()
    start(tmp_path / "run", replace(CONFIG, temperature=0.9)).close()
    assert RunFolder.load(tmp_path / "run").config["temperature"] == 0.9
    (tmp_path / "run" / "answers" / "answers.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match="temperature"):
        start(tmp_path / "run")


def test_other_weights_are_an_error_that_names_the_model(tmp_path: Path) -> None:
    begin(tmp_path / "run", weights={"model": "aaa", "lm": "bbb"})
    with pytest.raises(RunError, match=r"other weights(.|\n)*got:   lm: bbb -> ccc") as caught:
        start(tmp_path / "run", weights={"model": "aaa", "lm": "ccc"})
    assert "put back what was there" in str(caught.value)
    with start(tmp_path / "run", weights={"model": "aaa", "lm": "bbb"}) as run:
        assert [event["kind"] for event in run.events()] == ["started", "first row", "resumed"]
    assert RunFolder.load(tmp_path / "run").weights == {"model": "aaa", "lm": "bbb"}


def test_a_run_whose_every_item_failed_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run"
    with start(path, weights={"model": "aaa"}) as run:
        run.write_shard("00000", [error_row("a", 1, "broken"), error_row("b", 1, "broken")])
    (path / "answers").mkdir()
    (path / "answers" / "answers.jsonl").write_text("{}\n")
    with start(path, weights={"model": "aaa"}) as run:
        assert run.outcomes().failed, "nothing has changed: it goes on"
    with caplog.at_level(logging.WARNING), start(path, weights={"model": "bbb"}) as run:
        assert "it begins anew (model: aaa -> bbb)" in caplog.text
        assert [event["kind"] for event in run.events()] == ["started", "shard", "resumed", "started"]
        kept = {"answers", "config.json", "environment.json", "events.jsonl", "lock", "rows"}
        assert {file.name for file in path.iterdir()} == kept, "answers may have been paid"
        run.write_shard("00000", [error_row("a", 1, "broken"), row("b")])
    with pytest.raises(RunError, match="model: bbb -> ccc"):
        start(path, weights={"model": "ccc"})
    with start(tmp_path / "staged", weights={"model": "aaa"}) as run:
        run.write_shard("00000", [error_row("stage", 1, "broken")])
    begin(tmp_path / "staged" / "stage")
    with pytest.raises(RunError, match="model: aaa -> bbb"):
        start(tmp_path / "staged", weights={"model": "bbb"})
    begin(tmp_path / "damaged", weights={"model": "aaa"})
    part(RunFolder.load(tmp_path / "damaged"), "00000").write_bytes(b"no part")
    with pytest.raises(RunError, match="model: aaa -> bbb"):
        start(tmp_path / "damaged", weights={"model": "bbb"})


def test_a_run_of_a_version_that_noted_no_weights_goes_on(tmp_path: Path) -> None:
    begin(tmp_path / "run", weights={"model": "aaa"})
    head = json.loads((tmp_path / "run" / "config.json").read_text())
    del head["weights"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(head))
    start(tmp_path / "run", weights={"model": "bbb"}).close()


def test_another_job_is_an_error(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    with pytest.raises(RunError, match="attack, not train"):
        RunFolder.open(tmp_path / "run", CONFIG, job="train")


def test_rows_of_another_version_are_an_error(tmp_path: Path) -> None:
    begin(tmp_path / "run", schema=BASE)
    with pytest.raises(RunError, match=r"other columns(.|\n)*points_target: '\(absent\)' -> 'int64'"):
        start(tmp_path / "run")


def test_another_cut_of_the_work_is_an_error(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a", "b"]))
        with pytest.raises(RunError, match="other items"):
            run.is_done("00000", ["a"])


@pytest.mark.parametrize("name", ["thesis.tex", ".hidden", "summary.json"])
def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunError, match="not a run"):
        start(tmp_path)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [(name, "mine")]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(RunError, match="this is a file"):
        start(tmp_path / "run")


def test_a_run_killed_at_its_birth_may_be_started_again(tmp_path: Path) -> None:
    start(tmp_path / "run").close()
    (tmp_path / "run" / "config.json").rename(tmp_path / "run" / "config.json.writing")
    start(tmp_path / "run").close()
    assert RunFolder.load(tmp_path / "run").job == "attack"


@pytest.mark.parametrize("text", ['{"format": "something else"}', "[1]", "{", ""])
def test_a_foreign_config_is_an_error_and_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    for opened in (start, RunFolder.load):
        with pytest.raises(RunError):
            opened(tmp_path)
    assert (tmp_path / "config.json").read_text() == text


def test_loading_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run here"):
        RunFolder.load(tmp_path / "nowhere")


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"garbage" * 100])
def test_a_corrupt_part_is_moved_aside_and_done_again(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a", "b"]))
        run.write_shard("00001", rows(["c"]))
    part(run, "00000").write_bytes(damage)
    with pytest.raises(RunError, match="parley resume"):
        RunFolder.load(run.path).read_rows()
    with caplog.at_level(logging.WARNING), start(tmp_path / "run") as again:
        assert not again.is_done("00000", ["a", "b"])
        assert again.is_done("00001", ["c"])
        assert again.events()[-1]["damaged"] == ["00000"]
        assert again.read_rows()["item_key"].to_pylist() == ["c"]
    assert "moved to part-00000.parquet.corrupt" in caplog.text
    assert (run.path / "rows" / "part-00000.parquet.corrupt").read_bytes() == damage


@pytest.fixture(scope="module")
def sound_part(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, pa.Table, Path]:
    with start(tmp_path_factory.mktemp("sound") / "run") as run:
        run.write_shard("00000", rows(f"item {i:03d}" for i in range(40)))
        return part(run, "00000").read_bytes(), run.read_rows(), tmp_path_factory.mktemp("flipped") / "part.parquet"


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_a_flipped_bit_never_changes_rows_unseen(sound_part: tuple[bytes, pa.Table, Path], place: float, bit: int) -> None:
    content, table, path = sound_part
    flipped = bytearray(content)
    flipped[int(place * len(content))] ^= 1 << bit
    path.write_bytes(flipped)
    found = read_part(path)
    assert found is None or not found.schema.equals(table.schema) or found.equals(table)


def test_leftovers_of_a_killed_writer_are_cleared(tmp_path: Path) -> None:
    start(tmp_path / "run").close()
    leftover = tmp_path / "run" / "rows" / "part-00000.parquet.writing"
    leftover.write_bytes(b"half")
    with start(tmp_path / "run") as run:
        assert run.done_keys() == frozenset()
    assert not leftover.exists()


@pytest.mark.parametrize("begun", [True, False])
def test_checkpoints_and_first_files_that_a_dead_process_left_are_cleared(tmp_path: Path, begun: bool) -> None:
    """A process that dies before there is a run leaves files, too."""
    run = tmp_path / "run"
    if begun:
        start(run).close()
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    names = (".checkpoint.{}.partial", ".checkpoint.{}.old", ".training.safetensors.{}.partial", "policies/.0001.{}.partial")
    left = [run / name.format(dead.pid) for name in names if begun]
    alive = [run / name.format(os.getpid()) for name in names[:2] if begun]
    for path in (*left, *alive):
        path.mkdir(parents=True)
        (path / "weights.safetensors").write_bytes(b"half")
    run.mkdir(exist_ok=True)
    aside = run / f"config.{dead.pid}-0123abcd-0123abcd.json.writing"
    aside.write_bytes(b"half")
    os.utime(aside, (0, 0))
    start(run).close()
    assert [path for path in (*left, aside) if path.exists()] == []
    assert all(path.exists() for path in alive)


def test_an_event_may_tell_of_text_with_line_ends_of_all_kinds(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.event("said", words="a\u2028b\x85c\x1dd\ne")
        assert run.events()[-1]["words"] == "a\u2028b\x85c\x1dd\ne"


def test_a_line_cut_short_by_a_crash_costs_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start(tmp_path / "run").close()
    with (tmp_path / "run" / "events.jsonl").open("a") as log:
        log.write('{"time": "2026-01-01", "ki')
    with start(tmp_path / "run") as run:
        run.event("epoch", loss=np.float32(0.5), bad=math.nan, where=Path("x"), counts=np.arange(2))
        found = run.events()
    assert [event["kind"] for event in found] == ["started", "resumed", "epoch"]
    assert found[-1].items() >= {"loss": 0.5, "bad": None, "where": "x", "counts": [0, 1]}.items()
    assert "1 line cannot be read and left out" in caplog.text


def test_summary_holds_metrics_and_more(tmp_path: Path) -> None:
    metrics = {"agreement": rate(3, 4), "advantage": Estimate(math.nan, math.nan, math.nan, 0)}
    with start(tmp_path / "run") as run:
        assert run.summary() is None
        written = run.write_summary(metrics, {"target": "sv", "loss": math.inf})
        assert run.summary() == written
    assert set(written) == {"metrics", "run", "target", "loss"}
    assert written["run"] == str(run.path)
    assert written["metrics"]["advantage"] == {"value": None, "low": None, "high": None, "n": 0}
    assert Estimate.from_json(written["metrics"]["agreement"]) == rate(3, 4)
    assert written["loss"] is None


@pytest.mark.parametrize(
    "wrong",
    [[row("a"), row("a")], [row("a", colour="red")], [{"item_key": "a", "status": "ok"}]],
    ids=["two rows for one item", "unknown column", "no seed"],
)
def test_rows_that_break_the_schema_are_refused(tmp_path: Path, wrong: list[dict[str, object]]) -> None:
    with start(tmp_path / "run") as run:
        with pytest.raises(AssertionError):
            run.write_shard("00000", wrong)
        assert run.read_rows().num_rows == 0


def test_a_loaded_run_cannot_be_written(tmp_path: Path) -> None:
    start(tmp_path / "run").close()
    with pytest.raises(AssertionError, match="loaded"):
        RunFolder.load(tmp_path / "run").event("epoch")


def test_nothing_on_disk_is_a_pickle(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows(["a"]))
        run.write_summary({})
    names = {entry.name for entry in run.path.rglob("*") if entry.is_file()}
    assert names == {"config.json", "environment.json", "events.jsonl", "lock", "part-00000.parquet", "summary.json"}


def test_a_run_takes_the_seconds_of_its_sessions() -> None:
    told = (("started", 0.0), ("shard", 2.5), ("resumed", 900.0), ("work", 901.0), ("summary", 904.0))
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    events = [{"kind": kind, "time": (begun + timedelta(seconds=at)).isoformat()} for kind, at in told]
    assert seconds_of(events) == pytest.approx(2.5 + 4.0)
    assert seconds_of([]) == seconds_of(events[:1]) == 0
