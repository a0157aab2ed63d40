"""Code of a user's own: what it raises, that it may not end the process, and how long it may take."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.envs.core import registry as own_code
from parley.envs.core.errors import ConfigError, ModelError
from parley.envs.core.registry import MAX_HANGS, Registry, TimedCalls, own_start


def test_an_exit_of_the_code_is_an_error_of_its_file() -> None:
    with pytest.raises(ConfigError, match="SystemExit: 3"), own_code.own_code("mine.py:Mine"):
        sys.exit(3)


def test_only_a_line_of_the_file_itself_is_named(tmp_path: Path) -> None:
    for folder, text in (("own", "def wrong():\n    raise ValueError('here')\n"), ("other", "\n\n\n\n\n\nmake()\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "agents.py").write_text(text)
    own = tmp_path / "own" / "agents.py"
    wrong = Registry("part", "parley.none").get(f"{own}:wrong")
    other = compile((tmp_path / "other" / "agents.py").read_text(), str(tmp_path / "other" / "agents.py"), "exec")
    with pytest.raises(ConfigError) as caught, own_code.own_code(f"{own}:Mine"):
        exec(other, {"make": wrong})
    assert caught.value.where == f"{own}:2"
    with pytest.raises(ConfigError) as caught, own_code.own_code(f"{own}:Mine"):
        exec(other, {"make": lambda: int("x")})
    assert caught.value.where == str(own)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


def test_an_exit_of_the_process_passes() -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    try:
        with pytest.raises(SystemExit), own_code.own_code("mine.py:Mine"):
            terminate()
    finally:
        signal.signal(signal.SIGTERM, before)


def forever() -> None:
    while True:
        time.sleep(0.01)


def test_what_never_starts_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_code, "START_LIMIT_S", 0.05)
    with pytest.raises(ConfigError, match=r"more than 0\.05 s to start"), own_start("mine.py:Mine"):
        forever()
    (tmp_path / "mine.py").write_text("import time\nwhile True: time.sleep(0.01)\n")
    with pytest.raises(ConfigError, match=r"more than 0\.05 s to start"):
        Registry("part", "parley.none").get(f"{tmp_path}/mine.py:Mine")


def test_an_alarm_at_the_last_moment_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    set_timer, answer = signal.setitimer, signal.getsignal(signal.SIGALRM)

    def late(which: int, seconds: float) -> tuple[float, float]:
        if not seconds:
            signal.raise_signal(signal.SIGALRM)
        return set_timer(which, seconds)

    monkeypatch.setattr(signal, "setitimer", late)
    with pytest.raises(own_code.OutOfTimeError), own_code.time_limit(60):
        pass
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGALRM) == answer


def test_calls_that_hang_one_after_another_are_the_last() -> None:
    calls = TimedCalls("mine.py:Mine", 0.02, "mend it")

    def ask(work: Callable[[], None] = forever, parts: int = 1, *, answers: bool = True) -> None:
        with calls.call("reply", parts, answers=answers):
            work()

    for _ in range(MAX_HANGS - 1):
        with pytest.raises(ModelError, match=r"reply took more than 0\.02 s"):
            ask()
    # A minute, so that no busy machine makes a hang of it.
    ask(lambda: time.sleep(0.03), parts=3000)
    for hang in range(MAX_HANGS):
        with pytest.raises(ModelError, match="reply took more than"):
            ask()
        if hang < MAX_HANGS - 1:
            ask(lambda: None, parts=3000, answers=False)
    with pytest.raises(ModelError, match="not asked any more"):
        ask(lambda: None)
