"""From run folders to reports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.jobs.table import TableConfig
from engine.metrics.negotiation import negotiation_metrics
from engine.metrics.statistics import Estimate
from engine.report.collect import collect_run, report_from_run
from engine.store.run_folder import RunFolder
from envs.core.errors import RunError
from tests.engine.report.dialogues import error_row, row


@dataclass(frozen=True, kw_only=True)
class Limits:
    max_turns: int = 20
    address: str | None = None


@dataclass(frozen=True, kw_only=True)
class Config:
    seed: int = 3
    limits: Limits = field(default_factory=Limits)


def play(path: Path, rows: list[dict[str, Any]], **extra: Any) -> None:
    with RunFolder.open(path, Config(), job="test") as run:
        run.write_shard("00000", rows)
        run.write_summary(negotiation_metrics(rows), extra)


def train(path: Path, kind: str, steps: list[dict[str, Any]], **extra: Any) -> None:
    with RunFolder.open(path, Config(), job="test") as run:
        for step in steps:
            run.event(kind, **step)
        run.write_summary({}, extra)


def test_run_of_one_match(tmp_path: Path) -> None:
    rows = [row("a", (8, 2)), row("b", (0, 0)), error_row("c", "boom")]
    play(tmp_path / "match", rows, title="adversary vs target", description="After self-play.", command="parley attack")
    data = collect_run(tmp_path / "match")
    assert (data.title, data.lead, data.commands) == ("adversary vs target", "After self-play.", ["parley attack"])
    (section,) = data.sections
    assert (section.name, section.description) == ("adversary vs target", "")
    assert section.rows == rows
    expected = {name: estimate.to_json() for name, estimate in negotiation_metrics(rows).items()}
    assert {name: estimate.to_json() for name, estimate in section.metrics.items()} == expected
    assert data.config == {"seed": "3", "limits.max_turns": "20"}
    assert data.environment["packages.numpy"]
    assert [path for path, _ in data.files] == ["config.json", "environment.json", "events.jsonl", "rows", "summary.json"]


def test_stages_below_a_folder_stand_in_the_order_they_were_started(tmp_path: Path) -> None:
    figures = [(1, 9.0, 10.0), (2, 4.5, None), (3, 3.0, 5.0), (3, 2.5, 5.0)]
    epochs = [{"number": i, "train_perplexity": fitted, "perplexity_reference": val} for i, fitted, val in figures]
    train(tmp_path / "target", "epoch", epochs, title="target")
    about = {"title": "target vs itself", "description": "No attack.", "command": "parley selfplay"}
    play(tmp_path / "selfplay", [row("a", (5, 5))], **about)
    play(tmp_path / "attack", [row("a", (9, 1))], command="parley attack")
    (tmp_path / "attack" / "weights").mkdir()
    (tmp_path / "attack" / "weights" / "model.safetensors").write_bytes(b"")
    data = collect_run(tmp_path)
    headings = [(section.name, section.description) for section in data.sections]
    assert headings == [("target vs itself", "No attack."), ("attack", "")]
    assert data.commands == ["parley selfplay", "parley attack"]
    assert data.config["attack.limits.max_turns"] == "20"
    assert ("attack/weights/model.safetensors", "weights") in data.files
    (curve,) = data.curves
    assert (curve.title, curve.x_label, list(curve.series)) == ("target: words", "epoch", ["training", "validation"])
    assert curve.series["training"] == [(1, 9.0), (2, 4.5), (3, 2.5)]
    assert [math.isnan(value) for _, value in curve.series["validation"]] == [False, True, False]


def test_folder_that_is_a_run_and_holds_runs(tmp_path: Path) -> None:
    train(tmp_path, "iteration", [{"number": i, "reward": float(i)} for i in range(4)], title="demo", command="parley demo")
    play(tmp_path / "attack", [row("a", (9, 1))], command="parley attack")
    data = collect_run(tmp_path)
    assert (data.title, data.commands) == ("demo", ["parley demo"])
    assert [section.name for section in data.sections] == ["attack"]
    assert [curve.title for curve in data.curves] == ["demo: reward"]
    assert {"seed", "attack.seed"} <= set(data.config)


def measure(path: Path, job: str, metrics: dict[str, Estimate], config: Any = None, **extra: Any) -> None:
    with RunFolder.open(path, config or Config(), job=job) as run:
        run.write_summary(metrics, extra)


def figures(advantage: float) -> dict[str, Estimate]:
    return {"advantage": Estimate(advantage, advantage - 0.5, advantage + 0.5, 40)}


def table_run(path: Path) -> None:
    """A table with two rows below it, as the job leaves them."""
    rows = {"rl.advantage": figures(3)["advantage"], "reactive.advantage": figures(5)["advantage"]}
    measure(path, "attack-table", rows, TableConfig(published="rl"), title="attacks on x")
    measure(path / "rl", "attack-rl", figures(3), title="RL attack on x")
    measure(path / "reactive", "attack-reactive", figures(5), title="reactive attack on x")


def test_table_of_attacks_speaks_for_the_runs_below_it(tmp_path: Path) -> None:
    table_run(tmp_path)
    data = collect_run(tmp_path)
    ((heading, table),) = data.attack_tables
    assert (data.title, heading) == ("attacks on x", "")
    assert [row[:2] for row in table.rows] == [("RL attack", "3.00 [2.50, 3.50]"), ("reactive", "5.00 [4.50, 5.50]")]
    published = table.columns.index("published")
    assert [row[published] for row in table.rows] == ["2.32", "4.95"]
    assert [(section.name, section.large) for section in data.sections] == [("RL attack", False), ("reactive", False)]


def test_folder_of_attacks_shows_them_side_by_side(tmp_path: Path) -> None:
    measure(tmp_path / "a", "attack-rl", figures(3), title="RL attack on x")
    measure(tmp_path / "match", "selfplay", figures(0), title="x against itself")
    assert collect_run(tmp_path).attack_tables == [], "one attack needs no table"
    measure(tmp_path / "b", "attack-reactive", figures(5), title="reactive attack on x")
    table_run(tmp_path / "table")
    data = collect_run(tmp_path)
    shown = {heading: [row[0] for row in table.rows] for heading, table in data.attack_tables}
    assert shown == {
        "attacks on x": ["RL attack", "reactive"],
        "Attacks side by side": ["RL attack on x", "reactive attack on x"],
    }
    names = [(section.name, section.large) for section in data.sections]
    assert names == [("RL attack on x", True), ("x against itself", True), ("reactive attack on x", True)]


def test_table_that_is_not_finished_shows_the_attacks_that_are(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, TableConfig(), job="attack-table").close()
    measure(tmp_path / "rl", "attack-rl", figures(3), title="RL attack on x")
    measure(tmp_path / "reactive", "attack-reactive", figures(5), title="reactive attack on x")
    ((heading, table),) = collect_run(tmp_path).attack_tables
    assert heading == "Attacks side by side"
    assert [row[0] for row in table.rows] == ["RL attack", "reactive"]


def test_page_lies_in_the_run_folder_and_is_replaced(tmp_path: Path) -> None:
    play(tmp_path / "run", [row("a", (9, 1)), row("b", (1, 9))])
    first = report_from_run(tmp_path / "run")
    assert first == tmp_path / "run" / "report.html"
    text = first.read_text()
    assert "fine , the rest for me" in text
    assert report_from_run(tmp_path / "run").read_text() == text
    # A report must not keep the run from going on.
    play(tmp_path / "run", [row("a", (9, 1)), row("b", (1, 9))])


def test_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run"):
        report_from_run(tmp_path)
    with pytest.raises(RunError, match="no run"):
        report_from_run(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_damaged_part_is_an_error_and_leaves_the_old_page(tmp_path: Path) -> None:
    play(tmp_path, [row("a", (9, 1))])
    old = report_from_run(tmp_path).read_text()
    (part,) = (tmp_path / "rows").iterdir()
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(RunError, match="damaged"):
        report_from_run(tmp_path)
    assert (tmp_path / "report.html").read_text() == old
