"""Figures for TensorBoard: what is written, what a resumed training supersedes, and a disk that refuses."""

from __future__ import annotations

import logging
import math
import resource
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import SessionLog

from parley.engine.core.verbs.trainings import FOLDER, Scalars
from tests.engine.core.verbs.made_up import scalars, tensorboard_events


def test_scalars_are_there_as_soon_as_they_are_added(tmp_path: Path) -> None:
    with Scalars(tmp_path, behind=-1) as writer:
        writer.add(0, {"reward": 1.5, "turns": 3})
        assert scalars(tmp_path) == {"reward": [(0, 1.5)], "turns": [(0, 3.0)]}
        writer.add(1, {"reward": math.nan})
    step, value = scalars(tmp_path)["reward"][1]
    assert step == 1
    assert math.isnan(value)


def test_what_comes_after_the_last_saved_state_is_superseded(tmp_path: Path) -> None:
    with Scalars(tmp_path, behind=7):
        pass
    starts = [event for event in tensorboard_events(tmp_path) if event.session_log.status == SessionLog.START]
    assert [event.step for event in starts] == [8]


def test_a_disk_that_refuses_is_a_warning_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Scalars(tmp_path, behind=0) as writer:
        writer.add(1, {"reward": 1.0})
        size = sum(file.stat().st_size for file in (tmp_path / FOLDER).iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
        try:
            for step in range(2, 40):
                writer.add(step, {"reward": 1.0})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "one for all"
    assert "TensorBoard" in caplog.text


def test_a_folder_that_cannot_be_made_is_a_warning_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("")
    with Scalars(tmp_path, behind=0) as writer:
        writer.add(1, {"reward": 1.0})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
