"""`parley label`: sheets of answers, and rates corrected by them."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from parley.engine.scan.labels import drawn_answers, label_metrics
from tests.engine.core.cli.conftest import Parley, _own_folder, _small_machine, parley

__all__ = ["_own_folder", "_small_machine", "parley"]


def row(number: int, breach: bool | None, attack: str = "role-play") -> dict[str, Any]:
    rules = [{"rule": "r", "broken": breach, "evidence": ""}]
    return {
        "item_key": f"{number}/{attack}/0",
        "status": "ok",
        "prompt": str(number),
        "attack": attack,
        "asked": f"question {number}, {attack}",
        "reply": f"reply {number}",
        "kind": "reply",
        "breach": breach,
        "rules": rules,
    }


def test_answers_are_drawn_within_each_verdict_and_the_sheet_hides_it() -> None:
    rows = [row(number, number < 6) for number in range(40)] + [row(50, None)]
    drawn = drawn_answers(rows, 10, 1)
    assert sum(int(key.partition("/")[0]) < 6 for key in drawn) == 5
    assert list(drawn_answers(rows, 10, 1)) == list(drawn)
    assert list(drawn_answers(rows, 10, 2)) != list(drawn)
    assert len(drawn_answers(rows, 30, 1)) == 30
    assert [int(key.partition("/")[0]) < 6 for key in drawn_answers(rows, 100, 1)] != sorted(
        (int(key.partition("/")[0]) < 6 for key in drawn_answers(rows, 100, 1)), reverse=True
    )
    assert drawn_answers(rows, 10, 1)[next(iter(drawn))][0] == "r"


def test_rates_are_corrected_for_every_attack_and_the_raw_ones_stay() -> None:
    rows = [row(number, number < 10) for number in range(40)] + [row(number, False, "none") for number in range(40)]
    labels = {f"{number}/role-play/0": number < 8 for number in range(20)} | {f"{number}/none/0": False for number in range(20)}
    metrics = label_metrics(rows, {"alice": labels})
    # 8 of 10 found are breaches, none of the 30 labelled others.
    assert metrics["sensitivity"].value == 1.0
    assert metrics["specificity"].value == pytest.approx(70 / 72)
    corrected = metrics["corrected.breach"]
    assert corrected.value == pytest.approx((10 / 40 + 70 / 72 - 1) / (70 / 72))
    assert 0 < corrected.low < corrected.value < corrected.high < 1
    assert metrics["corrected.breach.none"].low == 0.0
    assert "agreement.labellers" not in metrics
    both = label_metrics(rows, {"alice": labels, "bob": {**labels, "0/role-play/0": False}})
    assert both["agreement.labellers"].value < 1
    assert label_metrics(rows, {}) == {}


def test_a_labelled_sheet_becomes_corrected_rates_beside_the_raw_ones(parley: Parley) -> None:
    parley("scan demo")
    before = json.loads(Path("runs/scan/summary.json").read_text())["metrics"]
    written = parley("label runs/scan --num 40 --json")
    assert json.loads(written.out) == {"sheet": "runs/scan/sheet.csv", "answers": 40}, written.err
    assert "parley label runs/scan --sheet runs/scan/sheet.csv" in written.err
    assert "the sheet has no label" in parley("label runs/scan --sheet runs/scan/sheet.csv").err
    with Path("runs/scan/sheet.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["key", "rules", "asked", "reply", "label", "note"]
    with Path("alice.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(line | {"label": "broken" if "SAVE50" in line["reply"] else "kept"} for line in lines)
    read = parley("label runs/scan --sheet alice.csv --json")
    assert (read.status, "corrected" in read.err, "Labelled answers: alice 40" in read.err) == (0, True, True), read.err
    metrics = json.loads(read.out)["metrics"]
    assert {name: metrics[name] for name in before} == before
    assert metrics["sensitivity"]["value"] == metrics["specificity"]["value"] == 1.0
    assert metrics["corrected.breach"]["value"] == pytest.approx(metrics["breach"]["value"])
    assert "corrected" in Path("runs/scan/report.html").read_text()
    Path("alice_final.csv").write_bytes(Path("alice.csv").read_bytes())
    assert "kept from before" not in read.err
    # A run at a URI keeps its labels there.
    uri = f"file://{Path.cwd()}/store/scan"
    shutil.copytree("runs/scan", "store/scan", ignore=shutil.ignore_patterns("labels", "lock"))
    Path("store/scan/log").mkdir()
    Path("store/scan/events.jsonl").rename("store/scan/log/00000.jsonl")
    there = parley(f"label {uri} --sheet alice.csv --json")
    assert json.loads(there.out)["metrics"]["corrected.breach"] == metrics["corrected.breach"], there.err
    assert Path("store/scan/labels/alice.csv").read_bytes() == Path("alice.csv").read_bytes()
    twice = parley("label runs/scan --sheet alice_final.csv").err
    assert "kept from before, and joined with it: alice.csv; delete runs/scan/labels/NAME" in twice, twice
    assert "num is out of range" in parley("label runs/scan --num 0").err
    again = parley("scan demo --json", "--fail-if", "corrected.breach.low < 0.9")
    assert json.loads(again.out)["fail_if"][0]["holds"] is True, again.err
    Path("alice.csv").write_text(Path("alice.csv").read_text().replace("kept", "fine", 1))
    assert "a label is kept or broken, or empty" in parley("label runs/scan --sheet alice.csv").err
    assert "only answers of finished scans" in parley("label runs").err or "there is no run here" in parley("label runs").err
