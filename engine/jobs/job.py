"""What a job is: a frozen configuration, presets that return one, and a function that runs it in a run folder.

Each job module defines a `Job`; `catalogue.py` lists them. Jobs print nothing: they tell a `Reporter` how far they are and
return a `Result`. What a result says is read from the run folder, so a finished run gives the same one again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from engine.jobs.weights import weights_digests
from engine.metrics.statistics import Estimate, Metric
from engine.metrics.tables import TextTable
from engine.store.head import changed_weights
from engine.store.layout import CONFIG, SUMMARY
from engine.store.mirror import refresh
from engine.store.run_folder import RunFolder
from engine.store.schemas import OK
from envs.core.config import difference, to_dict
from envs.core.errors import RunError
from envs.storage.places import display_path


@dataclass(frozen=True)
class Comparison:
    """The same metrics without the thing that a job is about.

    Args:
        title: what was measured instead.
        here: what the result itself was measured on.
        metrics: estimates by name.
        differences: the result less those, over pairs of dialogues on one scenario, by name.
    """

    title: str
    here: str
    metrics: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]


@dataclass(frozen=True)
class Result:
    """What a job leaves behind.

    Args:
        run: its folder.
        title: heading of the result table.
        metrics: estimates by name.
        legend: what the metrics mean, by name.
        files: what was written that a user may want next.
        next_commands: what to type next.
        comparison: what the metrics are shown beside.
        tables: what is shown in the place of the metrics, when there are more than a screen holds.
        failure: why the result is not what the job promises; empty when it is.
    """

    run: Path
    title: str
    metrics: Mapping[str, Estimate]
    legend: Mapping[str, Metric] = field(default_factory=dict)
    files: Sequence[Path] = ()
    next_commands: Sequence[str] = ()
    comparison: Comparison | None = None
    tables: Sequence[TextTable] = ()
    failure: str = ""


class Reporter(Protocol):
    """Who watches a job at work."""

    def stage(self, title: str, total: int, unit: str) -> None:
        """A new piece of work begins, `total` units long."""

    def advance(self, done: int, note: str = "") -> None:
        """`done` units of the current stage are finished; `note` is the newest figure worth seeing."""

    def say(self, text: str) -> None:
        """One line worth keeping on the screen."""


@dataclass(frozen=True)
class Job:
    """One verb of the command line.

    Args:
        name: what a run folder calls it, and `parley resume` finds it by.
        config: the type of its configuration, a frozen dataclass whose fields all have defaults or come from a preset.
        presets: functions that return a full configuration, by name; the first one is the default.
        run: does the work in a run folder, or what is left of it.
        legend: what its metrics mean, by name.
        files: what a finished run holds that a user may want next, by path in the run folder.
        next_commands: what to type after a run of that configuration in that folder.
        resume_safe: settings that change how a run is done and not what comes out; a resumed run may differ in them.
        models: names of the models that the rows come from, by the setting that names each; a run does not go on with other
            weights.
        num_rows: how many rows a finished run of a configuration holds.
        metrics_of: the names of the metrics that a run of a configuration can have; None where only the run can tell, and those
            of the legend where it is not given.
        num_items: how many items a run of a configuration would have to work on, found out from models and data; None where
            there are always as many as are asked for.
    """

    name: str
    config: type
    presets: Mapping[str, Callable[[], Any]]
    run: Callable[[Any, Path, Reporter], Result]
    legend: Mapping[str, Metric]
    files: tuple[str, ...]
    next_commands: Callable[[Any, Path], tuple[str, ...]]
    resume_safe: tuple[str, ...] = ()
    models: Callable[[Any], Mapping[str, str]] = lambda config: {}
    num_rows: Callable[[Any], int] = lambda config: 0
    metrics_of: Callable[[Any], Collection[str] | None] | None = None
    num_items: Callable[[Any], int | None] = lambda config: None

    def measured(self, config: Any) -> Collection[str] | None:
        """The names of the metrics that a run of a configuration can have; None where only the run can tell."""
        return self.legend if self.metrics_of is None else self.metrics_of(config)

    def result(self, config: Any, path: Path) -> Result:
        """What a run holds that has written its summary.

        Raises:
            RunError: the run or its summary cannot be read.
        """
        run = RunFolder.load(path)
        summary, outcomes = run.summary() or {}, run.outcomes()
        failure = ""
        if outcomes.failed and not outcomes.done:
            ((reason, times),) = outcomes.errors.most_common(1)
            failure = f"every item failed, {times:,} of {outcomes.failed:,} with: {reason}"
        return Result(
            run=path,
            title=summary.get("title", display_path(path)),
            metrics={name: Estimate.from_json(parts) for name, parts in summary["metrics"].items()},
            legend=self.legend,
            files=tuple(path / name for name in self.files),
            next_commands=self.next_commands(config, path),
            failure=failure,
        )

    def weights(self, config: Any) -> dict[str, str]:
        """Digests of the models that are there, by the setting that names each."""
        return weights_digests(self.models(config))

    def finished(self, config: Any, path: Path, reporter: Reporter) -> Result | None:
        """The result of a run that has nothing left to do; None when there is work, or another run in the folder.

        Raises:
            RunError: what is there cannot be read as a run.
            StorageError: the URI that the folder is the copy of cannot be read.
        """
        refresh(path)
        if not all((path / name).exists() for name in (CONFIG, SUMMARY, *self.files)):
            return None
        run = RunFolder.load(path)
        if run.job != self.name or difference(self._checked(run.config), self._checked(to_dict(config))):
            return None
        if changed_weights(run.weights, self.weights(config)):
            # Opening the run for writing says which.
            return None
        try:
            run.summary()
            num_done = sum(part["status"].to_pylist().count(OK) for part in run.read_parts())
            if num_done != self.num_rows(config):
                return None
        except RunError:
            # Opening the run for writing sets a damaged part aside and does its items again, and the summary is written anew.
            return None
        reporter.say(f"{display_path(path)} is finished: nothing is left to do")
        return self.result(config, path)

    def _checked(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in config.items() if name not in self.resume_safe}


class Silent:
    """A reporter that looks away; for tests and notebooks."""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Shows nothing."""

    def advance(self, done: int, note: str = "") -> None:
        """Shows nothing."""

    def say(self, text: str) -> None:
        """Shows nothing."""
