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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from parley.engine.core.page.content import Chapter, Figure, Run, Verdict
from parley.engine.core.page.page import POINTS, number
from parley.engine.core.ray.record import WORK
from parley.engine.core.stats.statistics import NOTHING, Estimate, Metric
from parley.engine.core.tables.table import EstimateTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_TRIALS = 10
"""The fewest trials of a budget for ranks: over fewer, chance correlates by more than 0.6 in one case of twenty."""
SHOWN = 10
"""Trials in the table of the best."""
SWEEP = "sweep"
"""The job whose runs are shown here; it lives in `tune`, which the engine does not know."""


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


class Trials:
    """The trials of a sweep that worked, in the order of start, and its objective with its direction "max" or "min"."""

    def __init__(self, run: Run) -> None:
        start = [event for event in run.folder.events() if event["kind"] == WORK][-1]
        self.objective, self.direction = str(start["objective"]), str(start["direction"])
        self.all = [
            Trial(
                int(row["item_key"]),
                json.loads(row["parameters"]),
                Estimate.from_json(row),
                row["whole"],
                {entry["budget"]: entry["value"] for entry in row["by_budget"]},
            )
            for row in run.done
        ]

    def ranked(self) -> list[Trial]:
        """Return the trials, whole ones first, the best first among them; of equals the earlier one, as in the sweep itself."""
        sign = -1 if self.direction == "max" else 1
        return sorted(self.all, key=lambda trial: (not trial.whole, sign * trial.value.value, trial.number))

    def best_so_far(self) -> list[tuple[int, float, float]]:
        """Return number, value and best value so far of every whole trial."""
        better = max if self.direction == "max" else min
        whole = [(trial.number, trial.value.value) for trial in self.all if trial.whole]
        best = itertools.accumulate((value for _, value in whole), better)
        return [(number, value, so_far) for (number, value), so_far in zip(whole, best, strict=True)]


class Sweeps(Chapter):
    """The chapter of sweeps, which may still be at work."""

    name, title, unit = "sweeps", "Sweeps", "trials"
    in_tables = True
    jobs = (SWEEP,)
    terms: ClassVar = {
        r"rank correlation": ("Rank correlation", "1 or -1 where a setting orders the trials, 0 where it does not.")
    }

    def shows(self, run: Run) -> bool:
        return bool(run.done)

    def verdict_of(self, run: Run) -> Verdict:
        trials, again = Trials(run), _again(run)
        best, *_ = ranked = trials.ranked()
        lead = f"The best of {sum(trial.whole for trial in ranked)} whole trials"
        if not best.whole:
            lead = f"None of {len(ranked)} trials was given the whole budget yet; so far the best"
        measured = f"; measured again, from seeds that chose nothing, {number(POINTS, again.value)}" if again.n else ""
        settings = ", ".join(f"{key} = {setting_text(value)}" for key, value in best.parameters.items())
        return Verdict(
            sentence=f"{lead} has {trials.objective} = {number(POINTS, best.value.value)}{measured}.",
            metric=Metric(
                trials.objective, f"{'higher' if trials.direction == 'max' else 'lower'}: better", "of the best trials"
            ),
            number=again if again.n else best.value,
            marks=({"best, measured again": again} if again.n else {})
            | {f"trial {trial.number}": trial.value for trial in ranked[:SHOWN]},
            warnings=[] if again.n else ["The best of many is too good on average: measure it again."],
            details=[f"Its settings: {settings}."],
        )

    def notes(self, run: Run) -> Iterable[str]:
        trials, failed = Trials(run), f", {len(run.failed)} failed" if run.failed else ""
        whole = sum(trial.whole for trial in trials.all)
        yield (
            f"{len(run.rows)} trials{failed}, {whole} with the whole budget; {trials.direction}imum of {trials.objective} "
            "is best."
        )

    def tables(self, run: Run) -> Mapping[str, EstimateTable]:
        trials, again = Trials(run), _again(run)
        keys = list(trials.all[0].parameters)
        rows = tuple(
            (str(trial.number), str(trial.value), *(setting_text(trial.parameters[key]) for key in keys))
            for trial in trials.ranked()[:SHOWN]
            if trial.whole
        )
        advice = "Run its settings from another seed before you quote the number."
        if again.n:
            advice = f"Measured again, from seeds that chose nothing, the best settings have {again}."
        note = (
            "Trials with the whole budget, the best first; the runs of trial 7 lie in trials/00007. The best of many measured "
            f"values is too good on average. {advice}"
        )
        return {"Best trials": EstimateTable(("trial", trials.objective, *keys), rows, note)}

    def figures(self, run: Run) -> Iterable[Figure]:
        trials = Trials(run)
        caption = f"{trials.objective} of whole trials; dots are trials"
        yield Figure("Best so far", caption, draw=lambda axes: _draw_best(axes, trials))
        caption = "one line per trial, from setting to setting; faint ones were stopped early, the best is drawn last"
        yield Figure("Settings", caption, size=(7.2, 3.6), draw=lambda axes: _draw_settings(axes, trials))
        if budget := telling_budget(trials.all):
            shares = importance(trials.all, budget)
            num = sum(budget in trial.by_budget for trial in trials.all)
            caption = f"rank correlation with {trials.objective} over the {num} trials that were given {budget:,}"
            size = 5.4, 1.2 + 0.3 * len(shares)
            yield Figure("Importance", caption, size=size, draw=lambda axes: _draw_importance(axes, shares))


def _again(run: Run) -> Estimate:
    return run.metrics.get("again", NOTHING)


def setting_text(value: str | float) -> str:
    """Return a setting as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
            numbers = rankdata(values)
            varies = np.ptp(numbers) > 0 and np.ptp(ranks) > 0
            shares[key] = float(np.corrcoef(numbers, ranks)[0, 1]) if varies else 0.0
        else:
            shares[key] = _ratio([str(value) for value in values], ranks)
    return dict(sorted(shares.items(), key=lambda item: -abs(item[1])))


def _ratio(labels: Sequence[str], ranks: np.ndarray) -> float:
    if np.ptp(ranks) == 0:
        return 0.0
    names = np.array(labels)
    groups = [ranks[names == name] for name in sorted(set(labels))]
    between = sum(len(group) * (group.mean() - ranks.mean()) ** 2 for group in groups)
    return math.sqrt(between / float(((ranks - ranks.mean()) ** 2).sum()))


def _draw_best(axes: Axes, trials: Trials) -> None:
    """Draw values of trials as dots, and the best so far as steps."""
    from parley.engine.core.page.plots import MUTED, SERIES, MaxNLocator, short

    axes.grid(True, axis="y")
    numbers, values, best = np.array(trials.best_so_far(), dtype=np.float64).reshape(-1, 3).T
    axes.plot(numbers, values, color=MUTED, marker="o", markersize=3.6, linestyle="")
    axes.step(numbers, best, color=SERIES[0], linewidth=1.9, where="post")
    axes.set(xlabel="trial", ylabel=short(trials.objective))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_settings(axes: Axes, trials: Trials) -> None:
    """Draw trials as lines through their settings and their value; each axis spans its values."""
    from parley.engine.core.page.plots import GRID, INK, SERIES, short

    keys = list(trials.all[0].parameters)
    # Drawn from the last to the best.
    ranked = trials.ranked()[::-1]
    columns: list[list[str | float]] = [[trial.parameters[key] for trial in ranked] for key in keys]
    columns.append([trial.value.value for trial in ranked])
    positions = [_positions(column) for column in columns]
    for i, trial in enumerate(ranked):
        best = i == len(ranked) - 1
        line = [column[i] for column in positions]
        width, alpha = (2.2, 1.0) if best else (1.2, 0.6 if trial.whole else 0.2)
        axes.plot(line, color=SERIES[0 if best else 1], linewidth=width, alpha=alpha)
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


def _positions(values: Sequence[str | float]) -> list[float]:
    """Return positions on an axis from 0 to 1; words in alphabetical order, a single value in the middle."""
    numbers = [sorted(set(map(str, values))).index(str(value)) if isinstance(value, str) else value for value in values]
    low, high = min(numbers), max(numbers)
    return [0.5 if low == high else (number - low) / (high - low) for number in numbers]


def _draw_importance(axes: Axes, shares: Mapping[str, float]) -> None:
    """Draw the importance of each setting as bars from 0; negative settings lower the measured value."""
    from parley.engine.core.page.plots import MUTED, SERIES, short

    axes.grid(True, axis="x")
    bars = axes.barh(range(len(shares)), list(shares.values()), color=SERIES[1], height=0.5)
    axes.bar_label(bars, fmt="{:.2f}", padding=3, fontsize="small")
    axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.set_yticks(range(len(shares)), [short(key) for key in shares])
    axes.set(xlim=(-1.25, 1.25), ylim=(len(shares) - 0.5, -0.5), xlabel="rank correlation")
