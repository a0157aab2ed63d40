"""`parley status`: one run, a folder of runs, JSON, and what to type next."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from parley.engine.core.cli.screen import duration, show_table
from parley.engine.core.ray.record import WORK
from parley.engine.core.runs.parts import error_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import rate
from parley.engine.negotiation.verbs.match import DIALOGUES
from tests.engine.core.cli.conftest import Parley
from tests.engine.core.runs.rows import SmallConfig, rows
from tests.engine.core.verbs.test_status import another_process


def finished(path: Path, num_failed: int = 0) -> None:
    with RunFolder.open(path, SmallConfig(), job="selfplay", schema=DIALOGUES) as run:
        run.event(WORK, items=2 + num_failed, left=2 + num_failed, workers=0)
        run.write_shard(
            "00000", [*rows("ab"), *(error_row(f"f{number}", 7, f"it broke: {number}") for number in range(num_failed))]
        )
        run.write_summary({"agreement": rate(1, 1)})


def lines(text: str) -> list[str]:
    """A screen without its widths, and without rates, which hang on the machine."""
    return [" ".join(re.sub(r"[\d.e+]+ items/s", "", line).split()) for line in text.splitlines()]


def test_a_run_that_works_and_a_run_that_was_killed(tmp_path: Path, parley: Parley) -> None:
    with another_process(tmp_path / "run") as process:
        shown = lines(parley("status run").err)
        assert "run: selfplay" in shown
        assert any(line.startswith(f"state running, by process {process.pid} on ") for line in shown)
        assert "progress 2 of 8 items" in shown
        assert "workers 2 Ray actors" in shown
        assert any(line.startswith("last event shard, ") for line in shown)
        assert "next:" not in shown
        told = json.loads(parley("status run --json").out)["runs"][0]
        assert (told["state"], told["pace"]["done"], told["pace"]["total"], told["workers"]) == ("running", 2, 8, 2)
    shown = lines(parley("status run").err)
    assert "state interrupted" in shown
    assert shown[-1] == "parley resume run"


def test_a_finished_run(tmp_path: Path, parley: Parley) -> None:
    finished(tmp_path / "run")
    outcome = parley("status run")
    assert (outcome.status, outcome.out) == (0, "")
    shown = lines(outcome.err)
    assert {"state finished", "progress 2 of 2 items", "workers none: its own process works", "failed 0"} <= set(shown)
    assert shown[-1] == "parley report run"


def test_failures_are_shown_by_reason(tmp_path: Path, parley: Parley) -> None:
    finished(tmp_path / "run", num_failed=7)
    shown = lines(parley("status run").err)
    assert {"state failed items", "failed 7", "1 x it broke: 0", "and 2 more reasons: --json"} <= set(shown)
    assert "1 x it broke: 5" not in shown
    assert shown[-1] == "parley resume run"
    assert len(json.loads(parley("status run --json").out)["runs"][0]["errors"]) == 7


def test_a_folder_of_runs_is_a_table(tmp_path: Path, parley: Parley) -> None:
    finished(tmp_path / "runs" / "a")
    finished(tmp_path / "runs" / "b", num_failed=1)
    RunFolder.open(tmp_path / "runs" / "c d", SmallConfig(), job="selfplay", schema=DIALOGUES).close()
    shown = lines(parley("status").err)
    assert shown[1:3] == ["runs", "run job state progress rate time left failed last event"]
    assert [line.split(" selfplay ")[1].split(",")[0] for line in shown[3:6]] == [
        "finished 2 of 2 items 0 summary",
        "failed items 2 of 3 items 1 summary",
        "interrupted 0 started",
    ]
    assert shown[-2:] == ["parley resume runs/b", "parley resume 'runs/c d'"]


def test_names_of_runs_are_whole_and_a_run_is_one_line(tmp_path: Path, parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    names = [f"{'a-long-name-of-a-run-' * 6}{number}" for number in range(3)]
    for name in names:
        finished(tmp_path / "runs" / name)
    shown = parley("status").err.splitlines()
    assert [sum(f"runs/{name} " in line and line.endswith("ago") for line in shown) for name in names] == [1, 1, 1]


def test_a_narrow_terminal_folds_no_name() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, color_system=None)
    row = ("runs/demo/negotiator", "train-negotiator", "finished", "2 of 2 items", "summary, 0:07 ago")
    show_table(console, "runs", ("run", "job", "state", "progress", "last event"), [row])
    assert "runs/demo/negotiator" in screen.getvalue()


def test_of_a_run_with_stages_the_run_itself_goes_on(tmp_path: Path, parley: Parley) -> None:
    for path in (tmp_path / "run", tmp_path / "run" / "stage"):
        RunFolder.open(path, SmallConfig(), job="selfplay", schema=DIALOGUES).close()
    shown = lines(parley("status run").err)
    assert shown[-2:] == ["next:", "parley resume run"]


def test_a_finished_run_takes_the_rows_of_a_stage_that_is_tried_again(tmp_path: Path, parley: Parley) -> None:
    """The tables of a recipe showed a stage as failed after its own resume had mended it."""
    finished(tmp_path / "run")
    finished(tmp_path / "run" / "stage", num_failed=1)
    assert lines(parley("status run").err)[-3:] == ["next:", "parley resume run/stage", "parley resume run"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (-3, "0:00"), (7, "0:07"), (750, "12:30"), (3600, "1:00:00"), (90061, "1 d 1:01:01")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
