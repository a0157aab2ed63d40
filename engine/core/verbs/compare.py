"""Compare runs of one verb item by item: `parley compare RUN RUN`.

A verb says its figures of single items by `Job.item_metrics`; all figures here follow from them. Items are common if every run
has a row that worked for their key and the rows hold the same task. Each run's figures are those of the common items alone.
Differences are paired by item, their intervals are over independent units such as dialogues, and p-values are adjusted by Holm
for all pairs of runs and all metrics that are shown.

Several trainings of one system make a group: `runs/a-1,runs/a-2`. Then intervals are over trainings and units.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.runs.documents import CONFIG, SUMMARY
from parley.engine.core.runs.parts import OK
from parley.engine.core.runs.remote_sync import fetched_run
from parley.engine.core.runs.run_folder import RunFolder, is_summarised
from parley.engine.core.stats.known import best_of
from parley.engine.core.stats.pairs import (
    Contrast,
    Form,
    ItemMetrics,
    Sample,
    contrast,
    group_estimate,
    holm,
    key_of,
    paired_estimate,
)
from parley.engine.core.stats.statistics import FEW, NOTHING, Estimate, Metric, Row
from parley.engine.core.tables.table import ABSENT, EstimateTable, with_interval
from parley.engine.core.verbs.catalogue import ENTRIES, find
from parley.engine.core.verbs.conditions import ConditionOutcome, FailCondition, MetricPart, part_of
from parley.engine.core.verbs.foreign_logs import LOG_ITEMS, SCAN, is_log, read_log, rows_of, scan_answers
from parley.engine.core.verbs.job import Reporter, Silent
from parley.envs.core.errors import ConfigError, RunError
from parley.envs.core.registry import nearest
from parley.envs.core.storage.uris import display_path

ALL = "all"
"""The name that stands for all metrics."""
TRAINING = "training"
"""The entry of a row that numbers its training, in runs of several; the first if it is missing."""
LAYOUT = "tables"
"""The entry of a recipe's summary that holds the layout of its tables."""
_SUBJECT = "model"
"""The label of the measured model in metrics' names, where each run has one of its own."""
_ITEM_SETTINGS = ("seed", "corpus", "split", "limit", "scenarios", "dialogues", "first", "targets", "attackers", "rules")
"""Settings that choose the items, what each holds, or their random numbers."""
_MOST_NAMED = 5


@dataclass
class MeasuredRun:
    """A run as it is compared.

    Args:
        name: the run as typed.
        job: name of its job.
        config: its settings.
        finished: whether nothing is left to do.
        positions: the number of each item that worked, by its key.
        tasks: digests of the tasks of these items.
        links: digests of what makes each of them one unit with others.
        failed: keys of the items that failed.
        figures: by metric the positions, numerators and denominators, in parts.
        forms: the form and the spread of each metric.
        subjects: labels of the models that it measures.
    """

    name: str
    job: str
    config: Mapping[str, Any]
    finished: bool
    positions: dict[str, int] = field(default_factory=dict)
    tasks: list[bytes] = field(default_factory=list)
    links: list[tuple[int, ...]] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    figures: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = field(default_factory=dict)
    forms: dict[str, tuple[Form, float]] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()

    def add(self, rows: Sequence[Row], rule: ItemMetrics) -> None:
        """Add the figures of some rows."""
        done = [row for row in rows if row["status"] == OK]
        offset = len(self.positions)
        self.failed.update(key_of(row) for row in rows if row["status"] != OK)
        self.positions.update({key_of(row): offset + number for number, row in enumerate(done)})
        self.tasks += [hashlib.blake2b(repr(rule.content(row)).encode(), digest_size=16).digest() for row in done]
        self.links += map(rule.digests, done)
        if done:
            self.subjects = tuple(dict.fromkeys((*self.subjects, *rule.subjects(done, self.config))))
            for metric, figures in rule.figures(done, self.config).items():
                self.figures.setdefault(metric, []).append((figures.rows + offset, figures.tops, figures.bottoms))
                self.forms[metric] = figures.form, figures.spread

    def rename(self, subject: str) -> None:
        """Call the measured model by another label in the names of all metrics, also where it stands behind a colon."""
        (own,) = self.subjects
        names = {
            name: ".".join(
                f"{part.removesuffix(own)}{subject}" if f":{part}".endswith(f":{own}") else part for part in name.split(".")
            )
            for name in self.figures
        }
        self.figures = {names[name]: figures for name, figures in self.figures.items()}
        self.forms = {names[name]: form for name, form in self.forms.items()}

    def repeats(self, other: MeasuredRun) -> bool:
        """Return whether all figures of all items are those of another run, times aside."""
        if self.tasks != other.tasks or self.positions != other.positions or self.figures.keys() != other.figures.keys():
            return False
        names = (name for name in self.figures if "seconds" not in name)
        parts = ((np.hstack(self.figures[name]), np.hstack(other.figures[name])) for name in names)
        return all(np.array_equal(own, theirs, equal_nan=True) for own, theirs in parts)

    def sample(self, metric: str, keys: Sequence[str], clusters: np.ndarray) -> Sample:
        """Return a metric on some items, in their order."""
        place = np.full(len(self.positions), -1)
        place[[self.positions[key] for key in keys]] = np.arange(len(keys))
        tops, bottoms, present = np.zeros(len(keys)), np.zeros(len(keys)), np.zeros(len(keys), dtype=bool)
        for rows, some_tops, some_bottoms in self.figures.get(metric, ()):
            at = place[rows]
            here = at >= 0
            tops[at[here]], bottoms[at[here]], present[at[here]] = some_tops[here], some_bottoms[here], True
        form, spread = self.forms.get(metric, ("mean", 1.0))
        return Sample(tops, bottoms, present, clusters, form, spread)


@dataclass(frozen=True)
class RunItems:
    """The counts of one run's items.

    Args:
        run: the run as typed.
        group: label of its group, such as "A".
        done: items that worked.
        common: items that all runs have.
        failed: items that failed.
        missing: items of other runs that this one has not.
        other: items whose key other runs have with another task.
        finished: whether the run has nothing left to do.
    """

    run: str
    group: str
    done: int
    common: int
    failed: int
    missing: int
    other: int
    finished: bool


@dataclass(frozen=True)
class Difference:
    """The difference of one metric between two groups.

    Args:
        metric: name of the metric.
        first: label of the group that is subtracted.
        second: label of the other group.
        contrast: the difference, second less first, with its p-value and the number of units needed.
        p_adjusted: the p-value by Holm over all differences that are shown.
    """

    metric: str
    first: str
    second: str
    contrast: Contrast
    p_adjusted: float

    def to_json(self) -> dict[str, Any]:
        """Return the difference as JSON types; NaN becomes null."""
        p_values = {"p": self.p_adjusted, "p_alone": self.contrast.test.p_value}
        return {
            "first": self.first,
            "second": self.second,
            **self.contrast.test.difference.to_json(),
            **{name: None if math.isnan(value) else value for name, value in p_values.items()},
            "items_needed": self.contrast.num_needed,
        }


@dataclass(frozen=True)
class ComparedRuns:
    """Runs side by side on their common items.

    Args:
        job: name of the job of the runs.
        unit: name of the independent units.
        groups: names of the runs of each group by its label.
        items: counts of each run's items.
        num_units: independent units among the common items.
        metrics: figures of each group by metric, in the order of the groups.
        differences: all differences, those of a metric side by side.
        legend: meanings of the metrics.
        warnings: sentences that a reader must know.
    """

    job: str
    unit: str
    groups: Mapping[str, Sequence[str]]
    items: Sequence[RunItems]
    num_units: int
    metrics: Mapping[str, Sequence[Estimate]]
    differences: Sequence[Difference]
    legend: Mapping[str, Metric]
    warnings: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {
            "job": self.job,
            "unit": self.unit,
            "groups": {label: list(names) for label, names in self.groups.items()},
            "items": [vars(items) for items in self.items],
            "common_units": self.num_units,
            "metrics": {
                name: {label: estimate.to_json() for label, estimate in zip(self.groups, estimates, strict=True)}
                for name, estimates in self.metrics.items()
            },
            "differences": {
                name: [entry.to_json() for entry in self.differences if entry.metric == name] for name in self.metrics
            },
            "warnings": list(self.warnings),
        }

    def decide(self, conditions: Sequence[FailCondition]) -> list[ConditionOutcome]:
        """Return the verdict of each condition for every group but the first, which is the baseline of differences."""
        verdicts = []
        baseline, *others = self.groups
        for label in others:
            for condition in conditions:
                verdict = condition.decide(lambda figure, label=label: self._part(figure, baseline, label))  # type: ignore[misc]  # a bound default
                text = f"{verdict.text} ({label})" if len(others) > 1 else verdict.text
                verdicts.append(ConditionOutcome(text, verdict.holds, verdict.figures, verdict.missing))
        return verdicts

    def _part(self, figure: MetricPart, baseline: str, label: str) -> float | str:
        if figure.metric not in self.metrics:
            return part_of(None, figure, self.metrics)
        if not figure.of_difference:
            return part_of(self.metrics[figure.metric][list(self.groups).index(label)], figure, self.metrics)
        entry = next(
            entry for entry in self.differences if (entry.metric, entry.first, entry.second) == (figure.metric, baseline, label)
        )
        if figure.part != "p":
            return part_of(entry.contrast.test.difference, figure, self.metrics)
        if math.isnan(entry.p_adjusted):
            return "there is no p-value from fewer than two items that differ in both runs; run more items"
        return entry.p_adjusted


def compare_runs(
    names: Sequence[str], reporter: Reporter, metrics: Sequence[str] = (), conditions: Sequence[FailCondition] = ()
) -> ComparedRuns:
    """Compare runs item by item.

    Args:
        names: runs, at least two; one with commas or a pattern such as runs/a-* is a group of trainings.
        reporter: receives the progress.
        metrics: names or patterns of metrics; "all" for all; the main ones of the verb if empty.
        conditions: conditions whose metrics are computed too.

    Raises:
        ConfigError: there are fewer than two runs, one is named twice, or a metric is unknown.
        DataError: a log of another tool cannot be read.
        RunError: a run is missing or damaged, the verb has no figures of single items, or nothing is common.
        StorageError: a URI cannot be read.
    """
    groups = _groups(names)
    every_name = [name for group in groups.values() for name in group]
    of_logs = any(map(is_log, every_name))
    rule = LOG_ITEMS if of_logs else _shared_rule(every_name)
    runs = {
        label: [run for name in group for run in ([_logged_run(name)] if of_logs else read_runs(name, rule, reporter))]
        for label, group in groups.items()
    }
    every = [run for group in runs.values() for run in group]
    warnings = _subjects(runs)
    values = {name: list(dict.fromkeys(str(run.config.get(name)) for run in every)) for name in _ITEM_SETTINGS}
    if unequal := [f"{name} ({', '.join(several)})" for name, several in values.items() if len(several) > 1]:
        warnings.append(f"the runs differ in {', '.join(unequal)}: not all items are the same")
    warnings += [
        f"{first.name} and {second.name} are equal in every item: one training, which counts twice"
        for group in runs.values()
        for first, second in combinations(group, 2)
        if first.repeats(second)
    ]
    keys, items = _common_items(runs)
    unit, clusters = rule.units([every[0].links[every[0].positions[key]] for key in keys])
    if unfinished := [entry.run for entry in items if not entry.finished]:
        warnings.append(f"not finished, compared as far as there are rows: {', '.join(unfinished)}")
    if (num_units := len(set(clusters.tolist()))) < FEW:
        warnings.append(f"few: {num_units} {unit} of common items; do not lean on the numbers")
    warnings += _not_shared(runs, rule)
    shown = _chosen(runs, rule, metrics, conditions)
    reporter.stage("computing differences, their intervals and significances", len(shown), "metrics")
    estimates: dict[str, list[Estimate]] = {}
    contrasts: list[tuple[str, str, str, Contrast]] = []
    for number, metric in enumerate(shown, start=1):
        samples = {label: [run.sample(metric, keys, clusters) for run in group] for label, group in runs.items()}
        estimates[metric] = [group_estimate(group) for group in samples.values()]
        if len({(sample.bottoms > 0).tobytes() for group in samples.values() for sample in group if sample.is_measured}) > 1:
            warnings.append(f"{metric}: each run counts other items of the common ones, so not like for like")
        contrasts += [
            (metric, first, second, contrast(samples[first], samples[second])) for first, second in combinations(samples, 2)
        ]
        reporter.advance(number)
    adjusted = holm([entry[3].test.p_value for entry in contrasts])
    differences = [Difference(*entry, p_value) for entry, p_value in zip(contrasts, adjusted, strict=True)]
    if {1} < set(map(len, runs.values())):
        warnings.append("a group of one training has no spread over trainings: its part is missing in the intervals")
    return ComparedRuns(
        job=every[0].job,
        unit=unit,
        groups={label: [run.name for run in group] for label, group in runs.items()},
        items=items,
        num_units=num_units,
        metrics=estimates,
        differences=differences,
        legend={name: rule.describe(name) for name in shown},
        warnings=warnings,
    )


def _groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the runs of each group by a letter."""
    groups = [[run for part in name.split(",") if part for run in _matching(part)] for name in names]
    if len(groups) < 2 or not all(groups):
        fix = "parley compare RUN RUN; several trainings of one system are joined by commas: runs/a-1,runs/a-2"
        raise ConfigError("two runs are needed to compare", got=", ".join(names) or "none", fix=fix)
    paths = [Path(fetched_run(name)).resolve() for group in groups for name in group]
    if twice := sorted({display_path(path) for path in paths if paths.count(path) > 1}):
        raise ConfigError("a run is named twice", got=", ".join(twice), fix="name each run once")
    labels = [chr(ord("A") + number) if number < 26 else f"R{number + 1}" for number in range(len(groups))]
    return dict(zip(labels, groups, strict=True))


def _matching(name: str) -> list[str]:
    """Return the runs that a pattern matches; a name without a pattern stands for itself."""
    if not glob.has_magic(name) or Path(name).exists():
        return [name]
    folder, pattern = (Path("/"), name.lstrip("/")) if name.startswith("/") else (Path(), name)
    matches = sorted(str(match) for match in folder.glob(pattern) if (match / CONFIG).is_file())
    if not matches:
        raise ConfigError("no run matches the pattern", got=name, fix="name runs that are there: parley status")
    return matches


def _shared_rule(names: Sequence[str]) -> ItemMetrics:
    """Return the rule of single items that all runs share."""
    jobs = {name: RunFolder.load(fetched_run(name)).job for name in names}
    rules = {name: find(job).load().item_metrics for name, job in jobs.items()}
    first = names[0]
    for name in names:
        if rules[name] is None:
            there = ", ".join(" ".join(entry.words) for entry in ENTRIES if entry.load().item_metrics is not None)
            fix = f"name runs of one of: {there}; parley report shows other runs side by side"
            raise RunError(
                "runs of this verb cannot be compared item by item", where=name, got=f"a run of {jobs[name]}", fix=fix
            )
        if rules[name] is not rules[first]:
            got = f"{jobs[first]} in {first}, {jobs[name]} in {name}"
            raise RunError("the runs are of verbs that measure different things", got=got, fix="compare runs of one verb")
    rule = rules[first]
    assert rule is not None, "checked above"
    return rule


def read_runs(name: str, rule: ItemMetrics, reporter: Reporter) -> list[MeasuredRun]:
    """Return a run with its figures of single items, once for each training in it; one part at a time is in memory.

    Raises:
        RunError: the run has no items that worked, or is damaged.
    """
    folder = RunFolder.load(fetched_run(name))
    outcomes = folder.outcomes()
    reporter.stage(f"reading {name}", outcomes.done + outcomes.failed, "rows")
    finished = (folder.path / SUMMARY).is_file() and is_summarised(folder.events())
    runs: dict[int, MeasuredRun] = {}
    num_read = 0
    for part in find(folder.job).load().item_rows(folder):
        for training in dict.fromkeys(row.get(TRAINING, 1) for row in part):
            label = name if training == 1 else f"{name}, {TRAINING} {training}"
            run = runs.setdefault(training, MeasuredRun(label, folder.job, folder.config, finished))
            run.add([row for row in part if row.get(TRAINING, 1) == training], rule)
        num_read += len(part)
        reporter.advance(num_read)
    if not any(run.positions for run in runs.values()):
        fix = f"parley resume {display_path(folder.path)}, or see why with parley status {display_path(folder.path)}"
        raise RunError("the run has no items that worked", where=name, got=f"{outcomes.failed:,} failed items", fix=fix)
    return list(runs.values())


def item_difference(first: tuple[Path, str], second: tuple[Path, str]) -> Estimate | None:
    """Return a metric of one finished run less one of another, or of the same, item by item.

    Args:
        first: folder of the run, and name of its metric; one of a stage of it is called STAGE.METRIC.
        second: the same of what is subtracted.

    Returns:
        The difference with an interval over independent units; None if these are no figures of single items, or the items of
        both are not the same.
    """
    sides = [_stage_of(*side) for side in (first, second)]
    rule, other = (find(RunFolder.load(path).job).load().item_metrics for path, _ in sides)
    if rule is None or other is not rule:
        return None
    runs = {path: read_runs(str(path), rule, Silent()) for path, _ in sides}
    (after, *trainings), (before, *others) = (runs[path] for path, _ in sides)
    tasks = [{key: run.tasks[position] for key, position in run.positions.items()} for run in (after, before)]
    if trainings or others or tasks[0] != tasks[1]:
        return None
    keys = sorted(after.positions)
    _, clusters = rule.units([after.links[after.positions[key]] for key in keys])
    samples = (run.sample(metric, keys, clusters) for run, (_, metric) in zip((after, before), sides, strict=True))
    return paired_estimate(*samples)


def best_by_items(figures: Sequence[tuple[Path, str]]) -> Estimate:
    """Return the largest of one figure of several runs, chosen on one half of their common items and measured on the other.

    Args:
        figures: folder of each run, and name of its metric, as in `item_difference`.

    Returns:
        The estimate; `NOTHING` if these are no means to which each item adds one number.
    """
    sides = [_stage_of(*figure) for figure in figures]
    rule = find(RunFolder.load(sides[0][0]).job).load().item_metrics
    if rule is None:
        return NOTHING
    runs = [(run, metric) for path, metric in sides for run in read_runs(str(path), rule, Silent())]
    keys = sorted(set.intersection(*({*run.positions} for run, _ in runs)))
    _, clusters = rule.units([runs[0][0].links[runs[0][0].positions[key]] for key in keys])
    samples = [run.sample(metric, keys, clusters) for run, metric in runs]
    if not keys or not all(sample.form == "mean" and (sample.bottoms == 1).all() for sample in samples):
        return NOTHING
    return best_of(np.stack([sample.tops for sample in samples], axis=1), clusters)


def _stage_of(path: Path, metric: str) -> tuple[Path, str]:
    """Return the folder and the name of a metric in the stage that measured it, also in a recipe's TABLE.ROW.COLUMN."""
    for table in (RunFolder.load(path).summary() or {}).get(LAYOUT, ()):
        for row in table["rows"]:
            for column, place in row.get("measured", {}).items():
                if metric == f"{table['key']}.{row['key']}.{column}":
                    return path / place["stage"], place["metric"]
    stage, _, name = metric.partition(".")
    return (path / stage, name) if (path / stage / CONFIG).is_file() else (path, metric)


def _logged_run(name: str) -> MeasuredRun:
    """Return a log of another tool, or a scan beside it, by prompts."""
    if is_log(name):
        tool, rows = read_log(Path(name))
        run = MeasuredRun(name, tool, {}, finished=True)
    else:
        folder = RunFolder.load(fetched_run(name))
        if folder.job != SCAN:
            fix = "name a run of parley scan beside logs of other tools"
            raise RunError("the run has no prompts as a log has them", where=name, got=f"a run of {folder.job}", fix=fix)
        run = MeasuredRun(name, folder.job, {}, (folder.path / SUMMARY).is_file() and is_summarised(folder.events()))
        scanned = folder.rows()
        run.failed.update(key_of(row) for row in scanned if row["status"] != OK)
        rows = rows_of(scan_answers(scanned))
    run.add(rows, LOG_ITEMS)
    if not run.positions:
        fix = "see in its own tool why: errors, and judges that gave no verdict, are no results"
        raise RunError("no answer of the log has a verdict", where=name, got=f"{len(run.failed):,} prompts", fix=fix)
    return run


def _subjects(runs: Mapping[str, Sequence[MeasuredRun]]) -> list[str]:
    """Give models of different names one label where each run measures one; return the sentence that says so."""
    every = [run for group in runs.values() for run in group]
    names = {run.subjects for run in every}
    if len(names) == 1 or any(len(run.subjects) != 1 for run in every):
        return []
    for run in every:
        run.rename(_SUBJECT)
    labels = {label: ", ".join(dict.fromkeys(run.subjects[0] for run in group)) for label, group in runs.items()}
    return [f"{_SUBJECT} is {', '.join(f'{model} in {label}' for label, model in labels.items())}"]


def _common_items(runs: Mapping[str, Sequence[MeasuredRun]]) -> tuple[list[str], list[RunItems]]:
    """Return the keys of the common items, and the counts of each run."""
    every = [run for group in runs.values() for run in group]
    shared = set.intersection(*(set(run.positions) for run in every))
    same = {key for key in shared if len({run.tasks[run.positions[key]] for run in every}) == 1}
    keys = sorted(same)
    known = set.union(*(set(run.positions) | run.failed for run in every))
    items = [
        RunItems(
            run=run.name,
            group=label,
            done=len(run.positions),
            common=len(keys),
            failed=len(run.failed),
            missing=len(known - set(run.positions) - run.failed),
            other=len(shared) - len(keys),
            finished=run.finished,
        )
        for label, group in runs.items()
        for run in group
    ]
    if not keys:
        got = f"{len(shared):,} keys in all runs, with different tasks" if shared else "different keys"
        fix = "run both with the same corpus, split, limit and seed"
        raise RunError("the runs have no item in common", got=got, fix=fix)
    return keys, items


def _chosen(
    runs: Mapping[str, Sequence[MeasuredRun]], rule: ItemMetrics, patterns: Sequence[str], conditions: Sequence[FailCondition]
) -> list[str]:
    """Return the names of the metrics to show, in the order of the first run."""
    measured = {label: _metrics_of(group) for label, group in runs.items()}
    first, *others = measured.values()
    shared = [name for name in first if all(name in names for names in others)]
    if not shared:
        of_runs = "; ".join(f"{label}: {', '.join(names[:_MOST_NAMED])}, ..." for label, names in measured.items())
        fix = "measure one model in each run, or the same models in both"
        raise RunError("the runs share no metric", got=of_runs, fix=fix)
    wanted = {figure.metric for condition in conditions for figure in condition.figures.values()}
    for pattern in patterns:
        matches = [name for name in shared if pattern in (ALL, name)] or fnmatch.filter(shared, pattern)
        if not matches:
            fix = f"--metric {ALL} shows every one, such as {', '.join(shared[:_MOST_NAMED])}"
            raise ConfigError(f"no common metric is called {pattern!r}{nearest(pattern, shared)}", where="--metric", fix=fix)
        wanted.update(matches)
    if not patterns:
        main = [name for name in shared if rule.describe(name).main]
        labels = {subject for group in runs.values() for run in group for subject in run.subjects}
        # Metrics of controls are the same in all runs, and would count among the tests.
        of_models = [name for name in main if not labels or not {*labels, _SUBJECT}.isdisjoint(name.split("."))]
        wanted.update(of_models or main or shared)
    return [name for name in shared if name in wanted]


def _metrics_of(group: Sequence[MeasuredRun]) -> list[str]:
    return list(dict.fromkeys(name for run in group for name in run.figures))


def _not_shared(runs: Mapping[str, Sequence[MeasuredRun]], rule: ItemMetrics) -> list[str]:
    """Return a warning on main metrics that only some runs have."""
    measured = {label: set(_metrics_of(group)) for label, group in runs.items()}
    every = set().union(*measured.values())
    sentences = []
    for label, names in measured.items():
        if missing := sorted(name for name in every - names if rule.describe(name).main):
            shown = ", ".join(missing[:_MOST_NAMED]) + ", ..." * (len(missing) > _MOST_NAMED)
            sentences.append(f"not shown, because {label} has not measured it: {shown}")
    return sentences


def comparison_tables(compared: ComparedRuns) -> dict[str, EstimateTable]:
    """Return the tables of a comparison by heading: items, then figures and differences."""
    counts = ("done", "common", "failed", "missing", "other")
    lines = tuple(
        (
            entry.group,
            entry.run,
            *(f"{getattr(entry, name):,}" for name in counts),
            "finished" if entry.finished else "unfinished",
        )
        for entry in compared.items
    )
    heads = ("", "run", "items", "common", "failed", "missing", "other task", "state")
    note = (
        f"Figures are of the common items alone, {compared.num_units:,} {compared.unit}. Failed: items without a result; "
        "missing: items of another run; other task: the same key with another task."
    )
    tables = {"items": EstimateTable(heads, lines, note, ("run", "state"))}
    labels = list(compared.groups)
    pairs = list(dict.fromkeys((entry.first, entry.second) for entry in compared.differences))
    rows = []
    for name, estimates in compared.metrics.items():
        figures = [with_interval(estimate) for estimate in estimates]
        for number, pair in enumerate(pairs):
            entry = next(entry for entry in compared.differences if (entry.metric, entry.first, entry.second) == (name, *pair))
            shown = [name, *figures] if number == 0 else ["", *[""] * len(figures)]
            cells = [f"{pair[1]} less {pair[0]}"] if len(pairs) > 1 else []
            needed, p_value = entry.contrast.num_needed, entry.p_adjusted
            p_text = ABSENT if math.isnan(p_value) else "<.001" if p_value < 0.001 else f"{p_value:.3f}".removeprefix("0")
            number_needed = ABSENT if needed is None else f"{needed:,}"
            rows.append((*shown, *cells, with_interval(entry.contrast.test.difference), p_text, number_needed))
    between = ("between",) if len(pairs) > 1 else ()
    of_pair = "difference" if between else f"{labels[1]} less {labels[0]}"
    heads = ("metric", *labels, *between, of_pair, "p", f"{compared.unit} needed")
    tables["differences"] = EstimateTable(heads, tuple(rows), _note(compared), between)
    return tables


def _note(compared: ComparedRuns) -> str:
    several = any(len(names) > 1 for names in compared.groups.values())
    over = f"trainings and {compared.unit}" if several else compared.unit
    num, test = len(compared.differences), "t-test" if over != compared.unit else "paired bootstrap"
    return (
        f"Brackets: 95 % intervals over {over}, each alone. p: {test}, two-sided, by Holm for {num:,} test{'s' * (num != 1)}. "
        f"Needed: {compared.unit} that would tell this difference with a power of 80 %; a dash where no number would."
    )
