"""Sweeps for people to read: the best trial so far, trials as lines through their settings, and which settings matter.

Importance is Spearman's rank correlation of a setting with what was measured, over trials that were given the same budget; of a
setting without an order, the correlation ratio of the ranks (0 to 1): the share of their variance that lies between its values,
rooted.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from parley.engine.core.page.figure import Figure
from parley.engine.core.page.sweeps.sections import ShownSweep, Trial
from parley.engine.core.stats.tables import TextTable

LEAST_TRIALS = 10
"""Trials of a budget from which on ranks say anything: over fewer, chance correlates by more than 0.6 in one case of twenty."""
SHOWN = 10
"""Trials in the table of the best."""


def figures_of(section: ShownSweep) -> list[Figure]:
    """The best so far, the settings, and their importance where enough trials tell it.

    Args:
        section: with at least one trial that worked.
    """
    # matplotlib costs a second, which readers of this module's figures need not pay.
    from parley.engine.core.page.sweeps import plots

    name = section.name
    figures = [
        Figure(
            "Best so far",
            f"{section.objective} of whole trials; dots are trials",
            Markup(plots.best_svg(f"{name}, best so far", section.objective, best_so_far(section))),
        ),
        Figure(
            "Settings",
            "one line per trial, from setting to setting; faint ones were stopped early, the best is drawn last",
            Markup(plots.parallel_svg(f"{name}, settings", section)),
        ),
    ]
    if budget := telling_budget(section.trials):
        found = importance(section.trials, budget)
        num_asked = sum(budget in trial.by_budget for trial in section.trials)
        caption = f"rank correlation with {section.objective} over the {num_asked} trials that were given {budget:,}"
        figures.append(Figure("Importance", caption, Markup(plots.importance_svg(f"{name}, importance", found))))
    return figures


def note_of(section: ShownSweep) -> str:
    """How many trials there are, and what is best."""
    failed = f", {section.failures} failed" if section.failures else ""
    num_trials = len(section.trials) + section.failures
    num_whole = sum(trial.whole for trial in section.trials)
    told = f"{num_trials} trials{failed}, {num_whole} with the whole budget; {section.direction}imum of "
    return f"{section.name}: {told}{section.objective} is best."


def best_trials(section: ShownSweep) -> TextTable:
    """The best of the trials that were given the whole budget, with their settings."""
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
    return TextTable(("trial", section.objective, *keys), rows, note)


def told(value: str | float) -> str:
    """A setting as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best_so_far(section: ShownSweep) -> list[tuple[int, float, float]]:
    """Number, value and best value so far of every whole trial."""
    better = max if section.direction == "max" else min
    whole = [(trial.number, trial.value.value) for trial in section.trials if trial.whole]
    best = itertools.accumulate((value for _, value in whole), better)
    return [(number, value, so_far) for (number, value), so_far in zip(whole, best, strict=True)]


def telling_budget(trials: Sequence[Trial]) -> int | None:
    """The largest budget that enough trials were given for ranks to say anything; None where there is none."""
    times = Counter(budget for trial in trials for budget in trial.by_budget)
    return max((budget for budget, number in times.items() if number >= LEAST_TRIALS), default=None)


def importance(trials: Sequence[Trial], budget: int) -> dict[str, float]:
    """How much each setting goes with what was measured, the largest first; see the module.

    Args:
        trials: a setting, or values, that never differ count as 0.
        budget: trials that were not given it are left out; at least one was.
    """
    from scipy.stats import rankdata

    asked = [trial for trial in trials if budget in trial.by_budget]
    ranks = rankdata([trial.by_budget[budget] for trial in asked])
    found = {}
    for key in asked[0].parameters:
        values = [trial.parameters[key] for trial in asked]
        if all(isinstance(value, int | float) for value in values):
            found[key] = _correlation(rankdata(values), ranks)
        else:
            found[key] = _ratio([str(value) for value in values], ranks)
    return dict(sorted(found.items(), key=lambda item: -abs(item[1])))


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
