"""The harness that disturbs runs sees what is lost, twice and different, and what is not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.chaos import page
from benchmarks.chaos.__main__ import Harness, Options, Outcome, content, order
from benchmarks.chaos.cases import CASES, DISTURBANCES, FILES


def write_run(folder: Path, *parts: list[tuple[str, int]], epochs: int = 2, loss: float = 0.5) -> Path:
    """A run with parts of rows, a log of epochs, a metric, a figure that is a time, and a file that names the folder."""
    (folder / "rows").mkdir(parents=True)
    for number, rows in enumerate(parts):
        table = pa.Table.from_pylist([{"item_key": key, "value": value, "seconds": random.random()} for key, value in rows])
        pq.write_table(table, folder / "rows" / f"part-{number:05d}.parquet")
    lines = [
        {"time": f"2026-01-01T00:00:0{number}Z", "kind": "epoch", "number": number, "loss": loss} for number in range(epochs)
    ]
    # The last line was cut short by a kill.
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"time": "20')
    (folder / "summary.json").write_text(json.dumps({"metrics": {"points": 3, "dialogues_per_s": random.random()}}))
    (folder / "replies.txt").write_text(f"parley selfplay --run {folder}")
    return folder


def compared(wanted: Path, found: Path) -> Outcome:
    outcome = Outcome("middle")
    Harness("selfplay", Options(), wanted.parent).compare(outcome, content(wanted), content(found))
    return outcome


def test_what_is_lost_twice_and_different_is_counted(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", [("a", 1), ("b", 2)], [("c", 3)])
    same = compared(whole, write_run(tmp_path / "same", [("a", 1)], [("b", 2), ("c", 3)]))
    assert (same.items, same.lost, same.twice, same.different) == (7, 0, 0, 0), same.names
    worse = compared(whole, write_run(tmp_path / "worse", [("a", 1), ("b", 9)], [("a", 1)], epochs=3))
    assert (worse.lost, worse.twice, worse.different) == (1, 1, 2)
    assert worse.names == ["lost rows/c", "differs rows/b", "new ./epoch 2", "twice rows/a"]
    assert compared(whole, write_run(tmp_path / "trained", [("a", 1), ("b", 2)], [("c", 3)], loss=0.6)).different == 2


def test_each_disturbance_of_a_case_stands_in_the_table() -> None:
    counted = {disturbance for kinds in DISTURBANCES.values() for disturbance in kinds}
    assert {disturbance for case in CASES.values() for disturbance in case.disturbances} <= counted
    assert all(need in CASES for case in CASES.values() for need in case.needs)
    assert order(["search"]) == ["seq2seq", "lm", "search"]


def test_moments_follow_from_the_seed(tmp_path: Path) -> None:
    steps = [{"step": number, "what": "rename" if number % 5 == 0 else "open"} for number in range(1, 101)]
    plan = Harness("selfplay", Options(), tmp_path).plan
    for disturbance, low, high in (("early", 1, 20), ("middle", 20, 90), ("writing", 21, 100)):
        drawn = [plan(disturbance, steps, random.Random(number))[1] for number in range(50)]
        assert low <= min(drawn) < max(drawn) <= high
        assert drawn == [plan(disturbance, steps, random.Random(number))[1] for number in range(50)]
    assert all(plan("writing", steps, random.Random(number))[1] % 5 == 0 for number in range(50))


def test_only_processes_of_the_harness_are_ended(tmp_path: Path) -> None:
    def sleeper(**variables: str) -> subprocess.Popen[bytes]:
        code = "import time; print('up', flush=True); time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **variables}, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    own, other = sleeper(RAY_TMPDIR=str(tmp_path / "r")), sleeper()
    try:
        harness = Harness("selfplay", Options(), tmp_path)
        harness.patience_s = 0.2
        assert harness.sweep([own.pid, other.pid]) == 1
        assert own.wait(10) == -9
        assert other.poll() is None
    finally:
        for process in (own, other):
            process.kill()
            process.communicate()


def test_a_killed_run_loses_nothing_and_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    harness = Harness("selfplay", Options(), tmp_path)
    outcome = harness.disturb("writing", random.Random(3))
    assert (outcome.problem, outcome.lost, outcome.twice, outcome.different) == ("", 0, 0, 0)
    assert outcome.resumed
    assert outcome.seconds > 0
    document = {"processor": "P", "outcomes": [vars(outcome)]}
    (tmp_path / "selfplay.json").write_text(json.dumps(document))
    text = tmp_path / "page.md"
    text.write_text("before\n<!-- begin: make chaos -->\nold\n<!-- end: make chaos -->\nafter\n")
    monkeypatch.setattr(page, "PAGE", text)
    page.write_cases(tmp_path)
    written = text.read_text()
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "old" not in written
    assert f"| `selfplay` | {outcome.items} | 1 | 0 | 0 | 0 | {outcome.again} |" in written
    page.write_cases(tmp_path)
    assert text.read_text() == written


def test_the_stored_page_has_every_disturbance() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert [words for words in DISTURBANCES if f"| {words} |" not in text] == []
