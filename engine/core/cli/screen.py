"""The screen: progress of a job, its result tables and errors on standard error, and the terminal of a person who plays.

On a terminal progress is one live line; elsewhere it is a plain line every few seconds. Texts may hold words of agents or names
of files, so nothing in them is taken for markup or obeyed by a terminal. A person who plays reads standard error and types into
standard input; a file of lines may stand in for the person, and its lines are then shown as if typed.

Python files that were not typed are imported only if the user agrees, by `--trust-code` or on the terminal.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import Any, Literal, Protocol

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from parley.engine.core.ray import logs
from parley.engine.core.stats.statistics import FEW, NOTHING, Estimate, Metric
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import TOLD, Comparison, Reporter, Result
from parley.envs.core.errors import ParleyError
from parley.envs.core.registry import Trust, trusting, typed_files
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible


class Terminal(Protocol):
    """The terminal of a person."""

    def show(self, text: str) -> None:
        """Show lines."""

    def ask(self, prompt: str) -> str:
        """Return the next typed line, without blanks at its ends.

        Raises:
            KeyboardInterrupt: the person has left.
        """


class StandardTerminal:
    """Standard error and standard input of this process."""

    def show(self, text: str) -> None:
        """Show lines."""
        sys.stderr.write(f"{visible(text, keep=chr(10))}\n")
        sys.stderr.flush()

    def ask(self, prompt: str) -> str:
        """Return the next typed line; raise `KeyboardInterrupt` at the end of the input."""
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
        if not sys.stdin.isatty():
            # No terminal shows a line that came through a pipe, nor its end.
            self.show(line.strip())
        return line.strip()


logger = logging.getLogger(__name__)

_PLAIN_WIDTH = 140
_UNLIMITED = 10_000


class VisibleConsole(Console):
    """A console that spells out what a terminal would obey in printed text; its own colours and movements pass through."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of a printed thing, with all of their text visible."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=visible(part.text, keep="\n"))


def make_console(stderr: bool = True) -> Console:
    """Return a console on standard error or output, with colours on a terminal and room for tables elsewhere."""
    console = VisibleConsole(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PLAIN_WIDTH
    return console


def show_error(error: ParleyError) -> None:
    """Print an error in red: what is wrong, where, what was given and how to fix it."""
    if logs.is_json():
        parts = {"where": error.where, "got": error.got, "fix": error.fix}
        logger.error(error.what, extra={name: str(part) for name, part in parts.items() if part is not None})
        return
    first, *rest = str(error).split("\n")
    console = make_console()
    # Not wrapped, so that paths and commands can be copied.
    console.print(Text(f"error: {first}", style="bold red"), soft_wrap=True)
    if rest:
        console.print(Text("\n".join(rest), style="red"), soft_wrap=True)


def show_result(result: Result) -> None:
    """Print the last screen of a job: tables, written files, next commands, warnings and failure."""
    if logs.is_json():
        metrics = {name: estimate.to_json() for name, estimate in result.metrics.items()}
        about = {"metrics": metrics, "files": list(map(str, result.files)), "next": result.next_commands}
        about |= {"warnings": list(result.warnings)} if result.warnings else {}
        about |= {"chat_usage": dict(result.chat_usage)} if result.chat_usage else {}
        logger.info(
            result.title, extra=about | {name: text for name in ("failure", "undecided") if (text := getattr(result, name))}
        )
        return
    console = make_console()
    show_tables(console, result.title, result.tables)
    if result.metrics and not result.tables:
        columns, rows = _alone(result) if result.comparison is None else _compared(result, result.comparison)
        show_table(console, result.title, columns, rows, right=columns[2:])
        if any(estimate.flagged and estimate.n for estimate in result.metrics.values()):
            console.print(f"few: fewer than {FEW} independent dialogues or targets; do not lean on the number")
    show_tables(console, result.title, result.more)
    show_lines(console, "files", [display_path(path) for path in result.files])
    show_lines(console, "next", result.next_commands)
    if sentence := result.chat_usage.get(TOLD):
        console.print(Text(f"\n{sentence}"), soft_wrap=True)
    for warning in result.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    for note in result.notes:
        console.print(Text(note), soft_wrap=True)
    if result.undecided:
        console.print(Text(f"undecided: {result.undecided}", style="bold yellow"), soft_wrap=True)
    if result.failure:
        console.print(Text(f"failed: {result.failure}", style="bold red"), soft_wrap=True)


def show_tables(console: Console, title: str, tables: Mapping[str, EstimateTable]) -> None:
    """Print tables, each with its heading behind the title and its note below."""
    for heading, table in tables.items():
        show_table(console, ": ".join(filter(None, (title, heading))), table.columns, table.rows, right=table.figures)
        console.print(Text(f"\n{table.note}"))


def show_lines(console: Console, heading: str, lines: Sequence[str]) -> None:
    """Print a heading and lines that can be copied."""
    if lines:
        console.print(Text("\n".join([f"\n{heading}:", *(f"  {line}" for line in lines)])), soft_wrap=True)


def show_table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """Print a table of text without lines.

    Without a terminal each row is one whole line, so that it can be searched for. On a terminal the first column, the name, is
    not folded unless it takes more than half of the width.

    Args:
        console: the console.
        title: title above the table.
        columns: headings.
        rows: cells in the order of the headings.
        right: headings of the columns that are set flush right.
    """
    table = Table(box=None, pad_edge=False)
    unlimited = not console.is_terminal and "COLUMNS" not in os.environ
    name_fits = 2 * max((len(line) for row in rows for line in row[0].split("\n")), default=0) <= console.width
    for index, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if column in right else "left"
        whole = unlimited or (index == 0 and name_fits)
        table.add_column(column, justify=justify, header_style="dim", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if unlimited:
        console.width = max(console.width, Measurement.get(console, console.options.update_width(_UNLIMITED), table).maximum)
    console.print()
    console.print(Text(title, style="bold"))
    console.print(table)


def number(value: float, counted: bool = False) -> str:
    """Return a number with the precision of tables.

    Args:
        value: the number; NaN is "none".
        counted: whether it is exact; then whole numbers stay whole.
    """
    if math.isnan(value):
        return "none"
    if counted and value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"


def interval(estimate: Estimate) -> str:
    """Return the 95 % interval; empty if there is none."""
    return "" if math.isnan(estimate.low) else f"[{number(estimate.low)}, {number(estimate.high)}]"


_Cells = tuple[tuple[str, ...], list[list[str]]]


def _alone(result: Result) -> _Cells:
    rows = [
        [*_name(result, name), number(estimate.value, math.isnan(estimate.low)), interval(estimate), _num(estimate)]
        for name, estimate in result.metrics.items()
    ]
    return ("metric", "direction", "value", "95 % interval", "n"), rows


def _compared(result: Result, comparison: Comparison) -> _Cells:
    rows = []
    for name, estimate in result.metrics.items():
        estimates = (comparison.metrics.get(name, NOTHING), estimate, comparison.differences.get(name, NOTHING))
        rows.append([*_name(result, name), *map(_both, estimates), _num(estimate)])
    return ("metric", "direction", comparison.title, comparison.here, "difference", "n"), rows


def _name(result: Result, name: str) -> list[str]:
    metric = result.legend.get(name, Metric(name, "", ""))
    return [metric.title, metric.direction]


def _both(estimate: Estimate) -> str:
    if estimate is NOTHING:
        return ""
    return f"{number(estimate.value, math.isnan(estimate.low))} {interval(estimate)}".rstrip()


def _num(estimate: Estimate) -> str:
    return f"{estimate.n:,}{' few' if estimate.flagged and estimate.n else ''}"


FIRST_S, PLAIN_INTERVAL_S, SILENCE_S = 1.0, 5.0, 10.0
"""Seconds before the first line at the latest, between lines of progress, and after which the last one is repeated."""
_answering = threading.Event()
"""Set while a person is asked, whose line must stay the last."""
SLOW = 0.01
"""Units a second below which the rate is given by the hour."""
LEAST_SHARE = 0.001
"""The smallest share of the work that gives a pace: before it, models may still be loading."""


class Stage:
    """A stage in words: progress, pace, time left.

    The pace is counted from the first report, because a resumed stage does not begin at 0. Before there is a pace, the elapsed
    time is shown.

    Args:
        title: title of the stage.
        total: units of the whole stage; 0 if unknown.
        unit: name of the units; empty if nothing is counted.
        clock: returns seconds that never go back.
    """

    def __init__(self, title: str, total: int, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._total, self._unit, self._clock = title, total, unit, clock
        self._first: tuple[float, float] | None = None
        self._began = clock()

    def at(self, done: float, note: str = "") -> str:
        """Return a text such as "learning: 40/100 updates, 3.5 updates/s, 0:17 left, reward +0.3"."""
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
            return f"{duration(now - self._began)} so far" if not at_first and now - self._began >= PLAIN_INTERVAL_S else ""
        rate = (done - at_first) / (now - began)
        shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
        shown = f"{shown} {self._unit}/s" if rate >= SLOW else f"{3600 * rate:.3g} {self._unit}/h"
        return shown + (f", {duration(max(0.0, (self._total - done) / rate))} left" if self._total else "")


def duration(seconds: float | None) -> str:
    """Return a duration such as "0:07", "12:30" or "3 d 4:05:06"."""
    if seconds is None:
        return ""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {clock}" if days else clock


class PlainScreen:
    """A screen of plain lines, for files and pipes.

    Args:
        console: the console.
        clock: returns seconds that never go back.
        first: the line that is printed if there is no other within a second, as while models and data are read.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, first: str = "") -> None:
        self._console, self._clock, self._first = console, clock, first
        self._spoke = clock()
        self._stage = Stage("", 0, "", clock)
        self._news: tuple[float, str] | None = None

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begin a stage without a line; a short one is never shown."""
        self._stage, self._news = Stage(title, total, unit, self._clock), (0, "")

    def advance(self, done: float, note: str = "") -> None:
        """Print a line if the last one is some seconds old."""
        self._news = done, note
        line = self._stage.at(done, note)
        if self._clock() - self._spoke >= PLAIN_INTERVAL_S:
            self.say(line)

    def beat(self) -> None:
        """Print the progress again after a long silence, and the first line after a short one."""
        if self._first and self._clock() - self._spoke >= FIRST_S and not _answering.is_set():
            self.say(self._first if self._news is None else self._stage.at(*self._news))
        if self._news is not None and self._clock() - self._spoke >= SILENCE_S:
            self.say(self._stage.at(*self._news))

    def say(self, text: str) -> None:
        """Print a line."""
        self._spoke, self._first = self._clock(), ""
        self._console.print(Text(text), soft_wrap=True)


class JsonScreen:
    """A screen of log lines, for programs that read them.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spoke = clock()
        self._title, self._about = "", dict[str, Any]()

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begin a stage; one that counts nothing gets its only line now."""
        self._title, self._about = title, {"total": total or None, "unit": unit}
        if not unit:
            self.say(title)

    def advance(self, done: float, note: str = "") -> None:
        """Log a line if the last one is some seconds old."""
        if self._clock() - self._spoke >= PLAIN_INTERVAL_S:
            self._spoke = self._clock()
            logger.info(self._title, extra={"done": int(done), **self._about, "note": note})

    def say(self, text: str) -> None:
        """Log a line."""
        logger.info(text)


class LiveScreen:
    """A screen with one live line, and kept lines above it.

    Args:
        progress: the live line; it starts with the first stage, so that questions can be asked before.
        first: the line that is printed if no stage begins within a second.
    """

    def __init__(self, progress: Progress, first: str = "") -> None:
        self._progress, self._first = progress, first
        self._task: TaskID | None = None
        self._stage = Stage("", 0, "")
        self._news: tuple[float, str] = 0, ""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Replace the live line by that of a new stage."""
        if self._task is None:
            self._progress.start()
        else:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(title, total=total or None)
        self._stage, self._news = Stage(title, total, unit), (0, "")

    def advance(self, done: float, note: str = "") -> None:
        """Update the live line."""
        assert self._task is not None, "a stage begins before it advances"
        self._news = done, note
        self._progress.update(self._task, completed=done, description=self._stage.at(done, note))

    def beat(self) -> None:
        """Show the elapsed time, or the first line."""
        if self._task is not None:
            self.advance(*self._news)
        elif self._first and not _answering.is_set():
            self.say(self._first)

    def say(self, text: str) -> None:
        """Print a line above the live one."""
        self._first = ""
        self._progress.console.print(Text(text), soft_wrap=True)


@contextmanager
def watching(live: bool = True, first: str = "") -> Iterator[Reporter]:
    """Provide a screen within a `with` block, in which standard output is kept free for the result.

    Args:
        live: whether a line may move on a terminal; it must not while a person types.
        first: the line that is printed if there is no other within a second.
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
            # A person types.
            yield PlainScreen(console)
            return
        if not console.is_terminal:
            plain = PlainScreen(console, first=first)
            stack.enter_context(beating(plain.beat))
            yield plain
            return
        # A narrow terminal folds the text into more lines and does not cut it.
        columns = (BarColumn(bar_width=12), TextColumn("{task.description}", markup=False, table_column=Column(ratio=1)))
        progress = Progress(*columns, console=console, transient=True)
        stack.callback(progress.stop)
        screen = LiveScreen(progress, first)
        stack.enter_context(beating(screen.beat))
        yield screen


@contextmanager
def beating(beat: Callable[[], None], every_s: float = 1.0) -> Iterator[None]:
    """Call `beat` every second from another thread, so that silent work is seen to go on."""
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
        """Print one record."""
        self._console.print(Text(f"{record.levelname.lower()}: {record.getMessage()}", style="yellow"), soft_wrap=True)


@contextmanager
def _warnings_on(console: Console) -> Iterator[None]:
    """Print logged warnings, with Python's own."""
    root, handler = logging.getLogger(), _WarningLines(console)
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)


@contextmanager
def trusting_what_is_typed(arguments: Sequence[str], every: bool) -> Iterator[None]:
    """Trust the files that a command line names, within a `with` block.

    Args:
        arguments: arguments of the command.
        every: whether `--trust-code` was among them, which trusts all files.
    """
    with trusting(Trust(typed_files(arguments), every, _agrees)):
        yield


def _agrees(name: str) -> bool:
    if not _on_a_terminal():
        return False
    sys.stderr.write(f"{visible(name)} was not typed here. It is Python code and can do whatever you can; read it first.\n")
    sys.stderr.write("Import it? [y/N] ")
    sys.stderr.flush()
    _answering.set()
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    finally:
        _answering.clear()


def _on_a_terminal() -> bool:
    return not logs.is_json() and sys.stdin.isatty() and sys.stderr.isatty()
