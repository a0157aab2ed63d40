"""Work that says nothing for a while is seen to go on."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from parley.engine.core.cli import runs
from parley.engine.core.cli.screen import SILENCE_S, PlainScreen, Stage, beating
from parley.engine.core.verbs.job import Reporter, Silent
from tests.engine.core.cli.conftest import Parley


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_before_there_is_a_pace_the_time_so_far_is_told() -> None:
    clock = Clock()
    stage = Stage("searching", 100, "targets", clock)
    assert stage.at(0, "3,649 candidates/s") == "searching: 0/100 targets, 3,649 candidates/s"
    clock.now = 65
    assert stage.at(0, "3,649 candidates/s") == "searching: 0/100 targets, 1:05 so far, 3,649 candidates/s"


def test_a_silent_stage_speaks_now_and_then() -> None:
    clock, out = Clock(), io.StringIO()
    screen = PlainScreen(Console(file=out, width=140), clock)
    screen.beat()
    screen.stage("sweeping search", 3, "trials")
    for second in range(1, 31):
        clock.now = float(second)
        screen.beat()
    lines = out.getvalue().splitlines()
    assert lines[0] == "sweeping search: 0/3 trials, 0:10 so far"
    assert len(lines) == int(30 / SILENCE_S)


@pytest.mark.parametrize("command", ["compare nowhere elsewhere", "rows nowhere rows.csv", "report nowhere"])
def test_verbs_that_read_runs_say_so_within_a_second(command: str, parley: Parley, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    @contextmanager
    def watching(first: str = "") -> Iterator[Reporter]:
        lines.append(first)
        yield Silent()

    monkeypatch.setattr(runs, "watching", watching)
    assert parley(command).status == 2
    assert lines == [runs.READING]


def test_a_beat_ends_with_its_block() -> None:
    heard = threading.Event()
    with beating(heard.set, every_s=0.01):
        assert heard.wait(60)
    assert "screen" not in {thread.name for thread in threading.enumerate()}


def test_a_strategy_of_a_group_whose_data_are_not_there_is_left_out(
    parley: Parley, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("the good dog\n")
    monkeypatch.setattr("parley.engine.perturb.strategies.grammar.open_corrections", missing)
    outcome = parley("perturb should-not-change,antonym --input in.txt --set perturb.lexicon=built-in --seed 1")
    assert outcome.status == 0
    assert "grammar-errors is left out: nothing is there; put it there" in outcome.err
    assert "antonym" in outcome.out
    assert "random-swap leaves utterances of fewer than 4 words alone" in outcome.err
    outcome = parley("perturb grammar-errors --input in.txt --set perturb.lexicon=built-in")
    assert outcome.status == 2
    assert "nothing is there" in outcome.err


def missing(*_: object) -> None:
    from parley.envs.core.errors import DataError

    raise DataError("nothing is there", fix="put it there")
