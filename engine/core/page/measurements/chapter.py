"""Runs that no other chapter knows, such as a demonstration among others or a job of another version: their metrics."""

from __future__ import annotations

from collections.abc import Sequence

from parley.engine.core.page.content import Chapter, Section, ShownRun
from parley.engine.core.page.runs import Run


class Measurements(Chapter[list[ShownRun]]):
    """The chapter of all other runs."""

    name, title = "measurements", "Measurements"

    def owns(self, job: str) -> bool:
        return True

    def collect(self, runs: Sequence[Run]) -> list[ShownRun] | None:
        found = [ShownRun.of(run, description="") for run in runs if run.shown]
        return [each for each in found if each.metrics or each.failures] or None

    def verdict(self, found: list[ShownRun]) -> None:
        """Nobody knows which of its metrics matters."""
        return None

    def render(self, found: list[ShownRun]) -> Section:
        return Section(measured=found)
