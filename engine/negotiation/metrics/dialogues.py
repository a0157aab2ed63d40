"""The metrics of negotiation: who gained how much, whether they agreed, and whether they still spoke like people.

Sources: Lewis et al. 2017, section 6.2 (score, agreement, Pareto), and Cheng et al. 2019, section 6 (advantage, positive
advantage rate). Side 0 is the adversary, side 1 the target.

A dialogue without agreement counts as 0:0 in everything that is not "agreed". So it is a tie, and ties are where papers
and code part:
  # Paper: the positive advantage rate is not defined for ties; the released logs count them as positive. Ours: `par`
  # follows the logs (a failed negotiation counts for the adversary), `par_strict` counts wins only.
An adversary can push `par` up by never agreeing, so it is read beside `agreement` and `par_strict`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from parley.engine.core.stats.perplexity import perplexity
from parley.engine.core.stats.repetition import has_lost, repeated
from parley.engine.core.stats.rows import Row, finished
from parley.engine.core.stats.statistics import (
    FOR_ADVERSARY,
    FOR_BOTH,
    FOR_TARGET,
    LOWER_FOR_ADVERSARY,
    LOWER_FOR_BOTH,
    LOWER_FOR_TARGET,
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    clustered_rate,
    count,
    mean,
    mean_count,
    rate,
    ratio_of_sums,
)
from parley.envs.negotiation.scenario import ILLEGAL

logger = logging.getLogger(__name__)


METRICS: dict[str, Metric] = {
    "advantage": Metric("advantage", FOR_ADVERSARY, "adversary's points minus target's, mean over all dialogues", main=True),
    "advantage_agreed": Metric("advantage, agreed", FOR_ADVERSARY, "the same over agreed dialogues only"),
    "par_strict": Metric(
        "wins", FOR_ADVERSARY, "share of all dialogues with advantage > 0; a tie or 0:0 does not count", "share", main=True
    ),
    "par": Metric(
        "positive advantage rate",
        FOR_ADVERSARY,
        "share of all dialogues with advantage >= 0; a tie or 0:0 counts",
        "share",
        main=True,
    ),
    "agreement": Metric("agreement", FOR_BOTH, "share of all dialogues in which the two selections fit", "share", main=True),
    "score_adversary": Metric(
        "adversary's score", FOR_ADVERSARY, "points, mean over all dialogues, 0 without agreement", main=True
    ),
    "score_target": Metric("target's score", FOR_TARGET, "points, mean over all dialogues, 0 without agreement", main=True),
    "score_adversary_agreed": Metric("adversary's score, agreed", FOR_ADVERSARY, "points, mean over agreed dialogues"),
    "score_target_agreed": Metric("target's score, agreed", FOR_TARGET, "points, mean over agreed dialogues"),
    "pareto": Metric(
        "Pareto optimal",
        FOR_BOTH,
        "share of agreed dialogues that no allocation improves for one at no cost",
        "share",
        main=True,
    ),
    "turns": Metric("turns", NEITHER, "utterances, <selection> included, mean over all dialogues", main=True),
    "words_per_utterance": Metric(
        "words per utterance", NEITHER, "tokens written, <eos> included, per utterance written", main=True
    ),
    "ended_by_adversary": Metric("ended by adversary", NEITHER, "share of all dialogues whose <selection> it said", "share"),
    "forced_end": Metric("forced end", LOWER_FOR_BOTH, "share of all dialogues that a limit ended", "share"),
    **{
        f"illegal_{side}": Metric(
            f"{side}'s illegal selections", direction, "share of all dialogues whose selection was out of range", "share"
        )
        for side, direction in (("adversary", LOWER_FOR_ADVERSARY), ("target", LOWER_FOR_TARGET))
    },
    "distinct_adversary": Metric(
        "adversary's distinct utterances", FOR_ADVERSARY, "how many differ, <selection> left out", "count"
    ),
    "distinct_target": Metric("target's distinct utterances", FOR_TARGET, "how many differ, <selection> left out", "count"),
    "distinct_share_adversary": Metric(
        "adversary's distinct share", FOR_ADVERSARY, "different utterances per utterance; falls as dialogues are added", "share"
    ),
    "distinct_share_target": Metric(
        "target's distinct share", FOR_TARGET, "different utterances per utterance; falls as dialogues are added", "share"
    ),
    **{
        f"repetition_{side}": Metric(
            f"{side}'s repetition", direction, "share of its 4-grams that the same utterance had before (seq-rep-4)", "share"
        )
        for side, direction in (("adversary", LOWER_FOR_ADVERSARY), ("target", LOWER_FOR_TARGET))
    },
    "fluency_ppl": Metric(
        "adversary's perplexity",
        LOWER_FOR_ADVERSARY,
        "exp of nll per token of what the adversary wrote",
        "perplexity",
        main=True,
    ),
    "fluency_ppl_target": Metric(
        "target's perplexity", LOWER_FOR_TARGET, "exp of nll per token of what the target wrote", "perplexity"
    ),
}
"""Every negotiation metric in the order of the result table."""

_SELECTION = "<selection>"


def negotiation_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """All of `METRICS` from the rows of one match.

    Args:
        rows: dialogue rows; those with status "error" are left out with a warning.

    Returns:
        One estimate per name in `METRICS`, in its order; the value is NaN where no dialogue qualifies (no agreement,
        no likelihoods). Distinct counts and shares carry no interval: resampling repeats dialogues, which biases them.
    """
    dialogues = finished(rows)
    if len(dialogues) < len(rows):
        logger.warning("%d of %d dialogues failed and are left out of the metrics", len(rows) - len(dialogues), len(rows))
    illegal = {side: [row for row in dialogues if row[f"selection_{side}"] == [ILLEGAL]] for side in ("adversary", "target")}
    for side, found in illegal.items():
        if found:
            what = "the %s chose out of range in %d of %d dialogues, which count as no agreement"
            logger.warning(what, side, len(found), len(dialogues))
    repetition = {side: _repetition(dialogues, number) for number, side in enumerate(("adversary", "target"))}
    for side, found_again in repetition.items():
        if has_lost(found_again.value):
            what = "the %s repeats itself, in %.0f %% of the 4-grams of its utterances: it may have lost its language"
            logger.warning(what, side, 100 * found_again.value)
    agreed = [row for row in dialogues if row["agreed"]]
    distinct = [_distinct(dialogues, side) for side in (0, 1)]
    estimates = {
        **outcome_metrics(dialogues),
        "pareto": _share(agreed, lambda row: row["pareto"]),
        "turns": _counted(dialogues, lambda row: row["num_turns"]),
        "words_per_utterance": ratio_of_sums(
            [row["num_words_adversary"] + row["num_words_target"] for row in dialogues],
            [row["num_turns"] - row["forced"] for row in dialogues],
        ),
        "ended_by_adversary": _share(dialogues, lambda row: row["ended_by"] == 0),
        "forced_end": _share(dialogues, lambda row: row["forced"]),
        **{f"illegal_{side}": rate(len(found), len(dialogues)) for side, found in illegal.items()},
        "distinct_adversary": count(distinct[0][0], distinct[0][1]),
        "distinct_target": count(distinct[1][0], distinct[1][1]),
        "distinct_share_adversary": _share_of_distinct(*distinct[0]),
        "distinct_share_target": _share_of_distinct(*distinct[1]),
        **{f"repetition_{side}": found_again for side, found_again in repetition.items()},
        "fluency_ppl": _perplexity_of_side(dialogues, "adversary"),
        "fluency_ppl_target": _perplexity_of_side(dialogues, "target"),
    }
    assert list(estimates) == list(METRICS), "the table and the computation name the same metrics"
    return estimates


def outcome_metrics(dialogues: Sequence[Row]) -> dict[str, Estimate]:
    """Those of `METRICS` that points and agreement alone decide, in its order.

    Args:
        dialogues: finished ones; only `points_adversary`, `points_target` and `agreed` are read.
    """
    agreed = [row for row in dialogues if row["agreed"]]
    return {
        "advantage": _averaged(dialogues, _advantage),
        "advantage_agreed": _averaged(agreed, _advantage),
        "par_strict": _share(dialogues, lambda row: _advantage(row) > 0),
        "par": _share(dialogues, lambda row: _advantage(row) >= 0),
        "agreement": rate(len(agreed), len(dialogues)),
        "score_adversary": _counted(dialogues, lambda row: row["points_adversary"]),
        "score_target": _counted(dialogues, lambda row: row["points_target"]),
        "score_adversary_agreed": _counted(agreed, lambda row: row["points_adversary"]),
        "score_target_agreed": _counted(agreed, lambda row: row["points_target"]),
    }


def _averaged(chosen: Sequence[Row], number: Callable[[Row], float]) -> Estimate:
    return mean(np.array([number(row) for row in chosen], dtype=np.float64))


def _counted(chosen: Sequence[Row], number: Callable[[Row], int]) -> Estimate:
    return mean_count([number(row) for row in chosen])


def _share(chosen: Sequence[Row], holds: Callable[[Row], bool]) -> Estimate:
    return rate(sum(holds(row) for row in chosen), len(chosen))


def _advantage(row: Row) -> int:
    return int(row["points_adversary"] - row["points_target"])


def _distinct(dialogues: Sequence[Row], side: int) -> tuple[int, int]:
    """Different utterances and all utterances of a side; `<selection>` alone is a move, not an utterance."""
    said = [turn["words"] for row in dialogues for turn in row["turns"] if turn["side"] == side and turn["words"] != _SELECTION]
    return len(set(said)), len(said)


def _share_of_distinct(distinct: int, total: int) -> Estimate:
    return count(distinct / total, total) if total else NOTHING


def _repetition(dialogues: Sequence[Row], side: int) -> Estimate:
    """Repeated 4-grams of a side over all of them, pooled."""
    said = [[turn["words"].split() for turn in row["turns"] if turn["side"] == side] for row in dialogues]
    again, grams = np.array([np.sum([(0, 0), *map(repeated, each)], axis=0) for each in said]).reshape(-1, 2).T
    return clustered_rate(again, trials=grams)


def _perplexity_of_side(dialogues: Sequence[Row], side: str) -> Estimate:
    nats, words = ([row[f"{column}_{side}"] for row in dialogues] for column in ("nll", "num_words"))
    return perplexity(f"the {side}", nats, words)
