"""What a sweep shows of the trials that run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.tune.experiment import Trial

from parley.engine.core.ray.ray_internals import ProgressBoard
from parley.engine.core.ray.session import RaySession
from parley.engine.core.stats.statistics import Estimate
from parley.engine.core.verbs.job import Silent
from parley.tune.driver import SHOWN, _Results
from parley.tune.trial import BUDGET, EVERY_S, HIGH, LOW, NUM, OBJECTIVE, Ledger, Study, TrialReporter
from tests.tune.test_ledger import PLAN, SAMPLES, opened, setup_of


def test_a_trial_tells_each_stage_and_how_far_it_is_now_and_then() -> None:
    now, lines = [0.0], list[str]()
    reporter = TrialReporter(lines.append, "dialogues 500", lambda: now[0])
    reporter.stage("playing", 500, "dialogues")
    reporter.say("nobody judges")
    for now[0] in (EVERY_S / 2, EVERY_S, EVERY_S * 1.5):
        reporter.advance(int(100 * now[0]), "agreed 0.4")
    reporter.stage("measuring", 0, "steps")
    assert lines == ["dialogues 500: playing", "dialogues 500: 200/500 dialogues, agreed 0.4", "dialogues 500: measuring"]


@pytest.mark.ray
def test_a_line_is_read_where_the_driver_is(ray_session: RaySession) -> None:
    board, other = ProgressBoard(), ProgressBoard()
    assert board.line(3) == ""
    put = ray.remote(lambda board, line: board.put(3, line))
    ray.get(put.remote(board, "two updates: Ā"))
    assert (board.line(3), other.line(3), board.line(30)) == ("two updates: Ā", "", "")
    ray.get(put.remote(board, "three"))
    assert board.line(3) == "three"
    board.clear(3)
    assert board.line(3) == ""


def test_without_an_answer_of_the_head_a_line_is_lost_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(*_: str, **__: str) -> str:
        raise ConnectionError("no head")

    for name in ("put", "get", "del"):
        monkeypatch.setattr(f"ray.experimental.internal_kv._internal_kv_{name}", unanswered)
    board = ProgressBoard()
    TrialReporter(lambda line: board.put(3, line), "dialogues 500").stage("playing", 500, "dialogues")
    assert board.line(3) == ""
    board.clear(3)


class Heard(Silent):
    notes: list[tuple[int, str]]

    def advance(self, done: float, note: str = "") -> None:
        self.notes.append((done, note))


class Lines(ProgressBoard):
    """A board that needs no Ray."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}

    def line(self, number: int) -> str:
        return self.lines.get(number, "")

    def clear(self, number: int) -> None:
        self.lines.pop(number, None)


def test_a_sweep_tells_what_its_trials_tell_and_are_worth(tmp_path: Path) -> None:
    reporter, board, numbers = Heard(), Lines(), dict[str, int]()
    reporter.notes = []
    with opened(tmp_path) as folder:
        setup = setup_of(tmp_path)
        ledger = Ledger(folder, setup, Study(PLAN.space, PLAN.direction, setup.seed), SAMPLES, reporter)

        def told(*trials: Any) -> str:
            results = _Results(ledger, numbers, 60.0, board)
            for trial in trials:
                for value in trial.worth:
                    found = {OBJECTIVE: value, LOW: value, HIGH: value, NUM: 9, BUDGET: setup.budgets[0]}
                    results.on_trial_result(1, [*trials], trial, found)
            results.on_step_end(1, [*trials])
            return reporter.notes[-1][1]

        assert told() == "no trial has begun"
        trials = []
        for _ in range(SHOWN + 2):
            number, _ = ledger.next_trial()
            numbers[f"t{number}"] = number
            trials.append(SimpleNamespace(trial_id=f"t{number}", status=Trial.RUNNING, worth=[]))
        board.lines = {1: "dialogues 500: playing"}
        assert told(trials[0]) == "1 running; trial 0: starting"
        trials[1].worth = [0.25]
        assert told(*trials[:2]).endswith(f"trial 1: 0.25 at {setup.budgets[0]}, dialogues 500: playing")
        assert told(*trials).endswith(f"trial {SHOWN - 1}: starting; and 2 more")
        ledger.end(0, {setup.budgets[-1]: Estimate(0.5, 0.4, 0.6, 9)})
        assert told(trials[1]) == "best 0.5 (trial 0), 0:00 so far, 1 running; trial 1: 0.25 at 2, dialogues 500: playing"
