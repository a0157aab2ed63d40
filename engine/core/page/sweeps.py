"""The chapter of sweeps: the best trial so far, trials as lines through their settings, and the importance of settings.

Importance is Spearman's rank correlation of a setting with the measured value, over trials with the same budget. For a setting
without an order it is the correlation ratio of the ranks (0 to 1): the root of the share of their variance that lies between
the values of the setting.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from parley.engine.core.page.content import Chapter, Figure, Run, Section, Verdict
from parley.engine.core.page.page import POINTS, caveat, number
from parley.engine.core.page.plots import GRID, INK, MUTED, SERIES, short, svg
from parley.engine.core.ray.record import WORK
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.core.tables.table import EstimateTable


@dataclass(frozen=True)
class Trial:
    """One trial.

    Args:
        number: number of the trial from 0, in the order of start.
        parameters: its settings by dotted key.
        value: its value at its largest budget.
        whole: whether that was the whole budget.
        by_budget: its value at each of its budgets.
    """

    number: int
    parameters: Mapping[str, str | float]
    value: Estimate
    whole: bool
    by_budget: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class ShownSweep:
    """One sweep.

    Args:
        name: a short heading.
        objective: metric of the trials.
        direction: "max" or "min".
        trials: trials that worked, in the order of start.
        failures: number of trials that failed.
        again: the best settings measured in runs that chose nothing; `NOTHING` before the end.
    """

    name: str
    objective: str
    direction: str
    trials: Sequence[Trial]
    failures: int = 0
    again: Estimate = NOTHING

    def ranked(self) -> list[Trial]:
        """Return the trials, whole ones first, the best first among them; of equals the earlier one, as in the sweep itself."""
        sign = -1 if self.direction == "max" else 1
        return sorted(self.trials, key=lambda trial: (not trial.whole, sign * trial.value.value, trial.number))


Value = str | float


def best_svg(title: str, y_label: str, points: Sequence[tuple[int, float, float]]) -> str:
    """Return values of trials as dots and the best so far as steps, as SVG text."""

    def draw(axes: Axes) -> None:
        axes.grid(True, axis="y")
        axes.set_axisbelow(True)
        numbers, values, best = np.array(points, dtype=np.float64).reshape(-1, 3).T
        axes.plot(numbers, values, color=MUTED, marker="o", markersize=3.6, linestyle="")
        axes.step(numbers, best, color=SERIES[0], linewidth=1.9, where="post")
        axes.set(xlabel="trial", ylabel=short(y_label))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return svg((5.4, 3.2), title, draw)


def parallel_svg(title: str, section: ShownSweep) -> str:
    """Return trials as lines through their settings and their value, as SVG text; each axis spans its values."""
    keys = list(section.trials[0].parameters)
    # Drawn from the last to the best.
    trials = section.ranked()[::-1]
    columns: list[list[Value]] = [[trial.parameters[key] for trial in trials] for key in keys]
    columns.append([trial.value.value for trial in trials])
    positions = [_positions(column) for column in columns]

    def draw(axes: Axes) -> None:
        for i, trial in enumerate(trials):
            best, whole = i == len(trials) - 1, trial.whole
            colour = SERIES[0] if best else SERIES[1]
            line = [column[i] for column in positions]
            axes.plot(line, color=colour, linewidth=2.2 if best else 1.2, alpha=1.0 if best else 0.6 if whole else 0.2)
        for at, (column, heights) in enumerate(zip(columns, positions, strict=True)):
            axes.axvline(at, color=GRID, linewidth=1.0, zorder=0)
            ends = {height: value for value, height in zip(column, heights, strict=True)}
            shown = ends if isinstance(column[0], str) else {height: ends[height] for height in (min(ends), max(ends))}
            for height, value in shown.items():
                text = short(value) if isinstance(value, str) else f"{value:.3g}"
                axes.annotate(text, (at, height), color=INK, fontsize=8, xytext=(3, 3), textcoords="offset points")
        names = [short(key.rpartition(".")[2]) for key in keys]
        axes.set_xticks(range(len(columns)), [*names, "value"], rotation=20, ha="right")
        axes.set_yticks([])
        axes.margins(x=0.08, y=0.08)

    return svg((7.2, 3.6), title, draw)


def importance_svg(title: str, shares: Mapping[str, float]) -> str:
    """Return the importance of each setting as bars from 0, as SVG text; negative settings lower the measured value."""

    def draw(axes: Axes) -> None:
        axes.grid(True, axis="x")
        axes.set_axisbelow(True)
        bars = axes.barh(range(len(shares)), list(shares.values()), color=SERIES[1], height=0.5)
        axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize="small")
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_yticks(range(len(shares)), [short(key) for key in shares])
        axes.set(xlim=(-1.25, 1.25), ylim=(len(shares) - 0.5, -0.5), xlabel="rank correlation")

    return svg((5.4, 1.2 + 0.3 * len(shares)), title, draw)


def _positions(values: Sequence[Value]) -> list[float]:
    """Return positions on an axis from 0 to 1; words in alphabetical order, a single value in the middle."""
    numbers = [sorted(set(map(str, values))).index(str(value)) if isinstance(value, str) else value for value in values]
    low, high = min(numbers), max(numbers)
    return [0.5 if low == high else (number - low) / (high - low) for number in numbers]


LEAST_TRIALS = 10
"""The fewest trials of a budget for ranks: over fewer, chance correlates by more than 0.6 in one case of twenty."""
SHOWN = 10
"""Trials in the table of the best."""


def figures_of(section: ShownSweep) -> list[Figure]:
    """Return the figures of a sweep: the best so far, the settings, and their importance if there are enough trials.

    Args:
        section: a sweep with at least one trial that worked.
    """
    name = section.name
    figures = [
        Figure(
            "Best so far",
            f"{section.objective} of whole trials; dots are trials",
            Markup(best_svg(f"{name}, best so far", section.objective, best_so_far(section))),
        ),
        Figure(
            "Settings",
            "one line per trial, from setting to setting; faint ones were stopped early, the best is drawn last",
            Markup(parallel_svg(f"{name}, settings", section)),
        ),
    ]
    if budget := telling_budget(section.trials):
        shares = importance(section.trials, budget)
        num_trials = sum(budget in trial.by_budget for trial in section.trials)
        caption = f"rank correlation with {section.objective} over the {num_trials} trials that were given {budget:,}"
        figures.append(Figure("Importance", caption, Markup(importance_svg(f"{name}, importance", shares))))
    return figures


def note_of(section: ShownSweep) -> str:
    """Return a sentence on the number of trials and the direction of the objective."""
    failed = f", {section.failures} failed" if section.failures else ""
    num_trials = len(section.trials) + section.failures
    num_whole = sum(trial.whole for trial in section.trials)
    counts = f"{num_trials} trials{failed}, {num_whole} with the whole budget; {section.direction}imum of "
    return f"{section.name}: {counts}{section.objective} is best."


def best_trials(section: ShownSweep) -> EstimateTable:
    """Return a table of the best trials with the whole budget, with their settings."""
    keys = list(section.trials[0].parameters)
    rows = tuple(
        (str(trial.number), str(trial.value), *(told(trial.parameters[key]) for key in keys))
        for trial in section.ranked()[:SHOWN]
        if trial.whole
    )
    again = f"Measured again, from seeds that chose nothing, the best settings have {section.again}." if section.again.n else ""
    note = (
        "Trials with the whole budget, the best first; the runs of trial 7 lie in trials/00007. The best of many measured "
        f"values is too good on average. {again or 'Run its settings from another seed before you quote the number.'}"
    )
    return EstimateTable(("trial", section.objective, *keys), rows, note)


def told(value: str | float) -> str:
    """Return a setting as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best_so_far(section: ShownSweep) -> list[tuple[int, float, float]]:
    """Return number, value and best value so far of every whole trial."""
    better = max if section.direction == "max" else min
    whole = [(trial.number, trial.value.value) for trial in section.trials if trial.whole]
    best = itertools.accumulate((value for _, value in whole), better)
    return [(number, value, so_far) for (number, value), so_far in zip(whole, best, strict=True)]


def telling_budget(trials: Sequence[Trial]) -> int | None:
    """Return the largest budget with enough trials for ranks; None if there is none."""
    times = Counter(budget for trial in trials for budget in trial.by_budget)
    return max((budget for budget, number in times.items() if number >= LEAST_TRIALS), default=None)


def importance(trials: Sequence[Trial], budget: int) -> dict[str, float]:
    """Return the importance of each setting, the largest first; the module docstring defines it.

    Args:
        trials: the trials; settings or values that never differ count as 0.
        budget: trials without this budget are left out; at least one has it.
    """
    from scipy.stats import rankdata

    compared = [trial for trial in trials if budget in trial.by_budget]
    ranks = rankdata([trial.by_budget[budget] for trial in compared])
    shares = {}
    for key in compared[0].parameters:
        values = [trial.parameters[key] for trial in compared]
        if all(isinstance(value, int | float) for value in values):
            shares[key] = _correlation(rankdata(values), ranks)
        else:
            shares[key] = _ratio([str(value) for value in values], ranks)
    return dict(sorted(shares.items(), key=lambda item: -abs(item[1])))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _ratio(labels: Sequence[str], ranks: np.ndarray) -> float:
    if np.ptp(ranks) == 0:
        return 0.0
    names = np.array(labels)
    groups = [ranks[names == name] for name in sorted(set(labels))]
    between = sum(len(group) * (group.mean() - ranks.mean()) ** 2 for group in groups)
    return math.sqrt(between / float(((ranks - ranks.mean()) ** 2).sum()))


SWEEP = "sweep"
"""The job whose runs are shown here; it lives in `tune`, which the engine does not know."""


class Sweeps(Chapter[list[ShownSweep]]):
    """The chapter of sweeps, which may still be at work."""

    name, title = "sweeps", "Sweeps"
    jobs = (SWEEP,)
    terms: ClassVar = {
        r"rank correlation": ("Rank correlation", "1 or -1 where a setting orders the trials, 0 where it does not.")
    }

    def collect(self, runs: Sequence[Run]) -> list[ShownSweep] | None:
        return [_sweep(run) for run in runs if run.done] or None

    def verdict(self, sweeps: list[ShownSweep]) -> Verdict | None:
        """Return the best trial of the first sweep, and the value of its settings in runs that chose nothing."""
        first = sweeps[0]
        ranked = first.ranked()
        best = ranked[0]
        metric = Metric(first.objective, f"{'higher' if first.direction == 'max' else 'lower'}: better", "of the best trials")
        if not best.whole:
            lead = f"None of {len(ranked)} trials was given the whole budget yet; so far the best"
        else:
            lead = f"The best of {sum(trial.whole for trial in ranked)} whole trials"
        settings = ", ".join(f"{key} = {told(value)}" for key, value in best.parameters.items())
        more = f" {len(sweeps) - 1} more sweeps are below." if len(sweeps) > 1 else ""
        return Verdict(
            sentence=f"{lead} has {first.objective} = {number(POINTS, best.value.value)} with {settings}.{caveat(best.value)} "
            f"{_again(first)}{more}",
            metric=metric,
            marks=({"best, measured again": first.again} if first.again.n else {})
            | {f"trial {trial.number}": trial.value for trial in ranked[:SHOWN]},
        )

    def render(self, sweeps: list[ShownSweep]) -> Section:
        return Section(
            notes=[note_of(sweep) for sweep in sweeps],
            tables=[(f"Best trials, {sweep.name}", best_trials(sweep)) for sweep in sweeps],
            figures=[figure for sweep in sweeps for figure in figures_of(sweep)],
        )


def _again(sweep: ShownSweep) -> str:
    if not sweep.again.n:
        return "The best of many is too good on average: measure it again."
    return f"Measured again, from seeds that chose nothing, it has {number(POINTS, sweep.again.value)}.{caveat(sweep.again)}"


def _sweep(run: Run) -> ShownSweep:
    start = [event for event in run.folder.events() if event["kind"] == WORK][-1]
    return ShownSweep(
        name=run.heading,
        objective=start["objective"],
        direction=start["direction"],
        trials=[
            Trial(
                int(row["item_key"]),
                json.loads(row["parameters"]),
                Estimate.from_json(row),
                row["whole"],
                {entry["budget"]: entry["value"] for entry in row["by_budget"]},
            )
            for row in run.done
        ],
        failures=len(run.failed),
        again=run.metrics.get("again", NOTHING),
    )
