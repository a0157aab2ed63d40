"""The metrics of negotiation: points, agreement and language; of defences, of chat models, and of an attacker's tactics.

Sources: Lewis et al. 2017, section 6.2 (score, agreement, Pareto), and Cheng et al. 2019, section 6 (advantage, positive
advantage rate). Side 0 is the adversary, side 1 the target.

A dialogue without agreement counts as 0:0 in everything that is not "agreed". So it is a tie; papers and code differ in ties:
  # Paper: the positive advantage rate is not defined for ties; the released logs count them as positive. Ours: `par`
  # follows the logs (a failed negotiation counts for the adversary), `par_strict` counts wins only.
An adversary can push `par` up by never agreeing, so it is read beside `agreement` and `par_strict`.

Chat models: a choice that stays illegal after the repair is a selection out of range, which counts for every agent.

Tactics: each attacker's best tactic is measured in held-out dialogues, beside the player without any. A tactic is chosen by its
gain in the development dialogues, which is therefore too high. All tactics play the same dialogues, so differences are paired.
Intervals are over dialogues; they do not cover the tactics of another run. Costs count each attacker as if it were alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

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
    Points,
    Row,
    clustered_rate,
    count,
    finished,
    has_lost,
    mean,
    mean_count,
    paired_difference,
    perplexity,
    rate,
    ratio_of_sums,
    repeated,
)
from parley.engine.core.tables.table import ABSENT, BETWEEN, EstimateTable, few_note, figure, num_measured, number
from parley.engine.negotiation.attacks.tactics import ARMS, ATTACKERS, NONE, WrittenTactic
from parley.envs.negotiation.domain import ILLEGAL
from parley.policies.chat.model import NO_REPLIES
from parley.policies.chat.rating import NO_REPLY

DEFENCE_METRICS: dict[str, Metric] = {
    "stopped_share": Metric(
        "stopped by the filter", NEITHER, "share of the adversary's sentences that the filter stopped", "share", main=True
    ),
    "refused_share": Metric(
        "refused to end",
        FOR_TARGET,
        "share of all dialogues in which the target would have ended below its own last demand",
        "share",
        main=True,
    ),
    "kept_out": Metric(
        "candidates left out", NEITHER, "candidates that the search left out as too perplexing, mean over all dialogues"
    ),
}
"""Metrics of matches and attacks with a defence, or with an attack that minds one; each only where it has a figure."""

_SELECTION = "<selection>"


def defence_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Return the metrics of `DEFENCE_METRICS` that the rows of one match hold.

    Args:
        rows: rows of `parley.engine.negotiation.verbs.match.DIALOGUES`; those with status "error" are left out.
    """
    dialogues = finished(rows)
    metrics = {}
    if heard := [row for row in dialogues if row.get("stopped") is not None]:
        stopped, num_sentences = [len(row["stopped"]) for row in heard], [_num_sentences(row) for row in heard]
        metrics["stopped_share"] = clustered_rate(stopped, trials=num_sentences)
    if ended := [row for row in dialogues if row.get("refused") is not None]:
        metrics["refused_share"] = rate(sum(bool(row["refused"]) for row in ended), len(ended))
    if searched := [row["kept_out"] for row in dialogues if row.get("kept_out") is not None]:
        metrics["kept_out"] = mean_count(searched)
    return metrics


def _num_sentences(row: Row) -> int:
    return sum(turn["side"] == 0 and turn["words"] != _SELECTION for turn in row["turns"])


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
    """Return `CHAT_METRICS` of the sides with a chat model; none if no dialogue has one.

    Args:
        rows: dialogue rows; of those with status "error" nothing counts but answers that are no reply.
    """
    metrics: dict[str, Estimate] = {}
    for index, side in enumerate(SIDES):
        answering = [row[f"chat_{side}"] for row in rows if row.get(f"chat_{side}")]
        if answering:
            lost = [sum(moves.get(kind.column) or 0 for kind in NO_REPLIES) for moves in answering]
            metrics[f"chat_no_reply_{side}"] = clustered_rate(lost, trials=[moves["answers"] for moves in answering])
        dialogues = [row for row in finished(rows) if row.get(f"chat_{side}")]
        if not dialogues:
            continue
        moves = [row[f"chat_{side}"] for row in dialogues]
        # An end that a limit forces is said by nobody.
        num_utterances = [
            sum(turn["side"] == index for turn in row["turns"])
            - (row["forced"] and bool(row["turns"]) and row["turns"][-1]["side"] == index)
            for row in dialogues
        ]
        for name in _ASKED:
            counts = np.array([one[name] for one in moves], dtype=np.float64)
            # Models that do not say how many tokens there were have none of this.
            metrics[f"chat_{name}_{side}"] = mean_count(counts) if counts.any() else NOTHING
        for name in _BROKEN:
            metrics[f"chat_{name}_{side}"] = clustered_rate([one[name] for one in moves], trials=num_utterances)
        metrics[f"chat_repairs_{side}"] = rate(sum(one["repairs"] > 0 for one in moves), len(moves))
    return {name: metrics[name] for name in CHAT_METRICS if name in metrics}


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


def negotiation_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Return all of `METRICS` from the rows of one match.

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
    for side, illegal_rows in illegal.items():
        if illegal_rows:
            what = "the %s chose out of range in %d of %d dialogues, which count as no agreement"
            logger.warning(what, side, len(illegal_rows), len(dialogues))
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
        **{f"illegal_{side}": rate(len(illegal_rows), len(dialogues)) for side, illegal_rows in illegal.items()},
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
    """Return the metrics of `METRICS` that points and agreement alone decide, in its order.

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
    utterances = [
        turn["words"] for row in dialogues for turn in row["turns"] if turn["side"] == side and turn["words"] != _SELECTION
    ]
    return len(set(utterances)), len(utterances)


def _share_of_distinct(distinct: int, total: int) -> Estimate:
    return count(distinct / total, total) if total else NOTHING


def _repetition(dialogues: Sequence[Row], side: int) -> Estimate:
    """Repeated 4-grams of a side over all of them, pooled."""
    utterances = [[turn["words"].split() for turn in row["turns"] if turn["side"] == side] for row in dialogues]
    again, grams = np.array([np.sum([(0, 0), *map(repeated, dialogue)], axis=0) for dialogue in utterances]).reshape(-1, 2).T
    return clustered_rate(again, trials=grams)


def _perplexity_of_side(dialogues: Sequence[Row], side: str) -> Estimate:
    nats, words = ([row[f"{column}_{side}"] for row in dialogues] for column in ("nll", "num_words"))
    return perplexity(f"the {side}", nats, words)


_COUNTS = {
    "tactics": Metric("tactics", NEITHER, "different ones that the attacker wrote and that were tried", "count"),
    "unusable": Metric("answers without a tactic", LOWER_FOR_ADVERSARY, "refusals, empty or too long, once repaired", "count"),
    "no_reply": Metric("answers without a reply", LOWER_FOR_ADVERSARY, "of those: cut in thinking, filtered, ...", "count"),
    "dialogues": Metric("dialogues played", LOWER_FOR_ADVERSARY, "with the target to choose the tactic", "count", main=True),
    "calls": Metric("model calls", LOWER_FOR_ADVERSARY, "of the attacker, and of chat models in those dialogues", "count"),
    "tokens_in": Metric("tokens read", LOWER_FOR_ADVERSARY, "by these calls, as far as the models say", "count"),
    "tokens_out": Metric("tokens written", LOWER_FOR_ADVERSARY, "by these calls, as far as the models say", "count"),
}
COSTS = tuple(_COUNTS)
"""What it took to find a tactic."""
OWN_METRICS: dict[str, Metric] = {
    "development": Metric("advantage, development", FOR_ADVERSARY, "in the dialogues that chose the tactic, so too high"),
    **{
        f"over_{arm}": Metric(f"more than: {title}", FOR_ADVERSARY, "advantage less that of it, mean over held-out dialogues")
        for arm, title in ARMS.items()
    },
    **{
        f"broken_{side}": Metric(
            f"{side}'s illegal moves",
            lower,
            "wordless, cut and mixed utterances, repairs and illegal selections, mean over all dialogues",
        )
        for side, lower in zip(SIDES, (LOWER_FOR_ADVERSARY, LOWER_FOR_TARGET), strict=True)
    },
    **_COUNTS,
}
"""What is measured of an attacker's best tactic beside the metrics of negotiation."""
TACTIC_METRICS = METRICS | CHAT_METRICS | DEFENCE_METRICS | OWN_METRICS
LEGEND = {f"{arm}.{name}": metric for arm in ARMS for name, metric in TACTIC_METRICS.items()}
"""Metrics of a run by "ARM.METRIC"."""
_MOVES = ("wordless", "cut", "mixed_ends", "repairs")
_NOTE = (
    "Advantage: the player's points less the target's. Held out: dialogues that chose no tactic; development: those that "
    "chose it. More than no tactic: over the same held-out dialogues. Illegal moves a dialogue, player : target: wordless, cut "
    "and mixed utterances, repairs, illegal selections. Dialogues, calls and tokens: what it took to find the tactic, each "
    "attacker as if it were alone. Without: answers in which no tactic could be read. Brackets: 95 % intervals over "
    "dialogues; another run of an attacker writes other tactics."
)


@dataclass(frozen=True)
class TacticsPlayed:
    """The dialogues of a run, and the answers of its attackers.

    Args:
        rows: of the run (`parley.engine.negotiation.verbs.tactic.TACTICS`).
        written: what attackers wrote, in the order of rounds.
        chosen: by arm, the number of the tactic that was measured on held-out dialogues.
    """

    rows: Sequence[Row]
    written: Sequence[WrittenTactic]
    chosen: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tried(self) -> dict[int, list[Row]]:
        """Return the finished development dialogues by the number of their tactic; 0 has none."""
        by_tactic: dict[int, list[Row]] = {}
        for row in finished(self.rows):
            if not row["held_out"]:
                by_tactic.setdefault(row["tactic_number"], []).append(row)
        return by_tactic

    def gain(self, number: int) -> Estimate:
        """Return the gain of a tactic in development; NaN if no dialogue finished."""
        rows = self.tried.get(number, [])
        return mean([_advantage(row) for row in rows]) if rows else NOTHING

    def numbers(self, arm: str, rounds: int | None = None) -> list[int]:
        """Return the distinct tactics of an attacker in order of writing, of its first rounds alone if given."""
        answers = (
            answer
            for answer in self.written
            if answer.arm == arm and answer.number and (rounds is None or answer.round <= rounds)
        )
        return list(dict.fromkeys(answer.number for answer in answers))

    def best(self, arm: str, rounds: int | None = None) -> int:
        """Return the tactic of an attacker with the largest gain in development, the earliest of ties; 0 without any."""
        gains = {number: self.gain(number).value for number in self.numbers(arm, rounds)}
        measured = {number: gain for number, gain in gains.items() if not math.isnan(gain)}
        return max(measured, key=lambda number: measured[number], default=0)

    def held_out(self, arm: str) -> list[Row]:
        """Return the held-out dialogues of the tactic that was chosen for an arm."""
        return [row for row in self.rows if row["held_out"] and row["tactic_number"] == self.chosen.get(arm)]

    def metrics(self, arm: str) -> dict[str, Estimate]:
        """Return the metrics of an arm with a chosen tactic, by their names in `TACTIC_METRICS`."""
        rows = self.held_out(arm)
        dialogues = finished(rows)
        metrics = negotiation_metrics(rows) | chat_metrics(rows) | defence_metrics(rows)
        metrics["development"] = self.gain(self.chosen[arm])
        for other in self.chosen:
            if other != arm and arm != NONE:
                metrics[f"over_{other}"] = self._difference(arm, other)
        for side in SIDES:
            broken = [_broken(row, side) for row in dialogues]
            metrics[f"broken_{side}"] = mean_count(broken) if broken else NOTHING
        return metrics | self._costs(arm)

    def curve(self, arm: str) -> Points:
        """Return the best tactic's gain in development by the dialogues so far; first without a tactic."""
        points = [(0, self.gain(0))]
        for last in sorted({answer.round for answer in self.written if answer.arm == arm}):
            best = self.best(arm, last)
            points.append((sum(len(self.tried.get(number, ())) for number in self.numbers(arm, last)), self.gain(best)))
        return [point for point in points if math.isfinite(point[1].value)]

    def _difference(self, arm: str, other: str) -> Estimate:
        first, second = ({row["dialogue"]: _advantage(row) for row in finished(self.held_out(one))} for one in (arm, other))
        both = sorted(first.keys() & second.keys())
        return paired_difference([first[one] for one in both], [second[one] for one in both]) if both else NOTHING

    def _costs(self, arm: str) -> dict[str, Estimate]:
        answers, numbers = [answer for answer in self.written if answer.arm == arm], self.numbers(arm)
        rows = [row for number in numbers for row in self.tried.get(number, ())]
        # Dialogues that were lost for want of a reply have cost their answers, too.
        tried = [row for row in self.rows if not row["held_out"] and row["tactic_number"] in numbers]
        moves = [row[f"chat_{side}"] for row in tried for side in SIDES if row[f"chat_{side}"]]
        totals = {
            "tactics": len(numbers),
            "unusable": sum(not answer.number for answer in answers),
            "no_reply": sum(answer.problem.startswith(NO_REPLY) for answer in answers),
            "dialogues": len(rows),
            "calls": sum(answer.calls for answer in answers) + sum(one["answers"] for one in moves),
            "tokens_in": sum(answer.tokens_in for answer in answers) + sum(one["tokens_in"] for one in moves),
            "tokens_out": sum(answer.tokens_out for answer in answers) + sum(one["tokens_out"] for one in moves),
        }
        return {name: count(total, max(1, len(answers))) for name, total in totals.items()}


def tactics_table(metrics: Mapping[str, Estimate], brief: bool = False) -> EstimateTable:
    """Return the table of a finished run, a line for each arm.

    Args:
        metrics: of the run, by "ARM.METRIC".
        brief: as a screen has room for it.
    """
    arms = [arm for arm in ARMS if f"{arm}.advantage" in metrics]
    columns = ["attacker", "advantage, held out", "more than no tactic", "development", "agreement", "illegal moves"]
    columns += ["dialogues", "calls", *([] if brief else ["tokens in", "tokens out"]), "without", "n"]
    rows = []
    for arm in arms:
        estimates = {name: metrics.get(f"{arm}.{name}", NOTHING) for name in TACTIC_METRICS}
        cells: list[str] = [number(estimates[name]) for name in ("advantage", f"over_{NONE}", "development")]
        share = estimates["agreement"].value
        cells.append(f"{100 * share:.1f} %" if math.isfinite(share) else ABSENT)
        cells.append(BETWEEN.join(figure(estimates[f"broken_{side}"].value) for side in SIDES))
        names = ["dialogues", "calls", *([] if brief else ["tokens_in", "tokens_out"]), "unusable"]
        cells += [f"{estimates[name].value:,.0f}" if arm in ATTACKERS else ABSENT for name in names]
        rows.append((ARMS[arm], *cells, num_measured(estimates["advantage"])))
    few = few_note("dialogues") if any(metrics[f"{arm}.advantage"].flagged for arm in arms) else ""
    return EstimateTable(tuple(columns), tuple(rows), _NOTE + few)


def _broken(row: Row, side: str) -> int:
    moves = row[f"chat_{side}"] or {}
    return sum(moves.get(name, 0) for name in _MOVES) + (row[f"selection_{side}"] == [ILLEGAL])
