"""The page of a folder of several runs: how each of them stands."""

from __future__ import annotations

from pathlib import Path

from parley.engine.core.page.page import collect_run, report_from_run
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import NOTHING
from parley.engine.negotiation.verbs.match import DIALOGUES
from parley.engine.negotiation.verbs.table import TableConfig
from tests.engine.core.page.test_collect import Config, figures, matches, measure, play
from tests.engine.negotiation.page.dialogues import error_row, row


def fail(path: Path, reason: str) -> None:
    """A run whose every item failed."""
    with RunFolder.open(path, Config(), job="selfplay", schema=DIALOGUES) as run:
        run.write_shard("00000", [error_row(key, reason) for key in "abc"])
        run.write_summary({"advantage": NOTHING}, {"title": "IT against itself"})


def test_folder_of_runs_says_of_each_how_it_stands_and_what_came_of_it(tmp_path: Path) -> None:
    measure(tmp_path / "one", "attack-rl", figures(3), title="RL attack on some/deep/a/negotiator")
    report_from_run(tmp_path / "one")
    measure(tmp_path / "two", "attack-reactive", figures(5), title="reactive attack on some/deep/b/negotiator")
    fail(tmp_path / "broken", "RuntimeError: boom")
    RunFolder.open(tmp_path / "half", TableConfig(), job="attack-table", schema=DIALOGUES).close()
    data = collect_run(tmp_path)
    assert data.title == f"4 runs in {tmp_path}"
    lines = {line.name: line for line in data.overview}
    assert [*lines] == ["one", "two", "broken", "half"]
    assert (lines["one"].page, lines["two"].page) == ("one/report.html", "")
    assert (lines["one"].state, lines["one"].job) == ("finished", "attack-rl")
    assert lines["one"].outcome.startswith("A trained adversary ends 3.00 points from the target: it is certainly ahead.")
    assert lines["broken"].state == "every item failed, 3 of 3 with: RuntimeError: boom"
    assert lines["half"].state == f"interrupted: 0 items are done; go on with: parley resume {tmp_path / 'half'}"
    assert [match.heading for match in matches(data)] == ["RL attack on a/negotiator", "reactive attack on b/negotiator"]
    page = report_from_run(tmp_path).read_text()
    assert '<a href="one/report.html">one</a>' in page
    assert 'id="verdict"' not in page
    assert "IT against itself" not in page.split('id="run"')[0], "a failed run has no column of its own"
    assert collect_run(tmp_path / "broken").state == lines["broken"].state
    assert collect_run(tmp_path / "broken").overview == []


def test_a_damaged_run_keeps_the_others_from_no_page(tmp_path: Path) -> None:
    for name in ("part", "summary", "whole"):
        play(tmp_path / name, [row("a", (9, 1))])
    (part,) = (tmp_path / "part" / "rows").iterdir()
    part.write_bytes(part.read_bytes()[:-20])
    (tmp_path / "summary" / "summary.json").write_text("")
    found = collect_run(tmp_path)
    states = {line.name: line.state for line in found.overview}
    assert [state.partition(":")[0] for state in states.values()] == ["damaged", "damaged", "finished"]
    assert f"parley resume {tmp_path / 'part'}" in states["part"]
    assert "summary.json" in states["summary"]
    assert found.title == f"3 runs in {tmp_path}"
    assert len(matches(found)) == 1
    assert "damaged: " in report_from_run(tmp_path).read_text()
