"""What chat models did in negotiations: how much they were asked, and how often they did not keep to the form.

A choice that stays illegal after the repair is a selection out of range, which `dialogues.py` counts for every agent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parley.engine.core.stats.rows import Row, finished
from parley.engine.core.stats.statistics import (
    LOWER_FOR_ADVERSARY,
    LOWER_FOR_TARGET,
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    clustered_rate,
    mean_count,
    rate,
)
from parley.policies.chat.model import NO_REPLIES

SIDES = ("adversary", "target")
_ASKED = {
    "answers": ("answers", "given by the model, repairs included, mean over all dialogues"),
    "tokens_in": ("tokens read", "for its answers, as far as it says, mean over all dialogues"),
    "tokens_out": ("tokens written", "as far as it says, mean over all dialogues"),
}
_BROKEN = {
    "wordless": ("wordless utterances", "share of its utterances without a word"),
    "cut": ("cut utterances", "share of its utterances that were cut at the most tokens or words"),
    "mixed_ends": ("mixed ends", "share of its utterances with <selection> among other words, which ends nothing"),
}
_NO_REPLY = "share of its answers in all dialogues, lost ones included: cut in thinking, filtered, ...; rows count each kind"
CHAT_METRICS: dict[str, Metric] = {
    f"chat_{name}_{side}": metric
    for side, lower in zip(SIDES, (LOWER_FOR_ADVERSARY, LOWER_FOR_TARGET), strict=True)
    for name, metric in {
        **{name: Metric(f"{side}'s {title}", NEITHER, what, "count") for name, (title, what) in _ASKED.items()},
        **{name: Metric(f"{side}'s {title}", lower, what, "share") for name, (title, what) in _BROKEN.items()},
        "no_reply": Metric(f"{side}'s answers without a reply", lower, _NO_REPLY, "share"),
        "repairs": Metric(f"{side}'s repairs", lower, "share of all dialogues whose choice was asked for once more", "share"),
    }.items()
}
"""Metrics of sides on which a chat model sits."""


def chat_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Those of `CHAT_METRICS` whose side is a chat model's; none where no dialogue has one.

    Args:
        rows: dialogue rows; of those with status "error" nothing counts but answers that are no reply.
    """
    found: dict[str, Estimate] = {}
    for number, side in enumerate(SIDES):
        answering = [row[f"chat_{side}"] for row in rows if row.get(f"chat_{side}")]
        if answering:
            lost = [sum(moves.get(kind.column) or 0 for kind in NO_REPLIES) for moves in answering]
            found[f"chat_no_reply_{side}"] = clustered_rate(lost, trials=[moves["answers"] for moves in answering])
        dialogues = [row for row in finished(rows) if row.get(f"chat_{side}")]
        if not dialogues:
            continue
        moves = [row[f"chat_{side}"] for row in dialogues]
        # An end that a limit forces is said by nobody.
        said = [
            sum(turn["side"] == number for turn in row["turns"])
            - (row["forced"] and bool(row["turns"]) and row["turns"][-1]["side"] == number)
            for row in dialogues
        ]
        for name in _ASKED:
            counts = np.array([one[name] for one in moves], dtype=np.float64)
            # Models that do not say how many tokens there were have none of this.
            found[f"chat_{name}_{side}"] = mean_count(counts) if counts.any() else NOTHING
        for name in _BROKEN:
            found[f"chat_{name}_{side}"] = clustered_rate([one[name] for one in moves], trials=said)
        found[f"chat_repairs_{side}"] = rate(sum(one["repairs"] > 0 for one in moves), len(moves))
    return {name: found[name] for name in CHAT_METRICS if name in found}
