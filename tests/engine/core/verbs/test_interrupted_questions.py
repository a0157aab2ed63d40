"""Ctrl-C and SIGTERM end a command within seconds while a server leaves its questions open; what it answered is kept."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from parley.engine.core.cli.main import INTERRUPTED, TERMINATED
from parley.policies.chat.model import ANSWERS
from tests.engine.core.ray.workers import until
from tests.engine.core.verbs.made_up import start_parley
from tests.policies.chat import answer_kinds as kinds
from tests.policies.chat.fake_server import Said, serving

NUM_ANSWERED, SECONDS = 3, 30
"""Answers that come, and seconds that an end may take on a busy machine: 2 on an idle one. A question may take 6 times 60."""


def open_questions(number: int, body: dict[str, Any]) -> Said:
    """Answers a few questions, and no other."""
    return Said(b"", slow_s=600) if number >= NUM_ANSWERED else kinds.play(number, body)


@pytest.mark.parametrize(
    ("number", "status", "workers"),
    [
        (signal.SIGINT, INTERRUPTED, 0),
        (signal.SIGTERM, TERMINATED, 0),
        pytest.param(signal.SIGINT, INTERRUPTED, 1, marks=[pytest.mark.ray, pytest.mark.slow]),
        pytest.param(signal.SIGTERM, TERMINATED, 1, marks=pytest.mark.ray),
    ],
)
def test_a_command_ends_while_its_questions_are_open(number: signal.Signals, status: int, workers: int, tmp_path: Path) -> None:
    def num_kept() -> int:
        return sum(len(file.read_text().splitlines()) for file in tmp_path.rglob(ANSWERS))

    with serving(open_questions) as server:
        command = ["selfplay", "--adversary", "scripted", "--target", server.named("ok"), "--dialogues", "8"]
        with start_parley(*command, "--workers", str(workers), "--run", "run", folder=tmp_path) as driver:
            until(lambda: len(server.asked) > NUM_ANSWERED and num_kept() == NUM_ANSWERED)
            began = time.monotonic()
            driver.send_signal(number)
            driver.communicate(timeout=120)
            took = time.monotonic() - began
    assert driver.returncode == status
    assert num_kept() == NUM_ANSWERED
    assert took < SECONDS
