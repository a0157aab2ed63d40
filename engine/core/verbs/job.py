"""`Job`: facts about one verb of the command line, and the methods that `Job.run` calls; plus its results and tables.

Each job's module defines a class and one instance of it; `catalogue.py` lists the instances. A job prints nothing: it tells a
`Reporter` its progress and returns a `Result`. A result is read from the run folder, so a finished run returns the same again.

`command_line` derives the command of a run from its configuration: the nearest preset, and a flag or `--set` for every
difference. The command needs no YAML file.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pyarrow as pa
import yaml

from parley.engine.core.runs.documents import (
    CONFIG,
    SUMMARY,
    changed_weights,
    fixed_settings,
    reading_summary,
    refuse_links_out,
    require_same,
    write_whole,
)
from parley.engine.core.runs.parts import BASE, OK, Outcomes
from parley.engine.core.runs.remote_sync import refresh
from parley.engine.core.runs.run_folder import RunFolder, is_blank, is_summarised
from parley.engine.core.stats.pairs import ItemMetrics
from parley.engine.core.stats.statistics import Estimate, Metric
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.checkpoints import date_of, dated, weights_digests
from parley.envs.core.config import as_now, difference, to_dict
from parley.envs.core.errors import RunError
from parley.envs.core.seeds import stream
from parley.envs.core.storage.uris import display_path
from parley.envs.core.visible import visible
from parley.policies.chat.model import ANSWERS_FOLDER, AnswerKind
from parley.policies.chat.settings import DEFAULT

if TYPE_CHECKING:
    from parley.engine.core.verbs.export import FlatRows
    from parley.engine.core.verbs.transcripts import TranscriptRule

ItemT = TypeVar("ItemT")


TABLE_FILE = "table.md"


UNCHANGED = "unchanged"
"""The event of a fit that kept the model it began with, and what a campaign's summary says of such stages."""
USAGE = "chat_usage"
"""Entry of the summary: the use of chat models, `ChatUsage` and its cost."""
TOLD, WARNINGS, FAILURE = "told", "warnings", "failure"
"""Entries of `USAGE`: a sentence on all of it; warnings on models with too many answers that are no reply; the reason why there
are too few replies, or empty."""
ATTACK = "attack"
"""Entry of the summary of an attack that is a composition: its parts in words."""

ConfigT = TypeVar("ConfigT")
PreparedT = TypeVar("PreparedT")
FoundT = TypeVar("FoundT")


@dataclass(frozen=True)
class Comparison:
    """The same metrics on a control.

    Args:
        title: what was measured instead.
        here: what the result itself was measured on.
        metrics: estimates by name.
        differences: the result minus the control, over pairs of dialogues on one scenario, by name.
    """

    title: str
    here: str
    metrics: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]


@dataclass(frozen=True)
class Result:
    """The result of a job.

    Args:
        run: the run's folder.
        title: heading of the result table.
        metrics: estimates by name.
        legend: definitions of the metrics, by name.
        files: written files that a user may want next.
        next_commands: commands to type next.
        comparison: a control beside the metrics.
        tables: tables shown instead of the metrics, by heading, if there are more than a screen holds.
        more: tables shown below them, by heading.
        failure: the reason why the result is not what the job promises; empty if it is.
        undecided: the reason why a limit could not be decided; empty if all were, or one was broken.
        notes: sentences below the tables, such as limits that were kept.
        warnings: sentences that a reader of the figures must know.
        chat_usage: use of chat models, as in the summary; empty without any.
    """

    run: Path
    title: str
    metrics: Mapping[str, Estimate]
    legend: Mapping[str, Metric] = field(default_factory=dict)
    files: Sequence[Path] = ()
    next_commands: Sequence[str] = ()
    comparison: Comparison | None = None
    tables: Mapping[str, EstimateTable] = field(default_factory=dict)
    more: Mapping[str, EstimateTable] = field(default_factory=dict)
    failure: str = ""
    undecided: str = ""
    notes: Sequence[str] = ()
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
        notes = "".join(
            f"<p>{escape(text)}</p>" for text in (self.failure, self.undecided, *self.notes, *self.warnings) if text
        )
        return f"<h4>{escape(self.title)}</h4>{notes}<table>{head}{rows}</table><p>{escape(str(self.run))}</p>"


class Reporter(Protocol):
    """An observer of a job at work."""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Begin a stage of `total` units, 0 if unknown; `unit` is empty if nothing is counted."""

    def advance(self, done: float, note: str = "") -> None:
        """Report that `done` units of the stage are finished, with shares of those under way; `note` is a figure to show."""

    def say(self, text: str) -> None:
        """Report a line that stays on the screen."""


@dataclass(frozen=True)
class Summary:
    """The outcome of a run.

    Args:
        title: a short heading.
        description: one or two sentences.
        metrics: estimates by name.
        extra: further entries of the summary, JSON types by name.
    """

    title: str
    description: str
    metrics: Mapping[str, Estimate]
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Steps:
    """Events of a run that are numbered steps of its progress.

    Args:
        kind: kind of the events; their field "number" counts them.
        unit: name of the steps.
        total: returns the most steps that a configuration, as JSON types, asks for; None if unknown.
    """

    kind: str
    unit: str
    total: Callable[[Mapping[str, Any]], int | None] = lambda config: None

    def of(self, num: int) -> str:
        """Return a number of steps, such as "1 epoch"."""
        return f"{num:,} {self.kind if num == 1 else self.unit}"


class Job(ABC, Generic[ConfigT, PreparedT, FoundT]):
    """One verb of the command line: class-level facts, and the methods `prepare`, `work` and `measure`.

    Attributes:
        words: the words on the command line, such as ("train", "negotiator").
        run_name: the default run is runs/RUN_NAME.
        config: type of the configuration, a frozen dataclass whose fields have defaults or come from a preset.
        presets: functions that return a full configuration, by name; the first one is the default.
        argument: the setting that is typed without a flag, after the preset; empty for none.
        repeatable: settings of names between commas whose flag may be given several times instead.
        schema: columns of the rows.
        legend: definitions of the metrics, by name.
        files: files of a finished run that a user may want next, by path in the run folder.
        num_rows_entry: entry of the summary that holds the number of rows of a finished run; empty if known without it.
        resume_safe: settings that change how a run is done and not its rows; a resumed run may differ in them.
        steps: numbered events that measure the progress of a run without items.
        outcomes: kinds of answers that are no reply but count as outcomes of the measurement: they do not fail a run.
        item_metrics: figures of single items, by which `parley compare` pairs runs; None if runs cannot be paired.
        offers: names of further agents in a finished run, as ${STAGE.KEY} in recipes.
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
    item_metrics: ItemMetrics | None = None
    offers: Mapping[str, Callable[[RunFolder], str]] = MappingProxyType({})

    def check_names(self, config: ConfigT) -> None:
        """Raise a `ConfigError` if a setting names nothing, as far as that costs nothing; a dry run asks it of its stages."""

    @abstractmethod
    def prepare(self, config: ConfigT, path: Path, reporter: Reporter) -> PreparedT:
        """Find and check everything that a run needs, before there is a run.

        Args:
            config: the configuration.
            path: the run's folder, as given; nothing is written into it.
            reporter: receives messages.

        Raises:
            ParleyError: something is missing, damaged or does not fit.
        """

    @abstractmethod
    def work(self, run: RunFolder, prepared: PreparedT, reporter: Reporter) -> FoundT:
        """Do the work that the run does not hold yet; return what `measure` needs beside the run."""

    def measure(self, run: RunFolder, result: FoundT) -> Summary:
        """Return the summary of a run whose work is done; `result` is the result of `work`, by default the summary itself."""
        assert isinstance(result, Summary), "a job whose work returns anything else measures"
        return result

    def schema_of(self, config: ConfigT) -> pa.Schema:
        """Return the columns of the rows of a run; the same for all runs unless a job overrides it."""
        return self.schema

    @property
    def name(self) -> str:
        """The name of the job in run folders, by which `parley resume` finds it."""
        return "-".join(self.words)

    def run(self, config: ConfigT, path: Path, reporter: Reporter) -> Result:
        """Do the rest of a run and summarise it.

        Raises:
            ParleyError: an error of `prepare` or `work`, another run in the folder, or a disk that refuses.
        """
        # Before anything is read from the folder or prepared in it.
        refuse_links_out(path)
        weights = self.weights(config)
        if self.finished(config, path, weights):
            reporter.say(f"{display_path(path)} is finished: nothing is left to do")
            return self.result(config, path)
        if (path / CONFIG).is_file() and not is_blank(path):
            # Before models and data are read, which may take minutes.
            require_same(path, self.name, to_dict(config), self.schema_of(config), self.resume_safe, weights, type(config))
        day = date_of(path)
        prepared = self.prepare(dated(config, day), path, reporter)
        schema = self.schema_of(config)
        with RunFolder.open(
            path, config, job=self.name, schema=schema, resume_safe=self.resume_safe, weights=weights, day=day
        ) as run:
            self.conclude(run, config, self.measure(run, self.work(run, prepared, reporter)))
        return self.result(config, path)

    def conclude(self, run: RunFolder, config: ConfigT, summary: Summary) -> None:
        """Write the summary of a run, with the use of chat models, and its tables if it has some.

        Args:
            run: opened for writing.
            config: the configuration.
            summary: the outcome of the run.

        Raises:
            RunError: the disk refuses.
        """
        description = " ".join([summary.description, *(f"{lost}." for lost in [lost_items(run.outcomes())] if lost)])
        kept = dict.fromkeys(event["epochs"] for event in run.events() if event["kind"] == UNCHANGED)
        description += "".join(f" No {epochs} was better than the model that it began with, which is kept." for epochs in kept)
        extra = dict(summary.extra)
        usage = None
        if any(run.path.rglob(ANSWERS_FOLDER)):
            from parley.policies.chat.answers import usage_of

            usage = usage_of(run.path)
        if usage:
            asking = getattr(config, "chat", DEFAULT)
            sentence = usage.summary(asking)
            description = f"{description} {sentence}"
            reviewed = {TOLD: sentence, WARNINGS: usage.warnings(asking), FAILURE: usage.failure(self.outcomes)}
            extra[USAGE] = usage.as_json(asking) | reviewed
        # The table is missing until it is written again: a run without it is not finished.
        (run.path / TABLE_FILE).unlink(missing_ok=True)
        about = {"title": summary.title, "description": description, "command": self.command(config, run.path)}
        run.write_summary(summary.metrics, {**about, **extra})
        if TABLE_FILE in self.files:
            write_tables(run.path / TABLE_FILE, self.tables(run), about, self.note(run))

    def finished(self, config: ConfigT, path: Path, weights: Mapping[str, str]) -> bool:
        """Return whether a run has nothing left to do; False if the folder holds another run, or none.

        Args:
            config: the configuration.
            path: the run's folder.
            weights: present digests of the models.

        Raises:
            RunError: the folder cannot be read as a run.
            StorageError: the folder is the copy of a URI that cannot be read.
        """
        refresh(path)
        if not all((path / name).exists() for name in (CONFIG, SUMMARY, *self.files)):
            return False
        run = RunFolder.load(path)
        if run.job != self.name:
            return False
        stored = as_now(type(config), run.config, str(path / CONFIG))
        before, now = (fixed_settings(values, self.resume_safe) for values in (stored, to_dict(config)))
        if difference(before, now):
            return False
        if changed_weights(run.weights, weights):
            # Opening the run for writing names the changed model.
            return False
        try:
            run.summary()
            if not is_summarised(run.events()):
                # The last session was cut short: the rows may differ from the summary.
                return False
            num_done = sum(part["status"].to_pylist().count(OK) for part in run.read_parts())
            return num_done == self.num_rows(config, path)
        except RunError:
            # Opening the run for writing sets a damaged part aside and does its items again; the summary is written anew.
            return False

    def result(self, config: ConfigT, path: Path) -> Result:
        """Return the result of a run that has written its summary.

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
                next_commands=tuple(map(in_free_folder, self.next_commands(config, path))),
                more=self.more(run),
                failure=failure,
                warnings=[sentence for sentence in warnings if sentence not in failure],
                chat_usage=usage,
            )
            return self.present(result, run)

    def command(self, config: ConfigT, path: Path) -> str:
        """Return the command that makes a run like this one."""
        run = None if path == Path("runs", self.run_name) else path
        return command_line(self.words, self.presets, config, run, self.argument)

    def weights(self, config: ConfigT) -> dict[str, str]:
        """Return the digests of the models that exist, and of the user's own files, by the setting that names each."""
        texts = {name: text for name, text in flat(to_dict(config)).items() if isinstance(text, str) and {*text} & {*"/."}}
        own = {name: text for name, text in texts.items() if name.split(".")[-1] in ("corpus", "targets", "scenarios")}
        if own:
            from parley.envs.corpora.own_files import without_options
            from parley.envs.corpora.pairs.corpora import is_path

            own = {name: path for name, spec in own.items() if ".py:" in (path := without_options(spec)) or is_path(path)}
        # What a recipe, a sweep or a policy plans is compared by those that read it. A tokenizer writes a server's prompts.
        # `Path.is_file` raises at texts that are too long for a path.
        files = {name for name, text in texts.items() if name == "chat.tokenizer" or os.path.isfile(text)}  # noqa: PTH113
        own |= {name: texts[name] for name in files - {"recipe", "sweep", "policy"}}
        return weights_digests({**own, **self.models(config)})

    def models(self, config: ConfigT) -> Mapping[str, str]:
        """Return the names of the models behind the rows, by setting; a resumed run must have the same weights."""
        return {}

    def num_rows(self, config: ConfigT, path: Path) -> int:
        """Return the number of rows of a finished run; -1 if the run in the folder does not tell yet."""
        return int((RunFolder.load(path).summary() or {}).get(self.num_rows_entry, -1)) if self.num_rows_entry else 0

    def num_items(self, config: ConfigT) -> int | None:
        """Return the number of items that a run would have, found from models and data; None if it is the number asked for."""
        return None

    def metrics_of(self, config: ConfigT) -> Collection[str] | None:
        """Return the names of the metrics that a run of a configuration can have; None if only the run can tell."""
        return self.legend

    def flat(self, run: RunFolder) -> FlatRows | None:
        """Return the rule that turns a run's rows into lines of one flat file; None if each row is a line."""
        return None

    def transcripts(self, run: RunFolder) -> TranscriptRule | None:
        """Return the rule by which rows of the run read as conversations; None if they are none."""
        return None

    def item_rows(self, run: RunFolder) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the rows that `item_metrics` reads, finished or not, in parts; by default the rows of the run."""
        return (part.to_pylist() for part in run.read_parts())

    def next_commands(self, config: ConfigT, path: Path) -> tuple[str, ...]:
        """Return the commands to type after a run of that configuration in that folder."""
        return (shlex.join(["parley", "report", display_path(path)]),)

    def tables(self, run: RunFolder) -> Mapping[str, EstimateTable]:
        """Return the tables of a run that has written its summary, by heading; one without a heading stands alone."""
        return {}

    def more(self, run: RunFolder) -> Mapping[str, EstimateTable]:
        """Return the tables of such a run that stand below its metrics or its `tables`, by heading."""
        return {}

    def note(self, run: RunFolder) -> str:
        """Return a sentence for below the tables."""
        return ""

    def present(self, result: Result, run: RunFolder) -> Result:
        """Return the result of a run as shown; jobs add what only the run can tell, such as tables."""
        return result


def failure_of(outcomes: Outcomes) -> str:
    """Return the reason why every item failed; empty if one worked, or there is none."""
    if outcomes.done or not outcomes.failed:
        return ""
    return f"every item failed, {_commonest(outcomes, f'of {outcomes.failed:,}')}"


def _commonest(outcomes: Outcomes, whole: str) -> str:
    """Return the commonest error with its number; one as an example if no error is that of most items."""
    ((reason, times),) = outcomes.errors.most_common(1)
    most = 2 * times > outcomes.failed
    return f"{times:,} {whole} with: {reason}" if most else f"with {len(outcomes.errors):,} different errors, such as: {reason}"


def lost_items(outcomes: Outcomes) -> str:
    """Return how many items failed, if some did; empty if all failed, because that is a failure."""
    is_some = outcomes.done and outcomes.failed
    return f"{outcomes.failed:,} of {outcomes.done + outcomes.failed:,} items failed and are in no figure" if is_some else ""


def losses_of(outcomes: Outcomes) -> list[str]:
    """Return a sentence if some items failed; nothing if all failed, because that is a failure."""
    if not (lost := lost_items(outcomes)):
        return []
    return [f"{lost}, {_commonest(outcomes, 'of them').splitlines()[0]}"]


class Silent:
    """A reporter that does nothing, for tests and notebooks."""

    def stage(self, title: str, total: int, unit: str) -> None:
        """Do nothing."""

    def advance(self, done: float, note: str = "") -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""


def drawn(population: Sequence[ItemT], limit: int, seed: int, name: str) -> list[ItemT]:
    """Return at most `limit` items, drawn by the seed and in their order; all items if the limit is 0.

    Args:
        population: all items.
        limit: the largest number of items; 0 for all.
        seed: master seed.
        name: name of the corpus.
    """
    indices: Sequence[int] = range(len(population))
    if limit and len(population) > limit:
        indices = sorted(stream(seed, "examples", name).permutation(len(population))[:limit].tolist())
    return [population[index] for index in indices]


def write_tables(path: Path, tables: Mapping[str, EstimateTable], about: Mapping[str, str], note: str = "") -> None:
    """Write tables as Markdown; control characters of terminals are spelled out.

    Args:
        path: the file.
        tables: tables by heading; an empty heading is left out.
        about: the title, the description and the command that made them.
        note: a sentence below the tables.

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


def noted(tables: Mapping[str, EstimateTable], note: str) -> dict[str, EstimateTable]:
    """Return the tables with a sentence added below the last one; unchanged if the note or the tables are empty."""
    result = {**tables}
    if result and note:
        heading, last = result.popitem()
        result[heading] = replace(last, note=f"{last.note}\n{note}".strip())
    return result


def command_line(
    words: Sequence[str], presets: Mapping[str, Callable[[], Any]], config: Any, run: Path | None, argument: str = ""
) -> str:
    """Return the command that makes a run like this one.

    Args:
        words: words of the job.
        presets: presets of the job, the default first.
        config: the run's configuration.
        run: the run's folder; None for the job's default folder.
        argument: the setting that is typed without a flag; empty for none.
    """
    settings = flat(to_dict(config))
    values = {name: flat(to_dict(preset())) for name, preset in presets.items()}
    changes = {name: {key: value for key, value in settings.items() if value != values[name][key]} for name in presets}
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


def in_free_folder(command: str) -> str:
    """Return a command of a job that names a new folder if a run is in its default one; others as they are."""
    from parley.engine.core.verbs.catalogue import ENTRIES

    words = tuple(shlex.split(command)[1:])
    # The words of one job may begin those of another: minmax, minmax replies.
    entry = max(ENTRIES, key=lambda entry: len(entry.words) * (words[: len(entry.words)] == entry.words))
    is_job = words[: len(entry.words)] == entry.words and "--run" not in words
    if not (is_job and Path("runs", name := entry.load().run_name, CONFIG).is_file()):
        return command
    return f"{command} --run {next(folder for n in count(2) if not Path(folder := f'runs/{name}-{n}').exists())}"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the simple values of nested settings, by dotted key."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result


def _flag(key: str, value: Any) -> list[str]:
    flag = key.replace("_", "-")
    return [f"--{'no-' * (not value)}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]


def _yaml(value: Any) -> str:
    """Return a simple value as `--set` reads it; JSON's escapes of rare characters mean something else in YAML."""
    if isinstance(value, str):
        return yaml.safe_dump(value, default_style='"', width=math.inf).rstrip("\n")
    return json.dumps(value)
