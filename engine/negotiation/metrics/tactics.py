"""What tactics of an attacker gain: each attacker's best tactic in held-out dialogues, beside the player without any.

A tactic is chosen by its gain in the development dialogues, which is therefore too high; the held-out dialogues chose nothing.
All tactics play the same dialogues, so that differences are paired. Intervals are over dialogues: another run of the attacker
would write other tactics, and no interval tells how different those are.

What an attacker costs is counted as if it were alone: tactics that several wrote are played once and counted for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from parley.engine.core.stats.rows import Row, finished
from parley.engine.core.stats.statistics import (
    FOR_ADVERSARY,
    LOWER_FOR_ADVERSARY,
    LOWER_FOR_TARGET,
    NEITHER,
    NOTHING,
    Estimate,
    Metric,
    Points,
    count,
    mean,
    mean_count,
    paired_difference,
)
from parley.engine.core.stats.tables import ABSENT, BETWEEN, TextTable, few_note, figure, num_measured, number
from parley.engine.negotiation.attacks.tactics import ARMS, ATTACKERS, NONE, WrittenTactic
from parley.engine.negotiation.metrics.chat import CHAT_METRICS, SIDES, chat_metrics
from parley.engine.negotiation.metrics.defences import DEFENCE_METRICS, defence_metrics
from parley.engine.negotiation.metrics.dialogues import METRICS, negotiation_metrics
from parley.envs.negotiation.scenario import ILLEGAL
from parley.policies.chat.written import NO_REPLY

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
    """The dialogues of a run, and who wrote the tactics.

    Args:
        rows: of the run (`parley.engine.negotiation.verbs.trying.TACTICS`).
        written: what attackers wrote, in the order of rounds.
        chosen: by arm, the number of the tactic that was measured on held-out dialogues.
    """

    rows: Sequence[Row]
    written: Sequence[WrittenTactic]
    chosen: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def tried(self) -> dict[int, list[Row]]:
        """The finished development dialogues by the number of their tactic; 0 has none."""
        found: dict[int, list[Row]] = {}
        for row in finished(self.rows):
            if not row["held_out"]:
                found.setdefault(row["tactic_number"], []).append(row)
        return found

    def gain(self, number: int) -> Estimate:
        """What a tactic gained in development; NaN where no dialogue came to its end."""
        rows = self.tried.get(number, [])
        return mean([_advantage(row) for row in rows]) if rows else NOTHING

    def numbers(self, arm: str, rounds: int | None = None) -> list[int]:
        """The tactics of an attacker, each once, in the order in which it wrote them; of its first rounds alone."""
        own = (each for each in self.written if each.arm == arm and each.number and (rounds is None or each.round <= rounds))
        return list(dict.fromkeys(each.number for each in own))

    def best(self, arm: str, rounds: int | None = None) -> int:
        """The tactic of an attacker that gained most in development, the earliest of equal ones; 0 without any."""
        gains = {number: self.gain(number).value for number in self.numbers(arm, rounds)}
        known = {number: gain for number, gain in gains.items() if not math.isnan(gain)}
        return max(known, key=lambda number: known[number], default=0)

    def held_out(self, arm: str) -> list[Row]:
        """The held-out dialogues of the tactic that was chosen for an arm."""
        return [row for row in self.rows if row["held_out"] and row["tactic_number"] == self.chosen.get(arm)]

    def metrics(self, arm: str) -> dict[str, Estimate]:
        """Metrics of an arm whose tactic was chosen, by their names in `TACTIC_METRICS`."""
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
        """What the best tactic so far gained in development, by the dialogues played so far; first without a tactic."""
        points = [(0, self.gain(0))]
        for last in sorted({each.round for each in self.written if each.arm == arm}):
            best = self.best(arm, last)
            points.append((sum(len(self.tried.get(number, ())) for number in self.numbers(arm, last)), self.gain(best)))
        return [point for point in points if math.isfinite(point[1].value)]

    def _difference(self, arm: str, other: str) -> Estimate:
        first, second = ({row["dialogue"]: _advantage(row) for row in finished(self.held_out(one))} for one in (arm, other))
        both = sorted(first.keys() & second.keys())
        return paired_difference([first[one] for one in both], [second[one] for one in both]) if both else NOTHING

    def _costs(self, arm: str) -> dict[str, Estimate]:
        own, numbers = [answer for answer in self.written if answer.arm == arm], self.numbers(arm)
        rows = [row for number in numbers for row in self.tried.get(number, ())]
        # Dialogues that were lost for want of a reply have cost their answers, too.
        tried = [row for row in self.rows if not row["held_out"] and row["tactic_number"] in numbers]
        moves = [row[f"chat_{side}"] for row in tried for side in SIDES if row[f"chat_{side}"]]
        totals = {
            "tactics": len(numbers),
            "unusable": sum(not answer.number for answer in own),
            "no_reply": sum(answer.problem.startswith(NO_REPLY) for answer in own),
            "dialogues": len(rows),
            "calls": sum(answer.calls for answer in own) + sum(one["answers"] for one in moves),
            "tokens_in": sum(answer.tokens_in for answer in own) + sum(one["tokens_in"] for one in moves),
            "tokens_out": sum(answer.tokens_out for answer in own) + sum(one["tokens_out"] for one in moves),
        }
        return {name: count(total, max(1, len(own))) for name, total in totals.items()}


def tactics_table(metrics: Mapping[str, Estimate], brief: bool = False) -> TextTable:
    """The table of a finished run, a line for each arm.

    Args:
        metrics: of the run, by "ARM.METRIC".
        brief: as a screen has room for it.
    """
    arms = [arm for arm in ARMS if f"{arm}.advantage" in metrics]
    columns = ["attacker", "advantage, held out", "more than no tactic", "development", "agreement", "illegal moves"]
    columns += ["dialogues", "calls", *([] if brief else ["tokens in", "tokens out"]), "without", "n"]
    rows = []
    for arm in arms:
        found = {name: metrics.get(f"{arm}.{name}", NOTHING) for name in TACTIC_METRICS}
        told = [number(found[name]) for name in ("advantage", f"over_{NONE}", "development")]
        share = found["agreement"].value
        told.append(f"{100 * share:.1f} %" if math.isfinite(share) else ABSENT)
        told.append(BETWEEN.join(figure(found[f"broken_{side}"].value) for side in SIDES))
        names = ["dialogues", "calls", *([] if brief else ["tokens_in", "tokens_out"]), "unusable"]
        told += [f"{found[name].value:,.0f}" if arm in ATTACKERS else ABSENT for name in names]
        rows.append((ARMS[arm], *told, num_measured(found["advantage"])))
    few = few_note("dialogues") if any(metrics[f"{arm}.advantage"].flagged for arm in arms) else ""
    return TextTable(tuple(columns), tuple(rows), _NOTE + few)


def _advantage(row: Row) -> int:
    return int(row["points_adversary"] - row["points_target"])


def _broken(row: Row, side: str) -> int:
    moves = row[f"chat_{side}"] or {}
    return sum(moves.get(name, 0) for name in _MOVES) + (row[f"selection_{side}"] == [ILLEGAL])
