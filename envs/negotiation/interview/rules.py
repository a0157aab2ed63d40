"""A job interview: two sides settle four issues of a job, of each one option, such as 60k, 25 days, Lima, engineer.

Written for Parley, after negotiations with several issues as they are studied (preferences that are opposed on some issues and
alike on others, so that points can be won together). Each of the thirteen options is an item that is there once; a choice names
one option of each issue, both sides hold what is chosen, and choices fit when they are the same.

A selection is four tokens, one an issue: `salary=40k` and so on in the order of `OPTIONS`, then the refusals.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from parley.envs.negotiation.domain import Selections

NAME = "interview"
ISSUES: dict[str, tuple[str, ...]] = {
    "salary": ("40k", "50k", "60k", "70k"),
    "holidays": ("20", "25", "30"),
    "office": ("lima", "oslo", "perth"),
    "role": ("analyst", "engineer", "manager"),
}
OPTIONS = tuple((issue, option) for issue, options in enumerate(ISSUES.values()) for option in options)
"""Issue and word of each item."""
ITEMS = tuple(f"{tuple(ISSUES)[issue]} {option}" for issue, option in OPTIONS)
OPTION_INDEX = {word: item for item, (_, word) in enumerate(OPTIONS)}
STARTS = tuple(itertools.accumulate((len(options) for options in ISSUES.values()), initial=0))
"""The items of issue i are those from `STARTS[i]` up to `STARTS[i + 1]`."""
WEIGHTS = (6, 4, 3, 2)
"""Points that the best options are worth, by importance, in scenarios that are drawn."""
BEST = sum(WEIGHTS)


@cache
def deals() -> np.ndarray:
    """Every deal (108, 4) int64, in the order of the selections."""
    of_issues = (range(start, stop) for start, stop in itertools.pairwise(STARTS))
    return np.array(list(itertools.product(*of_issues)), dtype=np.int64)


def describe(selection: int) -> str:
    """A deal in words, such as "salary 40k, holidays 20, ..."."""
    return ", ".join(ITEMS[item] for item in deals()[selection].tolist())


@cache
def selections() -> Selections:
    """What may be chosen in every scenario."""
    chosen = deals()
    table = np.concatenate([chosen, np.full((2, len(ISSUES)), len(OPTIONS) + 1)])
    table[-1] += 1
    held = np.zeros((len(table), len(OPTIONS)), dtype=np.int64)
    np.put_along_axis(held[:-2], chosen, 1, axis=1)
    return Selections(table, held, held, np.arange(len(table)))
