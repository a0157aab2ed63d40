"""The metrics of a white-box attack under two protocols, and published figures beside them.

Sources: Cheng et al. 2019, sections 5 and 7. A row is a dialogue that was played live: the target speaks by its own
sampling and decides itself, and the metrics of negotiation score it. The metrics called `forced_...` are the published protocol
for the same dialogue:
  # Paper: a sentence that satisfies the end constraint "forces" the target to end, though its words are sampled (eq. 1, 5).
  # Released: `<selection>` is put into its mouth, and its choice is scored. Ours: both, because the live target often goes on.
A dialogue without such a sentence counts with its live outcome.

Means over attempts are clustered by dialogue. Nothing is computed from published figures (`ATTACKS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np

from parley.engine.core.stats.pairs import ItemFigures, ItemMetrics, RowFigures, RowMetric, key_of
from parley.engine.core.stats.rows import Columns
from parley.engine.core.stats.statistics import (
    FOR_ADVERSARY,
    LOWER_FOR_ADVERSARY,
    NEITHER,
    Estimate,
    Metric,
    Points,
    Row,
    finished,
    mean,
)
from parley.engine.core.tables.table import read_published
from parley.engine.negotiation.metrics.dialogues import METRICS, OUTCOMES, PERPLEXITIES, ROW_METRICS, negotiation_metrics

_COLUMNS = {"adversary": "forced_score_adversary", "target": "forced_score_target", "par_strict_agreed": "par_strict_agreed"}
ATTACKS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    table: {
        attack: {_COLUMNS.get(name, f"forced_{name}"): value for name, value in figures.items()}
        for attack, figures in attacks.items()
    }
    for table, attacks in read_published("parley.engine.negotiation.metrics", "cheng2019.csv").items()
}
"""Attacks in Cheng et al. 2019, by what was attacked and the attack: tables 2 (supervised or RL agent), 6 (after adversarial
training) and 7 (fixed turns, against the RL agent).

Their 2,000 random scenarios are not known, their rows carry no interval, and white-box rows follow the forced protocol. Section
7.3 gives 4.98 for the reactive attack on the RL agent, table 2 4.95. Without an attack the RL agent speaks, both sides choose,
and rates count wins among deals.
"""


Attempt = Mapping[str, Any]
"""One entry of the column `attempts`."""

REACTIVE = "reactive"
"""The kind of an attempt that wants the target to end the dialogue right after it."""
UNUSUAL_PROBABILITY = 1e-4
"""A token that the judge finds less likely than this makes its sentence unusual."""

_OUTCOMES = ("advantage", "par_strict", "par", "agreement", "score_adversary", "score_target")
_FORCED = {
    f"forced_{name}": METRICS[name]._replace(
        title=f"{METRICS[name].title}, end forced",
        definition="like the live figure, but with <selection> forced on the target where the end constraint holds",
    )
    for name in _OUTCOMES
}

ATTACK_METRICS: dict[str, Metric] = {
    **METRICS,
    **_FORCED,
    "attacked": Metric("attacked", NEITHER, "share of all dialogues with an attack sentence", "share", main=True),
    "accepted": Metric(
        "search succeeded", FOR_ADVERSARY, "share of all dialogues in which a search reached its goal", "share", main=True
    ),
    "ended_share": Metric(
        "target ended",
        FOR_ADVERSARY,
        "share of successful reactive attempts that the target answered with <selection>",
        "share",
        main=True,
    ),
    "end_probability": Metric(
        "probability of the end",
        FOR_ADVERSARY,
        "target's probability of answering <selection>, mean over the same attempts",
        "share",
    ),
    "attack_ppl": Metric(
        "attack sentence's perplexity", LOWER_FOR_ADVERSARY, "exp of nll per token over attempts", "perplexity", main=True
    ),
    "base_ppl": Metric(
        "unchanged sentence's perplexity",
        NEITHER,
        "the same for what the speaker would have said instead",
        "perplexity",
        main=True,
    ),
    "unusual_share": Metric(
        "unusual sentences",
        LOWER_FOR_ADVERSARY,
        f"share of judged attempts with a special token or one less likely than {UNUSUAL_PROBABILITY:g}",
        "share",
        main=True,
    ),
    "replaced_words": Metric(
        "replaced words", LOWER_FOR_ADVERSARY, "words that differ from the unchanged sentence, mean over attempts", main=True
    ),
    "reads": Metric(
        "sentences read", LOWER_FOR_ADVERSARY, "candidates that the target's reader scored, mean over all dialogues"
    ),
    "decisions": Metric(
        "decisions asked for", LOWER_FOR_ADVERSARY, "candidates that the target decided upon, mean over all dialogues"
    ),
    "seconds": Metric("seconds", LOWER_FOR_ADVERSARY, "of one worker, per dialogue"),
}
"""Every metric of an attack in the order of the result table: live ones, forced ones, then those of the searches."""

UNCHANGED: dict[str, Metric] = {
    "untouched_advantage": METRICS["advantage"]._replace(
        title="advantage, end forced, unchanged sentence",
        definition="advantage of the target's choice after the speaker's own sentence, mean over attempts: the control",
        main=True,
    )
}
"""Control of an attack whose sentences always count: the same sentences without the searched words."""

Step = Mapping[str, Any]
"""One entry of the column `steps` of an attempt."""

_COSTS: Mapping[str, Callable[[Step], int]] = {
    "replaced": lambda step: step["replaced"],
    # A black box answers both by queries: whether a sentence ends the talk, and the target's choice then.
    "queries": lambda step: step["reads"] + step["decisions"],
}
"""Cost of a search up to one of its steps, by the name of the budget."""


def attack_metrics(rows: Sequence[Row], seconds: Estimate) -> dict[str, Estimate]:
    """Return all of `ATTACK_METRICS` from the rows of one attack.

    Args:
        rows: rows of `parley.engine.negotiation.verbs.match.ATTACKS`; those with status "error" are left out with a warning.
        seconds: worker seconds per dialogue, which rows do not hold because they are the same for any number of workers.

    Returns:
        One estimate per name in `ATTACK_METRICS`, in its order; the value is NaN if nothing qualifies (no attempt, no
        judge).
    """
    live = negotiation_metrics(rows)
    dialogues = finished(rows)
    attempts = RowFigures(_ATTEMPT_METRICS, _attempts(dialogues), key_of).estimates()
    own = RowFigures(_ROW_METRICS, dialogues).estimates()
    estimates = {**live, **own, **attempts, "seconds": seconds}
    return {name: estimates[name] for name in ATTACK_METRICS}


def _attempts(dialogues: Iterable[Row]) -> Iterator[Row]:
    return ({**attempt, "item_key": row["item_key"]} for row in dialogues for attempt in row["attempts"])


def _is_reached(attempt: Row) -> bool:
    return bool(attempt["accepted"] and attempt["kind"] == REACTIVE)


_ATTEMPT_METRICS: Mapping[str, RowMetric] = {
    "ended_share": RowMetric(itemgetter("ended"), "share", among=_is_reached),
    "end_probability": RowMetric(itemgetter("end_probability"), "share", among=_is_reached),
    **{
        name: RowMetric(
            itemgetter(f"nll{suffix}"),
            "perplexity",
            itemgetter(f"num_words{suffix}"),
            lambda attempt, suffix=suffix: attempt[f"nll{suffix}"] is not None,  # type: ignore[misc]  # a bound default
        )
        for name, suffix in (("attack_ppl", ""), ("base_ppl", "_base"))
    },
    "unusual_share": RowMetric(
        lambda attempt: _is_unusual(attempt), "share", among=lambda attempt: attempt["lowest_probability"] is not None
    ),
    "replaced_words": RowMetric(lambda attempt: len(attempt["replaced"]), "count"),
}
"""Metrics of attacks by what each attempt adds to them; those of one dialogue belong together."""


_ROW_METRICS: Mapping[str, RowMetric] = {
    **{
        f"forced_{name}": replace(OUTCOMES[name], top=lambda row, top=OUTCOMES[name].top: top(_with_forced_end(row)))  # type: ignore[misc]  # a bound default
        for name in _OUTCOMES
    },
    "attacked": RowMetric(lambda row: bool(row["attempts"]), "share"),
    "accepted": RowMetric(lambda row: any(attempt["accepted"] for attempt in row["attempts"]), "share"),
    "replaced_words": RowMetric(
        lambda row: sum(len(attempt["replaced"]) for attempt in row["attempts"]),
        "count",
        bottom=lambda row: len(row["attempts"]),
        among=lambda row: bool(row["attempts"]),
    ),
    **{name: RowMetric(itemgetter(name), "count") for name in ("reads", "decisions")},
}
"""Metrics of attacks by what each dialogue adds to them."""


def dialogue_figures(rows: Sequence[Row], config: Mapping[str, Any]) -> dict[str, ItemFigures]:
    """Return the figures of single dialogues, those of attacks if the rows have attempts."""
    metrics = {**ROW_METRICS, **PERPLEXITIES, **(_ROW_METRICS if "attempts" in rows[0] else {})}
    figures = RowFigures(metrics, rows)
    return {name: figures[name] for name in ATTACK_METRICS if name in metrics and len(figures[name].rows)}


DIALOGUE_ITEMS = ItemMetrics(
    "dialogues", dialogue_figures, ATTACK_METRICS.__getitem__, content=itemgetter("counts", "values_adversary", "values_target")
)
"""Figures of single dialogues, of matches and of attacks alike."""


def unchanged_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Return `UNCHANGED` from the rows of one attack, over its attempts."""
    gain = RowMetric(lambda attempt: _gain(attempt["steps"][0]), "mean", among=lambda attempt: bool(attempt["steps"]))
    return RowFigures({"untouched_advantage": gain}, _attempts(finished(rows)), key_of).estimates()


def budget_curves(rows: Sequence[Row]) -> dict[str, Points]:
    """Return the forced advantage of reactive searches within a budget, averaged over their dialogues.

    A search within a budget is the recorded search, stopped before the first step that exceeds the budget. A sentence that
    does not satisfy the end constraint earns 0:0, even if the search reached its goal. The recorded steps are complete
    replacements, so results in the middle of one do not count. Attacks that say only successful sentences record only such
    searches.

    Args:
        rows: rows of `parley.engine.negotiation.verbs.match.ATTACKS`; the first reactive attempt of each dialogue counts.

    Returns:
        Advantage by budget: under "replaced" for 0, 1, ... words, under "queries" for 1, 2, 4, ... answers of the target
        (whether a sentence ends the talk, and the choice then); gradients do not count. n is the number of dialogues with
        a reactive attempt. Without any, both are empty.
    """
    columns = Columns()
    for row in finished(rows):
        attempt = next((attempt for attempt in row["attempts"] if attempt["kind"] == REACTIVE), None)
        if attempt is not None:
            first, *rest = attempt["steps"]
            columns.add("size", "q", (1 + len(rest),))
            columns.add("gain", "d", map(_gain, (first, *rest)))
            for name, cost in _COSTS.items():
                # The unchanged sentence costs nothing. The first step that exceeds a budget ends the search.
                columns.add(name, "q", (0, *accumulate(map(cost, rest), max)))
    sizes, gains = columns.get("size", "q"), columns.get("gain")
    if not len(sizes):
        return {name: [] for name in _COSTS}
    starts = np.cumsum(sizes) - sizes
    curves: dict[str, Points] = {}
    for name in _COSTS:
        costs = columns.get(name, "q")
        most = int(costs.max())
        limits = [2**power for power in range(max(0, most - 1).bit_length() + 1)] if name == "queries" else range(most + 1)
        lasts = ((limit, starts + np.add.reduceat(costs <= limit, starts, dtype=np.int64) - 1) for limit in limits)
        curves[name] = [(limit, mean(gains[last])) for limit, last in lasts]
    return curves


def _gain(step: Step) -> int:
    return int(step["points_adversary"] - step["points_target"]) if step["feasible"] else 0


def _is_unusual(attempt: Attempt) -> bool:
    # Negated, so that a likelihood of NaN counts as unusual.
    return attempt["special"] > 0 or not attempt["lowest_probability"] >= UNUSUAL_PROBABILITY


def _with_forced_end(row: Row) -> Row:
    return {name: row[f"forced_{name}"] for name in ("points_adversary", "points_target", "agreed")}
