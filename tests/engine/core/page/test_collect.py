"""From run folders to reports."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.page.content import Curve, Report, Run, read_curves, short_paths
from parley.engine.core.page.page import collect_run, headed_tables, load_chapters, metric_blocks, report_from_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import EXPLOITABILITY, KNOWN, MEAN_FRESH
from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.campaign import rounds_of
from parley.engine.core.verbs.catalogue import ENTRIES
from parley.engine.core.verbs.job import Job
from parley.engine.negotiation.metrics.campaign import (
    AFTER,
    BEFORE,
    PERPLEXITY,
    PLAIN_AGREEMENT,
    PLAIN_SCORE,
    REPEATS,
    REPETITION,
    ROUND_METRICS,
    rounds_table,
)
from parley.engine.negotiation.metrics.dialogues import negotiation_metrics
from parley.engine.negotiation.page import STEPLESS
from parley.engine.negotiation.verbs.campaign import MinMaxConfig
from parley.engine.negotiation.verbs.exploitability import MORE, NUM_KNOWN
from parley.engine.negotiation.verbs.match import ATTACKS, DIALOGUES
from parley.engine.negotiation.verbs.minmax import AS_CONTROL, BEFORE_TRAINING, DROP, DROP_BEYOND_CONTROL, FINAL_STAGES, LEGEND
from parley.engine.negotiation.verbs.negotiator import TRAIN_NEGOTIATOR
from parley.engine.negotiation.verbs.table import TableConfig
from parley.engine.responders.seq2seq import TRAIN_SEQ2SEQ
from parley.envs.core.errors import RunError
from parley.envs.core.storage.copies import CHECKPOINT
from tests.engine.core.stats.test_known import MADE_UP
from tests.engine.core.verbs.made_up import save_negotiator
from tests.engine.negotiation.page.dialogues import attack_row, error_row, row


@dataclass(frozen=True, kw_only=True)
class Limits:
    max_turns: int = 20
    address: str | None = None


@dataclass(frozen=True, kw_only=True)
class Config:
    seed: int = 3
    limits: Limits = field(default_factory=Limits)


def matches(report: Report) -> list[Run]:
    return [run for run in report.found.get("negotiation", ()) if run.shown and run.job != "attack-table"]


def curves(report: Report) -> list[Curve]:
    chapters = {chapter.name: chapter for chapter in load_chapters(report.jobs)}
    return [curve for name, runs in report.found.items() for curve in read_curves(chapters[name].curves, runs)]


def tables(report: Report) -> list[tuple[str, EstimateTable]]:
    chapters = {chapter.name: chapter for chapter in load_chapters(report.jobs)}
    return [table for name, runs in report.found.items() for table in headed_tables(chapters[name], runs)]


def play(path: Path, rows: list[dict[str, Any]], **extra: Any) -> None:
    with RunFolder.open(path, Config(), job="selfplay", schema=DIALOGUES) as run:
        run.write_shard("00000", rows)
        run.write_summary(negotiation_metrics(rows), extra)


def train(path: Path, kind: str, steps: list[dict[str, Any]], **extra: Any) -> None:
    with RunFolder.open(path, Config(), job="train-rl", schema=DIALOGUES) as run:
        for step in steps:
            run.event(kind, **step)
        run.write_summary({}, extra)


def test_run_of_one_match(tmp_path: Path) -> None:
    rows = [row("a", (8, 2)), row("b", (0, 0)), error_row("c", "boom")]
    play(tmp_path / "match", rows, title="adversary vs target", description="After self-play.", command="parley attack")
    data = collect_run(tmp_path / "match")
    assert (data.title, data.lead, data.commands) == ("adversary vs target", "After self-play.", ["parley attack"])
    (section,) = matches(data)
    assert (section.heading, section.description) == ("adversary vs target", "")
    assert list(section.rows) == rows
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
    headings = [(section.heading, section.description) for section in matches(data)]
    assert headings == [("target vs itself", "No attack."), ("attack", "")]
    assert data.commands == ["parley selfplay", "parley attack"]
    assert data.config["attack.limits.max_turns"] == "20"
    assert ("attack/weights/model.safetensors", "weights") in data.files
    (curve,) = curves(data)
    assert (curve.title, curve.x_label, list(curve.series)) == ("target: words", "epoch", ["training", "validation"])
    assert curve.series["training"] == [(1, 9.0), (2, 4.5), (3, 2.5)]
    assert [math.isnan(value) for _, value in curve.series["validation"]] == [False, True, False]


def test_folder_that_is_a_run_and_holds_runs(tmp_path: Path) -> None:
    train(tmp_path, "iteration", [{"number": i, "reward": float(i)} for i in range(4)], title="demo", command="parley demo")
    play(tmp_path / "attack", [row("a", (9, 1))], command="parley attack")
    data = collect_run(tmp_path)
    assert (data.title, data.commands) == ("demo", ["parley demo"])
    assert [section.heading for section in matches(data)] == ["attack"]
    assert [curve.title for curve in curves(data)] == ["demo: reward"]
    assert {"seed", "attack.seed"} <= set(data.config)


def measure(path: Path, job: str, metrics: dict[str, Estimate], config: Any = None, **extra: Any) -> None:
    with RunFolder.open(path, config or Config(), job=job, schema=DIALOGUES) as run:
        run.write_summary(metrics, extra)


def figures(advantage: float) -> dict[str, Estimate]:
    return {"advantage": Estimate(advantage, advantage - 0.5, advantage + 0.5, 40)}


def table_run(path: Path) -> None:
    """A table with two rows below it, as the job leaves them."""
    metrics = {"attacks.rl.advantage": figures(3)["advantage"], "attacks.reactive.advantage": figures(5)["advantage"]}
    labels = {"rl": "RL attack", "reactive": "reactive"}
    facts: dict[str, Any] = {"failed": "", "notes": [], "trainings": 1, "published": {"advantage": 2.5}}
    layout = {
        "key": "attacks",
        "title": "All attacks",
        "note": "",
        "corner": "attack",
        "source": "",
        "columns": [{"key": "advantage", "heading": "advantage, live", "form": "number"}],
        "rows": [{"key": key, "label": label, **facts} for key, label in labels.items()],
    }
    measure(path, "attack-table", metrics, TableConfig(), title="attacks on x", tables=[layout])
    measure(path / "rl", "attack-rl", figures(3), title="RL attack on x")
    measure(path / "reactive", "attack-reactive", figures(5), title="reactive attack on x")


def test_runs_of_one_title_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    title = "reactive attack on negotiator"
    for name in ("white-box", "black-box"):
        with RunFolder.open(tmp_path / name, Config(), job="attack-reactive", schema=ATTACKS) as run:
            run.write_shard("00000", [attack_row("a"), attack_row("b")])
            run.write_summary(figures(4), {"title": title})
    for name in ("first", "second"):
        train(tmp_path / name, "iteration", [{"number": 1, "reward": 1.0}], title="x trained")
    measure(tmp_path / "rl", "attack-rl", figures(3), title="RL attack on negotiator")
    data = collect_run(tmp_path)
    names = [f"{title} (white-box)", f"{title} (black-box)", "RL attack on negotiator"]
    assert [section.heading for section in matches(data)] == names
    ((_, table),) = tables(data)
    assert [row[0] for row in table.rows] == names
    assert [curve.title for curve in curves(data)] == ["x trained (first): reward", "x trained (second): reward"]
    page = report_from_run(tmp_path).read_text()
    assert "mean over 2, 2 dialogues" in page, "one budget curve for each"
    for folder in ("white-box", "black-box"):
        labels = re.findall(rf"<text[^>]*>[^<]*\({folder}\) \(few: n = 2\)</text>", page)
        assert len(labels) == 2, "drawn by words and by queries"


def test_only_combined_attacks_have_nothing_but_successes_on_record(tmp_path: Path) -> None:
    kinds = ("reactive", "preemptive", "ra-pa-da", "ra-pa-ta")
    for kind in kinds:
        measure(tmp_path / kind, f"attack-{kind}", figures(3), title=kind)
    assert [section.job in STEPLESS for section in matches(collect_run(tmp_path))] == [False, False, True, True]


@pytest.mark.parametrize("job", [entry.load() for entry in ENTRIES if entry.words[0] == "train"], ids=lambda job: job.name)
def test_every_figure_of_a_training_has_the_definition_of_its_own_job(tmp_path: Path, job: Job) -> None:
    assert all(metric.definition for metric in job.legend.values())
    # Beside another training whose figures bear the same names.
    for name, other in (("this", job), ("negotiator", TRAIN_NEGOTIATOR), ("seq2seq", TRAIN_SEQ2SEQ)):
        measure(tmp_path / name, other.name, {metric: Estimate(2, 1, 3, 40) for metric in other.legend}, title=name)
    measured = [(run.heading, run.metrics, run.legend) for run in collect_run(tmp_path).found["training"]]
    shown = {
        (block.title.lower(), block.definition)
        for _, block in metric_blocks(measured)
        if "this" in [line.name for line in block.lines]
    }
    assert shown == {(metric.title.lower(), metric.definition) for metric in job.legend.values()}


def test_table_of_attacks_speaks_for_the_runs_below_it(tmp_path: Path) -> None:
    table_run(tmp_path)
    data = collect_run(tmp_path)
    ((heading, table),) = tables(data)
    assert (data.title, heading) == ("attacks on x", "All attacks")
    assert [row[:2] for row in table.rows] == [("RL attack", "3.00\n[2.50, 3.50]"), ("reactive", "5.00\n[4.50, 5.50]")]
    assert [row[table.columns.index("advantage, live, published")] for row in table.rows] == ["2.50", "2.50"]
    assert [section.heading for section in matches(data)] == ["RL attack", "reactive"]


def test_folder_of_attacks_shows_them_side_by_side(tmp_path: Path) -> None:
    measure(tmp_path / "a", "attack-rl", figures(3), title="RL attack on x")
    measure(tmp_path / "match", "selfplay", figures(0), title="x against itself")
    assert tables(collect_run(tmp_path)) == [], "one attack needs no table"
    measure(tmp_path / "b", "attack-reactive", figures(5), title="reactive attack on x")
    table_run(tmp_path / "table")
    data = collect_run(tmp_path)
    shown = {heading: [row[0] for row in table.rows] for heading, table in tables(data)}
    assert shown == {
        "All attacks": ["RL attack", "reactive"],
        "Attacks side by side": ["RL attack on x", "reactive attack on x"],
    }
    names = [section.heading for section in matches(data)]
    assert names == ["RL attack on x", "x against itself", "reactive attack on x"]


def test_table_that_is_not_finished_shows_the_attacks_that_are(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, TableConfig(), job="attack-table", schema=DIALOGUES).close()
    measure(tmp_path / "rl", "attack-rl", figures(3), title="RL attack on x")
    measure(tmp_path / "reactive", "attack-reactive", figures(5), title="reactive attack on x")
    ((heading, table),) = tables(collect_run(tmp_path))
    assert heading == "Attacks side by side"
    assert [row[0] for row in table.rows] == ["RL attack", "reactive"]


def test_training_that_holds_a_checkpoint(tmp_path: Path) -> None:
    """A checkpoint is no run, though it has a configuration."""
    train(tmp_path / "run", "iteration", [{"number": i, "reward": float(i)} for i in (1, 2)], title="target against x")
    save_negotiator(tmp_path / "run" / CHECKPOINT)
    data = collect_run(tmp_path / "run")
    assert [curve.title for curve in curves(data)] == ["target against x: reward"]
    assert ("checkpoint/weights.safetensors", "weights") in data.files
    assert "target against x" in report_from_run(tmp_path / "run").read_text()
    assert [curve.title for curve in curves(collect_run(tmp_path))] == ["target against x: reward"]


def campaign_run(path: Path, finished: bool = True) -> None:
    """A campaign of one round with some of its stages, as the job leaves them."""
    with RunFolder.open(path, MinMaxConfig(), job="minmax", schema=DIALOGUES) as run:
        for number in (0, 1):
            metrics = {name: Estimate(10.0 * number + place, 0, 9, 40) for place, name in enumerate(ROUND_METRICS)}
            metrics = {name: estimate for name, estimate in metrics.items() if number or name not in (BEFORE, AFTER)}
            values = {name: estimate.value for name, estimate in metrics.items()}
            run.event("round", number=number, estimates={k: v.to_json() for k, v in metrics.items()}, **values)
        if finished:
            run.write_summary(
                {name: Estimate(float(place), 0, 9, 40) for place, name in enumerate(LEGEND)}, {"title": "x hardened"}
            )
    iterations = [{"number": i, "reward": float(i)} for i in (1, 2)]
    train(path / "01-target", "iteration", iterations, title="x against its adversary")
    measure(path / "01-exploitability", "evaluate-exploitability", figures(4), title="exploitability of x")
    play(path / "01-plain", [row("a", (5, 5))], title="x against itself")
    if finished:
        for stage in FINAL_STAGES:
            play(path / stage, [row("a", (9, 1))], title="RL attack on x", command=f"parley {stage}")
    save_negotiator(path / CHECKPOINT)


def test_campaign_shows_what_its_rounds_came_to(tmp_path: Path) -> None:
    campaign_run(tmp_path)
    data = collect_run(tmp_path)
    (first, outcome), (second, rounds) = tables(data)
    assert (data.title, first, second) == ("x hardened", "Before and after", "Rounds")
    places = {name: place for place, name in enumerate(LEGEND)}
    assert outcome.columns == ("target", "before", "after", "plain play alone")
    lost, more = (f"{places[name]:.2f} [0.00, 9.00]" for name in (DROP, DROP_BEYOND_CONTROL))
    assert outcome.rows == (
        *(
            (LEGEND[name].title, *(f"{places[name + ending]:.2f} [0.00, 9.00]" for ending in (BEFORE_TRAINING, "", AS_CONTROL)))
            for name in (EXPLOITABILITY, MEAN_FRESH, PLAIN_SCORE, PLAIN_AGREEMENT, REPETITION, REPEATS, PERPLEXITY, MORE)
        ),
        (LEGEND[DROP].title, "", lost, f"{more} more than it"),
    )
    assert rounds == rounds_table(rounds_of(RunFolder.load(tmp_path)))
    assert [section.heading for section in matches(data)] == list(FINAL_STAGES.values()), "the rounds' phases are many"
    assert [curve.title for curve in curves(data)] == [
        "x hardened: exploitability",
        "x hardened: plain play",
        "x hardened: language",
        "x hardened: repetition",
    ]
    curve = curves(data)[0]
    assert (curve.x_label, curve.series) == (
        "round",
        {
            "best known by that round": [(0, 2), (1, 12)],
            "fresh, mean": [(0, 3), (1, 13)],
            "trained along, before": [(1, 10)],
            "after": [(1, 11)],
        },
    )
    assert curve.bands["best known by that round"] == [(0, 0, 9), (1, 0, 9)]
    text = report_from_run(tmp_path).read_text()
    assert "exploitability lost" in text
    assert "x against its adversary" not in text


def test_the_note_counts_known_adversaries_and_a_table_shows_them(tmp_path: Path) -> None:
    campaign_run(tmp_path, finished=False)
    figures = {name: Estimate(1.0, 0, 9, 40) for name in LEGEND} | {NUM_KNOWN: count(3, 3)}
    with RunFolder.open(tmp_path, MinMaxConfig(), job="minmax", schema=DIALOGUES) as run:
        run.write_summary(figures, {"title": "x hardened", KNOWN: MADE_UP.to_json()})
    (_, outcome), (title, table), *_ = tables(collect_run(tmp_path))
    assert outcome.note.startswith("Exploitability: by the best of 3 known adversaries, in dialogues that chose neither ")
    assert (title, table) == ("Known adversaries", MADE_UP.table())
    text = report_from_run(tmp_path).read_text()
    assert "Known adversaries" in text
    assert "control-exploitability/adversary" in text


def test_campaign_that_goes_on_shows_its_rounds(tmp_path: Path) -> None:
    campaign_run(tmp_path, finished=False)
    data = collect_run(tmp_path)
    assert [heading for heading, _ in tables(data)] == ["Rounds"]
    assert matches(data) == []
    assert len(curves(data)) == 4
    assert report_from_run(tmp_path).exists()


def test_campaign_among_other_runs_has_tables_of_its_own(tmp_path: Path) -> None:
    campaign_run(tmp_path / "minmax")
    play(tmp_path / "match", [row("a", (5, 5))], title="x against itself")
    data = collect_run(tmp_path)
    assert [heading for heading, _ in tables(data)] == ["Before and after", "Rounds"]
    assert [section.heading for section in matches(data)] == ["x against itself"]


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


def test_paths_are_cut_to_what_tells_them_apart() -> None:
    texts = ["RL attack on runs/a/target", "runs/b/target against runs/b/target", "on x/file.py:Name, hardened", "no path"]
    assert [*short_paths(texts).values()] == [
        "RL attack on a/target",
        "b/target against b/target",
        "on file.py:Name, hardened",
        "no path",
    ]
    assert short_paths(["on runs/target"]) == {"on runs/target": "on target"}
    assert short_paths(["a/x and x", "b/a/x"]) == {"a/x and x": "a/x and x", "b/a/x": "b/a/x"}


def test_training_curves_of_tensorboard_are_among_the_files(tmp_path: Path) -> None:
    train(tmp_path, "iteration", [{"number": 1, "reward": 1.0}, {"number": 2, "reward": 2.0}])
    (tmp_path / "tensorboard").mkdir()
    assert [what for name, what in collect_run(tmp_path).files if name == "tensorboard"] == [
        "training as TensorBoard shows it: tensorboard --logdir of the run"
    ]
