"""What trainings of a generator come to beside their controls, in sentences (Li et al. 2017, table 3)."""

from __future__ import annotations

from collections.abc import Collection

from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import interval
from parley.engine.generation.metrics.scenarios import ADVERSUC, RANDOM
from parley.engine.generation.metrics.trained import (
    ABOVE,
    CONTROLS,
    LESS,
    METHODS,
    SAMPLED,
    Metrics,
    is_of_curve,
    row_title,
    signed,
)
from parley.engine.generation.metrics.variety import DISTINCT_2


def conclusions(metrics: Metrics, judge: str, unreliable: Collection[str] = ()) -> list[str]:
    """Whether trainings beat each control and their start, in sentences; the table has figures and intervals.

    Args:
        metrics: those of `table_metrics`.
        judge: whose verdicts count.
        unreliable: rows on which it was no better than a constant, by its evaluator reliability error.
    """
    told, compared = dict[str, list[str]](), dict[str, None]()
    for method, title in METHODS.items():
        said = dict[str, list[str]]()
        for other, name in (CONTROLS | {"greedy": "the start"}).items():
            less, random = (metrics.get(f"{method}{LESS}{other}.{kind}-{judge}", NOTHING) for kind in (ADVERSUC, RANDOM))
            if less.n:
                said.setdefault(_verb(less, random), []).append(name)
                compared |= dict.fromkeys((method, other))
        if said:
            outcome = "; ".join(f"{verb} {', '.join(others)}" for verb, others in said.items())
            told.setdefault(outcome, []).append(title)
    found = [f"{' / '.join(titles)}: {outcome}." for outcome, titles in told.items()]
    if doubtful := [row_title(row) for row in compared if row in unreliable]:
        of = "any of these" if len(doubtful) == len(compared) else "; ".join(doubtful)
        found.append(f"{judge} is a judge no better than a constant (ERE) of {of}: do not lean on it.")
    return found


def placements(metrics: Metrics) -> list[str]:
    """Where the replies of each training lie beside those of the start at several temperatures, in sentences.

    Nothing where these are no curve, because fewer than two rows of the start were measured.
    """
    measured = {name.rpartition(".")[0] for name in metrics if name.endswith(f".{DISTINCT_2}")}
    if sum(map(is_of_curve, measured)) < 2:
        return []
    rows = [row for method in METHODS for row in (method, method + SAMPLED) if f"{row}.{DISTINCT_2}" in metrics]
    placed = {row: metrics.get(f"{row}.{ABOVE}", NOTHING) for row in rows}
    found = [f"{row_title(row)} {_place(above)}." for row, above in placed.items() if above.n]
    if beyond := [row_title(row) for row, above in placed.items() if not above.n]:
        found.append(f"More or less various than the start at any temperature that was measured: {'; '.join(beyond)}.")
    return found


def _verb(less: Estimate, random: Estimate) -> str:
    """What a difference of AdverSuc comes to: replies that are nearer to random ones raise it, and that is no success."""
    if less.low > 0:
        return "deceives more often, and is nearer to random replies, than" if random.high < 0 else "beats"
    return "does worse than" if less.high < 0 else "cannot be told from"


def _place(above: Estimate) -> str:
    """Where replies lie beside the start at several temperatures."""
    where = "above" if above.low > 0 else "below" if above.high < 0 else "on"
    figures = f"{above.value:+.3f} {interval(above, signed)}".rstrip()
    return f"lies {where} the start's temperature curve ({figures} nats a word at equal distinct-2)"
