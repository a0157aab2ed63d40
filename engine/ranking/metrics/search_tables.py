"""The tables of attacks on rankers as text: success against queries, what it took, contexts, transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import ABSENT, FEW_MARK, TextTable, above, few_note, figure, interval, num_measured, number
from parley.engine.ranking.metrics.searched import (
    AHEAD,
    AHEAD_P,
    BASELINE,
    MEDIAN_QUERIES,
    NO_SCORES,
    RANKS,
    REACHED,
    SCORE,
    SKIPPED,
    SLOPES,
    SUCCESS,
    TRANSFER,
    TRIED,
    UNTOUCHED,
    WORDS,
)
from parley.engine.ranking.metrics.table import SIGNIFICANT

SUCCESS_TABLE, TRANSFER_TABLE = "Success against queries", "Transfer to other rankers"
"""Headings of two of the tables."""
Metrics = Mapping[str, Estimate]

_NOTE_SUCCESS = (
    "Share of the attacked contexts in which the goal is reached with so many queries at most, 0 to 1; a query is one reply "
    "scored in its context, a rule makes one, and has failed where it changes nothing (parley evaluate ranking leaves such "
    "contexts out). Brackets: 95 % intervals, contexts of a dialogue together; n: dialogues. Below: "
    "the share less that of random edits (gaslite: of random-steps, the same without its gradient; random-steps: of "
    "random-words, all drawn anew each time) with as many queries in the same contexts; star: p < 0.05, paired bootstrap, "
    "two-sided, not corrected for their number."
)
_NOTE_COSTS = (
    "Untouched: attacked contexts without a query, for a rule changes nothing or no edit is allowed; greedy and beam erase "
    "words first, which are queries. Queries: median over successes, n of them. Words: changed in a success, mean. Ranks, "
    "score: how far the reply came towards the goal in all attacked contexts, mean; scores of several rankers have no common "
    "scale. Gradients: beside the queries. Brackets: 95 % intervals, contexts of a dialogue together."
)
_NOTE_CONTEXTS = (
    "Attacked: by one method or rule at least; in these contexts success is counted. Reached before: the ranker has the "
    "reply there before any edit. No scores: a method or rule ended without scores; only its own figures leave the context out."
)
_NOTE_TRANSFER = (
    "Of the successes on one ranker the share that reach the goal on another one, which does not have it before any edit; 0 to "
    "1. Brackets: 95 % intervals, contexts of a dialogue together; n of each: dialogues."
)


def attacks_of(metrics: Metrics) -> list[tuple[str, str]]:
    """Rankers and methods, in the order in which they were asked for."""
    return [(model, method) for model, method in (name.split(".", 2)[1:] for name in metrics if name.startswith(f"{WORDS}."))]


def points_in(metrics: Metrics) -> list[int]:
    """The numbers of queries at which success is known."""
    names = (name.partition(".")[0] for name in metrics if name.startswith(SUCCESS))
    return [int(name.removeprefix(SUCCESS)) for name in dict.fromkeys(names)]


def success_table(metrics: Metrics) -> TextTable:
    """Success against queries: a line for each method or rule on each ranker."""
    points, rows = points_in(metrics), []
    for model, method in attacks_of(metrics):
        shares = [metrics[f"{SUCCESS}{queries}.{model}.{method}"] for queries in points]
        cells = [_share(metrics, share, f"{queries}.{model}.{method}") for queries, share in zip(points, shares, strict=True)]
        rows.append((f"{model}, {method}", *cells, num_measured(shares[-1])))
    heads = ("ranker, method", *(f"{queries:,} queries" for queries in points), "n")
    return _table(heads, rows, f"{_NOTE_SUCCESS} Baseline: {BASELINE}.")


def tables_of_searches(metrics: Metrics) -> dict[str, TextTable]:
    """All tables of attacks, by their headings; that of transfer where there are several rankers."""
    attacks = attacks_of(metrics)
    costs, has_slopes = [], any(name.startswith(f"{SLOPES}.") for name in metrics)
    for model, method in attacks:
        kinds = (UNTOUCHED, MEDIAN_QUERIES, WORDS, RANKS, SCORE)
        untouched, spent, *others = (metrics[f"{kind}.{model}.{method}"] for kind in kinds)
        cells = [f"{untouched.value:,.0f}" if untouched.n else ABSENT, figure(spent.value), *map(number, others)]
        cells += [number(metrics.get(f"{SLOPES}.{model}.{method}", NOTHING))] * has_slopes
        costs.append((f"{model}, {method}", *cells, num_measured(spent)))
    heads = ("ranker, method", "untouched", "queries", "words", "ranks", "score", *["gradients"] * has_slopes, "n")
    models = list(dict.fromkeys(model for model, _ in attacks))
    sorts = (TRIED, REACHED, SKIPPED, NO_SCORES)
    contexts = [(model, *(f"{metrics[f'{kind}.{model}'].value:,.0f}" for kind in sorts)) for model in models]
    found = {
        SUCCESS_TABLE: success_table(metrics),
        "What it took": TextTable(heads, tuple(costs), _NOTE_COSTS),
        "Contexts": TextTable(
            ("ranker", "attacked", "reached before", "nothing to attack", "no scores"), tuple(contexts), _NOTE_CONTEXTS
        ),
    }
    return found | ({TRANSFER_TABLE: _transfer_table(metrics, attacks, models)} if len(models) > 1 else {})


def _transfer_table(metrics: Metrics, attacks: Sequence[tuple[str, str]], models: Sequence[str]) -> TextTable:
    rows = []
    for model, method in attacks:
        cells = []
        for other in models:
            found = metrics.get(f"{TRANSFER}.{model}.{other}.{method}", NOTHING)
            cells.append(above(number(found), f"n {num_measured(found)}") if found.n else ABSENT)
        rows.append((f"{model}, {method}", *cells))
    few = any(FEW_MARK in cell for row in rows for cell in row)
    heads = ("found on, by", *(f"shown to {model}" for model in models))
    return TextTable(heads, tuple(rows), _NOTE_TRANSFER + few_note("dialogues") * few)


def _share(metrics: Metrics, share: Estimate, rest: str) -> str:
    """A share with its interval, and how far it is above that of the baseline, with a star where that is no chance."""
    ahead = metrics.get(f"{AHEAD}{rest}", NOTHING)
    if not ahead.n:
        return number(share)
    # NaN, for no test, is not below it.
    star = "*" * (metrics[f"{AHEAD_P}{rest}"].value < SIGNIFICANT)
    sign = "+" * (round(ahead.value, 2) > 0)
    return f"{number(share)}\n{above(f'{sign}{figure(ahead.value)}{star}', interval(ahead))}"


def _table(heads: Sequence[str], rows: Sequence[tuple[str, ...]], note: str) -> TextTable:
    few = any(row[-1].endswith(FEW_MARK) for row in rows)
    return TextTable(tuple(heads), tuple(rows), note + few_note("dialogues") * few)
