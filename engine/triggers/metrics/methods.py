"""Methods of trigger search on one model under one budget: how often a reply is a success, what they tried, and what they read.

Lines are methods by name. Where one sees replies alone, "random words" and "no input" of its search stand below it.
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.engine.core.stats.answers import NO_REPLY
from parley.engine.core.stats.statistics import FOR_ADVERSARY, LOWER_FOR_ADVERSARY, NEITHER, NOTHING, Estimate, Metric, count
from parley.engine.core.stats.tables import TextTable, few_note, figure, num_measured, with_interval
from parley.engine.triggers.metrics import text
from parley.engine.triggers.metrics.hits import (
    DRAWN_NOTE,
    HIT_RATE,
    JUDGE_ANSWERS,
    JUDGE_METRICS,
    SAMPLED,
    VERIFIED,
    unread_note,
)
from parley.engine.triggers.metrics.successes import success_note

BETWEEN = " | "
"""Between the line and the figure of a metric's name."""
CLAIMED, TRIED, LOSS = "claimed", "tried", "loss"
NO_INPUT = "no input"
FIGURES = {
    VERIFIED: Metric(
        "success", FOR_ADVERSARY, "share of targets to whose typed input the likeliest reply is a success", "share", True
    ),
    NO_REPLY: Metric("no reply", NEITHER, "share of the model's answers that are no reply, and so no success", "share"),
    SAMPLED: Metric("drawn", FOR_ADVERSARY, "share of drawn answers to the typed input that are successes", "share"),
    CLAIMED: Metric("claimed", FOR_ADVERSARY, "share of targets that are hits by the model's likelihoods", "share"),
    TRIED: Metric("tried", NEITHER, "inputs whose losses or replies were asked for, mean over targets", main=True),
    LOSS: Metric("loss", LOWER_FOR_ADVERSARY, "objective at the input that is kept, mean over targets"),
    **JUDGE_METRICS,
}
_COLUMNS = (VERIFIED, SAMPLED, NO_REPLY, CLAIMED, LOSS)
"""Figures with intervals; drawn replies, and answers without a reply, have a column where there are some."""
_NOTE = (
    " The column holds the share of targets of which the likeliest reply to the typed input is one. Claimed: share of targets "
    "that are hits by likelihoods, of the relaxation behind an input of real numbers, whose strongest words are typed. Tried: "
    "inputs, mean over targets; one costs a pass over the target where losses are read, and a whole reply where text is. "
    "Random words: as many random inputs as the search by replies above may try. Brackets: 95 % intervals."
)


def losses_told(metrics: Mapping[str, Estimate], hit: str) -> dict[str, Estimate]:
    """The figures of a method that reads losses.

    Args:
        metrics: of its search, `hits.search_metrics`.
        hit: the wanted type.
    """
    tried = metrics["candidates"]
    return {
        VERIFIED: metrics.get(VERIFIED, NOTHING),
        CLAIMED: metrics.get(f"{HIT_RATE}{hit}", NOTHING),
        TRIED: count(tried.value / max(1, tried.n), tried.n),
        LOSS: metrics["loss"],
        NO_REPLY: metrics.get(NO_REPLY, NOTHING),
        **_replies(metrics),
    }


def replies_told(metrics: Mapping[str, Estimate], name: str, drawn: int = 0) -> dict[str, dict[str, Estimate]]:
    """The figures of a method that reads text, and of its controls, by line.

    Args:
        metrics: of its search, `text.text_metrics`.
        name: of the method.
        drawn: replies that were drawn for each target in the end; like the one to no input they are queries and no tries.
    """
    tried = metrics[text.QUERIES]
    return {
        name: {
            VERIFIED: metrics[VERIFIED],
            TRIED: count(tried.value - 1 - drawn, tried.n),
            NO_REPLY: metrics[text.FOUND_NO_REPLY],
            **_replies(metrics),
        },
        random_line(name): {
            VERIFIED: metrics[text.RANDOM],
            TRIED: metrics[text.RANDOM_QUERIES],
            NO_REPLY: metrics[text.RANDOM_NO_REPLY],
        },
        NO_INPUT: {
            VERIFIED: metrics[text.EMPTY],
            TRIED: count(1, metrics[text.EMPTY].n),
            NO_REPLY: metrics[text.EMPTY_NO_REPLY],
        },
    }


def _replies(metrics: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """What a method has where replies are drawn, or a model judges them."""
    judged = JUDGE_METRICS if metrics.get(JUDGE_ANSWERS, NOTHING).value > 0 else ()
    names = [*([SAMPLED] if metrics.get(SAMPLED, NOTHING).n else []), *judged]
    return {name: metrics[name] for name in names}


def random_line(name: str) -> str:
    """The line of the random words beside a method."""
    return f"random words, {name}"


def describe_method(name: str) -> Metric:
    """What a metric of the table is called and how to read it."""
    line, kind = name.split(BETWEEN)
    return FIGURES[kind]._replace(title=f"{FIGURES[kind].title}: {line}")


def methods_successes(metrics: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the share of targets with a success, by line of the table."""
    ending = f"{BETWEEN}{VERIFIED}"
    return {name.removesuffix(ending): estimate for name, estimate in metrics.items() if name.endswith(ending)}


def methods_table(metrics: Mapping[str, Estimate], access: Mapping[str, str], clause: str) -> TextTable:
    """Return a table with a method a line.

    Args:
        metrics: figures by "LINE | FIGURE".
        access: what is read of the model, by line.
        clause: what a successful reply is (`successful_reply`).
    """
    lines: dict[str, dict[str, Estimate]] = {}
    for name, estimate in metrics.items():
        line, kind = name.split(BETWEEN)
        lines.setdefault(line, {})[kind] = estimate
    absent = set() if any(SAMPLED in figures for figures in lines.values()) else {SAMPLED}
    if not any(figures.get(NO_REPLY, NOTHING).value > 0 for figures in lines.values()):
        absent.add(NO_REPLY)
    shown = [kind for kind in _COLUMNS if kind not in absent]
    rows = [
        (
            line,
            access.get(line, ""),
            *(with_interval(figures.get(kind, NOTHING)) for kind in shown),
            figure(figures[TRIED].value),
            num_measured(figures[VERIFIED]),
        )
        for line, figures in lines.items()
    ]
    few = any(figures[VERIFIED].flagged for figures in lines.values())
    columns = ("method", "reads", *(FIGURES[kind].title for kind in shown), "tried", "targets")
    note = success_note(clause) + _NOTE + (SAMPLED in shown) * DRAWN_NOTE + few * few_note("targets") + unread_note(metrics)
    return TextTable(columns, tuple(rows), note)
