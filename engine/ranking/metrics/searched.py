"""What the rows of attacks on rankers amount to: success against queries, what it took, and transfer to other rankers.

A row is a context (`parley.engine.ranking.verbs.rows.SEARCHES`) with what every method found on every ranker; contexts of one
dialogue are drawn together. Metrics are called KIND.RANKER.METHOD, a rule being a method of one query; what differs by ranker
alone is called KIND.RANKER; transfer is called transfer.ATTACKED.ASKED.METHOD.

Success is of contexts in which an attack was tried: not of those where the goal is reached before any edit, or a ranker gave
no scores; both are counted. An attack ends when it succeeds, and what a method asks first does not depend on its budget. So
success with fewer queries is read off the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from parley.engine.core.stats.rows import Row, finished, lost
from parley.engine.core.stats.statistics import (
    FOR_ADVERSARY,
    LOWER_FOR_ADVERSARY,
    NEITHER,
    Estimate,
    Metric,
    Points,
    clustered_rate,
    count,
    mean_count,
)
from parley.engine.ranking.metrics.attacked import compared
from parley.engine.ranking.metrics.ranks import GroupMetrics

QUERIES = (10, 50, 100, 500, 2000)
"""Budgets at which success is read."""
BASELINE = "random"
"""The method that others are compared with, at the same number of queries."""
GASLITE, RANDOM_STEPS, RANDOM_WORDS = APPENDING = "gaslite", "random-steps", "random-words"
"""What puts words of an encoder's vocabulary behind a reply, the same without its gradient, and all words at random."""
CONTROLS = {
    BASELINE: "random edits",
    RANDOM_STEPS: "the same steps with random words",
    RANDOM_WORDS: "random words behind the reply",
}
"""Methods that others are compared with, in words."""
SUCCESS, AHEAD, AHEAD_P = "success@", "ahead@", "ahead_p@"
"""Success, and how far it is above that of the baseline, with the p-value of that; the number of queries follows."""
MEDIAN_QUERIES, WORDS, ASKED, RANKS, SCORE = "queries", "words_changed", "queries_asked", "ranks_moved", "score_moved"
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
"""Why such a context is not attacked."""


def describe_search(name: str) -> Metric:
    """What a metric of this module is called and how to read it."""
    kind, _, rest = name.partition(".")
    of = f", {rest.replace('.', ', ')}" if rest else ""
    if kind == TRANSFER:
        attacked, asked, method = rest.split(".", 2)
        definition = f"share of the successes on {attacked} that reach the goal on {asked} too, which has it in none before"
        return Metric(f"transfer, {method}, {attacked} to {asked}", FOR_ADVERSARY, definition, "share")
    base, at, queries = kind.partition("@")
    if at:
        title, definition, form, main = _AT[f"{base}@"]
        return Metric(f"{title} {int(queries):,} queries{of}", FOR_ADVERSARY, definition, form, main)
    known = _DEFINITIONS[kind]
    return known._replace(title=f"{known.title}{of}")


def baseline_of(method: str) -> str:
    """The method that one is compared with: what it does, done at random, or with one part of it left out."""
    return {GASLITE: RANDOM_STEPS, RANDOM_STEPS: RANDOM_WORDS}.get(method, BASELINE)


def points_of(budget: int) -> list[int]:
    """The numbers of queries at which a run of that budget knows its success."""
    return sorted({queries for queries in QUERIES if queries <= budget} | {budget})


class SearchedRows:
    """Rows of attacked contexts, to be read by ranker and method.

    Args:
        rows: of a run; a context that failed was not attacked, and counts as one for which no ranker gave scores.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = finished(rows)
        self.num_contexts = len(rows)
        """Contexts, those that failed included."""
        self._failed = [str(row["error"]) for row in lost(rows)]
        self.clusters: dict[int, int] = {number: row["dialogue"] for number, row in enumerate(self.rows)}
        """The dialogue of each context, by its place in the rows."""

    @cached_property
    def searches(self) -> dict[tuple[str, str], list[tuple[int, Row]]]:
        """By ranker and method what was found, with the place of the context in the rows; in the order of the run."""
        found: dict[tuple[str, str], list[tuple[int, Row]]] = {}
        for number, row in enumerate(self.rows):
            for each in row["searches"]:
                found.setdefault((each["model"], each["method"]), []).append((number, each))
        return found

    @cached_property
    def models(self) -> list[str]:
        """The rankers, in the order in which they were asked for."""
        return list(dict.fromkeys(model for model, _ in self.searches))

    @cached_property
    def errors(self) -> dict[str, list[str]]:
        """By ranker, why it gave no scores: one reason for each context in which an attack ended so."""
        found: dict[str, dict[int, str]] = {}
        for (model, _), entries in self.searches.items():
            for number, each in entries:
                if each["status"] == "error":
                    found.setdefault(model, {}).setdefault(number, each["reason"])
        apart = {model: list(found.get(model, {}).values()) for model in self.models}
        return {model: self._failed + reasons for model, reasons in apart.items() if self._failed or reasons}

    def tried(self, model: str, method: str) -> list[tuple[int, Row]]:
        """The attacks of a method on a ranker that came to an end."""
        return [(number, each) for number, each in self.searches[model, method] if each["status"] in ("success", "failure")]

    def successes(self, model: str, method: str, points: Sequence[int]) -> GroupMetrics:
        """Whether each attack succeeded with so many queries, by the metric's kind and number of queries."""
        tried = self.tried(model, method)
        spent = np.array([each["queries"] if each["status"] == "success" else np.inf for _, each in tried])
        values = {f"{SUCCESS}{queries}": (spent <= queries).astype(np.float64) for queries in points}
        keys = np.array([number for number, _ in tried], dtype=np.int64)
        return GroupMetrics(keys, values, np.ones_like(keys), 0, 0, 0)

    def curve(self, model: str, method: str, points: Sequence[int]) -> Points:
        """Success against numbers of queries, with intervals."""
        found = self.successes(model, method, points)
        clusters = [self.clusters[number] for number in found.keys.tolist()]
        return [(int(name.removeprefix(SUCCESS)), clustered_rate(values, clusters)) for name, values in found.values.items()]


def search_metrics(found: SearchedRows, budget: int) -> dict[str, Estimate]:
    """Every metric of rows.

    Args:
        found: the rows.
        budget: of the methods; nothing is known of more queries than that.
    """
    metrics: dict[str, Estimate] = {}
    points = points_of(budget)
    for model, method in found.searches:
        tried, successes = found.tried(model, method), found.successes(model, method, points)
        for queries, estimate in found.curve(model, method, points):
            metrics[f"{SUCCESS}{queries}.{model}.{method}"] = estimate
        baseline = baseline_of(method)
        if method != baseline and (model, baseline) in found.searches:
            for name, test in compared(successes, found.successes(model, baseline, points), found.clusters).items():
                at = name.removeprefix(SUCCESS)
                metrics[f"{AHEAD}{at}.{model}.{method}"] = test.difference
                metrics[f"{AHEAD_P}{at}.{model}.{method}"] = count(test.p_value, test.difference.n)
        metrics |= {f"{name}.{model}.{method}": each for name, each in _costs(tried, found.clusters).items()}
        for other, each in _transfers(tried, found.clusters).items():
            metrics[f"{TRANSFER}.{model}.{other}.{method}"] = each
    for model in found.models:
        metrics |= {f"{name}.{model}": count(num, found.num_contexts) for name, num in _contexts(found, model).items()}
    return metrics


def _costs(tried: Sequence[tuple[int, Row]], clusters: Mapping[int, int]) -> dict[str, Estimate]:
    """What attacks of a method took, and how far they came."""
    won = [(number, each) for number, each in tried if each["status"] == "success"]
    moved = [(number, each) for number, each in tried if each["rank_after"] is not None]
    spent, dialogues = [each["queries"] for _, each in won], [clusters[number] for number, _ in moved]
    asked, all_dialogues = [each["queries"] for _, each in tried], [clusters[number] for number, _ in tried]
    found = {
        MEDIAN_QUERIES: count(float(np.median(spent)) if spent else np.nan, len(spent)),
        ASKED: mean_count(asked, all_dialogues),
        UNTOUCHED: count(asked.count(0), len(tried)),
        WORDS: mean_count([each["num_changed"] for _, each in won], [clusters[number] for number, _ in won]),
        # What is kept of an attack is never farther from the goal than the reply as it was.
        RANKS: mean_count([abs(each["rank_after"] - each["rank_before"]) for _, each in moved], dialogues),
        SCORE: mean_count([abs(each["score"] - each["score_before"]) for _, each in moved], dialogues),
    }
    if any(each["num_slopes"] for _, each in tried):
        found[SLOPES] = mean_count([each["num_slopes"] for _, each in tried], all_dialogues)
    return found


def _transfers(tried: Sequence[tuple[int, Row]], clusters: Mapping[int, int]) -> dict[str, Estimate]:
    """Of the successes on a ranker the share that reach the goal on each other one, which does not have it before any edit."""
    found: dict[str, tuple[list[bool], list[int]]] = {}
    for number, each in tried:
        for shown in each["transfers"]:
            hits, dialogues = found.setdefault(shown["model"], ([], []))
            if each["status"] == "success" and shown["reached"] is not None:
                hits.append(shown["reached"])
                dialogues.append(clusters[number])
    return {other: clustered_rate(*told) for other, told in found.items()}


def _contexts(found: SearchedRows, model: str) -> dict[str, int]:
    """How many contexts of a ranker there are of each sort; one in which some methods end without scores may be of two."""
    tried, skipped = set[int](), dict[int, str]()
    for number, each in (entry for (of, _), entries in found.searches.items() if of == model for entry in entries):
        if each["status"] in ("success", "failure"):
            tried.add(number)
        elif each["status"] == "skipped":
            skipped[number] = each["reason"]
    reached = [*skipped.values()].count(REACHED_REASON)
    return {
        TRIED: len(tried),
        REACHED: reached,
        SKIPPED: len(skipped) - reached,
        NO_SCORES: len(found.errors.get(model, ())),
    }


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
    RANKS: Metric("ranks moved", FOR_ADVERSARY, "places that the reply came towards the goal, mean over attacked contexts"),
    SCORE: Metric("score moved", FOR_ADVERSARY, "how far the score came towards the goal, on the ranker's scale, mean"),
    UNTOUCHED: Metric("untouched", NEITHER, "attacked contexts without a query: no edit is allowed, a rule has none", "count"),
    SLOPES: Metric("gradients", LOWER_FOR_ADVERSARY, "asked for beside the queries, mean over attacked contexts"),
    TRIED: Metric("attacked", NEITHER, "contexts that were attacked, by one method or rule at least", "count"),
    REACHED: Metric("goal reached before", NEITHER, "contexts in which the goal is reached before any edit", "count"),
    SKIPPED: Metric("nothing to attack", NEITHER, "contexts without a reply to attack", "count"),
    NO_SCORES: Metric("no scores", NEITHER, "contexts in which a method or rule ended without scores", "count"),
}
