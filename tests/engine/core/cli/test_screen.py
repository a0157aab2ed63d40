"""Watching a job: pace, plain lines now and then, a live line on a terminal."""

from __future__ import annotations

import io
import logging
import re
import warnings

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from parley.engine.core.cli import screen as screens
from parley.engine.core.cli.screen import (
    LiveScreen,
    PlainScreen,
    Stage,
    make_console,
    show_error,
    show_lines,
    show_table,
    watching,
)
from parley.envs.core.errors import ConfigError
from parley.envs.core.visible import visible


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[PlainScreen, Clock, io.StringIO]:
    clock, text = Clock(), io.StringIO()
    return PlainScreen(Console(file=text, width=200), clock), clock, text


def test_pace_counts_from_the_first_news() -> None:
    clock = Clock()
    stage = Stage("match", 1000, "dialogues", clock)
    assert stage.at(500) == "match: 500/1,000 dialogues", "a resumed stage begins where it was left"
    clock.now += 10
    assert stage.at(500, "2 workers") == "match: 500/1,000 dialogues, 2 workers"
    assert stage.at(600) == "match: 600/1,000 dialogues, 10 dialogues/s, 0:40 left"
    clock.now += 90
    assert stage.at(1000) == "match: 1,000/1,000 dialogues, 5 dialogues/s, 0:00 left"


def test_hardly_any_work_tells_no_pace() -> None:
    clock = Clock()
    stage = Stage("search", 20, "targets", clock)
    assert stage.at(0) == "search: 0/20 targets"
    clock.now += 6
    assert stage.at(0.0003) == "search: 0/20 targets, 0:06 so far"
    clock.now += 4
    assert stage.at(0.5) == "search: 0/20 targets, 0.05 targets/s, 6:30 left"


def test_a_slow_stage_is_told_by_the_hour() -> None:
    times = iter([0.0, 0.0, 3600.0, 7200.0])
    stage = Stage("trainings", 24, "stages", lambda: next(times))
    stage.at(0)
    assert stage.at(6) == "trainings: 6/24 stages, 6 stages/h, 3:00:00 left"
    assert stage.at(23.5) == "trainings: 23/24 stages, 11.8 stages/h, 2:33 left"


def test_a_stage_of_unknown_length_has_a_pace_and_no_end() -> None:
    clock = Clock()
    stage = Stage("train.txt", 0, "bytes", clock)
    stage.at(0)
    clock.now += 2
    assert stage.at(4000) == "train.txt: 4,000 bytes, 2,000 bytes/s"


def test_a_stage_that_counts_nothing_takes_the_place_of_the_one_before() -> None:
    screen, clock, text = plain()
    screen.stage("judging", 4, "fits")
    screen.advance(4)
    screen.stage("computing metrics", 0, "")
    screen.beat()
    clock.now += 11
    screen.beat()
    assert text.getvalue() == "computing metrics, 0:11 so far\n"


def test_plain_lines_come_every_few_seconds_at_most() -> None:
    screen, clock, text = plain()
    screen.stage("learning", 100, "updates")
    for done in range(1, 101):
        clock.now += 0.5
        screen.advance(done, "reward +1.00")
    lines = text.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "learning: 10/100 updates, 2 updates/s, 0:45 left, reward +1.00"


def test_short_stages_are_passed_over_in_silence_and_words_are_kept() -> None:
    screen, clock, text = plain()
    for epoch in (1, 2):
        screen.stage(f"epoch {epoch}", 3, "batches")
        for done in (1, 2, 3):
            clock.now += 0.5
            screen.advance(done)
        screen.say(f"epoch {epoch} [bold]done[/]")
    assert text.getvalue() == "epoch 1 [bold]done[/]\nepoch 2 [bold]done[/]\n"


def test_there_is_a_line_within_a_second_and_none_where_another_came_or_a_person_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(screens, "FIRST_S", 1.0)
    shown = []
    for what in ("silent", "heard", "begun", "asked"):
        clock, text = Clock(), io.StringIO()
        plain_screen = PlainScreen(Console(file=text, width=200), clock, "models are being read")
        if what == "heard":
            plain_screen.say("ready")
        if what == "begun":
            plain_screen.stage("learning", 4, "updates")
        if what == "asked":
            screens._answering.set()
        for _ in range(3):
            clock.now += 0.9
            plain_screen.beat()
        screens._answering.clear()
        shown.append(text.getvalue())
    assert shown == ["models are being read\n", "ready\n", "learning: 0/4 updates\n", ""]
    console = Console(file=(text := io.StringIO()), force_terminal=True, width=100)
    with Progress(console=console) as line:
        live = LiveScreen(line, "models are being read")
        live.beat()
        live.beat()
    assert text.getvalue().count("models are being read") == 1


def test_a_live_line_shows_one_stage_at_a_time() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    with Progress(TextColumn("{task.description}", markup=False), console=console) as line:
        screen = LiveScreen(line)
        screen.stage("first", 3, "updates")
        screen.advance(2, "so far")
        screen.stage("second", 5, "updates")
        screen.advance(4, "nearly")
        screen.say("a line worth keeping")
        assert [(task.description, task.completed) for task in line.tasks] == [("second: 4/5 updates, nearly", 4)]
    assert "a line worth keeping" in text.getvalue()


def test_a_terminal_gets_a_live_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with watching() as reporter:
        assert isinstance(reporter, LiveScreen)
        reporter.stage("learning", 3, "updates")
        reporter.advance(3)
    assert capsys.readouterr().out == ""


def test_a_narrow_terminal_shows_the_whole_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    note = ", ".join(f"trial {number}: {number}0/99 steps" for number in range(5))
    with watching() as reporter:
        reporter.stage("sweeping", 9, "trials")
        reporter.advance(1, note)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert all(f"{number}0/99" in shown for number in range(5))


def test_warnings_are_shown_while_a_job_is_watched_and_not_after(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    with watching():
        logging.getLogger("parley.engine.core.runs.parts").warning("%s is damaged", "part-00001")
        logging.getLogger("parley.engine.core.runs.parts").info("nothing to see")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a number overflowed", RuntimeWarning, stacklevel=1)
    shown = capsys.readouterr().err
    assert "warning: part-00001 is damaged\n" in shown
    assert "a number overflowed" in shown
    assert "nothing to see" not in shown
    assert root.handlers == before


HOSTILE = "runs/\x1b]0;mine\x07 \x9b2J \u202egnp \r over"


@pytest.mark.parametrize("colours", [True, False])
def test_nothing_that_a_terminal_obeys_gets_through(
    colours: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if colours:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.delenv("NO_COLOR", raising=False)
    console = make_console()
    show_error(ConfigError(HOSTILE, where=HOSTILE, got=HOSTILE))
    show_lines(console, "files", [HOSTILE])
    show_table(console, HOSTILE, ("name", "n"), [[HOSTILE, "1"]], right=("n",))
    with watching() as watcher:
        watcher.stage(HOSTILE, 3, "updates")
        watcher.advance(1, HOSTILE)
        watcher.say(HOSTILE)
        logging.getLogger("parley.engine.core.runs.parts").warning(HOSTILE)
    shown = capsys.readouterr().err
    assert shown.count(r"\u001b]0;mine") >= 6
    assert r"\u202egnp" in shown
    # Colours and the moving line are all that is left.
    left = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\n", "").replace("\r", "")
    assert visible(left) == left
