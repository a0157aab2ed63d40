"""From a run folder to what its report shows.

A folder may be a run, hold runs, or both: the stages of a demonstration lie below it, and its report shows them together in
the order in which they were started.

What a job can tell the report, beyond its metrics and rows:
  * `write_summary(metrics, extra)` with `title` (a short heading), `description` (one sentence) and `command` (what to type);
  * events, as `CURVES` lists them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.jobs.catalogue import find
from engine.jobs.negotiation.campaign import rounds_of
from engine.jobs.negotiation.exploitability import NUM_TRAINED
from engine.jobs.negotiation.minmax import BEFORE_TRAINING, DROP, FINAL_STAGES, LEGEND, MINMAX
from engine.jobs.negotiation.rows import DIALOGUES
from engine.jobs.negotiation.table import ATTACK_TABLE
from engine.jobs.negotiation.whitebox import ATTACK_RA_PA_DA, ATTACK_RA_PA_TA
from engine.jobs.perturb.robustness import EVALUATE_ROBUSTNESS
from engine.jobs.triggers.table import SEARCH_TABLE
from engine.metrics.negotiation.attack import ATTACK_METRICS
from engine.metrics.negotiation.attack_table import ROWS, AttackLine, attack_table
from engine.metrics.negotiation.campaign import ROUND_METRICS, rounds_table
from engine.metrics.statistics import NOTHING, Estimate, Metric
from engine.metrics.tables import TextTable, with_interval
from engine.report.content import Curve, MatchSection, ReportData
from engine.report.page import write_report
from engine.report.perturb.chapter import robustness_section
from engine.report.sweeps.chapter import SWEEP, sweep_section
from engine.report.triggers.chapter import SEARCHES, search_section, search_tables
from engine.store.head import read_json, whole
from engine.store.layout import ENVIRONMENT
from engine.store.mirror import replicate
from engine.store.run_folder import RunFolder
from envs.core.errors import RunError
from envs.storage.places import display_path

REPORT = "report.html"
STEP = "number"
"""The field of an event that says which epoch or iteration it was."""


@dataclass(frozen=True)
class CurveSource:
    """Which fields of which events make a curve.

    Args:
        kind: the kind of event, which is also the name of the step.
        title: what is shown.
        y_label: the quantity and its unit.
        fields: fields of the event by name of the series.
        smoothed: as in `Curve`.
    """

    kind: str
    title: str
    y_label: str
    fields: Mapping[str, str]
    smoothed: bool = False


CURVES = (
    CurveSource("epoch", "words", "perplexity", {"training": "train_perplexity", "validation": "perplexity_reference"}),
    CurveSource("epoch", "selections", "selection perplexity", {"validation": "selection_perplexity"}),
    CurveSource("iteration", "reward", "mean reward", {"reward": "reward"}, smoothed=True),
    CurveSource("iteration", "agreement", "share of dialogues", {"agreement": "agreement"}, smoothed=True),
    # Last, because it says most: the picture of a run shows the newest curve.
    CurveSource(
        "iteration", "points", "points per dialogue", {"adversary": "score_adversary", "target": "score_target"}, smoothed=True
    ),
    CurveSource("round", "language", "perplexity", {"validation": "perplexity"}),
    CurveSource("round", "plain play", "points", {"target": "plain_score"}),
    CurveSource(
        "round",
        "exploitability",
        "advantage in points",
        {"fresh adversary": "exploitability", "trained along, before": "advantage_before", "after": "advantage_after"},
    ),
)

_FILES = {
    "config.json": "what was asked for",
    "environment.json": "versions, commit, device",
    "events.jsonl": "what happened when",
    "rows": "every dialogue, target or example, as Parquet",
    "summary.json": "the metrics",
    "targets.json": "what was searched for",
    "best.yaml": "the best settings, for --config",
    "table.md": "the table, as Markdown",
}
_ATTACK = "attack-"
_COMBINED = (ATTACK_RA_PA_DA.name, ATTACK_RA_PA_TA.name)
"""Attacks that have only the searches on record that succeeded."""
_WEIGHTS = ".safetensors"


def report_from_run(run_dir: Path) -> Path:
    """Writes `report.html` into a run folder.

    Args:
        run_dir: a run, or a folder that holds runs.

    Returns:
        The page written.

    Raises:
        RunError: there is no run in the folder, a part of one is damaged, or the page cannot be written.
    """
    with _whole(run_dir):
        page = write_report(collect_run(run_dir), run_dir / REPORT)
    replicate(page)
    return page


def collect_run(run_dir: Path) -> ReportData:
    """What the report of a run folder shows.

    Args:
        run_dir: a run, or a folder that holds runs.

    Raises:
        RunError: there is no run in the folder, or something that one holds is damaged.
    """
    with _whole(run_dir):
        return _collect(run_dir)


def _whole(run_dir: Path) -> AbstractContextManager[None]:
    return whole(run_dir, f"parley resume {display_path(run_dir)} mends what it can; --debug shows where reading ended")


def _collect(run_dir: Path) -> ReportData:
    stages = _stages(run_dir)
    top = stages.get("")
    if top is not None and top.job == MINMAX.name:
        # Its phases are many; the page shows what they came to.
        there = [name for name in FINAL_STAGES if (run_dir / name / "environment.json").is_file()]
        stages = {"": top} | {name: RunFolder.load(run_dir / name) for name in there}
    headings = _headings(stages)
    about = (top and top.summary()) or {}
    commands = [about["command"]] if "command" in about else _commands(stages.values())
    config: dict[str, str] = {}
    files: list[tuple[str, str]] = []
    for name, run in stages.items():
        prefix = f"{name}/" if name else ""
        config |= _flat(run.config, f"{name}." if name else "")
        files += [(prefix + path, what) for path, what in _files(run.path)]
    # What a run of several stages measured is in its stages; shown twice it would look like one more match.
    shown = {name: run for name, run in stages.items() if name or len(stages) == 1}
    return ReportData(
        title=about.get("title", run_dir.resolve().name),
        lead=about.get("description", ""),
        attack_tables=_attack_tables(stages, headings),
        sections=[
            section
            for name, run in shown.items()
            # The heading of the page already carries the description of its own run.
            if (section := _section(headings[name], run, described=bool(name), large=not _is_table(top)))
        ],
        searches=[
            search for name, run in shown.items() if (search := search_section(headings[name], run, described=bool(name)))
        ],
        robustness=[
            evaluated
            for name, run in shown.items()
            if (evaluated := robustness_section(headings[name], run, described=bool(name)))
        ],
        sweeps=[swept for name, run in shown.items() if (swept := sweep_section(headings[name], run))],
        curves=[curve for name, run in stages.items() for curve in _curves(headings[name], run)],
        commands=commands,
        files=files,
        config=config,
        environment=_environment(next(iter(stages.values())).path),
    )


def _stages(run_dir: Path) -> dict[str, RunFolder]:
    """The runs of a folder by name, the folder's own first under the empty name, then those below it by start."""
    # A checkpoint has a configuration too, and no environment that it was measured in.
    found = [path.parent for path in run_dir.glob("*/config.json") if (path.parent / "environment.json").is_file()]
    below = sorted([RunFolder.load(path) for path in found], key=lambda run: (_started(run), run.path.name))
    if not below or (run_dir / "config.json").is_file():
        return {"": RunFolder.load(run_dir), **{run.path.name: run for run in below}}
    return {run.path.name: run for run in below}


def _headings(stages: Mapping[str, RunFolder]) -> dict[str, str]:
    """What each run is called: by its title, or short where the title of the page says the rest; equal titles by folder too."""
    folders = {name: name or run.path.resolve().name for name, run in stages.items()}
    titles = {name: (run.summary() or {}).get("title", folders[name]) for name, run in stages.items()}
    if (top := stages.get("")) is not None:
        short = {ATTACK_TABLE.name: ROWS, MINMAX.name: FINAL_STAGES, SEARCH_TABLE.name: {name: name for name in stages if name}}
        titles |= short.get(top.job, {})
    times = Counter(titles[name] for name in stages)
    return {name: f"{titles[name]} ({folders[name]})" if times[titles[name]] > 1 else titles[name] for name in stages}


def _is_table(run: RunFolder | None) -> bool:
    return run is not None and run.job == ATTACK_TABLE.name


def _attack_tables(stages: Mapping[str, RunFolder], headings: Mapping[str, str]) -> list[tuple[str, TextTable]]:
    """The tables of a folder, each with its heading: those that were measured as such, and one of its other attacks."""
    tables: list[tuple[str, TextTable]] = []
    lines = []
    for name, run in stages.items():
        metrics = run.metrics()
        tables += search_tables(headings[name] if name else "", run)
        if run.job == MINMAX.name:
            found = _campaign_tables(run)
            if not name:
                return found
            tables += [(f"{headings[name]}: {title.lower()}", table) for title, table in found]
        if not metrics or not run.job.startswith(_ATTACK):
            continue
        if _is_table(run):
            (table,) = ATTACK_TABLE.tables(run).values()
            if not name:
                # The attacks below it are its rows, and the page bears its title.
                return [("", table)]
            tables.append((headings[name], table))
        else:
            lines.append(AttackLine(headings[name], metrics))
    return [*tables, *([("Attacks side by side", attack_table(lines))] if len(lines) > 1 else [])]


def _campaign_tables(campaign: RunFolder) -> list[tuple[str, TextTable]]:
    """What a campaign came to, and the table of its rounds."""
    metrics, rounds = campaign.metrics(), rounds_of(campaign)
    outcome = [("Before and after", _before_and_after(metrics))] if metrics else []
    return [*outcome, *([("Rounds", rounds_table(rounds))] if rounds else [])]


def _before_and_after(metrics: Mapping[str, Estimate]) -> TextTable:
    pairs = {name: metric.title for name, metric in ROUND_METRICS.items() if name in metrics}
    rows = [
        (title, with_interval(metrics[name + BEFORE_TRAINING]), with_interval(metrics[name])) for name, title in pairs.items()
    ]
    lost = LEGEND[DROP]
    rows.append((lost.title, "", with_interval(metrics[DROP])))
    trained = metrics.get(NUM_TRAINED, NOTHING)
    who = f"By {trained.value:.0f} fresh adversaries each" if trained.n else "By a fresh adversary each"
    note = f"{who}, in dialogues that chose no round. {lost.title.capitalize()}: {lost.definition}. Brackets: 95 % intervals."
    return TextTable(("target", "before", "after"), tuple(rows), note)


def _started(run: RunFolder) -> str:
    events = run.events()
    return str(events[0]["time"]) if events else ""


def _section(heading: str, run: RunFolder, described: bool, large: bool) -> MatchSection | None:
    if _is_table(run) or run.job in (MINMAX.name, EVALUATE_ROBUSTNESS.name, SWEEP, *SEARCHES):
        # Its figures stand in a place of their own.
        return None
    metrics = run.metrics()
    table = run.read_rows()
    rows = table.to_pylist() if set(DIALOGUES.names) <= set(table.schema.names) else []
    if not metrics and not rows:
        return None
    description = (run.summary() or {}).get("description", "") if described else ""
    return MatchSection(
        name=heading,
        description=description,
        metrics=metrics,
        legend=_legend(run),
        rows=rows,
        large=large,
        only_successes=run.job in _COMBINED,
    )


def _legend(run: RunFolder) -> Mapping[str, Metric]:
    """What the job of a run says of its figures; of a job that this version does not have, as of an attack."""
    try:
        return find(run.job).load().legend
    except RunError:
        return ATTACK_METRICS


def _curves(heading: str, run: RunFolder) -> list[Curve]:
    events = run.events({source.kind: {STEP: float} for source in CURVES})
    curves = []
    for source in CURVES:
        steps = {event[STEP]: event for event in events if event["kind"] == source.kind}
        series = {label: points for label, field in source.fields.items() if (points := _series(steps, field))}
        if series:
            curves.append(
                Curve(
                    title=f"{heading}: {source.title}",
                    x_label=source.kind,
                    y_label=source.y_label,
                    series=series,
                    smoothed=source.smoothed,
                    bands={label: band for label, field in source.fields.items() if (band := _band(steps, field))},
                )
            )
    return curves


def _series(steps: Mapping[float, Mapping[str, Any]], field: str) -> list[tuple[float, float]]:
    """The points of one field; a step that a resumed run did twice counts as it was done last."""
    points = [(float(step), event[field]) for step, event in sorted(steps.items()) if field in event]
    return [(step, math.nan if value is None else float(value)) for step, value in points]


def _band(steps: Mapping[float, Mapping[str, Any]], field: str) -> list[tuple[float, float, float]]:
    """The intervals of one field, where events hold estimates."""
    found = [(step, event.get("estimates", {}).get(field)) for step, event in sorted(steps.items())]
    return [(float(step), parts["low"], parts["high"]) for step, parts in found if parts and parts["low"] is not None]


def _commands(runs: Iterable[RunFolder]) -> list[str]:
    summaries = [run.summary() or {} for run in runs]
    return [summary["command"] for summary in summaries if "command" in summary]


def _files(path: Path) -> Sequence[tuple[str, str]]:
    known = [(name, what) for name, what in _FILES.items() if (path / name).exists()]
    weights = sorted(str(file.relative_to(path)) for file in path.glob(f"*{_WEIGHTS}"))
    weights += sorted(str(file.relative_to(path)) for file in path.glob(f"*/*{_WEIGHTS}"))
    return [*known, *((name, "weights") for name in weights)]


def _environment(path: Path) -> dict[str, str]:
    return _flat(read_json(path / ENVIRONMENT), "")


def _flat(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Nested settings by dotted name; what is not set is left out."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return flat
