"""Recipes as jobs: `parley compare RECIPE.yaml`, and `parley reproduce PAPER` for the recipes of the papers.

Each stage is a run of its own below the recipe's run, and resumes by itself. With workers, stages that do not need each other
run at the same time. A stage that fails ends only those that use it: its rows give the reason, and the next command tries it
again. The tables take their figures from the summaries of the stages; of several trainings these are means over trainings.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from parley.engine.core.runs.documents import SUMMARY, require_same
from parley.engine.core.runs.run_folder import RunFolder, seconds_of
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.core.stats.trainings import TRAININGS, independent_difference, over_trainings
from parley.engine.core.tables.table import (
    ABSENT,
    DECIMAL,
    PERCENT,
    THOUSANDTHS,
    WHOLE,
    Column,
    EstimateTable,
    Form,
    TableCell,
    TableRow,
    figure,
    metric_table,
    num_measured,
    published_cell,
    stacked,
)
from parley.engine.core.verbs.compare import LAYOUT, best_by_items, item_difference
from parley.engine.core.verbs.composite import Composite, Stage, run_stages
from parley.engine.core.verbs.conditions import decide_all
from parley.engine.core.verbs.job import TABLE_FILE, Reporter, Result, Silent, Summary, flat, write_tables
from parley.engine.core.verbs.recipe import ClaimSpec, RecipePlan, RowSpec, read_recipe
from parley.engine.core.verbs.sharded import RESUME_SAFE, session
from parley.envs.core.config import Configuration, NonNegativeInt, to_dict
from parley.envs.core.errors import ConfigError, NothingToMeasureError, ParleyError
from parley.envs.core.registry import nearest

FAILED, CLAIMS = "failed", "claims"
"""Entries of the summary beside `LAYOUT`: reasons of failed stages by name, and the outcomes of the claims."""
REPRODUCED, NOT_REPRODUCED, UNDECIDED, UNMEASURED, CONTRADICTORY = (
    "reproduced",
    "not reproduced",
    "undecided",
    "not measured",
    "both conditions are true",
)
"""Outcomes of a claim. Undecided: the intervals are too wide to tell."""
_FORMS = {"number": DECIMAL, "rate": THOUSANDTHS, "share": PERCENT, "count": WHOLE, "perplexity": DECIMAL}
_NAMED = Form(places=3, digits=True, inline=True)
_MOST_WORDS = 100
"""Characters of a reason in a cell; the note has the whole of it."""


@dataclass(frozen=True, kw_only=True)
class RecipeConfig(Configuration):
    """Settings of a recipe."""

    workers: NonNegativeInt = 0
    """Ray actors that run stages at the same time; 0 runs one after another in this process."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    dry_run: bool = False
    """Show the stages and the time that they take, about, and run nothing."""
    preset: str = ""
    """Preset of the recipe; its first one when empty."""
    override: str = ""
    """Settings of the recipe that differ, KEY=VALUE between commas."""


@dataclass(frozen=True, kw_only=True)
class RecipeFileConfig(RecipeConfig):
    """Settings of a recipe in a file."""

    recipe: str = ""
    """The recipe: a YAML file."""


PairedFigures = dict[tuple[tuple[Path, str], tuple[Path, str]], Estimate | None]


class MeasuredFigure(NamedTuple):
    """A figure, with the run that measured it and the metric's name there."""

    estimate: Estimate
    run: Path
    metric: str


@dataclass(frozen=True)
class PlannedRecipe:
    """A recipe with the configurations of its runs.

    Args:
        recipe: the checked recipe.
        config: its settings.
        stages: job and configuration of each run, by its folder.
        failures: errors of runs that failed, by folder; filled while they work.
        paired: differences item by item that have been computed, by folder and metric of both figures.
        figures: metrics of finished runs by folder, which the tables need again and again.
    """

    recipe: RecipePlan
    config: Any
    stages: Mapping[str, Stage]
    failures: dict[str, ParleyError] = field(default_factory=dict)
    paired: PairedFigures = field(default_factory=dict)
    figures: dict[Path, Mapping[str, Estimate]] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of failed runs, by folder."""
        return {
            name: error.what if error.where is None else f"{error.what} ({error.where})"
            for name, error in self.failures.items()
        }


class RecipeJob(Composite[Any, PlannedRecipe, PlannedRecipe]):
    """A verb that carries out a recipe.

    Args:
        words: the words on the command line.
        file: name of a recipe in the folder `recipes` of its system, such as "ranking/li2019"; empty for `RecipeFileConfig`.
    """

    config: Any
    presets: Mapping[str, Any]
    files: tuple[str, ...] = (TABLE_FILE, SUMMARY)
    resume_safe: tuple[str, ...] = ("workers", "data_root", "dry_run", "override")
    repeatable: tuple[str, ...] = ("override",)
    at_need = False
    """Whether pooled stages wait for the actors of the pool, see `run_stages`."""

    def __init__(self, words: str, file: str = "") -> None:
        self.words, self._file = tuple(words.split()), file
        self.run_name = "-".join(self.words)
        self.config = RecipeConfig if file else RecipeFileConfig
        self.presets = {"small": small, "paper": paper, "demo": demo} if file else {"recipe": from_file}
        self.argument = "" if file else "recipe"

    def recipe(self, config: Any, path: Path | None = None) -> RecipePlan:
        """Return the checked recipe.

        Args:
            config: the settings.
            path: the run's folder; None before it is known.

        Raises:
            ConfigError: it has a mistake, or none is named.
            DataError: a file cannot be read.
        """
        if not (self._file or config.recipe):
            raise ConfigError("no recipe is named", fix="parley compare RECIPE.yaml; docs/compare.md has an example")
        return read_recipe(self.file if self._file else Path(config.recipe), config.preset, config.override)

    @property
    def file(self) -> Path:
        """The file of the recipe that has a verb of its own."""
        system, _, name = self._file.partition("/")
        return Path(str(files(f"parley.engine.{system}").joinpath("recipes", f"{name}.yaml")))

    def shared(self, config: Any) -> dict[str, Any]:
        """Return settings by dotted key that each stage takes if its verb has them and the recipe does not set them."""
        return {} if config.data_root is None else {"data_root": str(config.data_root)}

    def at_once(self, config: Any) -> int:
        """Return the number of actors that run whole stages."""
        return int(config.workers)

    def pooled(self, prepared: PlannedRecipe) -> Collection[str]:
        """Return the runs whose shards share one pool of actors."""
        return ()

    def figures(self, prepared: PlannedRecipe, path: Path) -> Mapping[str, Estimate]:
        """Return the metrics of a finished stage for the tables."""
        return RunFolder.load(path).metrics()

    def stages(self, config: Any, path: Path) -> dict[str, Stage]:
        return dict(self.planned(config, path).stages)

    def planned(self, config: Any, path: Path) -> PlannedRecipe:
        """Return the recipe with the configurations of its runs."""
        recipe = self.recipe(config, path)
        return PlannedRecipe(recipe, config, recipe.planned(path, self.shared(config)))

    def metrics_of(self, config: Any) -> list[str] | None:
        return self.recipe(config).metrics

    def run(self, config: Any, path: Path, reporter: Reporter) -> Result:
        if not config.dry_run:
            return super().run(config, path, reporter)
        planned = self.planned(config, path)
        recipe, needs = planned.recipe, planned.recipe.needs()
        for name, (job, settings) in planned.stages.items():
            if not needs[name]:
                job.check_names(settings)
        return Result(path, recipe.title, {}, tables={"plan": plan_table(recipe, path, config.workers)})

    def finished(self, config: Any, path: Path, weights: Mapping[str, str]) -> bool:
        """Return False: the recipe may have further stages, and each stage knows if it is finished."""
        return False

    def prepare(self, config: Any, path: Path, reporter: Reporter) -> PlannedRecipe:
        planned = self.planned(config, path)
        for name, (job, settings) in planned.stages.items():
            if (path / name / SUMMARY).is_file():
                # Before the tables of finished stages are written anew.
                columns = job.schema_of(settings)
                require_same(path / name, job.name, to_dict(settings), columns, job.resume_safe, {}, type(settings))
        needs = planned.recipe.needs()
        first = [spec.name for spec in planned.recipe.stages.values() if not needs[spec.name]]
        pending = [name for name in first if not (path / name / SUMMARY).exists()]
        reporter.stage("checking stages", len(pending), "stages")
        for number, name in enumerate(pending, start=1):
            job, settings = planned.stages[name]
            job.prepare(settings, path / name, Silent())
            reporter.advance(number, name)
        return planned

    def work(self, run: RunFolder, prepared: PlannedRecipe, reporter: Reporter) -> PlannedRecipe:
        recipe, config = prepared.recipe, prepared.config
        reporter.say(plan_line(recipe, run.path, self.at_once(config)))
        run_stages(
            # A finished stage may name agents of later ones.
            lambda: recipe.planned(run.path, self.shared(config)),
            run.path,
            reporter,
            needs=recipe.needs(),
            most=self.at_once(config),
            pooled=self.pooled(prepared),
            at_need=self.at_need,
            address=getattr(config, "address", ""),
            after=lambda: self.write(run, prepared),
            failures=prepared.failures,
        )
        return prepared

    def write(self, run: RunFolder, prepared: PlannedRecipe) -> None:
        """Write the tables of the finished stages."""
        summary = self.measure(run, prepared)
        about = {"title": summary.title, "description": summary.description, "command": self.command(prepared.config, run.path)}
        write_tables(run.path / TABLE_FILE, drawn_tables(summary.extra, summary.metrics), about)

    def measure(self, run: RunFolder, result: PlannedRecipe) -> Summary:
        recipe, reasons = result.recipe, result.reasons
        empty = {name for name, error in result.failures.items() if isinstance(error, NothingToMeasureError)}
        failed = {name: reason for name, reason in reasons.items() if name not in empty}
        metrics: dict[str, Estimate] = {}
        trainings: dict[str, list[float]] = {}
        layout, left_out = [], list[str]()
        for table in recipe.tables:
            rows = []
            for row in table.rows:
                measured, lost, notes = self._measured(result, row, run.path, reasons)
                if lost and lost not in failed.values():
                    notes, lost = [*notes, f"{row.label}: {lost}."], ""
                for name, by_training in measured.items():
                    key, estimates = f"{table.key}.{row.key}.{name}", [figure.estimate for figure in by_training.values()]
                    # A difference of shares may be below 0, and one of perplexities has no logarithm.
                    form = next("number" if row.less else column.form for column in table.columns if column.key == name)
                    metrics[key] = over_trainings(estimates, Metric("", "", "", form))  # type: ignore[arg-type]  # checked
                    if len(estimates) > 1:
                        trainings[key] = [estimate.value for estimate in estimates]
                number = max(map(len, measured.values()), default=0)
                about = {"failed": lost, "notes": notes, "trainings": number, "published": dict(row.published)}
                single = {name: figures[1] for name, figures in measured.items() if figures.keys() == {1}}
                places = {
                    name: {"stage": figure.run.name, "metric": figure.metric}
                    for name, figure in single.items()
                    if figure.metric
                }
                rows.append({"key": row.key, "label": row.label, "measured": places, **about})
            if rows and all(row["notes"] and not row["failed"] and not row["trainings"] for row in rows):
                left_out.append(table.title.partition(":")[0])
                continue
            columns = [
                {"key": column.key, "heading": column.heading, "form": column.form, "note": column.note}
                for column in table.columns
                if not column.optional
                or any(metrics.get(f"{table.key}.{row.key}.{column.key}", NOTHING).n for row in table.rows)
            ]
            about = {"title": table.title, "note": table.note, "corner": table.corner, "source": table.source}
            about |= {"screen": list(table.screen)}
            layout.append({"key": table.key, **about, "columns": columns, "rows": rows})
        num, done = _progress(recipe, run.path)
        unfinished = f" {done} of {num} runs are finished." if done < num else ""
        spent = f" Left out, because its runs measure no figure of it: {', '.join(left_out)}." if left_out else ""
        preset = f" Preset {recipe.preset}." if recipe.preset else ""
        extra: dict[str, Any] = {LAYOUT: layout, FAILED: failed}
        if recipe.claims:
            folders = [run.path / folder for spec in recipe.stages.values() for folder in spec.folders]
            hours = sum(seconds_of(RunFolder.load(path).events()) for path in folders if (path / SUMMARY).is_file()) / 3600
            extra[CLAIMS] = {"hours": round(hours, 4), "claims": [claim_outcome(claim, metrics) for claim in recipe.claims]}
            spent = f" They worked for {hours:.2g} hours.{spent}"
        extra |= {TRAININGS: trainings} if trainings else {}
        return Summary(
            recipe.title,
            f"{recipe.description}{preset} {num} run{'s' * (num != 1)}.{unfinished}{spent}".strip(),
            metrics,
            extra,
        )

    def _measured(
        self, prepared: PlannedRecipe, row: RowSpec, path: Path, reasons: Mapping[str, str]
    ) -> tuple[dict[str, dict[int, MeasuredFigure]], str, list[str]]:
        """Return the figures by column and number of the training, the reason why there are none, and notes on those that lack.

        A difference is of the trainings that both rows have; their own tables say what lacks.
        """
        recipe, measured, notes = prepared.recipe, dict[str, dict[int, MeasuredFigure]](), list[str]()
        if row.best:
            return _best(recipe, row, path, reasons), "", []
        if row.less is not None:
            parts = (replace(row, less=None), row.less)
            sides = [self._measured(prepared, part, path, reasons) for part in parts]
            for column in row.metrics:
                copies = [recipe.stages[part.stage_of(column)].copies for part in parts]
                for number in range(1, max(copies) + 1):
                    # A stage without trainings is the same for all trainings of the other row.
                    pair = [side[0].get(column, {}).get(min(number, most)) for side, most in zip(sides, copies, strict=True)]
                    if pair[0] is not None and pair[1] is not None:
                        difference = _difference(pair[0], pair[1], prepared.paired)
                        measured.setdefault(column, {})[number] = MeasuredFigure(difference, path, "")
            return measured, "" if measured else sides[0][1] or sides[1][1], []
        if row.stages:
            stages, lost_of = dict.fromkeys(map(row.stage_of, row.metrics)), list[str]()
            for stage in stages:
                metrics = {column: metric for column, metric in row.metrics.items() if row.stage_of(column) == stage}
                part = self._measured(prepared, replace(row, stage=stage, stages={}, metrics=metrics), path, reasons)
                measured, notes = measured | part[0], [*notes, *part[2]]
                lost_of += [part[1]] if part[1] else []
            notes += [f"{row.label}: {reason}." for reason in lost_of] if measured else []
            return measured, "" if measured else next(iter(lost_of), ""), notes
        spec = recipe.stages[row.stage]
        lost = {folder: reasons[folder] for folder in spec.folders if folder in reasons}
        for number, folder in enumerate(spec.folders, start=1):
            if not (path / folder / SUMMARY).is_file() or folder in lost:
                continue
            if path / folder not in prepared.figures:
                prepared.figures[path / folder] = self.figures(prepared, path / folder)
            metrics_of_stage = prepared.figures[path / folder]
            names = {column: recipe.resolved(template, number, path) for column, template in row.metrics.items()}
            for column, name in names.items():
                if name in metrics_of_stage:
                    measured.setdefault(column, {})[number] = MeasuredFigure(metrics_of_stage[name], path / folder, name)
            absent = [name for column, name in names.items() if name not in metrics_of_stage and column not in row.optional]
            if absent:
                near = nearest(absent[0], metrics_of_stage) or "."
                notes.append(f"{row.label}: {folder} has not measured {', '.join(absent)}{near}")
        reason = next(iter(lost.values()), "")
        if measured and lost:
            notes.append(f"{row.label}: {len(lost)} of {len(spec.folders)} trainings failed: {reason}.")
        return measured, "" if measured else reason, notes

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        return drawn_tables(run.summary() or {}, run.metrics())

    def present(self, result: Result, run: RunFolder) -> Result:
        summary = run.summary() or {}
        failed = summary.get(FAILED, {})
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        failure = f"{len(failed)} stage{'s' * (len(failed) > 1)} failed: {reasons}" if failed else ""
        legend = {
            f"{table['key']}.{row['key']}.{column['key']}": Metric(
                f"{row['label']}: {column['heading']}", "", table["title"], column["form"]
            )
            for table in summary.get(LAYOUT, ())
            for row in table["rows"]
            for column in table["columns"]
        }
        legend = {**result.legend, **legend}
        tables = drawn_tables(summary, run.metrics(), screen=True)
        return replace(result, tables=tables, legend=legend, failure=result.failure or failure)


class SettingsRecipe(RecipeJob):
    """A verb that carries out a recipe, whose settings are those of its stages; each stage has all workers.

    Args:
        words: the words on the command line.
        file: name of the recipe.
        config: the settings, with `workers` and `address`.
        presets: functions that return settings, by name, the default first.
    """

    resume_safe: tuple[str, ...] = RESUME_SAFE
    repeatable = ()

    def __init__(self, words: str, file: str, config: type[Configuration], presets: Mapping[str, Callable[[], Any]]) -> None:
        super().__init__(words, file)
        self.config, self.presets = config, presets

    @abstractmethod
    def given(self, config: Any, path: Path | None) -> dict[str, Any]:
        """Return the settings of the recipe; arguments as in `recipe`."""

    def recipe(self, config: Any, path: Path | None = None) -> RecipePlan:
        return read_recipe(self.file, given=self.given(config, path), shared=self.shared(config))

    def shared(self, config: Any) -> dict[str, Any]:
        return flat(to_dict(config))

    def at_once(self, config: Any) -> int:
        return 0

    def run(self, config: Any, path: Path, reporter: Reporter) -> Result:
        return Composite.run(self, config, path, reporter)

    def work(self, run: RunFolder, prepared: PlannedRecipe, reporter: Reporter) -> PlannedRecipe:
        config = prepared.config
        # A pool of stages begins a session of its own, with room for whole stages beside it.
        is_shared = config.workers and not self.pooled(prepared)
        with session(config.workers, config.address) if is_shared else nullcontext():
            return super().work(run, prepared, reporter)


def small() -> RecipeConfig:
    """Use the public corpora at the sizes of a laptop."""
    return RecipeConfig(preset="small")


def paper() -> RecipeConfig:
    """Use the public corpora at the published sizes."""
    return RecipeConfig(preset="paper")


def demo() -> RecipeConfig:
    """Use the built-in corpora for about three minutes: an example of the tables, no published figures."""
    return RecipeConfig(preset="demo")


def from_file() -> RecipeFileConfig:
    """Use the recipe as it stands in its file."""
    return RecipeFileConfig()


def _progress(recipe: RecipePlan, path: Path) -> tuple[int, int]:
    folders = [folder for spec in recipe.stages.values() for folder in spec.folders]
    return len(folders), sum((path / folder / SUMMARY).exists() for folder in folders)


def _best(recipe: RecipePlan, row: RowSpec, path: Path, reasons: Mapping[str, str]) -> dict[str, dict[int, MeasuredFigure]]:
    """Return the figures of the best row by column, once no stage of it is left; each training is one of its own."""
    measured: dict[str, dict[int, MeasuredFigure]] = {}
    for column in row.metrics:
        places = {
            (path / folder, recipe.resolved(part.metrics[column], number, path)): None
            for part in row.best
            if column in part.metrics
            for number, folder in enumerate(recipe.stages[part.stage_of(column)].folders, start=1)
            if folder not in reasons
        }
        is_whole = bool(places) and all((folder / SUMMARY).is_file() for folder, _ in places)
        if is_whole and (estimate := best_by_items(list(places))).n:
            measured[column] = {1: MeasuredFigure(estimate, path, "")}
    return measured


def _difference(first: MeasuredFigure, second: MeasuredFigure, paired: PairedFigures) -> Estimate:
    """Return the first less the second: item by item where that gives what the rows show, else as if items were independent."""
    less = independent_difference(first.estimate, second.estimate)
    places = (first.run, first.metric), (second.run, second.metric)
    if places not in paired:
        paired[places] = item_difference(*places)
    by_item = paired[places]
    return less if by_item is None or not math.isclose(by_item.value, less.value, rel_tol=1e-6, abs_tol=1e-9) else by_item


def claim_outcome(claim: ClaimSpec, metrics: Mapping[str, Estimate]) -> dict[str, Any]:
    """Return what a claim says, its outcome, and the figures that decide it.

    Args:
        claim: the claim.
        metrics: estimates by "TABLE.ROW.COLUMN".
    """
    parts = [claim.holds, claim.fails]
    names = {part.metric: None for condition in parts for part in condition.figures.values()}
    measured = {name: metrics.get(name, NOTHING) for name in names}
    holds, fails = (outcome.holds for outcome in decide_all(parts, metrics))
    if any(math.isnan(estimate.value) for estimate in measured.values()):
        outcome = UNMEASURED
    elif holds and fails:
        outcome = CONTRADICTORY
    else:
        outcome = REPRODUCED if holds else NOT_REPRODUCED if fails else UNDECIDED
    figures = {name: estimate.to_json() for name, estimate in measured.items()}
    about = {"key": claim.key, "table": claim.table, "says": claim.says, "outcome": outcome}
    return about | {"why": claim.why if outcome == NOT_REPRODUCED else "", "figures": figures}


def drawn_tables(summary: Mapping[str, Any], metrics: Mapping[str, Estimate], screen: bool = False) -> dict[str, EstimateTable]:
    """Return the tables of a summary by heading.

    Args:
        summary: with the entries of `RecipeJob.measure`.
        metrics: estimates by "TABLE.ROW.COLUMN".
        screen: True for the columns that a screen shows.
    """
    trainings, entries = summary.get(TRAININGS, {}), summary.get(LAYOUT, ())
    if screen:
        shown = {entry["key"]: entry.get("screen") or [column["key"] for column in entry["columns"]] for entry in entries}
        entries = [
            entry | {"columns": [column for column in entry["columns"] if column["key"] in shown[entry["key"]]]}
            for entry in entries
        ]
    tables = {entry["title"]: _drawn(entry, metrics, trainings) for entry in entries}
    return tables | ({"Claims": _drawn_claims(summary[CLAIMS])} if CLAIMS in summary else {})


def labels_of(summary: Mapping[str, Any], title: str) -> dict[str, str]:
    """Return the first cell of each row of a table by its key; of an unfinished run nothing.

    Args:
        summary: as in `drawn_tables`.
        title: title of the table.
    """
    return {row["key"]: row["label"] for table in summary.get(LAYOUT, ()) if table["title"] == title for row in table["rows"]}


def outcome_of(claim: Mapping[str, Any]) -> str:
    """Return the outcome of a claim in words; one that nobody published holds, or does not."""
    own = {REPRODUCED: "holds", NOT_REPRODUCED: "does not hold"}
    return str(claim["outcome"] if claim["table"] else own.get(claim["outcome"], claim["outcome"]))


def _drawn_claims(account: Mapping[str, Any]) -> EstimateTable:
    """Return the claims with their outcomes, as one table."""
    rows = []
    for claim in account["claims"]:
        figures = (_NAMED.cell(Estimate.from_json(values)) for values in claim["figures"].values())
        shown = stacked(
            *(TableCell(f"{name} {cell}", *cell.figures) for name, cell in zip(claim["figures"], figures, strict=True))
        )
        rows.append((claim["table"] or ABSENT, claim["says"], outcome_of(claim), shown, claim["why"] or ABSENT))
    outcomes = [*map(outcome_of, account["claims"])]
    counts = ", ".join(f"{outcomes.count(name)} {name}" for name in dict.fromkeys(outcomes))
    note = (
        f"{len(outcomes)} claim{'s' * (len(outcomes) != 1)}: {counts}. Undecided: intervals are too wide to tell. A claim may "
        "hold here for another reason than published: read the controls of its table."
    )
    return EstimateTable(
        ("published", "claim", "here", "figures", "why"), tuple(rows), note, ("claim", "here", "figures", "why")
    )


def _drawn(
    entry: Mapping[str, Any], metrics: Mapping[str, Estimate], trainings: Mapping[str, Sequence[float]]
) -> EstimateTable:
    key, rows = entry["key"], entry["rows"]
    several = any(row["trainings"] > 1 for row in rows)
    columns: list[Column] = []
    inside = printed = 0
    for number, column in enumerate(entry["columns"]):
        form, name = _FORMS[column["form"]], column["key"]
        columns.append(Column(column["heading"], f"{key}.{{row}}.{name}", form))
        if several and number == 0:
            columns.append(Column("each training"))
        if any(name in row["published"] for row in rows):
            columns.append(Column(f"{column['heading']}, published"))
        for row in rows:
            estimate = metrics.get(f"{key}.{row['key']}.{name}", NOTHING)
            if name in row["published"] and math.isfinite(estimate.low):
                printed, inside = printed + 1, inside + (estimate.low <= row["published"][name] <= estimate.high)
    lines, reasons = [], [" ".join(row["failed"].replace("\n", ",").split()) for row in rows]
    for row, reason in zip(rows, reasons, strict=True):
        cells: dict[str, str] = {}
        for number, column in enumerate(entry["columns"]):
            form, value = _FORMS[column["form"]], row["published"].get(column["key"])
            cells[f"{column['heading']}, published"] = ABSENT if value is None else published_cell(value, form)
            values = trainings.get(f"{key}.{row['key']}.{column['key']}", ())
            if number == 0:
                cells["each training"] = " ".join(form.value(float(figure)) for figure in values) or ABSENT
        measured = (metrics.get(f"{key}.{row['key']}.{column['key']}", NOTHING) for column in entry["columns"])
        cells["n"] = num_measured(next((estimate for estimate in measured if estimate.n), NOTHING))
        failed = f"\nfailed: {shorten(reason, _MOST_WORDS, placeholder=' …')}" if reason else ""
        lines.append(TableRow(row["label"] + failed, {"row": row["key"]}, cells=cells))
    over = "trainings and items" if several else "items"
    notes = [entry["note"], f"Brackets: 95 % intervals over {over}."]
    if any(row["published"] for row in rows):
        notes.append(f"Published: {entry['source'] or 'as printed'}.")
        lie = f"{inside} lie{'s' * (inside == 1)} in the interval measured here."
        notes.append(f"Of {printed} published figure{'s' * (printed > 1)} {lie}" * (printed > 0))
    notes += [column.get("note", "") for column in entry["columns"]]
    notes += [note for row in rows for note in row["notes"]]
    notes += [f"{row['label']}: {reason}." for row, reason in zip(rows, reasons, strict=True) if len(reason) > _MOST_WORDS]
    note = " ".join(filter(None, notes))
    return metric_table(metrics, entry["corner"], lines, columns, note, n="n", unit="items")


def _costs(recipe: RecipePlan, path: Path, workers: int) -> tuple[float, float, int]:
    """Return minutes of a core that are left, minutes until all is done, and the number of runs without an estimate."""
    left, ends, unknown, needs = 0.0, dict[str, float](), 0, recipe.needs()
    for spec in recipe.stages.values():
        for folder in spec.folders:
            minutes = 0.0 if (path / folder / SUMMARY).exists() else spec.minutes
            unknown += math.isnan(minutes)
            minutes = 0.0 if math.isnan(minutes) else minutes
            left += minutes
            ends[folder] = minutes + max((ends[need] for need in needs[folder]), default=0.0)
    return left, max(left / max(1, workers), *ends.values()), unknown


def plan_line(recipe: RecipePlan, path: Path, workers: int) -> str:
    """Return the work that is left, and its time, in one line."""
    num, done = _progress(recipe, path)
    left, wall, unknown = _costs(recipe, path, workers)
    runs = f"plan: {num} run{'s' * (num != 1)}, {done}"
    if unknown == num - done:
        return f"{runs} of them finished"
    more = f", and {unknown} run{'s' * (unknown > 1)} of unknown time" if unknown else ""
    at_once = max(1, workers)
    return f"{runs} finished; {left:.3g} minutes of a core, {wall:.3g} with {at_once} at a time{more}"


def plan_table(recipe: RecipePlan, path: Path, workers: int) -> EstimateTable:
    """Return the stages with what they use, the number of their runs, and the minutes that each takes, about."""
    rows = tuple(
        (
            spec.name,
            " ".join((*spec.entry.words, spec.preset)).strip(),
            ", ".join(spec.uses) or ABSENT,
            f"{spec.copies}",
            figure(spec.minutes),
            f"{sum((path / folder / SUMMARY).exists() for folder in spec.folders)}",
        )
        for spec in recipe.stages.values()
    )
    columns = ("stage", "verb", "uses", "runs", "minutes a run", "finished")
    note = f"{plan_line(recipe, path, workers)[:1].upper()}{plan_line(recipe, path, workers)[1:]}."
    return EstimateTable(columns, rows, note, ("verb", "uses"))


COMPARE_RECIPE = RecipeJob("compare")
REPRODUCE_CHENG2019 = RecipeJob("reproduce cheng2019", "negotiation/cheng2019")
REPRODUCE_HE2018 = RecipeJob("reproduce he2018", "triggers/he2018")
REPRODUCE_NIU2018 = RecipeJob("reproduce niu2018", "perturb/niu2018")
REPRODUCE_LI2019 = RecipeJob("reproduce li2019", "ranking/li2019")
REPRODUCE_LI2017 = RecipeJob("reproduce li2017", "generation/li2017")
