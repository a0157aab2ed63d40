"""Metrics and tables of searches by replies alone, and of brute force.

Searches by replies alone (`text_metrics`): shares of targets with a success, beside no input and random ones; queries.

The best inputs of a run (`shown_inputs`): successes first, then those with the closest replies. Prompts, inputs and replies are
hostile text: control characters and markup are escaped.

Brute force (`enumeration_table`): counts beside the published ones (He & Glass 2018, appendix B, tables 5 and 6). Every input
was tried, so the counts have no interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics, RowFigures, RowMetric
from parley.engine.core.stats.statistics import (
    FOR_ADVERSARY,
    NEITHER,
    NO_REPLY,
    NO_REPLY_METRICS,
    Estimate,
    Metric,
    Row,
    count,
    finished,
    is_no_reply,
    no_reply_metrics,
    no_reply_note,
    rate_difference,
)
from parley.engine.core.tables.table import Column, EstimateTable, Form, TableCell, TableRow, metric_table, published_cell
from parley.engine.triggers.metrics.hits import (
    DRAWN_NOTE,
    INLINE,
    JUDGE_METRICS,
    MONEY,
    SAMPLED,
    SECONDS,
    TOKENS,
    TRIED,
    TYPED_METRICS,
    VERIFIED,
    WITHIN_METRICS,
    he2018,
    judge_counts,
    prompt_of,
    shared_note,
    success_note,
    target_task,
    units_of,
    unread_note,
    within_metrics,
)
from parley.envs.core.visible import visible

NUM_SHOWN = 5
"""Inputs of a run that are shown."""
_SUCCESS, _NONE = "success", "no success"
_LONGEST = 100
"""Characters of a text that are shown."""


@dataclass(frozen=True)
class ShownInput:
    """An input as it was typed, with the reply to it.

    Args:
        success: True if the reply is one.
        prompt: the request; None without one.
        typed: the texts in its slots.
        target: the wanted reply.
        reply: the model's; empty if it did not reply.
        no_reply: the kind of an answer that is no reply; empty for a reply.
        merit: orders inputs that are both successes, or both none; the higher the better.
        model: the name of the model, if there are several.
    """

    success: bool
    prompt: str | None
    typed: Sequence[str]
    target: str
    reply: str
    no_reply: str = ""
    merit: float = 0.0
    model: str = ""

    @classmethod
    def of(cls, row: Row, typed: Sequence[str], **more: Any) -> ShownInput:
        """Return what a row, or an entry of one, tells of a typed input; `more` are further fields."""
        kind = row["kind"] if is_no_reply(row) else ""
        return cls(bool(row[VERIFIED]), row["prompt"], typed, row["target"], row["reply"], kind, **more)


def shown_inputs(inputs: Iterable[ShownInput]) -> dict[str, EstimateTable]:
    """Return a table of the best of some inputs with its heading; none where there is no input.

    Args:
        inputs: of a run; read once, one after the other.
    """
    num = num_successes = 0

    def counted() -> Iterable[ShownInput]:
        nonlocal num, num_successes
        for shown in inputs:
            num, num_successes = num + 1, num_successes + shown.success
            yield shown

    best = nsmallest(NUM_SHOWN, counted(), key=lambda shown: (not shown.success, bool(shown.no_reply), -shown.merit))
    if not best:
        return {}
    heading = "inputs that worked" if num_successes else "no input worked; the closest"
    several, prompted = any(shown.model for shown in best), any(shown.prompt is not None for shown in best)
    columns = ("outcome", *(["model"] if several else []), "prompt" if prompted else "target", "input", "reply")
    rows = []
    for shown in best:
        request = (shown.prompt or "") if prompted else shown.target
        typed = " ... ".join(filter(None, shown.typed))
        reply = f"(no reply: {shown.no_reply})" if shown.no_reply else shown.reply
        texts = map(_shortened, (*([shown.model] if several else []), request, typed, reply))
        rows.append((_SUCCESS if shown.success else _NONE, *texts))
    successes = "1 success" if num_successes == 1 else f"{num_successes:,} successes"
    note = f"{successes} of {num:,} input{'s' * (num > 1)}; at most {NUM_SHOWN} are shown, all are in the rows and on the page."
    return {heading: EstimateTable(columns, tuple(rows), note, texts=columns[1:])}


def _shortened(text: str) -> str:
    text = visible(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


SAID, CONTAINED = KINDS = ("said", "contained")
OUTSIDE, INPUTS = "outside", "inputs"
TITLES = {"norm": "words", "rev": "words backwards", "random": "random strings", "mal": "malicious strings"}
"""The lists by name, in the table's order."""

_NOTE = (
    "Said: strings of the list that are the greedy reply to some input. Contained: strings that are part of some reply. "
    "Published: He & Glass 2018, tables 5 and 6, on the words of the whole Penn Treebank and lists of their own."
)

LEGEND = {
    **{
        f"{SAID}.{name}": Metric(f"{title} said", "", f"share of the {title} that are a reply to some input", "share", True)
        for name, title in TITLES.items()
    },
    **{
        f"{CONTAINED}.{name}": Metric(f"{title} contained", "", f"share of the {title} that are part of some reply", "share")
        for name, title in TITLES.items()
    },
    OUTSIDE: Metric("replies that are no word", "", "share of the replies to all inputs", "share", True),
    INPUTS: Metric("inputs", "", "all there are", "count"),
    "inputs_per_s": Metric("inputs per second", "higher: better", "of one worker, without its start"),
    "test_ppl": Metric("test perplexity", "lower: better", "of the model, per word or character that it predicts"),
}


def enumeration_metrics(rows: Iterable[Mapping[str, Any]], lists: Mapping[str, Collection[str]]) -> dict[str, Estimate]:
    """Return the counts of listed strings, by name of `LEGEND`.

    Args:
        rows: finished branches, columns of `parley.engine.triggers.verbs.config.BRANCHES`.
        lists: the strings to look for, by the name of the list.
    """
    strings_found: dict[str, set[str]] = {f"{kind}.{name}": set() for kind in (SAID, CONTAINED) for name in lists}
    num_inputs = num_outside = 0
    for row in rows:
        num_inputs += row["inputs"]
        num_outside += row["outside"]
        for find in row["finds"]:
            strings_found[f"{CONTAINED}.{find['list']}"].add(find["string"])
            if find["whole"]:
                strings_found[f"{SAID}.{find['list']}"].add(find["string"])
    metrics = {}
    for name, strings in strings_found.items():
        size = len(lists[name.partition(".")[2]])
        metrics[name] = count(len(strings) / size if size else math.nan, size)
    metrics[OUTSIDE] = count(num_outside / num_inputs if num_inputs else math.nan, num_inputs)
    metrics[INPUTS] = count(num_inputs, num_inputs)
    return metrics


def enumeration_table(metrics: Mapping[str, Estimate], attention: str) -> EstimateTable:
    """Return the lists as rows, tables 5 and 6 side by side.

    Args:
        metrics: of `enumeration_metrics`.
        attention: the model's, which selects the published counts; kinds that were not published have none.
    """
    published = he2018().get(f"enumeration {attention}", {})

    def cells(kind: str, listed: str, metric: str) -> tuple[TableCell, TableCell]:
        share, printed = metrics[metric], published.get(listed, {}).get(kind, math.nan)
        return _share_form(share.value).cell(share), published_cell(printed, _share_form(printed))

    rows = [
        (title, f"{metrics[f'{SAID}.{name}'].n:,}", *(cell for kind in KINDS for cell in cells(kind, name, f"{kind}.{name}")))
        for name, title in TITLES.items()
    ]
    rows.append(("replies that are no word", f"{metrics[OUTSIDE].n:,}", *cells(SAID, OUTSIDE, OUTSIDE), "", ""))
    return EstimateTable(("", "n", "said, %", "published", "contained, %", "as published"), tuple(rows), _NOTE)


def _share_form(share: float) -> Form:
    # The rarest published share is 0.0054 %.
    return Form(places=4 if 0 < share < 0.001 else 2, factor=100.0, bounded=False)


EMPTY, RANDOM, OVER = "empty_verified", "random_verified", "over_random"
QUERIES, RANDOM_QUERIES, NUM_QUERIES, ATTACKER = "queries", "random_queries", "num_queries", "attacker_answers"
ATTACKER_NO_REPLY = "attacker_no_reply"
FOUND_NO_REPLY, RANDOM_NO_REPLY, EMPTY_NO_REPLY = "found_no_reply", "random_no_reply", "empty_no_reply"
_SUCCESS_TEXT = "share of targets of which the likeliest reply is a success"
_NONE_TEXT = "share of the answers that are no reply, and so no success"
RANDOM_INPUTS = "random_"
"""Prefix of what random inputs cost, and of their success within a budget."""
_COSTS = {
    TOKENS: "that the model read and wrote",
    "attacker_tokens": "that an attacker read and wrote",
    SECONDS: "of the models' work",
    MONEY: "of the models' answers",
}
TEXT_METRICS: dict[str, Metric] = {
    VERIFIED: Metric("success, found", FOR_ADVERSARY, f"{_SUCCESS_TEXT}, to the fittest input", "share", main=True),
    RANDOM: Metric("success, random", FOR_ADVERSARY, f"{_SUCCESS_TEXT}, to one of as many random inputs", "share", main=True),
    EMPTY: Metric("success, no input", FOR_ADVERSARY, f"{_SUCCESS_TEXT}, to the prompt alone", "share", main=True),
    OVER: Metric("success, found less random", FOR_ADVERSARY, "difference of the two shares, paired by target", main=True),
    SAMPLED: TYPED_METRICS[SAMPLED],
    QUERIES: Metric("queries", NEITHER, "answers for a target, to no input and drawn ones too, mean over targets", main=True),
    TRIED: Metric("tried", NEITHER, "inputs of the search whose replies were asked for, mean over targets"),
    RANDOM_QUERIES: Metric("queries, random", NEITHER, "answers to random inputs that were asked for, mean over targets"),
    NUM_QUERIES: Metric("queries, all", NEITHER, "answers that were asked for, all targets together", "count"),
    **NO_REPLY_METRICS,
    FOUND_NO_REPLY: Metric("no reply, search", NEITHER, f"{_NONE_TEXT}, to inputs of the search", "share"),
    RANDOM_NO_REPLY: Metric("no reply, random", NEITHER, f"{_NONE_TEXT}, to random inputs", "share"),
    EMPTY_NO_REPLY: Metric("no reply, no input", NEITHER, f"{_NONE_TEXT}, to the prompt alone", "share"),
    ATTACKER: Metric("attacker's answers", NEITHER, "that the attacker who writes inputs gave, mean over targets"),
    ATTACKER_NO_REPLY: Metric("attacker's answers without a reply", NEITHER, "all targets together", "count"),
    TOKENS: Metric("tokens", NEITHER, "that the model read and wrote, mean over targets"),
    **JUDGE_METRICS,
}
_LINES = (
    TableRow("found", {"success": VERIFIED, "drawn": SAMPLED, "queries": TRIED, "no_reply": FOUND_NO_REPLY}),
    TableRow("random", {"success": RANDOM, "drawn": "", "queries": RANDOM_QUERIES, "no_reply": RANDOM_NO_REPLY}),
    TableRow("no input", {"success": EMPTY, "drawn": "", "queries": "", "no_reply": EMPTY_NO_REPLY}, cells={"queries": "1"}),
)
"""The lines of the table, with the metric of each column; replies are drawn to the input found alone."""
_COLUMNS_TEXT = (
    Column("success", "{success}", INLINE),
    Column("drawn", "{drawn}", INLINE, optional=True),
    Column("queries", "{queries}", INLINE),
    Column("no reply", "{no_reply}", INLINE),
)
_NOTE_TEXT = (
    " The column holds the share of targets of which the model's likeliest reply is one. Found: the best of all inputs that "
    "were tried; random: the best of as many random ones, each until one is a success. Queries: inputs that were asked about. "
    "Brackets: 95 % intervals."
)


def text_metrics(rows: Sequence[Row], limits: Mapping[str, float] | None = None) -> dict[str, Estimate]:
    """Return `TEXT_METRICS`, costs and kinds of answers without a reply only where they occur, and the success by cost.

    Args:
        rows: of a search.
        limits: what the search for a target may cost, by part of a budget.
    """
    done, searched = finished(rows), within_metrics(limits or {}, _spent, itemgetter(VERIFIED))
    at_random = within_metrics(limits or {}, partial(_spent, prefix=RANDOM_INPUTS), itemgetter(RANDOM))
    within = searched | {f"{RANDOM_INPUTS}{name}": metric for name, metric in at_random.items()}
    figures = RowFigures({**_ROW_METRICS, **within}, done, prompt_of)
    figures.units = units_of(figures.units)
    metrics = {name: figures.estimate(name) for name in (VERIFIED, RANDOM, EMPTY, SAMPLED)}
    metrics[OVER] = rate_difference(figures[VERIFIED].tops, figures[RANDOM].tops, figures.units)
    metrics |= {name: figures.estimate(name) for name in (QUERIES, TRIED, RANDOM_QUERIES, ATTACKER)}
    queries = figures[NO_REPLY].bottoms
    metrics[NUM_QUERIES] = count(queries.sum(), len(queries))
    metrics |= no_reply_metrics(map(_without_reply, done), queries, figures.units)
    metrics |= {name: figures.estimate(name) for name in (FOUND_NO_REPLY, RANDOM_NO_REPLY, EMPTY_NO_REPLY)}
    metrics |= {name: figures.estimate(name) for name in (*_COST_ROWS, *within) if len(figures[name].rows)}
    lost = sum(entry["answers"] for row in done for entry in row.get("attacker_no_replies") or ())
    metrics[ATTACKER_NO_REPLY] = count(lost, len(queries))
    return metrics | judge_counts(done, len(queries))


def _num_tried(row: Row) -> int:
    """Return the number of inputs that were tried; queries are also the prompt alone, and drawn replies in the end."""
    return int(row[QUERIES] - 1 - row["samples"])


def _spent(row: Row, part: str, prefix: str = "") -> float | None:
    """Return what the search for a target cost of a part of a budget, or random inputs; None if the row does not say."""
    if part == QUERIES:
        return float(row[RANDOM_QUERIES] if prefix else _num_tried(row))
    return row.get(f"{prefix}{part}")


_COST_ROWS: Mapping[str, RowMetric] = {
    name: RowMetric(itemgetter(name), "count", among=lambda row, name=name: row.get(name) is not None)  # type: ignore[misc]
    for name in (*_COSTS, *(f"{RANDOM_INPUTS}{part}" for part in (TOKENS, SECONDS, MONEY)))
}
_ROW_METRICS: Mapping[str, RowMetric] = {
    **_COST_ROWS,
    **{name: RowMetric(lambda row, name=name: bool(row[name]), "share") for name in (VERIFIED, RANDOM, EMPTY)},  # type: ignore[misc]
    SAMPLED: RowMetric(itemgetter(SAMPLED), "share", itemgetter("samples")),
    **{
        name: RowMetric(lambda row, name=name: row.get(name, 0), "count")  # type: ignore[misc]
        for name in (QUERIES, RANDOM_QUERIES, ATTACKER)
    },
    TRIED: RowMetric(_num_tried, "count"),
    NO_REPLY: RowMetric(lambda row: _without_reply(row).total(), "share", lambda row: row[QUERIES] + row[RANDOM_QUERIES]),
    FOUND_NO_REPLY: RowMetric(lambda row: _without_reply(row, "found").total(), "share", _num_tried),
    RANDOM_NO_REPLY: RowMetric(lambda row: _without_reply(row, "random").total(), "share", itemgetter(RANDOM_QUERIES)),
    EMPTY_NO_REPLY: RowMetric(lambda row: _without_reply(row, "empty").total(), "share", lambda row: 1.0),
}
"""Metrics of `TEXT_METRICS` by what each target adds to them."""
_COMPARED = (VERIFIED, RANDOM, EMPTY, SAMPLED, QUERIES, RANDOM_QUERIES, ATTACKER, NO_REPLY)
"""Those by which runs are compared."""


def text_figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the figures of single targets."""
    figures = RowFigures({name: _ROW_METRICS[name] for name in _COMPARED}, rows)
    return {name: figures[name] for name in _COMPARED}


def describe_text(name: str) -> Metric:
    """Return the title and the meaning of a metric of a search by replies."""
    if metric := TEXT_METRICS.get(name):
        return metric
    part = name.removeprefix(RANDOM_INPUTS)
    metric = WITHIN_METRICS.get(part) or Metric(part.replace("_", " "), NEITHER, f"{_COSTS[part]}, mean over targets")
    return metric._replace(title=f"{metric.title}, random") if part != name else metric


TEXT_ITEMS = ItemMetrics("prompts", text_figures, describe_text, prompt_of, target_task, unit_alone="targets")
"""Figures of single targets of a search by replies."""


def text_table(metrics: Mapping[str, Estimate], clause: str) -> EstimateTable:
    """Return a table with an input a line.

    Args:
        metrics: those of `text_metrics`.
        clause: the description of a successful reply (`successful_reply`).
    """
    note = success_note(clause) + _NOTE_TEXT + bool(metrics[SAMPLED].n) * DRAWN_NOTE + no_reply_note(metrics, "success.tokens")
    if (lost := metrics[ATTACKER_NO_REPLY].value) > 0:
        note += f" The attacker gave {lost:,.0f} answers that are no reply."
    note += shared_note(metrics[NUM_QUERIES].n, metrics[VERIFIED]) + unread_note(metrics)
    return metric_table(metrics, "input", _LINES, _COLUMNS_TEXT, note, n="{success}", n_heading="targets", unit="targets")


def _without_reply(row: Row, sort: str = "") -> Counter[str]:
    """Return how many answers are no replies, by kind, to one sort of question or to all; older rows lack the sort."""
    counts = Counter[str]()
    for entry in row.get("no_replies") or ():
        if sort in ("", entry["asked"]):
            counts[entry["kind"]] += entry["answers"]
    return counts
