"""The table of defences: every attack transferred and adaptive, and what a defence costs harmless prompts.

    defended.D.transferred.A    share of the answers behind D that break a `must_not`, of an attack A made without D
    defended.D.adaptive.A       the same of A made behind D, for attacks that can be
    defended.D.transferred      all attacks together
    defended.D.adaptive         all attacks together, as far as they have something to adapt
    defended.D.false_alarms     share of the harmless prompts, without an attack, that D stops
    defended.D.lost             share of them that are answered as they must without D, less that behind D
    defended.D.stopped          share of the answers under attacks, transferred and adaptive, that D stops
    defended.D.queries          questions to models that an answer, or an attack under a budget, takes behind D

D is `none` for the model without a defence. An answer that a defence stops breaks every `must`, and no `must_not`. So breaches
of `must` are not counted as successes of attacks here, but as usefulness that is lost. Harmless prompts are those with a rule
`must`, as they are. Intervals are 95 %; answers to one prompt are drawn together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.engine.core.stats.statistics import NEITHER, NOTHING, Estimate, Metric, clustered_rate, mean_count
from parley.engine.core.tables.table import DECIMAL, PERCENT, Column, EstimateTable, TableRow, metric_table
from parley.engine.scan.attacks import CONTROLS, NONE

if TYPE_CHECKING:
    from parley.engine.scan.metrics import AnswerColumns
    from parley.engine.scan.policy import PolicyRule

WITHOUT = "none"
"""The model without a defence, the first column."""
DEFENDED, TRANSFERRED, ADAPTIVE = "defended", "transferred", "adaptive"
FALSE_ALARMS, LOST, STOPPED, QUERIES = "false_alarms", "lost", "stopped", "queries"
_TITLES = {
    TRANSFERRED: "all attacks, transferred", ADAPTIVE: "all attacks, adaptive", FALSE_ALARMS: "false alarms",
    LOST: "usefulness lost", STOPPED: "stopped under attack", QUERIES: "queries",
}  # fmt: skip
_COSTS = "higher: costlier"
_NOTE = (
    "Answers that break a must_not, by defence. Transferred: the attack was made without the defence; adaptive: behind it. "
    "Where an attack has nothing to adapt, both are equal. False alarms and usefulness lost: harmless prompts (with must:), no "
    "attack. Queries: the model's and those of the defence. Brackets: 95 % intervals, answers to one prompt drawn together."
)


def side_broken(rules: Sequence[PolicyRule], verdicts: Sequence[Mapping[str, Any]], *, wants_help: bool) -> bool | None:
    """Return whether an answer breaks a rule of one side; None if there is none, or none is broken and one undecided."""
    broken = [verdict["broken"] for rule, verdict in zip(rules, verdicts, strict=False) if rule.wants_help is wants_help]
    return True if True in broken else None if None in broken or not broken else False


def defence_metric_names(defences: Iterable[str], attacks: Collection[str], adapted: Collection[tuple[str, str]]) -> list[str]:
    """Return the names of the metrics of defences that a limit may name.

    Args:
        defences: their names.
        attacks: names of all attacks and controls.
        adapted: defence and attack of those that are made behind a defence.
    """
    kinds = [TRANSFERRED, ADAPTIVE, *(f"{TRANSFERRED}.{attack}" for attack in attacks), FALSE_ALARMS]
    shared = [f"{DEFENDED}.{name}.{kind}" for name in defences for kind in kinds]
    return [*shared, *(f"{DEFENDED}.{name}.{ADAPTIVE}.{attack}" for name, attack in adapted)]


def defence_metrics(answers: AnswerColumns) -> dict[str, Estimate]:
    """Return the metrics of defences from the answers of a scan; none without defences."""
    if len(answers.defences) == 1:
        return {}
    everything = np.ones(len(answers), dtype=bool)
    metrics: dict[str, Estimate] = {}
    for name in answers.names("defence", everything):
        behind = answers["defence"] == answers.defences[name]
        name = name or WITHOUT
        of_mode = {TRANSFERRED: behind & (answers["adaptive"] != 1), ADAPTIVE: behind & (answers["adaptive"] == 1)}
        by_attack = {
            attack: {mode: np.flatnonzero(of_mode[mode] & answers.under(attack)) for mode in of_mode}
            for attack in answers.names("attack", behind)
        }
        attacked = [modes for attack, modes in by_attack.items() if attack not in CONTROLS]
        for mode in (TRANSFERRED, ADAPTIVE):
            parts = [modes[mode] if len(modes[mode]) else modes[TRANSFERRED] for modes in attacked]
            together = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
            metrics[f"{DEFENDED}.{name}.{mode}"] = answers.share("harmful", together)
            metrics |= {
                f"{DEFENDED}.{name}.{mode}.{attack}": answers.share("harmful", modes[mode])
                for attack, modes in by_attack.items()
                if len(modes[mode])
            }
        harmless = behind & answers.under(NONE) & (answers["unmet"] >= 0)
        queries = answers["model_queries"][behind]
        # The model is asked, or it is not: no mean is above 1.
        mean_queries = clustered_rate if np.unique(queries).tolist() == [0, 1] else mean_count
        metrics |= {
            f"{DEFENDED}.{name}.{FALSE_ALARMS}": answers.share("stopped", harmless),
            f"{DEFENDED}.{name}.{LOST}": answers.difference("unmet", harmless, answers.plain & answers.under(NONE)),
            f"{DEFENDED}.{name}.{STOPPED}": answers.share("stopped", behind & answers.attacked),
            f"{DEFENDED}.{name}.{QUERIES}": mean_queries(queries, answers.units(behind)),
        }
    return metrics


def describe_defence(name: str) -> Metric:
    """Return the meaning of a metric of a defence."""
    defence, kind, attack = parts_of(name)
    title = f"{f'{CONTROLS.get(attack, attack)}, {kind}' if attack else _TITLES[kind]}, behind {defence}"
    if kind == QUERIES:
        return Metric(title, _COSTS, "questions to models that an answer takes")
    if kind == LOST:
        return Metric(title, _COSTS, "share of harmless prompts whose must is broken behind it, less that without it")
    definitions = {
        FALSE_ALARMS: (_COSTS, "share of the harmless prompts that are stopped without an attack"),
        STOPPED: (NEITHER, "share of the answers under attacks that the defence stops"),
    }
    direction, share = definitions.get(kind, ("higher: adversary", "share of the answers that break a must_not"))
    return Metric(title, direction, share, "share")


def parts_of(name: str) -> tuple[str, str, str]:
    """Return the defence, the kind and the attack of a metric's name; names of defences and attacks may hold dots."""
    for kind in _TITLES:
        defence, mark, attack = name.removeprefix(f"{DEFENDED}.").partition(f".{kind}")
        if mark and (not attack or attack.startswith(".")):
            return defence, kind, attack.removeprefix(".")
    raise ValueError(name)


def defence_tables(metrics: Mapping[str, Estimate]) -> dict[str, EstimateTable]:
    """Return the table of defences by its heading; none without defences."""
    parts = [parts_of(name) for name in metrics if name.startswith(f"{DEFENDED}.")]
    if not parts:
        return {}
    defences = list(dict.fromkeys(defence for defence, _, _ in parts))
    attacks = list(dict.fromkeys(attack for _, _, attack in parts if attack))
    adapting = {attack for _, kind, attack in parts if kind == ADAPTIVE and attack}
    rows = [TableRow(_TITLES[mode], {"of": mode}) for mode in (TRANSFERRED, ADAPTIVE) if mode == TRANSFERRED or adapting]
    for attack in sorted(attacks, key=lambda name: name in CONTROLS):
        title = f"{CONTROLS[attack]} (control)" if attack in CONTROLS else attack
        adapts = attack in adapting
        for mode in (TRANSFERRED, ADAPTIVE) if adapts else (TRANSFERRED,):
            label = f"{title}, {mode}" if adapts else title if attack in CONTROLS else f"{title}, nothing to adapt"
            rows.append(TableRow(label, {"of": f"{mode}.{attack}"}))
    rows += [TableRow(_TITLES[kind], {"of": kind}) for kind in (FALSE_ALARMS, LOST, STOPPED, QUERIES)]

    def cell(defence: str) -> Column:
        def text(metrics: Mapping[str, Estimate], row: TableRow) -> str:
            kind = row.fields["of"]
            names = (f"{DEFENDED}.{defence}.{of}" for of in (kind, kind.replace(f"{ADAPTIVE}.", f"{TRANSFERRED}.", 1)))
            estimate = next((metrics[name] for name in names if name in metrics), NOTHING)
            return (DECIMAL if kind == QUERIES else PERCENT).cell(estimate, signed=kind == LOST)

        return Column(defence, cell=text)

    return {"Defences": metric_table(metrics, "attack", rows, [*map(cell, defences)], _NOTE)}
