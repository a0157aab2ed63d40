"""Rows of rankings and of attacks on rankers as flat files: a line for each smallest thing, from which figures follow again."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow.parquet import read_table

from parley.engine.core.verbs.export import write_flat
from parley.engine.core.verbs.job import Silent
from parley.engine.ranking.verbs.attack import ATTACK_RANKING
from parley.engine.ranking.verbs.ranking import EVALUATE_RANKING
from tests.engine.core.verbs.made_up import Notes, interrupt, rows
from tests.engine.ranking.verbs.rankings import asked, attacks, own


def lines_of(run: Path) -> list[dict[str, Any]]:
    """The lines of the flat file of a run."""
    file = run.parent / f"{run.name}.parquet"
    file.unlink(missing_ok=True)
    write_flat(str(run), str(file), Silent())
    return list(read_table(file).to_pylist())


def right_first(lines: list[dict[str, Any]], model: str, rule: str) -> float:
    """R10@1 as docs/ranking.md computes it."""
    of = [line for line in lines if (line["model"], line["rule"]) == (model, rule)]
    changed = Counter[str]()
    for line in of:
        changed[line["item_key"]] += line["num_changed"]
    right = [line for line in of if line["label"] and (rule == "clean" or changed[line["item_key"]])]
    return float(np.mean([(line["rank"] == (line["tied"] + 1) / 2) / line["tied"] for line in right]))


def test_a_candidate_under_a_rule_by_a_ranker_is_a_line_and_figures_follow_exactly(tmp_path: Path) -> None:
    config = asked("tfidf,bm25", rules="iiw,rsw,sow", lexicon="built-in", controls=True)
    result, notes = EVALUATE_RANKING.run(config, tmp_path / "run", Silent()), Notes()
    written = write_flat(str(tmp_path / "run"), str(tmp_path / "flat.parquet"), notes)
    stored, lines = rows(tmp_path / "run"), lines_of(tmp_path / "run")
    models = {entry["model"] for entry in stored[0]["ranked"]}
    assert len(models) > 5
    assert len(lines) == 10 * 10 * (3 + 1) * len(models)
    assert (written.num_rows, written.num_lines, written.num_failed, written.finished) == (10, len(lines), 0, True)
    assert notes.steps[-1] == 10
    for model in models:
        for rule, name in (("clean", "r@1"), ("iiw", "r@1"), ("rsw", "r@1"), ("sow", "a@1")):
            assert right_first(lines, model, rule) == result.metrics[f"{name}.{model}.{rule}"].value, (model, rule)
    assert {line["tied"] for line in lines if line["model"] == "constant"} == {10}
    by_key = {row["item_key"]: row for row in stored}
    for line in lines:
        row = by_key[line["item_key"]]
        assert (line["status"], line["seed"], line["dialogue"], line["context"]) == (
            *("ok", row["seed"], row["dialogue"]),
            row["context"],
        )
        changed = line["text"] != row["candidates"][line["place"]]
        assert changed <= (line["num_changed"] > 0) <= (line["rule"] != "clean")
        assert (line["label"], line["kind"]) == (row["labels"][line["place"]], row["kinds"][line["place"]])
    assert {(line["rule"], line["keeps_labels"]) for line in lines} == {
        *(("clean", True), ("iiw", True), ("rsw", True), ("sow", False))
    }


def test_a_ranker_that_gives_no_scores_has_lines_that_say_why(tmp_path: Path) -> None:
    EVALUATE_RANKING.run(asked(f"tfidf,{own(tmp_path)}:Moody"), tmp_path / "run", Silent())
    lines = lines_of(tmp_path / "run")
    assert len(lines) == 10 * 10 * (3 + 1) * 2
    failed = [line for line in lines if line["status"] == "error"]
    assert {(line["model"], line["rule"]) for line in failed} == {("Moody", "ngr")}
    assert all("no apologies" in line["error"] and line["text"] for line in failed)
    assert {line["score"] is None for line in failed} == {line["rank"] is None for line in failed} == {True}
    assert all(line["error"] is None and line["score"] is not None for line in lines if line not in failed)


def test_a_run_that_was_broken_off_gives_what_it_has_and_a_resumed_one_everything(tmp_path: Path) -> None:
    interrupt(EVALUATE_RANKING, asked(), tmp_path / "run", done=4)
    written = write_flat(str(tmp_path / "run"), str(tmp_path / "part.csv"), Silent())
    assert (written.num_rows, written.num_lines, written.finished) == (4, 4 * 10 * 4, False)
    EVALUATE_RANKING.run(asked(), tmp_path / "run", Silent())
    EVALUATE_RANKING.run(asked(), tmp_path / "whole", Silent())
    assert lines_of(tmp_path / "run") == lines_of(tmp_path / "whole")


def test_lines_are_written_some_parts_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EVALUATE_RANKING.run(asked(), tmp_path / "run", Silent())
    together = lines_of(tmp_path / "run")
    monkeypatch.setattr("parley.engine.core.verbs.export._LINES", 1)
    assert lines_of(tmp_path / "run") == together


def test_an_attack_by_a_method_on_a_ranker_is_a_line(tmp_path: Path) -> None:
    result = ATTACK_RANKING.run(attacks("tfidf,bm25"), tmp_path / "run", Silent())
    stored, lines = rows(tmp_path / "run"), lines_of(tmp_path / "run")
    assert len(lines) == sum(len(row["searches"]) for row in stored)
    assert len(lines) == 10 * len({(line["model"], line["method"]) for line in lines})
    candidates = {row["item_key"]: row["candidates"] for row in stored}
    for model in ("tfidf", "bm25"):
        tried = [line for line in lines if (line["model"], line["method"]) == (model, "greedy") and line["text"] is not None]
        assert tried
        assert all(line["original"] == candidates[line["item_key"]][line["place"]] for line in tried)
        assert all(line["label"] is False for line in tried), "wrong replies are promoted"
        hits = [line["outcome"] == "success" and line["queries"] <= 30 for line in tried]
        assert np.mean(hits) == result.metrics[f"success@30.{model}.greedy"].value


def test_an_attack_on_a_ranker_that_dies_is_a_line_with_its_reason(tmp_path: Path) -> None:
    ATTACK_RANKING.run(attacks(f"tfidf,{own(tmp_path)}:Sour"), tmp_path / "run", Silent())
    lines = lines_of(tmp_path / "run")
    failed = [line for line in lines if line["outcome"] == "error"]
    assert {line["model"] for line in failed} == {"Sour"}
    assert all(line["status"] == "error" and "too long" in line["error"] for line in failed)
    assert all(line["status"] == "ok" for line in lines if line["outcome"] != "error")


def test_the_page_computes_what_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[4] / "docs" / "ranking.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    result = EVALUATE_RANKING.run(asked(f"tfidf,{own(tmp_path)}:Moody", controls=True), tmp_path / "run", Silent())
    write_flat(str(tmp_path / "run"), str(tmp_path / "ranking.parquet"), Silent())
    monkeypatch.chdir(tmp_path)
    exec(code, names := {})
    found = names["first"].groupby([names["right"]["model"], names["right"]["rule"]]).mean().to_dict()
    assert len(found) == 8 * 4 - 2, "all but the rule under which a ranker and its control give no scores"
    for (model, rule), value in found.items():
        name = "r@1" if rule in ("clean", "iiw") else "a@1"
        assert value == pytest.approx(result.metrics[f"{name}.{model}.{rule}"].value, abs=1e-12), (model, rule)
    assert "constant" in capsys.readouterr().out
