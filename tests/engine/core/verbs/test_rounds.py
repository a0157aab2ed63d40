"""Campaigns made of rounds: when they end, and that one that was interrupted goes on with the next round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.known import Round
from parley.engine.core.stats.statistics import Estimate, count
from parley.engine.core.verbs import composite
from parley.engine.core.verbs.campaign import STOPPED, StopRule, make_rounds, rounds_of
from parley.envs.core.config import Configuration
from tests.engine.core.verbs.made_up import Notes

RULE = StopRule(6, 2, 0.5, lambda one: one.metrics["loss"].value, "the loss has not fallen")


@dataclass(frozen=True, kw_only=True)
class CourseConfig(Configuration):
    """Nothing is asked for."""


class Course:
    """A campaign whose losses are known; it may be interrupted in a round."""

    def __init__(self, run: RunFolder, losses: Sequence[float]) -> None:
        self.run, self.losses, self.notes = run, losses, Notes()
        self.made: list[int] = []
        self.shown: list[list[int]] = []

    def measured(self, number: int) -> dict[str, Estimate]:
        if number == len(self.losses):
            raise KeyboardInterrupt
        self.made.append(number)
        return {"loss": count(self.losses[number], 3)}

    def rounds(self) -> list[Round]:
        return make_rounds(
            self.run, RULE, self.measured, lambda rounds: self.shown.append([one.number for one in rounds]), self.notes
        )


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.open(tmp_path / "run", CourseConfig(), job="made-up")


def test_a_campaign_stops_when_rounds_no_longer_help_and_goes_on_after_an_interruption(run: RunFolder) -> None:
    with pytest.raises(KeyboardInterrupt):
        Course(run, [3.0, 2.0]).rounds()
    assert [one.number for one in rounds_of(run)] == [0, 1]
    course = Course(run, [9.0, 9.0, 1.9, 1.8, 0.0, 0.0, 0.0])
    rounds = course.rounds()
    assert [one.metrics["loss"].value for one in rounds] == [3.0, 2.0, 1.9, 1.8]
    assert (course.made, course.shown) == ([2, 3], [[0, 1], [2], [3]])
    assert course.notes.said == ["stopped after round 3: the loss has not fallen by 0.5 in 2 rounds"]
    assert rounds == rounds_of(run) == Course(run, []).rounds()
    stops = [event for event in run.events() if event["kind"] == STOPPED]
    assert [(event["number"], event["reason"]) for event in stops] == [(3, "the loss has not fallen by 0.5 in 2 rounds")]


def test_a_campaign_whose_rounds_help_makes_all_of_them(run: RunFolder) -> None:
    course = Course(run, [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    assert len(course.rounds()) == 1 + RULE.rounds
    assert not course.notes.said


@pytest.mark.parametrize(("num", "more"), [(5, []), (7, ["and 2 more of stages"])])
def test_of_many_warnings_of_stages_five_are_shown_and_the_others_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num: int, more: list[str]
) -> None:
    for number in range(num):
        RunFolder.open(tmp_path / f"stage-{number}", CourseConfig(), job="test").close()
        (tmp_path / f"stage-{number}" / SUMMARY).touch()
    monkeypatch.setattr(RunFolder, "outcomes", lambda run: None)
    monkeypatch.setattr(RunFolder, "summary", lambda run: {})
    monkeypatch.setattr(composite, "failure_of", lambda outcomes: "all failed")
    assert composite.warnings_of_stages(tmp_path, {}) == [f"stage-{number}: all failed" for number in range(5)] + more
