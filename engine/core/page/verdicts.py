"""What the sentences of verdicts are made of: numbers in words, directions, and what a number does not carry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Literal

from parley.engine.core.stats.statistics import FEW, Estimate, Metric

MINUS = "\N{MINUS SIGN}"
POINTS = Metric("points", "", "")
SHARE = Metric("share", "", "", "share")
MOST_MARKS = 12
"""Estimates that a picture has room for."""


def number(metric: Metric, value: float) -> str:
    """A value in the form of its metric: decimals, percent, or a whole number; "none" for NaN."""
    if not math.isfinite(value):
        return "none"
    if metric.form == "share":
        return f"{100 * value:.1f}\N{NO-BREAK SPACE}%"
    whole = metric.form == "count" or abs(value) >= 1000
    return f"{value:,.{0 if whole else 2}f}".replace("-", MINUS)


def interval(metric: Metric, estimate: Estimate) -> str:
    """The 95 % interval in words; empty where there is none."""
    if not all(map(math.isfinite, (estimate.low, estimate.high))):
        return ""
    return f"{number(metric, estimate.low)} to {number(metric, estimate.high)}"


def certain_sign(difference: Estimate) -> Literal[-1, 0, 1]:
    """Which side of 0 the whole interval is on; 0 where it holds 0 or there is none."""
    return 1 if difference.low > 0 else -1 if difference.high < 0 else 0


def caveat(*estimates: Estimate, unit: str = "independent units") -> str:
    """A sentence, with a blank before it, on what the numbers of a verdict do not carry; empty where they carry it.

    Args:
        estimates: the numbers.
        unit: what they are counted in, in the plural.
    """
    known = [each for each in estimates if math.isfinite(each.value)]
    said = ""
    if known and (least := min(each.n for each in known)) < FEW:
        said += f" Few {unit} ({least:,}): do not lean on it."
    if any(not math.isfinite(each.low) for each in known):
        said += " There is no interval."
    return said


def listed(names: list[str]) -> str:
    """Such as "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def first_marks(marks: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """As many as a picture has room for."""
    return dict(list(marks.items())[:MOST_MARKS])


def others_below(measured: Sized, what: str = "evaluations") -> str:
    """A sentence, with a blank before it, on the runs that a verdict on the first one leaves out; empty for no other."""
    return f" {len(measured) - 1} more {what} are below." if len(measured) > 1 else ""
