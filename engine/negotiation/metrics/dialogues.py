"""The metrics of negotiation: points, agreement and language; of defences, of chat models, and of an attacker's tactics.

Sources: Lewis et al. 2017, section 6.2 (score, agreement, Pareto), and Cheng et al. 2019, section 7.1 (advantage, positive
advantage rate). Side 0 is the adversary, side 1 the target.

A dialogue without agreement counts as 0:0 in everything that is not "agreed". So it is a tie; paper and logs differ in ties:
  # Paper: the positive advantage rate counts dialogues that the adversary wins, which is `par_strict`. Released: the log of an
  # attack gives the printed rate if ties count, which is `par`. Ours: both. Printed rates without an attack are wins of deals,
  # `par_strict_agreed`: of all dialogues, 44.70 % at 76.36 % agreement would leave 32 % at most to an agent that meets itself.
An adversary can push `par` up by never agreeing, so it is read beside `agreement` and `par_strict`.

Chat models: a choice that stays illegal after the repair is a selection out of range, which counts for every agent.

Tactics: each attacker's best tactic is measured in held-out dialogues, beside the player without any. A tactic is chosen by its
gain in the development dialogues, which is therefore too high. All tactics play the same dialogues, so differences are paired.
Intervals are over dialogues; they do not cover the tactics of another run. Costs count each attacker as if it were alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter

import numpy as np

from parley.engine.core.stats.pairs import RowFigures, RowMetric
from parley.engine.core.stats.rows import Columns
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
    count,
    finished,
    has_lost,
    lost,
    mean,
    mean_count,
    paired_difference,
    repeated,
)
from parley.engine.core.tables.table import (
    ABSENT,
    BETWEEN,
    PERCENT,
    WHOLE,
    Column,
    EstimateTable,
    MarkedEstimate,
    TableCell,
    TableRow,
    figure,
    metric_table,
)
from parley.engine.negotiation.attacks.tactics import ARMS, ATTACKERS, NONE, WrittenTactic
from parley.envs.core.seeds import stable_hash
from parley.envs.negotiation.domain import ILLEGAL
from parley.policies.chat.model import NO_REPLIES

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
"""Metrics of matches and attacks with a defence, or with an attack under its limit; each only if it has a figure."""

_SELECTION = "<selection>"


def defence_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Return the metrics of `DEFENCE_METRICS` that the rows of one match hold.

    Args:
        rows: rows of `parley.engine.negotiation.verbs.match.DIALOGUES`; those with status "error" are left out.
    """
    figures = RowFigures(_DEFENCES, finished(rows))
    return {name: figures.estimate(name) for name in _DEFENCES if len(figures[name].rows)}


_DEFENCES: Mapping[str, RowMetric] = {
    "stopped_share": RowMetric(
        lambda row: len(row["stopped"]),
        "share",
        lambda row: sum(turn["side"] == 0 and turn["words"] != _SELECTION for turn in row["turns"]),
        lambda row: row.get("stopped") is not None,
    ),
    "refused_share": RowMetric(lambda row: bool(row["refused"]), "share", among=lambda row: row.get("refused") is not None),
    "kept_out": RowMetric(itemgetter("kept_out"), "count", among=lambda row: row.get("kept_out") is not None),
}


SIDES = ("adversary", "target")
_REQUESTS = {
    "answers": ("answers", "given by the model, repairs included, mean over all dialogues"),
    "tokens_in": ("tokens read", "for its answers, as far as it says, mean over all dialogues"),
    "tokens_out": ("tokens written", "as far as it says, mean over all dialogues"),
}
_BREACHES = {
    "wordless": ("wordless utterances", "share of its utterances without a word"),
    "cut": ("cut utterances", "share of its utterances that were cut at the most tokens or words"),
    "mixed_ends": ("mixed ends", "share of its utterances with <selection> among other words, which ends nothing"),
}
_NO_REPLY = "share of its answers in all dialogues, lost ones included: cut in thinking, filtered, ...; rows count each kind"
CHAT_METRICS: dict[str, Metric] = {
    f"chat_{name}_{side}": metric
    for side, lower in zip(SIDES, (LOWER_FOR_ADVERSARY, LOWER_FOR_TARGET), strict=True)
    for name, metric in {
        **{name: Metric(f"{side}'s {title}", NEITHER, what, "count") for name, (title, what) in _REQUESTS.items()},
        **{name: Metric(f"{side}'s {title}", lower, what, "share") for name, (title, what) in _BREACHES.items()},
        "no_reply": Metric(f"{side}'s answers without a reply", lower, _NO_REPLY, "share"),
        "repairs": Metric(f"{side}'s repairs", lower, "share of all dialogues with a second request for the choice", "share"),
    }.items()
}
"""Metrics of sides that a chat model plays."""


def chat_metrics(rows: Sequence[Row]) -> dict[str, Estimate]:
    """Return `CHAT_METRICS` of the sides with a chat model; none if no dialogue has one.

    Args:
        rows: dialogue rows; of those with status "error" nothing counts but answers that are no reply.
    """
    metrics: dict[str, Estimate] = {}
    figures = RowFigures(_MOVES_OF_CHATS, rows)
    for name in CHAT_METRICS:
        of_rows = figures[name]
        if len(of_rows.rows):
            # A model that reports no tokens has no such metric.
            is_known = CHAT_METRICS[name].form != "count" or of_rows.tops.any()
            metrics[name] = figures.estimate(name) if is_known else NOTHING
    return metrics


def _moves_of_side(index: int, side: str) -> dict[str, RowMetric]:
    """Return `CHAT_METRICS` of a side by what each row adds to them."""
    column = f"chat_{side}"

    def answers(row: Row) -> bool:
        return bool(row.get(column))

    def plays(row: Row) -> bool:
        return bool(row["status"] == "ok" and row.get(column))

    def num_lost(row: Row) -> int:
        return sum(row[column].get(kind.column) or 0 for kind in NO_REPLIES)

    def num_utterances(row: Row) -> int:
        # No side says an end that a limit forces.
        is_forced = row["forced"] and bool(row["turns"]) and row["turns"][-1]["side"] == index
        return sum(turn["side"] == index for turn in row["turns"]) - is_forced

    def of(name: str) -> Callable[[Row], float]:
        return lambda row: row[column][name]

    return {
        **{f"chat_{name}_{side}": RowMetric(of(name), "count", among=plays) for name in _REQUESTS},
        **{f"chat_{name}_{side}": RowMetric(of(name), "share", num_utterances, plays) for name in _BREACHES},
        f"chat_no_reply_{side}": RowMetric(num_lost, "share", of("answers"), answers),
        f"chat_repairs_{side}": RowMetric(lambda row: row[column]["repairs"] > 0, "share", among=plays),
    }


_MOVES_OF_CHATS = {name: metric for number in (0, 1) for name, metric in _moves_of_side(number, SIDES[number]).items()}


logger = logging.getLogger(__name__)


_DIRECTIONS = tuple(zip(SIDES, (FOR_ADVERSARY, FOR_TARGET), (LOWER_FOR_ADVERSARY, LOWER_FOR_TARGET), strict=True))
_LANGUAGE = {
    "illegal": ("illegal selections", True, "share of all dialogues whose selection was out of range"),
    "distinct": ("distinct utterances", False, "how many differ, <selection> left out"),
    "distinct_share": ("distinct share", False, "different utterances per utterance; falls as dialogues are added"),
    "repetition": ("repetition", True, "share of its 4-grams that the same utterance had before (seq-rep-4)"),
    "repeats": (
        "repeated utterances",
        True,
        "share of those after its first that it said in the dialogue before, word for word",
    ),
}
"""Metrics of each side: title, whether more is worse, definition."""
METRICS: dict[str, Metric] = {
    "advantage": Metric("advantage", FOR_ADVERSARY, "adversary's points minus target's, mean over all dialogues", main=True),
    "advantage_agreed": Metric("advantage, agreed", FOR_ADVERSARY, "the same over agreed dialogues only"),
    "par_strict": Metric(
        "wins", FOR_ADVERSARY, "share of all dialogues with advantage > 0; a tie or 0:0 does not count", "share", main=True
    ),
    "par_strict_agreed": Metric("wins, agreed", FOR_ADVERSARY, "share of agreed dialogues with advantage > 0", "share"),
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
        f"{name}_{side}": Metric(
            f"{side}'s {title}", lower if is_bad else better, definition, "count" if name == "distinct" else "share"
        )
        for name, (title, is_bad, definition) in _LANGUAGE.items()
        for side, better, lower in _DIRECTIONS
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
    utterances = Columns()

    def noted() -> Iterator[Row]:
        for row in dialogues:
            for turn in row["turns"]:
                # `<selection>` alone is no utterance.
                if turn["words"] != _SELECTION:
                    utterances.add(turn["side"], "Q", (stable_hash(turn["words"]),))
            yield row

    estimates = RowFigures({**ROW_METRICS, **PERPLEXITIES}, noted()).estimates()
    for number, side in enumerate(SIDES):
        if (illegal := estimates[f"illegal_{side}"]).value > 0:
            what = "the %s chose out of range in %d of %d dialogues, which count as no agreement"
            logger.warning(what, side, round(illegal.value * illegal.n), illegal.n)
        if has_lost(estimates[f"repetition_{side}"].value):
            what = "the %s repeats itself, in %.0f %% of the 4-grams of its utterances: it may have lost its language"
            logger.warning(what, side, 100 * estimates[f"repetition_{side}"].value)
        digests = utterances.get(number, "Q")
        distinct, total = len(np.unique(digests)), len(digests)
        estimates[f"distinct_{side}"] = count(distinct, total)
        estimates[f"distinct_share_{side}"] = count(distinct / total, total) if total else NOTHING
    return {name: estimates[name] for name in METRICS}


def _advantage(row: Row) -> int:
    return int(row["points_adversary"] - row["points_target"])


def _agreed(row: Row) -> bool:
    return bool(row["agreed"])


OUTCOMES: Mapping[str, RowMetric] = {
    "advantage": RowMetric(_advantage, "mean"),
    "advantage_agreed": RowMetric(_advantage, "mean", among=_agreed),
    "par_strict": RowMetric(lambda row: _advantage(row) > 0, "share"),
    "par_strict_agreed": RowMetric(lambda row: _advantage(row) > 0, "share", among=_agreed),
    "par": RowMetric(lambda row: _advantage(row) >= 0, "share"),
    "agreement": RowMetric(_agreed, "share"),
    **{f"score_{side}": RowMetric(itemgetter(f"points_{side}"), "count") for side in SIDES},
    **{f"score_{side}_agreed": RowMetric(itemgetter(f"points_{side}"), "count", among=_agreed) for side in SIDES},
}
"""Metrics of `METRICS` that points and agreement alone decide, by what each dialogue adds to them."""


def _language(index: int, side: str) -> dict[str, RowMetric]:
    """Return the metrics of `_LANGUAGE` that are sums over dialogues, for one side."""

    def utterances(row: Row) -> list[str]:
        return [turn["words"] for turn in row["turns"] if turn["side"] == index and turn["words"] != _SELECTION]

    def of_4_grams(part: int) -> Callable[[Row], int]:
        return lambda row: sum(repeated(words.split())[part] for words in utterances(row))

    return {
        f"illegal_{side}": RowMetric(lambda row: row[f"selection_{side}"] == [ILLEGAL], "share"),
        f"repetition_{side}": RowMetric(of_4_grams(0), "share", bottom=of_4_grams(1)),
        f"repeats_{side}": RowMetric(
            lambda row: len(utterances(row)) - len({*utterances(row)}), "share", lambda row: len(utterances(row)[1:])
        ),
    }


ROW_METRICS: Mapping[str, RowMetric] = {
    **OUTCOMES,
    "pareto": RowMetric(itemgetter("pareto"), "share", among=_agreed),
    "turns": RowMetric(itemgetter("num_turns"), "count"),
    "words_per_utterance": RowMetric(
        lambda row: row["num_words_adversary"] + row["num_words_target"],
        "count",
        bottom=lambda row: row["num_turns"] - row["forced"],
    ),
    "ended_by_adversary": RowMetric(lambda row: row["ended_by"] == 0, "share"),
    "forced_end": RowMetric(itemgetter("forced"), "share"),
    **_language(0, "adversary"),
    **_language(1, "target"),
}
"""Metrics of `METRICS` by what each dialogue adds to them; distinct utterances are no sum over dialogues."""
PERPLEXITIES: Mapping[str, RowMetric] = {
    name: RowMetric(
        itemgetter(f"nll_{side}"),
        "perplexity",
        bottom=itemgetter(f"num_words_{side}"),
        among=lambda row, side=side: row[f"nll_{side}"] is not None,  # type: ignore[misc]  # a bound default
    )
    for name, side in (("fluency_ppl", "adversary"), ("fluency_ppl_target", "target"))
}


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
"""Costs of the search for a tactic."""
OWN_METRICS: dict[str, Metric] = {
    "development": Metric("advantage, development", FOR_ADVERSARY, "in the dialogues that chose the tactic, so too high"),
    "failed": Metric("failed dialogues", NEITHER, "of the chosen tactic; for the choice the worst result of any", "count"),
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
"""Metrics of an attacker's best tactic beside those of negotiation."""
TACTIC_METRICS = METRICS | CHAT_METRICS | DEFENCE_METRICS | OWN_METRICS
LEGEND = {f"{arm}.{name}": metric for arm in ARMS for name, metric in TACTIC_METRICS.items()}
"""Metrics of a run by "ARM.METRIC"."""
_MOVES = ("wordless", "cut", "mixed_ends", "repairs")
_NOTE = (
    "Advantage: the player's points less the target's; held out: in dialogues that chose no tactic, development: in "
    "those that chose it. More than no tactic: over the same held-out dialogues. Illegal moves per dialogue, player : "
    "target. Failed: dialogues of the chosen tactic; in the choice each counted as the lowest advantage of any. Dialogues, "
    "calls and tokens: cost of the search for the tactic, each attacker as if it were alone. Without: answers without a "
    "tactic. Brackets: 95 % intervals over dialogues; another run writes other tactics."
)


@dataclass(frozen=True)
class TacticResults:
    """The dialogues of a run, and the answers of its attackers.

    Args:
        rows: rows of the run (`parley.engine.negotiation.verbs.tactic.TACTICS`).
        written: the attackers' answers, in the order of rounds.
        chosen: the number of the tactic that held-out dialogues measured, by arm.
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
        return mean([_advantage(row) for row in self.tried.get(number, [])])

    def score(self, number: int) -> float:
        """Return the gain of a tactic for the choice: failed dialogues count as the lowest of any tactic; NaN if all failed."""
        gains, worst = self.gain(number), min((_advantage(row) for rows in self.tried.values() for row in rows), default=0)
        num_failed = sum(not row["held_out"] and row["tactic_number"] == number for row in lost(self.rows))
        return (gains.n * gains.value + num_failed * worst) / max(1, gains.n + num_failed)

    def numbers(self, arm: str, rounds: int | None = None) -> list[int]:
        """Return the distinct tactics of an attacker in order of writing, of its first rounds alone if given."""
        usable = (answer for answer in self.written if answer.arm == arm and answer.number)
        return list(dict.fromkeys(answer.number for answer in usable if rounds is None or answer.round <= rounds))

    def best(self, arm: str, rounds: int | None = None) -> int:
        """Return the tactic of an attacker with the largest score in development, the earliest of ties; 0 without any."""
        gains = {number: self.score(number) for number in self.numbers(arm, rounds)}
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
        played = [row for row in self.rows if row["tactic_number"] == self.chosen[arm]]
        metrics["failed"] = count(len(lost(played)), max(1, len(played)))
        for other in self.chosen:
            if other != arm and arm != NONE:
                metrics[f"over_{other}"] = self._difference(arm, other)
        metrics |= {f"broken_{side}": mean_count([_broken(row, side) for row in dialogues]) for side in SIDES}
        return metrics | self._costs(arm)

    def curve(self, arm: str) -> Points:
        """Return the best tactic's gain in development by the dialogues so far; first without a tactic."""
        points = [(0, self.gain(0))]
        for last in sorted({answer.round for answer in self.written if answer.arm == arm}):
            best = self.best(arm, last)
            points.append((sum(len(self.tried.get(number, ())) for number in self.numbers(arm, last)), self.gain(best)))
        return [point for point in points if math.isfinite(point[1].value)]

    def _difference(self, arm: str, other: str) -> Estimate:
        first, second = ({row["dialogue"]: _advantage(row) for row in finished(self.held_out(name))} for name in (arm, other))
        both = sorted(first.keys() & second.keys())
        return paired_difference([first[dialogue] for dialogue in both], [second[dialogue] for dialogue in both])

    def _costs(self, arm: str) -> dict[str, Estimate]:
        from parley.policies.chat.questions import NO_REPLY

        answers, numbers = [answer for answer in self.written if answer.arm == arm], self.numbers(arm)
        rows = [row for number in numbers for row in self.tried.get(number, ())]
        # Dialogues that were lost for lack of a reply also cost their answers.
        tried = [row for row in self.rows if not row["held_out"] and row["tactic_number"] in numbers]
        moves = [row[f"chat_{side}"] for row in tried for side in SIDES if row[f"chat_{side}"]]
        totals = {
            "tactics": len(numbers),
            "unusable": sum(not answer.number for answer in answers),
            "no_reply": sum(answer.problem.startswith(NO_REPLY) for answer in answers),
            "dialogues": len(rows),
            "calls": sum(answer.calls for answer in answers) + sum(move["answers"] for move in moves),
            "tokens_in": sum(answer.tokens_in for answer in answers) + sum(move["tokens_in"] for move in moves),
            "tokens_out": sum(answer.tokens_out for answer in answers) + sum(move["tokens_out"] for move in moves),
        }
        counts = {name: count(total, max(1, len(answers))) for name, total in totals.items()}
        # Models that report no tokens have no such figures.
        unknown = [name for name in ("tokens_in", "tokens_out") if totals["calls"] and not totals[name]]
        return counts | dict.fromkeys(unknown, NOTHING)


def tactics_table(metrics: Mapping[str, Estimate], brief: bool = False) -> EstimateTable:
    """Return the table of a finished run, a row for each arm.

    Args:
        metrics: metrics of the run, by "ARM.METRIC".
        brief: True for a screen, without the columns of tokens.
    """
    arms = [arm for arm in ARMS if f"{arm}.advantage" in metrics]
    costs = {"dialogues": "dialogues", "calls": "calls", "tokens in": "tokens_in", "tokens out": "tokens_out"}
    if brief:
        costs = {heading: name for heading, name in costs.items() if not name.startswith("tokens")}
    costs["without"] = "unusable"
    columns = [
        Column("advantage, held out", "{arm}.advantage"),
        Column("more than no tactic", f"{{arm}}.over_{NONE}"),
        Column("development", "{arm}.development"),
        Column("agreement", "{arm}.agreement", replace(PERCENT, bounded=False)),
        Column("illegal moves", cell=_illegal_moves),
        Column("failed", "{arm}.failed", WHOLE),
        *(Column(heading, f"{{arm}}.{name}", WHOLE) for heading, name in costs.items()),
    ]
    rows = [TableRow(ARMS[arm], {"arm": arm}, cells={} if arm in ATTACKERS else dict.fromkeys(costs, ABSENT)) for arm in arms]
    return metric_table(metrics, "attacker", rows, columns, _NOTE, n="{arm}.advantage")


def _illegal_moves(metrics: Mapping[str, Estimate], row: TableRow) -> str:
    sides = [metrics.get(f"{row.fields['arm']}.broken_{side}", NOTHING) for side in SIDES]
    return TableCell(BETWEEN.join(figure(side.value) for side in sides), *map(MarkedEstimate, sides))


def _broken(row: Row, side: str) -> int:
    moves = row[f"chat_{side}"] or {}
    return sum(moves.get(name, 0) for name in _MOVES) + (row[f"selection_{side}"] == [ILLEGAL])
