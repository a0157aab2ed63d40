"""Answers of chat models that are no replies: their share, and how many there are of each kind.

An answer that is no reply (`parley.policies.chat.model.AnswerKind`) is no success and no utterance. It stays in the denominator
of every rate, because the model was asked and did not do what was wanted, and its share stands beside the rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from parley.engine.core.stats.rows import Row
from parley.engine.core.stats.statistics import NEITHER, Estimate, Metric, clustered_rate, count
from parley.policies.chat.model import NO_REPLIES, AnswerKind

NO_REPLY = "no_reply"
NO_REPLY_KINDS = tuple(kind.value for kind in NO_REPLIES)
"""Kinds of answers that are no replies."""
_OF_KIND = f"{NO_REPLY}."
"""Begins the names of the counts by kind."""


def _count_name(kind: str) -> str:
    return f"{_OF_KIND}{AnswerKind(kind).column}"


NO_REPLY_METRICS: dict[str, Metric] = {
    NO_REPLY: Metric("answers without a reply", NEITHER, "share of the model's answers; none is a success", "share", main=True),
    **{_count_name(kind): Metric(f"answers, {kind}", NEITHER, "that are no reply", "count") for kind in NO_REPLY_KINDS},
}
"""All of `no_reply_metrics`; counts of kinds that do not occur are left out."""


def is_no_reply(row: Row) -> bool:
    """Return whether a row, or an entry of one, holds an answer that is no reply; rows of older runs do not say."""
    return row.get("kind") in NO_REPLY_KINDS


def no_reply_metrics(kinds: Sequence[Mapping[str, int]], answers: Sequence[int]) -> dict[str, Estimate]:
    """Return the share of answers that are no replies, and counts by kind.

    Args:
        kinds: for each independent unit, such as a target, how many of its answers are of each kind without a reply.
        answers: for each unit, how many answers there are.
    """
    totals = Counter[str]()
    for of_unit in kinds:
        totals.update(of_unit)
    metrics = {NO_REPLY: clustered_rate([sum(of_unit.values()) for of_unit in kinds], trials=answers)}
    return metrics | {_count_name(kind): count(totals[kind], sum(answers)) for kind in NO_REPLY_KINDS if totals[kind]}


def kinds_of_rows(rows: Iterable[Row]) -> list[Counter[str]]:
    """Return for each row, or entry, that holds one answer the kinds that `no_reply_metrics` counts."""
    return [Counter([row["kind"]] if is_no_reply(row) else []) for row in rows]


def kinds_told(metrics: Mapping[str, Estimate]) -> str:
    """Return such as "12 filtered, 3 cut in thinking", of the metrics of `no_reply_metrics`; empty where there are none."""
    counts = {kind: metrics[name].value for kind in NO_REPLY_KINDS if (name := _count_name(kind)) in metrics}
    return ", ".join(f"{number:,.0f} {kind}" for kind, number in counts.items())


def no_reply_note(
    metrics: Mapping[str, Estimate], setting: str = "", rates: str = "none is a success, and all count in the rates"
) -> str:
    """Return a sentence on the answers that are no replies, for a table's note; nothing where there are none.

    Args:
        metrics: those of `no_reply_metrics` among others.
        setting: that limits the tokens of an answer; named where answers were cut in thinking.
        rates: what becomes of them in the rates of the table.
    """
    if not (counts := kinds_told(metrics)):
        return ""
    mend = f" More tokens may end the thinking: --set {setting}=N." if setting and AnswerKind.CUT_IN_THINKING in counts else ""
    return f" No reply: answers that are none ({counts}); {rates}.{mend}"
