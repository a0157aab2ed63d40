"""What a job is: facts about one verb of the command line, and three methods that `Job.run` puts into one frame.

Each job's module defines a class and one instance of it; `catalogue.py` lists those. Jobs print nothing: they tell a `Reporter`
how far they are and return a `Result`. What a result says is read from the run folder, so a finished run gives the same one
again.

A limit on items: which of them a run takes.

Text tables that a run keeps beside its summary.

The command that asks for a configuration: the nearest preset, and a flag or `--set` for everything that differs.

It is derived from the configuration and not from what was typed, so it stands alone: no YAML file, nothing forgotten.
"""

from __future__ import annotations

import json
import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import yaml

from parley.engine.core.runs.documents import (
    CONFIG,
    SUMMARY,
    changed_weights,
    reading_summary,
    refuse_links_out,
    require_same,
    write_whole,
)
from parley.engine.core.runs.parts import BASE, OK, Outcomes
from parley.engine.core.runs.remote_sync import refresh
from parley.engine.core.runs.run_folder import RunFolder, is_summarised
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.checkpoints import date_of, dated, weights_digests
from parley.engine.core.verbs.export import FlatRows
from parley.envs.core.config import difference, to_dict
from parley.envs.core.errors import RunError
from parley.envs.core.seeds import stream
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible
from parley.policies.chat.answers import usage_of
from parley.policies.chat.model import AnswerKind
from parley.policies.chat.settings import DEFAULT

ItemT = TypeVar("ItemT")


def drawn(found: Sequence[ItemT], limit: int, seed: int, name: str) -> list[ItemT]:
    """So many items at most, drawn by the seed, in their order; all where the limit is 0.

    Args:
        found: all of them.
        limit: how many at most.
        seed: master seed.
        name: of the corpus.
    """
    places: Sequence[int] = range(len(found))
    if limit and len(found) > limit:
        places = sorted(stream(seed, "examples", name).permutation(len(found))[:limit].tolist())
    return [found[place] for place in places]


TABLE_FILE = "table.md"


def write_tables(path: Path, tables: Mapping[str, TextTable], about: Mapping[str, str], note: str = "") -> None:
    """Writes tables as Markdown, with what a terminal would obey spelled out.

    Args:
        path: the file.
        tables: what to write, by heading; an empty heading is left out.
        about: the title, the description and the command that made them.
        note: a sentence below them.

    Raises:
        RunError: the disk refuses.
    """
    parts = [f"# {about['title'][:1].upper()}{about['title'][1:]}\n\n{about['description']}\n"]
    parts += [(f"## {heading}\n\n" if heading else "") + table.to_markdown() for heading, table in tables.items()]
    parts += [f"{note}\n"] if note else []
    parts.append(f"```\n{about['command']}\n```\n")
    try:
        write_whole(path, visible("\n".join(parts), keep="\n").encode())
    except OSError as error:
        fix = "free some space, then the same command writes it"
        raise RunError("the table cannot be written", where=path, got=error.strerror, fix=fix) from None


def noted(tables: Mapping[str, TextTable], note: str) -> dict[str, TextTable]:
    """Tables with a sentence more below the last of them; as they are where there is none, or no table."""
    found = {**tables}
    if found and note:
        heading, last = found.popitem()
        found[heading] = replace(last, note=f"{last.note}\n{note}".strip())
    return found


def command_line(
    words: Sequence[str], presets: Mapping[str, Callable[[], Any]], config: Any, run: Path | None, argument: str = ""
) -> str:
    """What to type to get a run like this one.

    Args:
        words: of the job.
        presets: of the job, the default first.
        config: the run's configuration.
        run: its folder; None for the one that the job takes unless told otherwise.
        argument: the setting that is typed without a flag; empty for none.
    """
    wanted = flat(to_dict(config))
    values = {name: flat(to_dict(preset())) for name, preset in presets.items()}
    changes = {name: {key: value for key, value in wanted.items() if value != values[name][key]} for name in presets}
    nearest = min(changes, key=lambda name: len(changes[name]))
    line = ["parley", *words]
    if nearest != next(iter(presets)):
        line.append(nearest)
    if argument in changes[nearest]:
        line.append(str(changes[nearest].pop(argument)))
    for key, value in changes[nearest].items():
        line += ["--set", f"{key}={_yaml(value)}"] if "." in key else _flag(key, value)
    if run is not None:
        line += ["--run", display_path(run)]
    return shlex.join(line)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The simple values of nested settings, by dotted key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _flag(key: str, value: Any) -> list[str]:
    flag = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def _yaml(value: Any) -> str:
    """A simple value as `--set` reads it; JSON's escapes of rare characters mean something else in YAML."""
    if isinstance(value, str):
        return yaml.safe_dump(value, default_style='"', width=math.inf).rstrip("\n")
    return json.dumps(value)


USAGE = "chat_usage"
"""Entry of the summary: what the answers of chat models took, `ChatUsage` and its cost."""
TOLD, WARNINGS, FAILURE = "told", "warnings", "failure"
"""Entries of `USAGE`: all of it in a sentence; sentences on models whose answers are too often no reply; why they are too few
replies, or empty."""
ATTACK = "attack"
"""Entry of the summary of an attack that is a composition: its parts, in words."""

ConfigT = TypeVar("ConfigT")
PreparedT = TypeVar("PreparedT")
FoundT = TypeVar("FoundT")


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
        tables: what is shown in the place of the metrics, by heading, when there are more than a screen holds.
        more: what is shown below them, by heading.
        failure: why the result is not what the job promises; empty when it is.
        warnings: what a reader of the figures has to know, in sentences.
        chat_usage: what the answers of chat models took, as the summary has it; empty without any.
    """

    run: Path
    title: str
    metrics: Mapping[str, Estimate]
    legend: Mapping[str, Metric] = field(default_factory=dict)
    files: Sequence[Path] = ()
    next_commands: Sequence[str] = ()
    comparison: Comparison | None = None
    tables: Mapping[str, TextTable] = field(default_factory=dict)
    more: Mapping[str, TextTable] = field(default_factory=dict)
    failure: str = ""
    warnings: Sequence[str] = ()
    chat_usage: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """Return the metrics as a table for notebooks; every text is escaped."""
        rows = ""
        for name, estimate in self.metrics.items():
            metric = self.legend.get(name)
            cells = [metric.title if metric else name, metric.direction if metric else "", str(estimate)]
            rows += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        head = "<tr><th>metric</th><th>direction</th><th>value [95 % interval]</th></tr>"
        notes = "".join(f"<p>{escape(text)}</p>" for text in (self.failure, *self.warnings) if text)
        return f"<h4>{escape(self.title)}</h4>{notes}<table>{head}{rows}</table><p>{escape(str(self.run))}</p>"


class Reporter(Protocol):
    """Who watches a job at work."""

    def stage(self, title: str, total: int, unit: str) -> None:
        """A new piece of work begins, `total` units long, 0 where nobody knows; `unit` is empty where nothing is counted."""

    def advance(self, done: float, note: str = "") -> None:
        """`done` units of the current stage are finished, with shares of those under way; `note` is a figure worth seeing."""

    def say(self, text: str) -> None:
        """One line worth keeping on the screen."""


@dataclass(frozen=True)
class Summary:
    """What a run has come to.

    Args:
        title: a short heading.
        description: one sentence or two.
        metrics: estimates by name.
        extra: further entries of the summary, JSON types by name.
    """

    title: str
    description: str
    metrics: Mapping[str, Estimate]
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Steps:
    """Events of a run that are numbered steps, by which its progress is told.

    Args:
        kind: of the events; their field "number" counts them.
        unit: what they are called.
        total: how many a configuration, as JSON types, asks for at most; None where that cannot be known.
    """

    kind: str
    unit: str
    total: Callable[[Mapping[str, Any]], int | None] = lambda config: None


class Job(ABC, Generic[ConfigT, PreparedT, FoundT]):
    """One verb of the command line: class-level facts, and the methods `prepare`, `work` and `measure`.

    Attributes:
        words: what is typed, such as ("train", "negotiator").
        run_name: the run is runs/RUN_NAME unless told otherwise.
        config: the type of the configuration, a frozen dataclass whose fields all have defaults or come from a preset.
        presets: functions that return a full configuration, by name; the first one is the default.
        argument: the setting that is typed without a flag, behind the preset; empty for none.
        repeatable: settings of names between commas whose flag may be given several times instead.
        schema: the columns of the rows.
        legend: what the metrics mean, by name.
        files: what a finished run holds that a user may want next, by path in the run folder.
        num_rows_entry: of the summary, that says how many rows a finished run holds; empty where it is known without.
        resume_safe: settings that change how a run is done and not what comes out; a resumed run may differ in them.
        steps: numbered events that tell the progress of a run without items.
        outcomes: kinds of answers that are no reply and yet an outcome of what is measured: they do not fail a run.
    """

    words: tuple[str, ...]
    run_name: str
    config: type[ConfigT]
    presets: Mapping[str, Callable[[], ConfigT]]
    argument: str = ""
    repeatable: tuple[str, ...] = ()
    schema: pa.Schema = BASE
    legend: Mapping[str, Metric] = MappingProxyType({})
    files: tuple[str, ...] = (SUMMARY,)
    num_rows_entry: str = ""
    resume_safe: tuple[str, ...] = ()
    steps: Steps | None = None
    outcomes: tuple[AnswerKind, ...] = ()

    @abstractmethod
    def prepare(self, config: ConfigT, path: Path, reporter: Reporter) -> PreparedT:
        """Finds and checks everything that a run needs, before there is a run.

        Args:
            config: what is asked for.
            path: the run's folder, as it was given; nothing is written into it.
            reporter: who looks on.

        Raises:
            ParleyError: something is missing, damaged or does not fit.
        """

    @abstractmethod
    def work(self, run: RunFolder, prepared: PreparedT, reporter: Reporter) -> FoundT:
        """Does what the run does not hold yet; returns what `measure` has to know beside the run."""

    def measure(self, run: RunFolder, found: FoundT) -> Summary:
        """What a run has come to whose work is done; that of a job whose work measures the model in its hands is `found`."""
        assert isinstance(found, Summary), "a job whose work returns anything else measures"
        return found

    @property
    def name(self) -> str:
        """What a run folder calls the job, and `parley resume` finds it by."""
        return "-".join(self.words)

    def run(self, config: ConfigT, path: Path, reporter: Reporter) -> Result:
        """Does what is left of a run and summarises it.

        Raises:
            ParleyError: what `prepare` and `work` say; a run of something else in the folder; a disk that refuses.
        """
        # Before anything is read from the folder, or prepared in it.
        refuse_links_out(path)
        weights = self.weights(config)
        if self.finished(config, path, weights):
            reporter.say(f"{display_path(path)} is finished: nothing is left to do")
            return self.result(config, path)
        if (path / CONFIG).is_file():
            # Before models and data are read, which may take minutes.
            require_same(path, self.name, to_dict(config), self.schema, self.resume_safe, weights)
        day = date_of(path)
        prepared = self.prepare(dated(config, day), path, reporter)
        with RunFolder.open(
            path, config, job=self.name, schema=self.schema, resume_safe=self.resume_safe, weights=weights, day=day
        ) as run:
            self.conclude(run, config, self.measure(run, self.work(run, prepared, reporter)))
        return self.result(config, path)

    def conclude(self, run: RunFolder, config: ConfigT, summary: Summary) -> None:
        """Writes what a run has come to: its summary, with what answers of chat models took, and its tables if there are some.

        Args:
            run: opened for writing.
            config: what was asked for.
            summary: what the run has come to.

        Raises:
            RunError: the disk refuses.
        """
        description, extra = summary.description, dict(summary.extra)
        if usage := usage_of(run.path):
            asking = getattr(config, "chat", DEFAULT)
            told = usage.told(asking)
            description = f"{description} {told}"
            judged = {TOLD: told, WARNINGS: usage.warnings(asking), FAILURE: usage.failure(self.outcomes)}
            extra[USAGE] = usage.as_json(asking) | judged
        # Until it is written again: a run without it is not finished.
        (run.path / TABLE_FILE).unlink(missing_ok=True)
        about = {"title": summary.title, "description": description, "command": self.command(config, run.path)}
        run.write_summary(summary.metrics, {**about, **extra})
        if TABLE_FILE in self.files:
            write_tables(run.path / TABLE_FILE, self.tables(run), about, self.note(run))

    def finished(self, config: ConfigT, path: Path, weights: Mapping[str, str]) -> bool:
        """Whether a run has nothing left to do; not so where there is another run in the folder, or none.

        Args:
            config: what is asked for.
            path: the run's folder.
            weights: digests of the models as they are now.

        Raises:
            RunError: what is there cannot be read as a run.
            StorageError: the URI that the folder is the copy of cannot be read.
        """
        refresh(path)
        if not all((path / name).exists() for name in (CONFIG, SUMMARY, *self.files)):
            return False
        run = RunFolder.load(path)
        if run.job != self.name or difference(self._fixed(run.config), self._fixed(to_dict(config))):
            return False
        if changed_weights(run.weights, weights):
            # Opening the run for writing says which.
            return False
        try:
            run.summary()
            if not is_summarised(run.events()):
                # Its last session was cut short: the rows may be others than the summary tells of.
                return False
            num_done = sum(part["status"].to_pylist().count(OK) for part in run.read_parts())
            return num_done == self.num_rows(config, path)
        except RunError:
            # Opening the run for writing sets a damaged part aside and does its items again, and the summary is written anew.
            return False

    def result(self, config: ConfigT, path: Path) -> Result:
        """What a run holds that has written its summary.

        Raises:
            RunError: the run or its summary cannot be read.
        """
        run = RunFolder.load(path)
        with reading_summary(path) as summary:
            usage, outcomes = summary.get(USAGE, {}), run.outcomes()
            failure = failure_of(outcomes) or usage.get(FAILURE, "")
            warnings = [*losses_of(outcomes), *usage.get(WARNINGS, ())]
            result = Result(
                run=path,
                title=summary.get("title", display_path(path)),
                metrics=run.metrics(),
                legend=self.legend,
                files=tuple(path / name for name in self.files),
                next_commands=self.next_commands(config, path),
                failure=failure,
                warnings=[sentence for sentence in warnings if sentence not in failure],
                chat_usage=usage,
            )
            return self.present(result, run)

    def command(self, config: ConfigT, path: Path) -> str:
        """What to type to get a run like this one."""
        run = None if path == Path("runs", self.run_name) else path
        return command_line(self.words, self.presets, config, run, self.argument)

    def weights(self, config: ConfigT) -> dict[str, str]:
        """Digests of the models that are there, by the setting that names each."""
        return weights_digests(self.models(config))

    def models(self, config: ConfigT) -> Mapping[str, str]:
        """Names of the models that the rows come from, by the setting that names each; a run keeps to their weights."""
        return {}

    def num_rows(self, config: ConfigT, path: Path) -> int:
        """How many rows a finished run holds; -1 where the run in the folder does not say it yet."""
        return int((RunFolder.load(path).summary() or {}).get(self.num_rows_entry, -1)) if self.num_rows_entry else 0

    def num_items(self, config: ConfigT) -> int | None:
        """How many items a run would have to work on, found out from models and data; None where as many as are asked for."""
        return None

    def metrics_of(self, config: ConfigT) -> Collection[str] | None:
        """The names of the metrics that a run of a configuration can have; None where only the run can tell."""
        return self.legend

    def flat(self, run: RunFolder) -> FlatRows | None:
        """How a run's rows become the lines of one flat file; None where each row is a line as it is."""
        return None

    def next_commands(self, config: ConfigT, path: Path) -> tuple[str, ...]:
        """What to type after a run of that configuration in that folder."""
        return (shlex.join(["parley", "report", display_path(path)]),)

    def tables(self, run: RunFolder) -> Mapping[str, TextTable]:
        """The tables of a run that has written its summary, by their headings; one without a heading stands alone."""
        return {}

    def note(self, run: RunFolder) -> str:
        """A sentence below the tables."""
        return ""

    def present(self, result: Result, run: RunFolder) -> Result:
        """The result of a run as it is shown; jobs add what only the run can tell, such as tables."""
        return result

    def _fixed(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in config.items() if name not in self.resume_safe}


def failure_of(outcomes: Outcomes) -> str:
    """Why a result is not what a job promises: every item failed; empty where one worked, or there is none."""
    if outcomes.done or not outcomes.failed:
        return ""
    ((reason, times),) = outcomes.errors.most_common(1)
    return f"every item failed, {times:,} of {outcomes.failed:,} with: {reason}"


def losses_of(outcomes: Outcomes) -> list[str]:
    """A sentence where some items failed, which are in no figure; none where all failed, for that is a failure."""
    if not (outcomes.done and outcomes.failed):
        return []
    ((reason, times),) = outcomes.errors.most_common(1)
    what = f"{outcomes.failed:,} of {outcomes.done + outcomes.failed:,} items failed and are in no figure"
    return [f"{what}, {times:,} of them with: {reason.splitlines()[0]}"]


class Silent:
    """A reporter that looks away; for tests and notebooks."""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Shows nothing."""

    def advance(self, done: float, note: str = "") -> None:
        """Shows nothing."""

    def say(self, text: str) -> None:
        """Shows nothing."""
