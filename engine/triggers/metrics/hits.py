"""The metrics of a trigger search: hit rates by type, how far the loss fell, and what it cost.

Source: He & Glass 2018 (arXiv 1809.04113), section 5 (tables 3 and 11) and appendix D (figures 3 and 4). A row is a target
with the restarts of its search (`parley.engine.triggers.verbs.rows.TRIGGERS`); hits of every type are read off one of its
inputs:
  # Paper: the restart of least loss. Ours: a restart that ended because it was a hit of the wanted type comes before others,
  # because the averages are hits at losses above 0, which another restart may undercut without being one.

Targets are the independent units; what is averaged over restarts is clustered by target.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parley.engine.core.stats.answers import NO_REPLY_METRICS, kinds_of_rows, no_reply_metrics
from parley.engine.core.stats.statistics import (
    FOR_ADVERSARY,
    LOWER_FOR_ADVERSARY,
    NEITHER,
    Estimate,
    Metric,
    Points,
    clustered_rate,
    count,
    mean,
    mean_count,
    rate,
)
from parley.envs.core.errors import RunError

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
"""One target, keyed by the columns of `parley.engine.triggers.verbs.rows.TRIGGERS`."""
Restart = Mapping[str, Any]
"""One entry of the column `restarts`."""

SATISFIED = "satisfied"
"""Why a restart ended that is a hit of the wanted type."""
T_OUT, T_IN = "T_out", "T_in"
"""The mean log probabilities of usual words: of replies under the model, of inputs under the language model."""
HIT_RATE = "hit_rate."
"""What the name of a hit rate begins with; the type of hit follows."""
PROJECTED = "projected-"
"""Begins the names of hits by the words that are nearest to a continuous input."""

COST_METRICS: dict[str, Metric] = {
    "loss": Metric("loss", LOWER_FOR_ADVERSARY, "objective at the input that is kept, mean over targets", main=True),
    "candidates_per_s": Metric("candidates per second", FOR_ADVERSARY, "of all workers, their start included", main=True),
    "targets": Metric("targets", NEITHER, "sentences that were searched for", "count", main=True),
    "skipped": Metric("skipped targets", NEITHER, "sentences of the list that the model cannot say", "count", main=True),
    "restarts": Metric("restarts", NEITHER, "searches from an input of their own, all targets together", "count"),
    "sweeps": Metric("sweeps", NEITHER, "passes over the input, mean over restarts"),
    "candidates": Metric("candidates", NEITHER, "inputs that were tried, all targets together", "count"),
}
"""What a search is described by, beside its hit rates."""
VERIFIED, SAMPLED, REFUSED = "verified", "sampled", "refused"
JUDGE_ANSWERS, JUDGE_UNPARSABLE, JUDGE_NO_REPLY = "judge_answers", "judge_unparsable", "judge_no_reply"
JUDGE_METRICS = {
    JUDGE_ANSWERS: Metric("judge's answers", NEITHER, "that the chat model which judges replies was asked for", "count"),
    JUDGE_UNPARSABLE: Metric("judge said neither", NEITHER, "replies of which it said neither yes nor no", "count"),
    JUDGE_NO_REPLY: Metric("judge's answers without a reply", NEITHER, "to replies of which it gave no verdict then", "count"),
}
TYPED_METRICS: dict[str, Metric] = {
    VERIFIED: Metric(
        "verified",
        FOR_ADVERSARY,
        "share of all targets to whose typed input the likeliest reply is a success",
        "share",
        main=True,
    ),
    SAMPLED: Metric("verified, drawn", FOR_ADVERSARY, "the same of drawn answers, mean over targets", "share", main=True),
    REFUSED: Metric("refused candidates", NEITHER, "of those tried, inputs that the rules for them refused", "count"),
    **NO_REPLY_METRICS,
    **JUDGE_METRICS,
}
"""What the searches of models are described by that read typed text."""
DRAWN_NOTE = " Drawn: share of drawn answers that are successes."


def describe(name: str) -> Metric:
    """What a metric of a search is called and how to read it; hit rates have one name for each type of hit."""
    if name.startswith(HIT_RATE):
        kind = name.removeprefix(HIT_RATE)
        return Metric(f"hits, {kind}", FOR_ADVERSARY, f"share of all targets that are {kind} hits", "share", main=True)
    return COST_METRICS.get(name) or TYPED_METRICS[name]


def judge_counts(entries: Sequence[Row], num: int) -> dict[str, Estimate]:
    """What a judge of replies took, over `num` rows."""
    return {name: count(sum(entry[name] for entry in entries), num) for name in JUDGE_METRICS}


def unread_note(*groups: Mapping[str, Estimate]) -> str:
    """Of how many replies a judge's answers could not be read, in a table's note; nothing where all could.

    Args:
        groups: metrics, whose names end in those of `JUDGE_METRICS`.
    """
    num, lost = (sum(_judged(metrics, name) for metrics in groups) for name in (JUDGE_UNPARSABLE, JUDGE_NO_REPLY))
    odd = f" Of {num:,.0f} replies the judge gave no verdict that can be read, though asked twice." if num else ""
    return odd + (f" {lost:,.0f} answers of the judge are no reply, and judge nothing." if lost else "")


def unread_failure(metrics: Mapping[str, Estimate]) -> str:
    """Why rates mean nothing: that no answer of a judge could be read; empty where some could, or nobody was asked."""
    answers, num, lost = (_judged(metrics, name) for name in JUDGE_METRICS)
    # Two answers are asked for where the first cannot be read.
    if not 0 < answers <= 2 * num + lost:
        return ""
    no_reply = f"; {lost:,.0f} of its answers are no reply" if lost else ""
    return f"no verdict of the judge of replies can be read, of {num:,.0f} replies{no_reply}"


def _judged(metrics: Mapping[str, Estimate], name: str) -> float:
    return sum(estimate.value for each, estimate in metrics.items() if each.endswith(name) and estimate.n)


def choose_restart(restarts: Iterable[Restart]) -> Restart:
    """The restart whose input is kept: one that is a hit as wanted, else that of least loss; ties to the first."""
    return min(restarts, key=lambda restart: (restart["stopped"] != SATISFIED, restart["loss"], restart["restart"]))


def is_hit(entry: Row | Restart, kind: str) -> bool:
    """Return whether a row, or a restart, is a hit of a type.

    Raises:
        RunError: the search did not read its inputs for this type, as where its configuration was changed by hand.
    """
    hit = next((bool(result["hit"]) for result in entry["hits"] if result["type"] == kind), None)
    if hit is None:
        known = ", ".join(str(result["type"]) for result in entry["hits"])
        what, fix = "the rows do not say whether an input is a hit of this type", f"name one that they know as hit: {known}"
        raise RunError(what, where="hit", got=kind, fix=fix)
    return hit


def kinds(rows: Sequence[Row]) -> list[str]:
    """The types of hit that were read; the same for every row of a run."""
    return [str(found["type"]) for row in rows[:1] for found in row["hits"]]


def search_metrics(rows: Iterable[Row], candidates_per_s: Estimate, num_skipped: int) -> dict[str, Estimate]:
    """Hit rates (Wilson intervals) by "hit_rate.TYPE", then all of `COST_METRICS`.

    Rows are looked at once, one after the other, and not kept: of a million of them only numbers stay.

    Args:
        rows: rows of one search; those with status "error" are left out with a warning.
        candidates_per_s: which rows do not hold, because they are the same for any number of workers.
        num_skipped: sentences that were left out of the list.
    """
    num_rows = candidates = refused = 0
    verified: list[bool] = []
    drawn: list[tuple[int, int]] = []
    judged: Counter[str] = Counter()
    kinds: list[Counter[str]] = []
    hits: Counter[str] = Counter()
    losses: list[float] = []
    sweeps: list[int] = []
    clusters: list[str] = []
    for row in rows:
        num_rows += 1
        if row["status"] != "ok":
            continue
        losses.append(row["loss"])
        # Types without a hit are metrics too.
        hits.update({str(found["type"]): int(found["hit"]) for found in row["hits"]})
        for restart in row["restarts"]:
            sweeps.append(restart["sweeps"])
            clusters.append(str(row["item_key"]))
            candidates += int(restart["candidates"])
            refused += int(restart.get("refused") or 0)
        # Rows of older runs have no such columns.
        if row.get("verified") is not None:
            verified.append(bool(row["verified"]))
            judged.update({name: int(row.get(name) or 0) for name in JUDGE_METRICS})
            kinds += kinds_of_rows([row])
            if row["samples"]:
                drawn.append((row["sampled"], row["samples"]))
    num_targets = len(losses)
    if num_targets < num_rows:
        logger.warning("%d of %d targets failed and are left out of the metrics", num_rows - num_targets, num_rows)
    costs = {
        "loss": mean(losses),
        "candidates_per_s": candidates_per_s,
        "targets": count(num_targets, num_targets),
        "skipped": count(num_skipped, num_targets + num_skipped),
        "restarts": count(len(sweeps), num_targets),
        "sweeps": mean_count(sweeps, clusters),
        "candidates": count(candidates, num_targets),
    }
    assert list(costs) == list(COST_METRICS), "the table and the computation name the same metrics"
    claimed = {f"{HIT_RATE}{kind}": rate(number, num_targets) for kind, number in hits.items()}
    typed: dict[str, Estimate] = {}
    if verified:
        typed = {VERIFIED: rate(sum(verified), len(verified)), REFUSED: count(refused, num_targets)}
        typed |= no_reply_metrics(kinds, [1] * len(kinds))
        if drawn:
            successes, samples = zip(*drawn, strict=True)
            typed[SAMPLED] = clustered_rate(successes, trials=samples)
        if judged[JUDGE_ANSWERS]:
            typed |= {name: count(judged[name], num_targets) for name in JUDGE_METRICS}
    return {**claimed, **typed, **costs}


def hits_by_restarts(rows: Sequence[Row], kind: str) -> Points:
    """Hit rates of the same search with fewer restarts (figure 3): each target keeps the best of its first 1, 2, ... ones.

    A search that stops at its first hit has no restarts after it, and needs none.

    Args:
        rows: finished rows of one search.
        kind: a type of hit that was read.
    """
    most = max((len(row["restarts"]) for row in rows), default=0)
    return [
        (number, rate(sum(is_hit(choose_restart(row["restarts"][:number]), kind) for row in rows), len(rows)))
        for number in range(1, most + 1)
    ]


def loss_by_sweep(rows: Sequence[Row]) -> Points:
    """The mean loss over restarts after 0, 1, 2, ... sweeps (figure 4), clustered by target.

    A restart that has ended keeps its last loss, so that every point is over the same restarts.

    Args:
        rows: finished rows of one search.
    """
    paths = [(str(row["item_key"]), restart["loss_by_sweep"]) for row in rows for restart in row["restarts"]]
    clusters = [key for key, _ in paths]
    most = max((len(losses) for _, losses in paths), default=0)
    return [(sweep, mean([losses[min(sweep, len(losses) - 1)] for _, losses in paths], clusters)) for sweep in range(most)]
