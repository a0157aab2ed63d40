"""How runs stand: written by another process, killed, finished, with failures, trained, and what is no run."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from parley.engine.core.page.page import collect_run
from parley.engine.core.ray.record import WORK, write_shards
from parley.engine.core.ray.worker import Shard, make_shards
from parley.engine.core.runs import run_folder as event_log
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import error_row
from parley.engine.core.runs.remote_sync import RunLock, holder_of
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import count, rate
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs import status as module
from parley.engine.core.verbs.job import TABLE_FILE, Job, Reporter, Silent, Summary
from parley.engine.core.verbs.status import FAILED, FINISHED, INTERRUPTED, RUNNING, Pace, run_status, statuses
from parley.engine.negotiation.attacks.settings import ReinforceConfig
from parley.engine.negotiation.verbs.match import DIALOGUES, SELFPLAY, MatchConfig
from parley.engine.negotiation.verbs.training import TrainReinforceConfig
from parley.envs.core.errors import RunError
from tests.engine.core.ray.workers import By
from tests.engine.core.runs.rows import SmallConfig, row, rows
from tests.engine.core.verbs.made_up import ROOT

BEGAN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Clock:
    """The event log's clock, which goes on when it is told to."""

    now_ = BEGAN
    fromisoformat = staticmethod(datetime.fromisoformat)

    def now(self, _zone: Any) -> datetime:
        return self.now_

    def later(self, seconds: float) -> datetime:
        self.now_ += timedelta(seconds=seconds)
        return self.now_


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(event_log, "datetime", found)
    return found


def start(path: Path) -> RunFolder:
    return RunFolder.open(path, SmallConfig(), job="selfplay", schema=DIALOGUES)


WRITER = """
import sys, time
from pathlib import Path
from tests.engine.core.verbs.test_status import start
from tests.engine.core.ray.workers import By
from tests.engine.core.runs.rows import rows
with start(Path(sys.argv[1])) as run:
    run.event("work", items=8, left=8, workers=2)
    run.write_shard("00000", rows(["a", "b"]))
    print("written", flush=True)
    time.sleep(60)
"""


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written two of eight items and goes on writing."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
        process.kill()


def test_a_run_is_running_until_its_process_is_killed(tmp_path: Path) -> None:
    with another_process(tmp_path / "run") as process:
        found = run_status(tmp_path / "run")
        assert found.state == RUNNING
        assert found.writer is not None
        assert found.writer.startswith(f"process {process.pid} on ")
        assert (found.job, found.pace.done, found.pace.total, found.workers) == ("selfplay", 2, 8, 2)
        assert found.last_event == "shard"
    found = run_status(tmp_path / "run")
    assert (found.state, found.writer, found.left_s) == (INTERRUPTED, None, None)
    assert (found.pace.done, found.pace.total) == (2, 8)


def test_rate_and_time_left_are_those_of_the_last_session(tmp_path: Path, clock: Clock) -> None:
    with start(tmp_path) as run:
        run.event(WORK, items=10, left=10, workers=0)
        clock.later(1)
        run.write_shard("00000", rows("ab"))
    clock.later(1000)
    with start(tmp_path) as run:
        run.event(WORK, items=10, left=8, workers=0)
        clock.later(4)
        run.write_shard("00001", rows("cd"))
        found = run_status(tmp_path, clock.later(3))
        assert found.pace == Pace("items", done=4, total=10, per_s=0.5)
        # Six items at half an item a second, three seconds of which are over.
        assert found.left_s == 9
        assert found.last_event_s == 3
        assert run_status(tmp_path, clock.later(100)).left_s == 0


def test_a_run_with_nothing_done_has_no_pace(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.event(WORK, items=10, left=10, workers=0)
        found = run_status(tmp_path)
    assert (found.pace, found.left_s) == (Pace("items", 0, 10, None), None)


def test_a_summary_ends_a_run_and_failures_are_counted_by_reason(tmp_path: Path) -> None:
    with start(tmp_path / "run") as run:
        run.write_shard("00000", [row("a"), *(error_row(key, 7, "it broke") for key in "bc"), error_row("d", 7, "full")])
        run.write_summary({"agreement": rate(1, 1)})
    found = run_status(tmp_path / "run")
    assert (found.state, found.errors, found.pace.done) == (FAILED, {"it broke": 2, "full": 1}, 1)
    with start(tmp_path / "run") as run:
        # Killed while it did the failed items again.
        pass
    assert run_status(tmp_path / "run").state == INTERRUPTED
    with start(tmp_path / "run") as run:
        run.write_shard("00000", rows("abcd"))
        run.write_summary({"agreement": rate(1, 1)})
    found = run_status(tmp_path / "run")
    assert (found.state, found.errors, found.pace.done) == (FINISHED, {}, 4)


def test_a_damaged_part_is_counted_and_left_where_it_is(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.write_shard("00000", rows("ab"))
        run.write_shard("00001", rows("cd"))
    part = tmp_path / "rows" / "part-00000.parquet"
    part.write_bytes(b"garbage")
    found = run_status(tmp_path)
    assert (found.damaged, found.pace.done) == (1, 2)
    assert part.read_bytes() == b"garbage"


class _Worker:
    def run(self, shard: Shard[str]) -> list[dict[str, Any]]:
        if shard.name == "00001":
            raise OSError("no such thing")
        return rows(shard.keys)


def test_sharded_work_says_how_much_it_is(tmp_path: Path) -> None:
    shards = make_shards({key: key for key in "abcdef"}, 2)
    with start(tmp_path) as run:
        write_shards(run, By(_Worker), shards, num_workers=0)
    with start(tmp_path) as run:
        write_shards(run, By(_Worker), shards, num_workers=0)
        said = [event for event in run.events() if event["kind"] == WORK]
    assert [(event["items"], event["left"], event["workers"]) for event in said] == [(6, 6, 0), (6, 2, 0)]
    found = run_status(tmp_path)
    assert (found.pace.done, found.pace.total, found.workers) == (4, 6, 0)
    assert found.errors == {"OSError: no such thing": 2}


def test_a_run_whose_part_was_deleted_is_not_finished(tmp_path: Path) -> None:
    shards = make_shards({key: key for key in "abcdef"}, 2)

    def finish() -> None:
        with start(tmp_path) as run:
            write_shards(run, By(_Worker), shards, num_workers=0)
            run.write_summary({"agreement": rate(1, 1)})

    finish()
    assert run_status(tmp_path).state == FAILED, "the worker fails at its second shard, whose rows say so"
    assert collect_run(tmp_path).state == ""
    (tmp_path / "rows" / "part-00000.parquet").unlink()
    assert run_status(tmp_path).state == INTERRUPTED
    assert "2 of 6 items are done; go on with: parley resume" in collect_run(tmp_path).state
    finish()
    assert run_status(tmp_path).state == FAILED


def test_steps_of_a_training_are_counted(tmp_path: Path, clock: Clock) -> None:
    config = TrainReinforceConfig(target="there", reinforce=ReinforceConfig(dialogues=80, dialogues_per_update=16))
    with RunFolder.open(tmp_path, config, job="train-rl", schema=DIALOGUES) as run:
        for number in (1, 2, 3):
            clock.later(2)
            run.event("iteration", number=number)
        found = run_status(tmp_path, clock.now_)
    assert found.pace == Pace("updates", done=3, total=5, per_s=0.5)
    assert (found.left_s, found.workers) == (4, None)


def test_a_training_of_another_version_has_no_total(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, TrainReinforceConfig(target="there"), job="train-rl", schema=DIALOGUES) as run:
        run.event("iteration", number=7)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"dialogues_per_update"', '"batch"'))
    assert run_status(tmp_path).pace == Pace("updates", 7, None, None)


def test_a_folder_of_runs_is_told_run_by_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("b", "a"):
        start(tmp_path / name).close()
    for name in ("checkpoint", "foreign"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "foreign" / "environment.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert [found.run.name for found in statuses(tmp_path)] == ["a", "b"]
    assert "foreign is left out" in caplog.text
    start(tmp_path / "a" / "below").close()
    assert [found.run for found in statuses(tmp_path / "a")] == [tmp_path / "a", tmp_path / "a" / "below"]


def test_what_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run here"):
        statuses(tmp_path / "nowhere")


def test_looking_never_keeps_a_writer_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    RunLock(path).release()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            holder_of(path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for reporter in lookers:
        reporter.start()
    try:
        for _ in range(50):
            RunLock(path).release()
    finally:
        stop.set()
        for reporter in lookers:
            reporter.join()


def test_a_busy_machine_makes_no_writer_of_who_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    RunLock(path).release()
    looker = os.open(path, os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    pauses, sleep = [], time.sleep

    def pause(_: float) -> None:
        pauses.append(None)
        # A second goes by in one pause, the looker goes away in the next.
        sleep(1) if len(pauses) == 1 else os.close(looker)

    monkeypatch.setattr(time, "sleep", pause)
    RunLock(path).release()
    assert len(pauses) == 2


def test_looking_changes_nothing(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.write_shard("00000", rows("ab"))

    def contents() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = contents()
    module.statuses(tmp_path)
    assert contents() == before


FLAKY = """
from pathlib import Path
import numpy as np
class Flaky:
    def join(self, view):
        return self
    def speak(self, rows):
        if Path("away").exists():
            raise OSError("the server is away")
        return ["<selection>" for _ in rows]
    def choose(self, rows):
        return np.zeros(len(rows), dtype=int)
"""


def test_a_run_that_was_killed_before_its_new_summary_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flaky.py").write_text(FLAKY)
    config = MatchConfig(adversary="flaky.py:Flaky", target="scripted", dialogues=2, max_turns=2)
    Path("away").touch()
    assert SELFPLAY.run(config, Path("run"), Silent()).failure
    Path("away").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(SELFPLAY), "measure", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SELFPLAY.run(config, Path("run"), Silent())
    # All rows are there, and the summary is that of rows of which none worked.
    assert (run_status(Path("run")).state, collect_run(Path("run")).state.split(":")[0]) == (INTERRUPTED, INTERRUPTED)
    assert SELFPLAY.run(config, Path("run"), Silent()).metrics["agreement"].n == 2
    assert (run_status(Path("run")).state, collect_run(Path("run")).state) == (FINISHED, "")


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


class Tabled(Job[SmallConfig, None, Summary]):
    """A job of a number and a table of it."""

    words = ("tabled",)
    run_name = "tabled"
    config = SmallConfig
    presets: ClassVar[Mapping[str, Any]] = {"small": SmallConfig}
    files = (TABLE_FILE, SUMMARY)
    value = 1.0

    def prepare(self, config: SmallConfig, path: Path, reporter: Reporter) -> None:
        """Nothing is needed."""

    def work(self, run: RunFolder, prepared: None, reporter: Reporter) -> Summary:
        return Summary("a number", "", {"number": count(self.value, 1)})

    def tables(self, run: RunFolder) -> Mapping[str, EstimateTable]:
        return {"": EstimateTable(("number",), ((f"{run.metrics()['number'].value:g}",),), "")}


def test_a_run_that_was_killed_before_its_new_table_is_not_finished(tmp_path: Path) -> None:
    job = Tabled()
    job.run(SmallConfig(), tmp_path, Silent())
    with RunFolder.open(tmp_path, SmallConfig(), job=job.name):
        # Killed while it went on.
        job.value = 2.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tabled, "tables", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.run(SmallConfig(), tmp_path, Silent())
    job.run(SmallConfig(), tmp_path, Silent())
    assert "| 2 " in (tmp_path / TABLE_FILE).read_text()
