"""What rounds of hardening against triggers came to: a model a line, searched anew each time."""

from __future__ import annotations

from collections.abc import Mapping

from engine.metrics.statistics import NOTHING, Estimate, Metric
from engine.metrics.tables import TextTable, few_note, num_measured, with_interval
from engine.metrics.training import BEFORE, HARDENED
from engine.metrics.triggers.hits import HIT_RATE, describe

START, CONTROL = "start", "control"
"""The model that the rounds begin with, and that model trained as long on clean contexts alone."""
ADAPTIVE = "adaptive"
"""Share of targets for which a search of this very model found a trigger."""
_NOTE = (
    "Found anew: share of the targets for which a search of this very model found a trigger. The others are of held-out "
    "triggers that earlier searches found (start, control and the last round: the same ones; an earlier round: those known by "
    "then), and of held-out clean contexts. Control: trained as long on clean contexts alone."
)


def round_name(number: int) -> str:
    """What the model of a round is called."""
    return f"round-{number}"


_COLUMNS = {
    ADAPTIVE: "found anew",
    "trigger_said": "targets said",
    "trigger_nll": "loss of wanted answers",
    "clean_nll": "loss on clean contexts",
    "clean_kept": "clean replies kept",
    "clean_refused": "clean contexts refused",
}
"""Headings of the table by figure."""
_SHOWN = tuple(name for name in _COLUMNS if name != ADAPTIVE)
"""Those of a training."""


def hardening_figures(
    searched: Mapping[str, Mapping[str, Estimate]], trained: Mapping[str, Mapping[str, Estimate]], hit: str
) -> dict[str, Estimate]:
    """The figures of all models, by "MODEL.FIGURE".

    Args:
        searched: metrics of the search of each model.
        trained: metrics of the training of each model but the first.
        hit: the type of hit that was searched for.
    """
    found: dict[str, Estimate] = {}
    for model, metrics in searched.items():
        found[f"{model}.{ADAPTIVE}"] = metrics.get(f"{HIT_RATE}{hit}", NOTHING)
        # What the start was is measured before each training on the same held-out triggers as after it; the last counts.
        own: Mapping[str, Estimate | None] = (
            {name: trained[CONTROL].get(name + BEFORE) for name in _SHOWN} if model == START else trained[model]
        )
        found |= {f"{model}.{name}": figure for name in _SHOWN if (figure := own.get(name)) is not None}
    return found


def hardening_legend(name: str, hit: str) -> Metric:
    """What a figure "MODEL.FIGURE" means."""
    model, _, figure = name.partition(".")
    metric = describe(f"{HIT_RATE}{hit}") if figure == ADAPTIVE else HARDENED[figure]
    return metric._replace(title=f"{metric.title}, {model}")


def hardening_table(figures: Mapping[str, Estimate]) -> TextTable:
    """The table of those figures, a model a line."""
    models = list(dict.fromkeys(name.partition(".")[0] for name in figures))
    shown = [name for name in _COLUMNS if any(f"{model}.{name}" in figures for model in models)]
    rows = []
    for model in models:
        estimates = [figures.get(f"{model}.{name}", NOTHING) for name in shown]
        rows.append((model, *map(with_interval, estimates), num_measured(estimates[0])))
    few = any(estimate.flagged for estimate in figures.values() if estimate.n)
    return TextTable(("model", *(_COLUMNS[name] for name in shown), "targets"), tuple(rows), _NOTE + few * few_note("targets"))
