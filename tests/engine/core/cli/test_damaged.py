"""Runs whose files are damaged: an error that names the file, or a run that goes on from what is left; never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from parley.engine.core.runs.run_folder import RunFolder
from tests.engine.core.cli.conftest import Parley

DEEP = "[" * 100_000
VERBS = ("status", "report", "resume")
PLAY = "selfplay --dialogues 6 --workers 0 --shard-size 2"
NOW = "2026-11-22T10:00:00.000+00:00"


@pytest.fixture(scope="package")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished match; tests work on copies."""
    from parley.engine.core.cli.main import main

    folder = tmp_path_factory.mktemp("played") / "run"
    assert main([*PLAY.split(), "--run", str(folder)]) == 0
    return folder


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "run"))


def changed(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps(change(document) or document))


def without(name: str) -> Callable[[dict[str, object]], object]:
    return lambda document: {key: value for key, value in document.items() if key != name}


HEADS: dict[str, Callable[[Path], object]] = {
    "a list": lambda path: path.write_text("[]"),
    "a number": lambda path: path.write_text("7"),
    "nested deep": lambda path: path.write_text(DEEP),
    "nested deep inside": lambda path: path.write_text('{"format": ' + "[" * 500 + "]" * 500 + "}"),
    "bytes": lambda path: path.write_bytes(b"\xff\x00\x1b"),
    "settings that are a list": lambda path: changed(path, lambda head: head | {"config": []}),
    "settings of wrong types": lambda path: changed(path, lambda head: head | {"config": {"dialogues": {"x": 1}}}),
    "columns that are a text": lambda path: changed(path, lambda head: head | {"columns": "all"}),
    "weights that are a list": lambda path: changed(path, lambda head: head | {"weights": [1]}),
    "a job that is a number": lambda path: changed(path, lambda head: head | {"job": 3}),
    **{f"no {name}": lambda path, name=name: changed(path, without(name)) for name in ("format", "job", "config", "columns")},  # type: ignore[misc]
}


@pytest.mark.parametrize("damage", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_damaged_head_is_an_error(run: Path, parley: Parley, verb: str, damage: Callable[[Path], object]) -> None:
    damage(run / "config.json")
    outcome = parley(verb, str(run))
    if outcome.status == 0:
        # Settings are the job's own affair; who only looks at a run need not understand them.
        assert verb != "resume"
        return
    assert outcome.status == 2
    assert outcome.err.startswith("error: ")
    assert "config.json" in outcome.err or "run" in outcome.err


def test_a_run_that_lacks_a_setting_without_a_default_is_an_error(run: Path, parley: Parley) -> None:
    changed(run / "config.json", lambda head: head | {"config": {"target": "scripted"}})
    outcome = parley("resume", str(run))
    assert outcome.status == 2
    assert "lacks adversary" in outcome.err


EVENTS = {
    "no mapping": ["[]", "3", '"x"', "null", DEEP, "\x1b\x00"],
    "no time": [json.dumps({"kind": "shard", "name": "00000", "done": 2, "failed": 0})],
    "a time of no kind": [json.dumps({"time": "yesterday", "kind": "started"}), json.dumps({"time": 7, "kind": "started"})],
    "a time of no zone": [json.dumps({"time": "2026-11-22T10:00:00", "kind": "resumed"})],
    "kinds of no kind": [json.dumps({"time": NOW, "kind": []}), json.dumps({"time": NOW})],
    "shards of wrong types": [
        json.dumps({"time": NOW, "kind": "shard", "name": [], "done": "x", "failed": None}),
        json.dumps({"time": NOW, "kind": "shard"}),
    ],
    "work of wrong types": [
        json.dumps({"time": NOW, "kind": "work"}),
        json.dumps({"time": NOW, "kind": "work", "items": "many", "workers": {}}),
    ],
    "steps of wrong types": [
        json.dumps({"time": NOW, "kind": kind, "number": number}) for kind in ("epoch", "round") for number in ("x", None, [])
    ],
    "play of wrong types": [
        json.dumps({"time": NOW, "kind": "played", "dialogues": 3}),
        json.dumps({"time": NOW, "kind": "played", "dialogues": "3", "seconds": [], "workers": None}),
    ],
}


@pytest.mark.parametrize("lines", EVENTS.values(), ids=EVENTS)
def test_damaged_events_are_left_out(run: Path, parley: Parley, lines: list[str]) -> None:
    before = json.loads(parley("resume", str(run), "--json").out)
    with (run / "events.jsonl").open("a") as log:
        log.write("\n".join(lines) + "\n")
    for verb in VERBS:
        outcome = parley(verb, str(run))
        assert outcome.status == 0, outcome.err
    assert json.loads(parley("resume", str(run), "--json").out) == before
    (run / "rows" / "part-00001.parquet").unlink()
    assert parley("resume", str(run)).status == 0
    assert len(RunFolder.load(run).read_rows()) == 6


def test_a_log_of_garbage_leaves_a_finished_run_finished(run: Path, parley: Parley) -> None:
    (run / "events.jsonl").write_bytes(bytes(range(256)) * 3)
    outcome = parley("status", str(run))
    assert "finished" in outcome.err
    assert outcome.err.count("cannot be read and left out") == 1
    assert "nothing is left to do" in parley("resume", str(run)).err


SUMMARIES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_text(path.read_text()[:100]),
    "empty": lambda path: path.write_text(""),
    "a list": lambda path: path.write_text("[1]"),
    "nested deep": lambda path: path.write_text(DEEP),
    "no metrics": lambda path: changed(path, without("metrics")),
    "metrics that are a list": lambda path: changed(path, lambda summary: summary | {"metrics": [1]}),
    "a metric that is a number": lambda path: changed(path, lambda summary: summary | {"metrics": {"agreement": 0.5}}),
    "a value that is a text": lambda path: changed(
        path, lambda summary: summary | {"metrics": {"agreement": {"value": "x", "low": None, "high": None, "n": 3}}}
    ),
    "a title that is a list": lambda path: changed(path, lambda summary: summary | {"title": ["x"]}),
}


@pytest.mark.parametrize("damage", SUMMARIES.values(), ids=SUMMARIES)
def test_a_damaged_summary_is_written_again_from_the_rows(run: Path, parley: Parley, damage: Callable[[Path], object]) -> None:
    path = run / "summary.json"
    whole, parts = json.loads(path.read_text()), {part: part.stat().st_mtime_ns for part in (run / "rows").iterdir()}
    damage(path)
    status = parley("status", str(run))
    assert status.status == 0
    assert "damaged summary" in status.err
    assert f"parley resume {run}" in status.err
    report = parley("report", str(run))
    assert report.status == 2
    assert "summary.json" in report.err
    assert f"parley resume {run}" in report.err
    assert parley("resume", str(run)).status == 0
    found = json.loads(path.read_text())
    assert found["title"] == whole["title"]
    timed = {name for name in whole["metrics"] if "second" in name}
    assert {name: value for name, value in found["metrics"].items() if name not in timed} == {
        name: value for name, value in whole["metrics"].items() if name not in timed
    }
    assert {part: part.stat().st_mtime_ns for part in (run / "rows").iterdir()} == parts, "no item was done again"
    assert "finished" in parley("status", str(run)).err


def test_a_report_of_a_run_with_renamed_parts_is_an_error(run: Path, parley: Parley) -> None:
    part = run / "rows" / "part-00000.parquet"
    table = pq.read_table(part)
    for other in (run / "rows").iterdir():
        pq.write_table(pq.read_table(other).set_column(0, "item_key", table["seed"]), other)
    outcome = parley("report", str(run))
    assert outcome.status == 0 or outcome.err.startswith("error: ")
    (run / "environment.json").write_text("[]")
    outcome = parley("report", str(run))
    assert outcome.status == 2
    assert "environment.json" in outcome.err


@pytest.mark.parametrize("number", [10**8, 10**30])
@pytest.mark.parametrize(
    "command",
    [
        "selfplay --dialogues {}",
        "attack reactive --dialogues {}",
        "attack table --dialogues {}",
        "evaluate exploitability --dialogues {}",
        "minmax --budget {}",
        "minmax --set attack.dialogues={}",
        "train adversary --set reinforce.dialogues={}",
        "search --limit {}",
        "search table --limit {}",
        "search enumerate --random-strings {}",
        "search enumerate --max-length {}",
        "evaluate robustness --limit {}",
        "sweep --num-trials {}",
        "demo --dialogues {}",
    ],
)
def test_more_items_than_a_run_can_hold_are_refused(parley: Parley, command: str, number: int) -> None:
    outcome = parley(command.format(number))
    assert outcome.status == 2
    assert "out of range" in outcome.err
    assert f"got:   {number}" in outcome.err
    assert "allowed: " in outcome.err
    assert not Path("runs").exists()


def test_a_run_of_more_items_than_it_can_hold_is_not_gone_on_with(run: Path, parley: Parley) -> None:
    changed(run / "config.json", lambda head: head | {"config": {**head["config"], "dialogues": 10**30}})  # type: ignore[dict-item]
    outcome = parley("resume", str(run))
    assert outcome.status == 2
    assert "out of range" in outcome.err


@pytest.mark.parametrize("setting", [DEEP, "{a: " * 5_000])
def test_settings_that_are_nested_deep_are_errors(parley: Parley, setting: str) -> None:
    outcome = parley("selfplay", "--set", f"dialogues={setting}")
    assert outcome.status == 2
    assert outcome.err.startswith("error: the value of a setting is nested too deep")
    Path("deep.yaml").write_text(f"dialogues: {setting}")
    outcome = parley("selfplay --config deep.yaml")
    assert outcome.status == 2
    assert outcome.err.startswith("error: the configuration file is nested too deep")


@pytest.mark.parametrize("value", ["2026-13-41", "1" * 5_000], ids=["no date", "long number"])
def test_a_value_that_yaml_cannot_make_is_an_error(parley: Parley, value: str) -> None:
    outcome = parley("selfplay", "--set", f"target={value}")
    assert outcome.status == 2
    assert outcome.err.startswith("error: the value of a setting is not YAML")
