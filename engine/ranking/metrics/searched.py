"""Metrics and text tables of attacks on rankers: success against queries, cost, ranks, and transfer.

A row is a context (`parley.engine.ranking.verbs.prepared.SEARCHES`) with every method's result on every ranker; contexts of
one dialogue are drawn together. Metrics are called KIND.RANKER.METHOD, a rule being a method of one query; what differs by
ranker alone is called KIND.RANKER; transfer is called transfer.ATTACKED.ASKED.METHOD.

Success is of contexts in which an attack was tried: not of those where the goal is reached before any edit, or a ranker gave
no scores; both are counted. An attack ends when it succeeds, and what a method asks first does not depend on its budget. So
success with fewer queries is read off the same rows.

Ranks of attacked replies are given before and after; a tied reply has the mean of the ranks that it shares.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics
from parley.engine.core.stats.rows import Columns, linked_units, selected
from parley.engine.core.stats.statistics import (
    FOR_ADVERSARY,
    LOWER_FOR_ADVERSARY,
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    Points,
    Row,
    clustered_rate,
    count,
    finished,
    lost,
    mean_count,
)
from parley.engine.core.tables.table import (
    ABSENT,
    FEW_MARK,
    WHOLE,
    Column,
    EstimateTable,
    Form,
    TableRow,
    above,
    few_note,
    metric_table,
    num_measured,
    number,
)
from parley.engine.ranking.metrics.ranking import CLEAN, CONTEXT, RankedRows, context_task, dialogue_and_context
from parley.engine.ranking.metrics.ranks import GroupMetrics, compared
from parley.envs.core.seeds import stable_hash


def expected_ranks(scores: ArrayLike) -> np.ndarray:
    """Return the rank of each score, 1 for the highest, ties shared (n,) float64."""
    values = np.asarray(scores, dtype=np.float64)
    above, tied = (values[None, :] > values[:, None]).sum(axis=1), (values[None, :] == values[:, None]).sum(axis=1)
    ranks: np.ndarray = above + (tied + 1) / 2
    return ranks


def rank_movement(ranked: RankedRows, model: str, rule: str) -> np.ndarray:
    """Count the changed replies by their ranks before and after a rule.

    Returns:
        (n, n) int64, by rank before and rank after, from 1 to the most candidates of a group; a tie's half rank is rounded up.
    """
    size = int(ranked.sizes.max(initial=0))
    moved = np.zeros((size, size), dtype=np.int64)
    before, after, changes = ranked.scores(model, CLEAN), ranked.scores(model, rule), ranked.changes(rule)
    contexts, begins = np.unique(changes.contexts, return_index=True)
    for context, places in zip(contexts.tolist(), np.split(changes.places, begins)[1:], strict=True):
        scores = [of_context for of in (before, after) if (of_context := of.of(context)) is not None]
        # Of a changed question, its right replies.
        indices = np.flatnonzero(ranked.labels_of(context)) if CONTEXT in places else places
        if len(scores) == 2 and len(indices):
            ranks = [np.ceil(expected_ranks(group_scores)[indices]).astype(np.int64) - 1 for group_scores in scores]
            np.add.at(moved, (ranks[0], ranks[1]), 1)
    return moved


QUERIES = (10, 50, 100, 500, 2000)
"""Budgets at which success is read."""
BASELINE = "random"
"""The method that others are compared with, at the same number of queries."""
GASLITE, RANDOM_STEPS, RANDOM_WORDS = APPENDING = "gaslite", "random-steps", "random-words"
"""Methods that append words of an encoder's vocabulary: by gradient, without it, and all words at random."""
CONTROLS = {
    BASELINE: "random edits",
    RANDOM_STEPS: "the same steps with random words",
    RANDOM_WORDS: "random words behind the reply",
}
"""Methods that others are compared with, in words."""
SUCCESS, AHEAD, AHEAD_P = "success@", "ahead@", "ahead_p@"
"""Success, and how far it is above that of the baseline, with the p-value of that; the number of queries follows."""
MEDIAN_QUERIES, WORDS, ASKED, RANKS, SCORE = "queries", "words_changed", "queries_asked", "ranks_moved", "score_moved"
SCORED = "texts_scored"
"""Of successes the queries (median) and words changed; of all attacks queries (mean), how far rank and score came towards the
goal."""
UNTOUCHED = "untouched"
"""Contexts in which an attack made no query: a rule left the reply as it was, or random edits found none that is allowed."""
SLOPES = "slopes"
"""Gradients asked for, of all attacks of a white-box method."""
TRIED, REACHED, SKIPPED, NO_SCORES = "attacked", "already", "nothing_to_attack", "failed"
"""Contexts of a ranker: attacked; the goal is reached before any edit; nothing to attack; a method ended without scores."""
TRANSFER = "transfer"
REACHED_REASON = "the goal is reached before any edit"
"""The reason of a skipped context that needs no attack."""


def describe_search(name: str) -> Metric:
    """Return the title and the definition of a metric."""
    kind, _, rest = name.partition(".")
    of = f", {rest.replace('.', ', ')}" if rest else ""
    if kind == TRANSFER:
        attacked, other, method = rest.split(".", 2)
        definition = f"share of the successes on {attacked} that reach the goal on {other} too, which has it in none before"
        return Metric(f"transfer, {method}, {attacked} to {other}", FOR_ADVERSARY, definition, "share")
    base, at, queries = kind.partition("@")
    if at:
        title, definition, form, main = _AT[f"{base}@"]
        return Metric(f"{title} {int(queries):,} queries{of}", FOR_ADVERSARY, definition, form, main)
    metric = _DEFINITIONS[kind]
    return metric._replace(title=f"{metric.title}{of}")


def baseline_of(method: str) -> str:
    """Return the control of a method: random edits, or the same method without one part."""
    return {GASLITE: RANDOM_STEPS, RANDOM_STEPS: RANDOM_WORDS}.get(method, BASELINE)


def points_of(budget: int) -> list[int]:
    """Return the numbers of queries at which a run of some budget measures success."""
    return sorted({queries for queries in QUERIES if queries <= budget} | {budget})


class TriedSearches(NamedTuple):
    """Numbers of the attacks of a method on a ranker that ended in success or failure; (n,) float64 each.

    Contexts are places in the rows, `won` is 1 for success. Ranks and scores are how far those of the reply came towards the
    goal, for what is kept is never farther from it. NaN: unknown, as texts scored in runs of earlier versions.
    """

    contexts: np.ndarray
    won: np.ndarray
    queries: np.ndarray
    words: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray
    scored: np.ndarray
    slopes: np.ndarray


class SearchedRows:
    """Rows of attacked contexts, to be read by ranker and method. They are gone through once, and numbers alone are kept.

    Args:
        rows: of a run; a context that failed was not attacked, and counts as one for which no ranker gave scores.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = finished(rows)
        failed = Counter(str(row["error"]) for row in selected(lost(rows), "error"))
        self._columns, dialogues, contexts = Columns(), array("q"), array("Q")
        self.attacks: dict[tuple[str, str], dict[str, None]] = {}
        """The rankers and methods in the order of the run, each with the other rankers that its results were shown to."""
        self.errors: dict[str, Counter[str]] = {}
        """By ranker, why an attack ended without scores: reasons, each with its number of contexts."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """Contexts by ranker and status; one may count twice if some methods end without scores."""
        for index, row in enumerate(selected(self.rows, "dialogue", "context", "searches")):
            dialogues.append(row["dialogue"])
            contexts.append(stable_hash(*row["context"]))
            states: dict[str, dict[str, str]] = {}
            for search in row["searches"]:
                self._add(index, search)
                kind = TRIED if search["status"] in ("success", "failure") else search["status"]
                reasons = states.setdefault(search["model"], {})
                reasons[kind] = reasons.get(kind, search["reason"]) if kind == "error" else search["reason"]
            for model, reasons in states.items():
                if "error" in reasons:
                    self.errors.setdefault(model, Counter(failed))[reasons.pop("error")] += 1
                self.counts.update((model, kind) for kind in reasons)
                self.counts[model, REACHED] += reasons.get("skipped") == REACHED_REASON
        self.clusters = linked_units(dialogues, contexts)
        """The unit of each context: dialogues that share a context are one (G,) int64."""
        self.num_contexts = len(dialogues) + failed.total()
        """Contexts, those that failed included."""
        self.models = list(dict.fromkeys(model for model, _ in self.attacks))
        """The rankers, in the order of the run."""
        self.errors = {model: self.errors.get(model, failed) for model in self.models if failed or model in self.errors}

    def _add(self, index: int, search: Row) -> None:
        """Add a search of a context."""
        attack = search["model"], search["method"]
        others = self.attacks.setdefault(attack, {})
        if search["status"] not in ("success", "failure"):
            return
        won = search["status"] == "success"
        rank, score = math.nan, math.nan
        if search["rank_after"] is not None:
            rank, score = abs(search["rank_after"] - search["rank_before"]), abs(search["score"] - search["score_before"])
        scored = search.get("num_scored")
        numbers = search["queries"], search["num_changed"], rank, score, math.nan if scored is None else scored
        self._columns.add(attack, "d", (index, won, *numbers, search["num_slopes"]))
        for shown in search["transfers"]:
            others[shown["model"]] = None
            if won and shown["reached"] is not None:
                self._columns.add((*attack, shown["model"]), "i", (index, shown["reached"]))

    def tried(self, model: str, method: str) -> TriedSearches:
        """Return the attacks of a method on a ranker that ended in success or failure."""
        return TriedSearches(*self._columns.get((model, method)).reshape(-1, len(TriedSearches._fields)).T)

    def of(self, contexts: np.ndarray) -> np.ndarray:
        """Return the unit of each context (n,)."""
        dialogues: np.ndarray = self.clusters[contexts.astype(np.int64)]
        return dialogues

    def transfers(self, model: str, method: str) -> dict[str, Estimate]:
        """Return the share of successes on a ranker that reach the goal on each other ranker."""
        pairs = {other: self._columns.get((model, method, other), "i") for other in self.attacks[model, method]}
        return {other: clustered_rate(pair[1::2], self.of(pair[::2])) for other, pair in pairs.items()}

    def successes(self, model: str, method: str, points: Sequence[int]) -> GroupMetrics:
        """Return the success of each attack within each number of queries."""
        tried = self.tried(model, method)
        spent = np.where(tried.won, tried.queries, np.inf)
        values = {f"{SUCCESS}{queries}": (spent <= queries).astype(np.float64) for queries in points}
        return GroupMetrics(tried.contexts.astype(np.int64), values, 0)

    def curve(self, model: str, method: str, points: Sequence[int]) -> Points:
        """Compute success against numbers of queries, with intervals."""
        successes = self.successes(model, method, points)
        clusters = self.of(successes.keys)
        return [
            (int(name.removeprefix(SUCCESS)), clustered_rate(values, clusters)) for name, values in successes.values.items()
        ]


def search_metrics(searched: SearchedRows, budget: int) -> dict[str, Estimate]:
    """Compute every metric of some rows.

    Args:
        searched: the rows.
        budget: of the methods; nothing is known of more queries than that.
    """
    metrics: dict[str, Estimate] = {}
    points = points_of(budget)
    for model, method in searched.attacks:
        successes = searched.successes(model, method, points)
        for queries, estimate in searched.curve(model, method, points):
            metrics[f"{SUCCESS}{queries}.{model}.{method}"] = estimate
        baseline = baseline_of(method)
        if method != baseline and (model, baseline) in searched.attacks:
            for name, test in compared(successes, searched.successes(model, baseline, points), searched.clusters).items():
                at = name.removeprefix(SUCCESS)
                metrics[f"{AHEAD}{at}.{model}.{method}"] = test.difference
                metrics[f"{AHEAD_P}{at}.{model}.{method}"] = count(test.p_value, test.difference.n)
        metrics |= {f"{name}.{model}.{method}": estimate for name, estimate in _costs(searched, model, method).items()}
        for other, estimate in searched.transfers(model, method).items():
            metrics[f"{TRANSFER}.{model}.{other}.{method}"] = estimate
    for model in searched.models:
        skipped, reached = searched.counts[model, "skipped"], searched.counts[model, REACHED]
        counts = {TRIED: searched.counts[model, TRIED], REACHED: reached, SKIPPED: skipped - reached}
        counts[NO_SCORES] = searched.errors.get(model, Counter()).total()
        metrics |= {f"{name}.{model}": count(num, searched.num_contexts) for name, num in counts.items()}
    return metrics


def _costs(searched: SearchedRows, model: str, method: str) -> dict[str, Estimate]:
    """Compute the costs of the attacks of a method, and their gain in rank and score."""
    tried = searched.tried(model, method)
    dialogues, won, moved = searched.of(tried.contexts), tried.won == 1, np.isfinite(tried.ranks)
    counted = np.isfinite(tried.scored)
    costs = {
        MEDIAN_QUERIES: count(float(np.median(tried.queries[won])) if won.any() else np.nan, int(won.sum())),
        ASKED: mean_count(tried.queries, dialogues),
        UNTOUCHED: count(int((tried.queries == 0).sum()), len(dialogues)),
        WORDS: mean_count(tried.words[won], dialogues[won]),
        RANKS: mean_count(tried.ranks[moved], dialogues[moved]),
        SCORE: mean_count(tried.scores[moved], dialogues[moved]),
    }
    if counted.any():
        costs[SCORED] = mean_count(tried.scored[counted], dialogues[counted])
    if tried.slopes.any():
        costs[SLOPES] = mean_count(tried.slopes, dialogues)
    return costs


def searched_figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the figures of single contexts, of each method on each ranker.

    Args:
        rows: contexts that worked.
        config: settings of the run.
    """
    searched = SearchedRows(rows)
    figures: dict[str, ItemFigures] = {}
    for model, method in searched.attacks:
        tried, ending = searched.tried(model, method), f".{model}.{method}"
        successes = searched.successes(model, method, points_of(config["budget"]))
        for name, values in successes.values.items():
            figures[f"{name}{ending}"] = ItemFigures(successes.keys, values, np.ones_like(values), "share")
        every, won, moved = np.ones_like(successes.keys, dtype=bool), tried.won == 1, np.isfinite(tried.ranks)
        parts = {ASKED: (tried.queries, every), WORDS: (tried.words, won)}
        parts |= {RANKS: (tried.ranks, moved), SCORE: (tried.scores, moved)}
        for name, (numbers, counts) in parts.items():
            shown = numbers[counts]
            figures[f"{name}{ending}"] = ItemFigures(successes.keys[counts], shown, np.ones_like(shown), "count")
    return figures


SEARCHED_ITEMS = ItemMetrics(
    "dialogues",
    searched_figures,
    describe_search,
    links=dialogue_and_context,
    content=context_task,
    subjects=lambda rows, config: SearchedRows(rows).models,
)
"""Figures of single contexts; dialogues that share a context are one unit."""


_AT: Mapping[str, tuple[str, str, Literal["number", "share"], bool]] = {
    SUCCESS: ("success within", "share of the attacked contexts in which the goal is reached", "share", True),
    AHEAD: (
        "above random, within",
        "success less that of random edits (gaslite: of random-steps; that: of random-words) in the same contexts, mean",
        "number",
        False,
    ),
    AHEAD_P: ("p of that, within", "paired bootstrap over dialogues, two-sided", "number", False),
}
_DEFINITIONS: Mapping[str, Metric] = {
    MEDIAN_QUERIES: Metric("queries", LOWER_FOR_ADVERSARY, "of attacks that succeeded, median"),
    WORDS: Metric("words changed", LOWER_FOR_ADVERSARY, "of attacks that succeeded, mean"),
    ASKED: Metric("queries asked", LOWER_FOR_ADVERSARY, "mean over attacked contexts, whether they succeeded or not"),
    SCORED: Metric("texts scored", LOWER_FOR_ADVERSARY, "by the ranker, drafts ahead of a success included; mean, as above"),
    RANKS: Metric("ranks moved", FOR_ADVERSARY, "places that the reply came towards the goal, mean over attacked contexts"),
    SCORE: Metric("score moved", FOR_ADVERSARY, "how far the score came towards the goal, on the ranker's scale, mean"),
    UNTOUCHED: Metric("untouched", NEITHER, "attacked contexts without a query: no edit is allowed, a rule has none", "count"),
    SLOPES: Metric("gradients", LOWER_FOR_ADVERSARY, "asked for beside the queries, mean over attacked contexts"),
    TRIED: Metric("attacked", NEITHER, "contexts that were attacked, by one method or rule at least", "count"),
    REACHED: Metric("goal reached before", NEITHER, "contexts in which the goal is reached before any edit", "count"),
    SKIPPED: Metric("nothing to attack", NEITHER, "contexts without a reply to attack", "count"),
    NO_SCORES: Metric("no scores", NEITHER, "contexts in which a method or rule ended without scores", "count"),
}


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
    "scale. Scored: texts that the ranker scored, mean over all attacked contexts. One of this process scores drafts ahead; "
    "those behind a success are no queries. Any other is asked for queries alone. Greedy does not try all edits. "
    "Gradients: beside the queries. Brackets: 95 % intervals, contexts of a dialogue together."
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
    """Return rankers and methods, in the order of the run."""
    return [(model, method) for model, method in (name.split(".", 2)[1:] for name in metrics if name.startswith(f"{WORDS}."))]


def points_in(metrics: Metrics) -> list[int]:
    """Return the numbers of queries at which success was measured."""
    names = (name.partition(".")[0] for name in metrics if name.startswith(SUCCESS))
    return [int(name.removeprefix(SUCCESS)) for name in dict.fromkeys(names)]


def success_table(metrics: Metrics) -> EstimateTable:
    """Return success against queries, a row for each method or rule on each ranker."""
    points = points_in(metrics)
    columns = [
        Column(
            f"{queries:,} queries", f"{SUCCESS}{at}", below=Column("", f"{AHEAD}{at}", p_value=f"{AHEAD_P}{at}", signed=True)
        )
        for queries, at in ((queries, f"{queries}.{_METHOD}") for queries in points)
    ]
    note = f"{_NOTE_SUCCESS} Baseline: {BASELINE}."
    return metric_table(metrics, "ranker, method", _methods(metrics), columns, note, n=f"{SUCCESS}{points[-1]}.{_METHOD}")


def tables_of_searches(metrics: Metrics) -> dict[str, EstimateTable]:
    """Return all tables of attacks by their headings; that of transfer if a success was shown to another ranker."""
    models = list(dict.fromkeys(model for model, _ in attacks_of(metrics)))
    contexts = [TableRow(model, {"model": model}) for model in models]
    counts = ((name, f"{kind}.{{model}}") for kind, name in _CONTEXTS.items())
    tables = {
        SUCCESS_TABLE: success_table(metrics),
        "What it took": metric_table(
            metrics, "ranker, method", _methods(metrics), _COSTS, _NOTE_COSTS, n=f"{MEDIAN_QUERIES}.{_METHOD}", unit="successes"
        ),
        "Contexts": metric_table(metrics, "ranker", contexts, [Column(*names, WHOLE) for names in counts], _NOTE_CONTEXTS),
    }
    if has_transfers(metrics):
        shown_to = [Column(f"shown to {model}", cell=partial(_transfer, model)) for model in models]
        table = metric_table(metrics, "found on, by", _methods(metrics), shown_to, _NOTE_TRANSFER)
        few = any(FEW_MARK in cell for row in table.rows for cell in row)
        tables[TRANSFER_TABLE] = replace(table, note=table.note + few_note("dialogues") * few)
    return tables


def has_transfers(metrics: Metrics) -> bool:
    """Return whether a success on one ranker was shown to another one."""
    return any(estimate.n for name, estimate in metrics.items() if name.startswith(f"{TRANSFER}."))


_METHOD = "{model}.{method}"
_COSTS = (
    Column("untouched", f"{UNTOUCHED}.{_METHOD}", WHOLE),
    Column("queries", f"{MEDIAN_QUERIES}.{_METHOD}", Form(bounded=False)),
    *(Column(name, f"{kind}.{_METHOD}") for name, kind in (("words", WORDS), ("ranks", RANKS), ("score", SCORE))),
    Column("scored", f"{SCORED}.{_METHOD}", Form(bounded=False), optional=True),
    Column("gradients", f"{SLOPES}.{_METHOD}", optional=True),
)
_CONTEXTS = {TRIED: "attacked", REACHED: "reached before", SKIPPED: "nothing to attack", NO_SCORES: "no scores"}


def _methods(metrics: Metrics) -> list[TableRow]:
    return [TableRow(f"{model}, {method}", {"model": model, "method": method}) for model, method in attacks_of(metrics)]


def _transfer(other: str, metrics: Metrics, row: TableRow) -> str:
    estimate = metrics.get(f"{TRANSFER}.{row.fields['model']}.{other}.{row.fields['method']}", NOTHING)
    return above(number(estimate), f"n {num_measured(estimate)}") if estimate.n else ABSENT
