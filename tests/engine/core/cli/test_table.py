"""`parley table`, as it is typed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tests.engine.core.cli.conftest import Parley


def test_the_tables_of_a_run_are_shown_and_written(parley: Parley) -> None:
    parley("evaluate ranking --limit 6 --lexicon built-in --rules iiw --set num_erased=0 --no-controls")
    shown = parley("table runs/ranking --heading FIRST")
    assert shown.status == 0, shown.err
    assert "Right replies in the first place" in shown.out
    assert "Candidates as they are" not in shown.out
    for name in ("new/tables.csv", "tables.json", "tables.tex", "tables.md", "tables.html"):
        written = parley(f"table runs/ranking {name}")
        assert (written.status, written.out) == (0, ""), written.err
        assert f"files:\n  {name}\n" in written.err
    with Path("new/tables.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    summary = json.loads(Path("runs/ranking/summary.json").read_text())["metrics"]
    figure = next(record for record in records if (record["row"], record["column"]) == ("tfidf", "clean R10@1"))
    assert float(figure["value"]) == summary["r@1.tfidf.clean"]["value"]
    assert json.loads(Path("tables.json").read_text())["records"][0]["text"] == records[0]["text"]


def test_a_run_without_tables_shows_its_metrics(parley: Parley) -> None:
    parley("selfplay scripted --dialogues 3")
    shown = parley("table runs/selfplay")
    assert "agreement" in shown.out, shown.err
    assert "few" in shown.out


def test_mistakes_say_what_to_do_and_leave_no_file(parley: Parley) -> None:
    parley("selfplay scripted --dialogues 3")
    Path("there.csv").write_text("mine")
    for command, message in (
        ("table runs/nothing", "there is no run here"),
        ("table runs/selfplay tables.xlsx", "name a file that ends in .md, .csv, .json, .tex, .html"),
        ("table runs/selfplay there.csv", "name another file, or delete this one"),
        ("table runs/selfplay --heading judges", "no table of the run has that heading"),
    ):
        outcome = parley(command)
        assert (outcome.status, message in outcome.err) == (2, True), outcome.err
    assert Path("there.csv").read_text() == "mine"
    Path("runs/selfplay/summary.json").unlink()
    assert "parley resume runs/selfplay" in parley("table runs/selfplay").err
