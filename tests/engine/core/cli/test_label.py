"""`parley perturb audit` and `parley perturb label`: from a strategy to a rate of wrong lines, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.engine.core.cli.conftest import Parley

DEMO = "perturb audit demo antonym --limit 20 --num-lines 4"


def test_a_strategy_is_typed_without_a_flag_with_a_preset_or_without(parley: Parley) -> None:
    assert parley(f"{DEMO} --json").status == 0
    command = json.loads(Path("runs/audit/summary.json").read_text())["command"]
    assert command == "parley perturb audit demo antonym --limit 20 --num-lines 4"
    told = parley("settings perturb audit random-swap --json")
    assert json.loads(told.out)["strategies"] == "random-swap"
    assert "did you mean 'antonym'" in parley("perturb audit antonim").err
    assert "strategies are typed without a flag" in parley("perturb audit demo --strategies=antonym").err
    assert "did you mean '--limit'" in parley("perturb audit --limt 3").err


def test_a_labelled_sheet_becomes_a_rate(parley: Parley) -> None:
    made = parley(DEMO)
    assert "parley perturb label runs/audit runs/audit/sheet.csv" in made.err
    assert "No line is labelled yet" in made.err
    sheet = Path("runs/audit/sheet.csv")
    lines = sheet.read_text().splitlines()
    Path("alice.csv").write_text("\n".join([lines[0], *(f"{line[:-1]}wrong," for line in lines[1:3]), *lines[3:]]))
    read = parley("perturb label runs/audit alice.csv --json")
    assert (read.status, "2 of 4 lines are labelled" in read.err, "runs/audit/report.html" in read.err) == (0, True, True)
    assert json.loads(read.out)["metrics"]["wrong.antonym"]["value"] == 1.0
    assert json.loads(parley(f"{DEMO} --json").out) == json.loads(read.out)
    assert "Labellers: alice 2." in parley(DEMO).err


def test_what_cannot_be_read_back_says_what_to_do(parley: Parley) -> None:
    parley(DEMO)
    assert "there is no sheet to read" in parley("perturb label runs/audit").err
    assert "the sheet has no label" in parley("perturb label runs/audit runs/audit/sheet.csv").err
    missing = parley("perturb label runs/nothing alice.csv")
    assert (missing.status, "runs/nothing" in missing.err) == (2, True)


def test_a_strategy_that_changes_nothing_has_a_page_too(parley: Parley) -> None:
    Path("mine.py").write_text(
        "from parley.engine.perturb.strategy import Expectation, OnUtterances\n"
        "class Nothing(OnUtterances):\n"
        "    name, expectation = 'nothing', Expectation.SHOULD_NOT_CHANGE\n"
        "    def utterance(self, words, rng):\n"
        "        return words\n"
    )
    made = parley("perturb audit demo mine.py:Nothing --limit 5")
    assert made.status == 0, made.err
    assert "No strategy found anything to change." in Path("runs/audit/report.html").read_text()
