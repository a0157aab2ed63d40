"""Runs that no other chapter knows, such as a demonstration among others or a job of another version: their metrics."""

from __future__ import annotations

from collections.abc import Sequence

from engine.report.content import Chapter, Failures, Measured, Section, failures
from engine.report.runs import Run


class Measurements(Chapter[tuple[list[Measured], list[Failures]]]):
    """The chapter of all other runs."""

    name, title = "measurements", "Measurements"

    def owns(self, job: str) -> bool:
        return True

    def collect(self, runs: Sequence[Run]) -> tuple[list[Measured], list[Failures]] | None:
        shown = [run for run in runs if run.shown]
        measured = [Measured(name=run.heading, metrics=run.metrics, legend=run.legend) for run in shown if run.metrics]
        failed = [each for run in shown for each in failures(run.heading, "items", run.failed, len(run.rows))]
        return (measured, failed) if measured or failed else None

    def verdict(self, found: tuple[list[Measured], list[Failures]]) -> None:
        """Nobody knows which of its metrics matters."""
        return None

    def render(self, found: tuple[list[Measured], list[Failures]]) -> Section:
        measured, failed = found
        return Section(measured=measured, failures=failed)
