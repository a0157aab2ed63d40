"""What running trials say of themselves: a line each, which the driver shows. Nothing is decided by it, and nothing is kept.

Ray Tune hears of a trial at the end of a budget, which may take hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 2.0
"""Seconds between two lines of a trial."""


class TrialReporter:
    """Tells in a line what a trial's job reports.

    Args:
        put: takes the line.
        about: begins the line: which run of the trial this is.
        clock: seconds, never going back.
    """

    def __init__(self, put: Callable[[str], None], about: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._put, self._about, self._clock = put, about, clock
        self._told = -EVERY_S
        self._of = ""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Tells what is done now, at once."""
        self._of = f"/{total:,} {unit}" if total else f" {unit}"
        self._tell(title)

    def advance(self, done: float, note: str = "") -> None:
        """Tells how far that is when the last line is some seconds old."""
        if self._clock() - self._told >= EVERY_S:
            self._tell(f"{int(done):,}{self._of}" + (f", {note}" if note else ""))

    def say(self, text: str) -> None:
        """Nothing: what trials comment on would be said again by each."""

    def _tell(self, text: str) -> None:
        self._told = self._clock()
        self._put(f"{self._about}: {text}")
