"""Watching a job: a live line on a terminal, a plain line every few seconds elsewhere. Both on standard error."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from parley.engine.core.cli.tables import make_console
from parley.engine.core.ray import logs
from parley.engine.core.verbs.job import Reporter

logger = logging.getLogger(__name__)

PLAIN_INTERVAL_S, SILENCE_S = 5.0, 10.0
SLOW = 0.01
"""Units a second below which they are told by the hour."""
LEAST_SHARE = 0.001
"""So little of the whole work tells no pace: models are still being loaded."""


class Stage:
    """A stage in words: how far, how fast, how long still.

    The pace is counted from the first news, because a resumed stage does not begin at nothing; before there is any, the
    time so far is told.

    Args:
        title: what is done.
        total: units of the whole stage; 0 when that is not known.
        unit: their name; empty where nothing is counted.
        clock: seconds, never going back.
    """

    def __init__(self, title: str, total: int, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._total, self._unit, self._clock = title, total, unit, clock
        self._first: tuple[float, float] | None = None
        self._began = clock()

    def at(self, done: float, note: str = "") -> str:
        """Such as "learning: 40/100 updates, 3.5 updates/s, 0:17 left, reward +0.3"."""
        of = f"/{self._total:,}" if self._total else ""
        what = f"{self._title}: {int(done):,}{of} {self._unit}" if self._unit else self._title
        parts = (what, self._pace(done), note)
        return ", ".join(part for part in parts if part)

    def _pace(self, done: float) -> str:
        now = self._clock()
        if self._first is None:
            self._first = now, done
        began, at_first = self._first
        if done - at_first <= LEAST_SHARE * (self._total or 0) or now <= began:
            return f"{_minutes(now - self._began)} so far" if not at_first and now - self._began >= PLAIN_INTERVAL_S else ""
        rate = (done - at_first) / (now - began)
        shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
        shown = f"{shown} {self._unit}/s" if rate >= SLOW else f"{3600 * rate:.3g} {self._unit}/h"
        return shown + (f", {_minutes(max(0.0, (self._total - done) / rate))} left" if self._total else "")


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60:,}:{minutes % 60:02d}:{rest:02d}"


class PlainScreen:
    """Lines of text, for files and pipes.

    Args:
        console: where they go.
        clock: seconds, never going back.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._spoke = clock()
        self._stage = Stage("", 0, "", clock)
        self._news: tuple[float, str] | None = None

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begins a stage in silence; a short one is never mentioned."""
        self._stage, self._news = Stage(title, total, unit, self._clock), (0, "")

    def advance(self, done: float, note: str = "") -> None:
        """Writes a line when the last one is some seconds old."""
        self._news = done, note
        line = self._stage.at(done, note)
        if self._clock() - self._spoke >= PLAIN_INTERVAL_S:
            self.say(line)

    def beat(self) -> None:
        """Says again how far the stage is when nothing has been said for long."""
        if self._news is not None and self._clock() - self._spoke >= SILENCE_S:
            self.say(self._stage.at(*self._news))

    def say(self, text: str) -> None:
        """Writes a line."""
        self._spoke = self._clock()
        self._console.print(Text(text), soft_wrap=True)


class JsonScreen:
    """Lines of the log, for programs that read them.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spoke = clock()
        self._title, self._about = "", dict[str, Any]()

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begins a stage; of one that counts nothing no other line follows."""
        self._title, self._about = title, {"total": total or None, "unit": unit}
        if not unit:
            self.say(title)

    def advance(self, done: float, note: str = "") -> None:
        """Writes a line when the last one is some seconds old."""
        if self._clock() - self._spoke >= PLAIN_INTERVAL_S:
            self._spoke = self._clock()
            logger.info(self._title, extra={"done": int(done), **self._about, "note": note})

    def say(self, text: str) -> None:
        """Writes a line."""
        logger.info(text)


class LiveScreen:
    """One moving line, and kept lines above it.

    Args:
        progress: the moving line; it starts with the first stage, so that questions can be asked before.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._stage = Stage("", 0, "")
        self._news: tuple[float, str] = 0, ""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Replaces the line by that of a new stage."""
        if self._task is None:
            self._progress.start()
        else:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(title, total=total or None)
        self._stage, self._news = Stage(title, total, unit), (0, "")

    def advance(self, done: float, note: str = "") -> None:
        """Moves the line."""
        assert self._task is not None, "a stage begins before it advances"
        self._news = done, note
        self._progress.update(self._task, completed=done, description=self._stage.at(done, note))

    def beat(self) -> None:
        """Shows the time that has gone by."""
        if self._task is not None:
            self.advance(*self._news)

    def say(self, text: str) -> None:
        """Writes a line above the moving one."""
        self._progress.console.print(Text(text), soft_wrap=True)


@contextmanager
def watching(live: bool = True) -> Iterator[Reporter]:
    """A screen for the length of a `with` block, in which standard output is left to what comes after it.

    Args:
        live: whether a line may move where there is a terminal; it must not where somebody types.
    """
    console = make_console()
    with ExitStack() as stack:
        # Ray repeats what its workers print; a JSON object on standard output must stay alone.
        stack.enter_context(redirect_stdout(sys.stderr))
        if logs.is_json():
            yield JsonScreen()
            return
        stack.enter_context(_warnings_on(console))
        if not live:
            # Somebody types.
            yield PlainScreen(console)
            return
        if not console.is_terminal:
            plain = PlainScreen(console)
            stack.enter_context(beating(plain.beat))
            yield plain
            return
        # A narrow terminal shows more lines, and not less of them.
        columns = (BarColumn(bar_width=12), TextColumn("{task.description}", markup=False, table_column=Column(ratio=1)))
        progress = Progress(*columns, console=console, transient=True)
        stack.callback(progress.stop)
        screen = LiveScreen(progress)
        stack.enter_context(beating(screen.beat))
        yield screen


@contextmanager
def beating(beat: Callable[[], None], every_s: float = 1.0) -> Iterator[None]:
    """Calls `beat` every second from a thread of its own, so that work which says nothing is seen to go on."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            beat()

    thread = threading.Thread(target=run, name="screen", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _WarningLines(logging.Handler):
    """Log records as short lines on a console."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record."""
        self._console.print(Text(f"{record.levelname.lower()}: {record.getMessage()}", style="yellow"), soft_wrap=True)


@contextmanager
def _warnings_on(console: Console) -> Iterator[None]:
    """Shows logged warnings, Python's own among them."""
    root, handler = logging.getLogger(), _WarningLines(console)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
