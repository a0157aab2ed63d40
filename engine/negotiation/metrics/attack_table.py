"""The tables of attacks: one line per attack on one target, and attacks against a column per defence or trained counterpart.

Source of the rows: Cheng et al. 2019, tables 2 and 7; `attack.py` defines the figures. The second table shows the cost of a
defence in ordinary play above and the strongest attack below, for a defence is as good as the strongest attack on it. That one
is chosen on one half of the dialogues and measured on the other (`engine/core/stats/known.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from parley.engine.core.stats.known import best_of
from parley.engine.core.stats.statistics import LOWER_FOR_ADVERSARY, NOTHING, Estimate, Metric
from parley.engine.core.tables.table import ABSENT, BETWEEN, EstimateTable, above, few_note, figure, interval, number
from parley.engine.negotiation.metrics.attack import ATTACKS, UNUSUAL_PROBABILITY, PublishedAttack

PLAIN = "plain"
"""The row of ordinary play, in which both sides choose: what a defence costs."""
TABLE_2: dict[str, str] = {
    "none": "no attack",
    "rl": "RL attack",
    "transfer": "transfer",
    "reactive": "reactive",
    "preemptive": "preemptive",
    "ra-pa-da": "RA+PA+DA",
    "ra-pa-ta": "RA+PA+TA",
}
"""Titles of the rows that a table has unless others are asked for, by name; "none" is the speaker without any attack."""
TURNS: dict[str, int] = {f"reactive-{n}": n for n in (1, 2, 3, 4)}
"""Rows of table 7: the reactive attack by n, the utterances of both sides together that are said before the attack's sentence.

With n = 2, as in the released runs and in the row "reactive", the adversary says something, the target answers, and the third
utterance is the attack's. The adversary begins where n is even, the target where it is odd.
"""
TRIGGERS: dict[str, str] = {"trigger": "searched words", "trigger-random": "random words, as many tried"}
"""Rows of chat models whose weights are here, the control among them."""
TACTIC = "tactic"
"""The row of an attacker that refines tactics; it brings the lines of `TACTICS` along."""
TACTICS: dict[str, str] = {"none": "chat player, no tactic", "gains": "tactics by gains", "blind": "tactics drawn blind"}
"""Titles of the lines that stand beside a refined tactic, by what `engine.negotiation.attacks.tactics.ARMS` calls them."""
ROWS: dict[str, str] = {
    PLAIN: "plain play, both choose",
    **TABLE_2,
    **{row: f"reactive after {n} utterance{'s' * (n > 1)}" for row, n in TURNS.items()},
    **TRIGGERS,
    TACTIC: "refined tactic",
}
"""Titles of all rows by name, in the order of a table that has them all."""
DEFENCES: dict[str, str] = {
    "filter": "perplexity filter",
    "filter-known": "filter known to the attack",
    "own-demand": "own demand",
    "own-demand-known": "own demand known to the attack",
}
"""What may stand around the target, by name, and attacks that are made for it."""
KNOWN = "-known"
"""Ends the rows of attacks that are made for a defence around the target: by searches or adversaries that know it."""
UNATTACKED = (PLAIN, "none", f"{TACTIC}-none")
"""Rows in which nobody attacks."""
SEARCHES = tuple(row for row in ROWS if row not in (*UNATTACKED, "rl", "transfer", *TRIGGERS, TACTIC))
"""Rows whose search reads a negotiator."""
LEARNED = ("rl", "transfer")
"""Rows that an adversary learns for."""
MADE_FOR_IT = ", adaptive"
"""Ends the titles of attacks that are made for what is around the target, or in its place."""
ADAPTIVE = "-adaptive"
"""Ends the rows of attacks that are made for a trained counterpart of the target; others are made for the target itself."""


def around_trained(number: int, adaptive: bool = False) -> str:
    """Return the suffix of rows against a trained counterpart, such as "+trained1-adaptive".

    Args:
        number: which one, from 1.
        adaptive: whether the attack is made for it.
    """
    return f"+trained{number}{ADAPTIVE if adaptive else ''}"


def titles_of(trained: Sequence[str] = ()) -> dict[str, str]:
    """Return the titles of all rows by name, in the order of a full table.

    Args:
        trained: names of the target's trained counterparts.

    Returns:
        Behind each attack those on a defended target ("reactive+filter") and on each counterpart. The lines that a tactic
        brings are last.
    """
    titles: dict[str, str] = {}
    for row, attack in (ROWS | {f"{TACTIC}-{name}": title for name, title in TACTICS.items()}).items():
        titles[row] = attack
        minded = {*DEFENCES} if row in LEARNED else {"filter-known"} if row in SEARCHES else set()
        titles |= {
            f"{row}+{name}": f"{attack}, {title}"
            for name, title in DEFENCES.items()
            if not row.startswith(TACTIC) and (name in minded or not name.endswith(KNOWN))
        }
        for index, name in enumerate(trained, start=1):
            if row not in TRIGGERS:
                titles[row + around_trained(index)] = f"{attack}, {name}"
            if row not in UNATTACKED:
                titles[row + around_trained(index, adaptive=True)] = f"{attack}, {name}{MADE_FOR_IT}"
    return titles


ASKED_METRICS: dict[str, Metric] = {
    "answers_before": Metric(
        "answers to make it",
        LOWER_FOR_ADVERSARY,
        "that chat models gave before these dialogues: in training, in play that sentences come from, or for tactics",
        "count",
    ),
    "cost": Metric(
        "cost", LOWER_FOR_ADVERSARY, "of these answers and of those in its dialogues, at the prices of the settings"
    ),
}
"""What an attack on a chat model asked of chat models."""

_NOTE = (
    "Live: the target answers and decides itself; wins and agreement are live too. Forced: where an attack sentence satisfies "
    "the end constraint, the target must end. Points: adversary : target. PAR: ties count. Fluency: perplexity under "
    "the judge of the attack sentences, in rows without a search of all that the adversary says; unusual: attack sentences "
    f"with a special token or one that the judge finds less likely than 1 in {1 / UNUSUAL_PROBABILITY:,.0f}. Seconds: of one "
    "worker, per dialogue. Who begins: a coin decides, but in rows at a fixed turn (reactive, preemptive) "
    "the side whose turn the attack's then is. Brackets: 95 % intervals."
)
_NOTE_PUBLISHED = (
    " Published: Cheng et al. 2019, on 2,000 scenarios that are not known; where an attack searches, forced figures; without "
    "an attack both sides choose there."
)
_NOTE_BASELINE = " Before: the same attack, measured alike, on the other target named below."
_NOTE_DEFENCES = (
    " Stopped: share of the adversary's sentences that the target's filter keeps from it, without an attack plain "
    "talk. Known to the attack: too perplexing sentences are no candidates of a search, an adversary learned from the defended "
    "target, transferred sentences won from it. Refused: dialogues in which the target did not end the talk, where it would "
    "choose less than it last demanded. Nobody forces a defended target to end."
)
_NOTE_TRAINED = (
    " Behind the name of another agent: the same attack, made for the target and played with that agent; adaptive: made for "
    "it, by an adversary that learned from it, by sentences that won from it, by a search that read it."
)
_NOTE_CHAT = (
    " The target is a chat model. Illegal: dialogues in which it chose what is not there; repairs: in which it was asked for "
    "its choice once more; answers and tokens (read + written): of a dialogue, as far as it says; answers before: of chat "
    "models that it took to make the attack; cost: of those and of its dialogues, of tactics all attackers together."
)
_NOTE_TRIGGERS = (
    " Without the words: what the target would choose behind the same utterances without what was searched. Tried: candidates "
    "of a search."
)
_NOTE_TACTICS = (
    " Tactics: the attacker's model plays, in as many dialogues as the other rows have, none of which chose a tactic; their "
    "scenarios are others."
)
_NOTE_MET_BY_TACTICS = " With another agent play those that were refined against the target; adaptive: against that agent."
_NOTE_TRAININGS = " Each training: the live advantage of each trained adversary; the row's figures are means over them."


@dataclass(frozen=True)
class AttackLine:
    """One attack of the table.

    Args:
        title: what it is called.
        metrics: estimates by name: `parley.engine.negotiation.metrics.attack.ATTACK_METRICS`, or the metrics of negotiation
            alone for an attack without a search.
        published: what was published of it; None where nothing was.
        baseline: what the same attack measured on another target, by name.
        trainings: the live advantage of each adversary, where the line is of several that were trained.
        unfound: why it could not be played, or not with all of these; empty where it was.
    """

    title: str
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    published: PublishedAttack | None = None
    baseline: Mapping[str, Estimate] = field(default_factory=dict)
    trainings: Sequence[float] = ()
    unfound: str = ""


_Cell = Callable[[AttackLine], str]


class _Column(NamedTuple):
    """A column: its cells, the lines that ask for it (all of them, unless it says which), and what a screen shows of it."""

    cell: _Cell
    wanted: Callable[[AttackLine], bool] = lambda line: True
    brief: Literal["whole", "figure", "absent"] = "figure"


def table_lines(
    metrics: Mapping[str, Estimate],
    published: str,
    baseline: Mapping[str, Estimate] | None = None,
    trainings: Mapping[str, Sequence[float]] | None = None,
    trained: Sequence[str] = (),
    unfound: Mapping[str, str] = MappingProxyType({}),
) -> list[AttackLine]:
    """Return the lines of a table from the metrics of all its attacks.

    Args:
        metrics: estimates by "ROW.METRIC", the row a name of `titles_of`.
        published: which figures to put beside them, a key of `published.ATTACKS`; any other name for none.
        baseline: metrics of all attacks on another target, by "ROW.METRIC".
        trainings: what each of several adversaries came to, by "ROW.METRIC".
        trained: names of the target's trained counterparts.
        unfound: why rows could not be played, or not those of all adversaries, by row.

    Returns:
        One line per row with metrics or without what it plays, in the order of `titles_of`.
    """
    published_rows, rows, baseline_rows = ATTACKS.get(published, {}), by_row(metrics), by_row(baseline or {})
    spread = trainings or {}
    return [
        AttackLine(
            title,
            rows.get(row, {}),
            published_rows.get(row),
            baseline_rows.get(row, {}),
            spread.get(f"{row}.advantage", ()),
            unfound.get(row, ""),
        )
        for row, title in titles_of(trained).items()
        if row in rows or row in unfound
    ]


def by_row(metrics: Mapping[str, Estimate]) -> dict[str, dict[str, Estimate]]:
    """Return the metrics of each row from those by "ROW.METRIC"."""
    rows: dict[str, dict[str, Estimate]] = {}
    for name, estimate in metrics.items():
        row, _, metric = name.partition(".")
        rows.setdefault(row, {})[metric] = estimate
    return rows


def attack_table(lines: Sequence[AttackLine], brief: bool = False) -> EstimateTable:
    """Return the table of at least one attack, without columns that no line needs.

    Args:
        lines: the attacks.
        brief: as a screen has room for it: advantages alone keep intervals, figures that are there for others are gone.
    """
    columns = {name: column for name, column in _COLUMNS.items() if any(map(column.wanted, lines))}
    if brief:
        columns = {name: column for name, column in columns.items() if column.brief != "absent"}
    rows = tuple(
        tuple(
            column.cell(line).split("\n")[0] if brief and column.brief == "figure" else column.cell(line)
            for column in columns.values()
        )
        for line in lines
    )
    notes = {
        _NOTE: True,
        _NOTE_PUBLISHED: any(line.published for line in lines),
        _NOTE_BASELINE: any(line.baseline for line in lines),
        _NOTE_TRAININGS: any(line.trainings for line in lines),
        _NOTE_TRIGGERS: any(map(_has_untouched, lines)),
        _NOTE_CHAT: any(map(_has_chat_target, lines)),
        _NOTE_TACTICS: any(line.title == ROWS[TACTIC] for line in lines),
        _NOTE_MET_BY_TACTICS: any(line.title.startswith(f"{ROWS[TACTIC]}, ") for line in lines),
        _NOTE_DEFENCES: any(map(_is_defended, lines)),
        _NOTE_TRAINED: any(line.title.endswith(MADE_FOR_IT) for line in lines),
        few_note("dialogues"): any(line.metrics and _num(line).flagged for line in lines),
        **{f" {line.title[:1].upper()}{line.title[1:]}: {line.unfound}.": True for line in lines if line.unfound},
    }
    return EstimateTable(tuple(columns), rows, "".join(note for note, wanted in notes.items() if wanted))


def share_cell(estimate: Estimate) -> str:
    """Return a share in percent, above its interval; a dash for none."""
    return above(_percent(estimate.value), interval(estimate, lambda share: f"{100 * share:.1f}"))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else ABSENT


def _digits(estimate: Estimate) -> str:
    return f"{estimate.value:.3g}" if math.isfinite(estimate.value) else ABSENT


def _whole(estimate: Estimate) -> str:
    return f"{estimate.value:,.0f}" if math.isfinite(estimate.value) else ABSENT


def _num(line: AttackLine) -> Estimate:
    return line.metrics.get("advantage", NOTHING)


def _metric(name: str, show: Callable[[Estimate], str], instead: str = "") -> _Cell:
    """The cell of a metric, or of the metric `instead` where a line lacks it."""
    return lambda line: show(line.metrics.get(name, line.metrics.get(instead, NOTHING)))


def points_cell(metrics: Mapping[str, Estimate], protocol: str = "") -> str:
    """Return the points of adversary and target, above their intervals; a dash if not measured.

    Args:
        metrics: by name.
        protocol: "forced_", or empty for what came of it live.
    """
    sides = [metrics.get(f"{protocol}score_{side}", NOTHING) for side in ("adversary", "target")]
    if not all(math.isfinite(side.value) for side in sides):
        return ABSENT
    return above(BETWEEN.join(figure(side.value) for side in sides), *map(interval, sides))


def _baseline(name: str) -> _Cell:
    return lambda line: number(line.baseline.get(name, NOTHING))


def _published(show: Callable[[PublishedAttack], str]) -> _Cell:
    return lambda line: show(line.published) if line.published else ABSENT


def _has_published(line: AttackLine) -> bool:
    return line.published is not None


def _has_baseline(line: AttackLine) -> bool:
    return bool(line.baseline)


def _has_filter(line: AttackLine) -> bool:
    return "stopped_share" in line.metrics


def _has_own_demand(line: AttackLine) -> bool:
    return "refused_share" in line.metrics


def _has_chat_target(line: AttackLine) -> bool:
    return "chat_repairs_target" in line.metrics


def _has_cost(line: AttackLine) -> bool:
    return line.metrics.get("cost", NOTHING).value > 0


def _tokens(line: AttackLine) -> str:
    estimates = [line.metrics.get(f"chat_tokens_{way}_target", NOTHING) for way in ("in", "out")]
    return (
        " + ".join(f"{estimate.value:,.0f}" for estimate in estimates)
        if all(math.isfinite(estimate.value) for estimate in estimates)
        else ABSENT
    )


def _has_untouched(line: AttackLine) -> bool:
    return "untouched_advantage" in line.metrics


def _is_defended(line: AttackLine) -> bool:
    return _has_filter(line) or _has_own_demand(line)


_COLUMNS: dict[str, _Column] = {
    "attack": _Column(lambda line: line.title),
    "advantage, live": _Column(_metric("advantage", number), brief="whole"),
    "each training": _Column(
        lambda line: " ".join(map(figure, line.trainings)), lambda line: bool(line.trainings), brief="whole"
    ),
    "advantage, forced": _Column(_metric("forced_advantage", number), brief="whole"),
    "forced, without the words": _Column(_metric("untouched_advantage", number), _has_untouched, brief="whole"),
    "advantage, published": _Column(_published(lambda attack: figure(attack.advantage)), _has_published),
    "before, live": _Column(_baseline("advantage"), _has_baseline, brief="whole"),
    "before, forced": _Column(_baseline("forced_advantage"), _has_baseline, brief="whole"),
    "points, live": _Column(lambda line: points_cell(line.metrics)),
    "points, forced": _Column(lambda line: points_cell(line.metrics, "forced_"), _has_published, brief="absent"),
    "points, published": _Column(
        _published(lambda attack: BETWEEN.join(map(figure, attack.points))), _has_published, brief="absent"
    ),
    "PAR, live": _Column(_metric("par", share_cell)),
    "PAR, forced": _Column(_metric("forced_par", share_cell), _has_published, brief="absent"),
    "PAR, published": _Column(_published(lambda attack: _percent(attack.par)), _has_published, brief="absent"),
    "wins": _Column(_metric("par_strict", share_cell)),
    "agreement": _Column(_metric("agreement", share_cell)),
    "agreement, forced": _Column(_metric("forced_agreement", share_cell), _has_published, brief="absent"),
    "agreement, published": _Column(_published(lambda attack: _percent(attack.agreement)), _has_published, brief="absent"),
    "stopped": _Column(_metric("stopped_share", share_cell), _has_filter),
    "refused": _Column(_metric("refused_share", share_cell), _has_own_demand),
    "illegal": _Column(_metric("illegal_target", share_cell), _has_chat_target),
    "repairs": _Column(_metric("chat_repairs_target", share_cell), _has_chat_target),
    "answers": _Column(_metric("chat_answers_target", _digits), _has_chat_target),
    "tokens": _Column(_tokens, _has_chat_target),
    "answers before": _Column(_metric("answers_before", _whole), _has_chat_target),
    "cost": _Column(_metric("cost", _digits), _has_cost),
    "fluency": _Column(_metric("attack_ppl", number, instead="fluency_ppl")),
    "unusual": _Column(_metric("unusual_share", share_cell)),
    "tried": _Column(_metric("reads", _digits), _has_untouched),
    "seconds": _Column(_metric("seconds", _digits)),
    "n": _Column(lambda line: f"{_num(line).n:,}{' few' if _num(line).flagged else ''}" if line.metrics else ABSENT),
}
"""A published figure has the forced one beside it, which is like it."""


TARGET = "target"
"""The column of the target itself."""
_ATTACKS = {
    **{row: title for row, title in ROWS.items() if row not in (PLAIN, TACTIC)},
    f"{TACTIC}-none": TACTICS["none"],
    TACTIC: ROWS[TACTIC],
}
"""Titles of the lines below plain play by row; the refined tactic is behind the same player without one."""
_UNFOUND = "no sentence"
_NOTE_TARGETS_TABLE = (
    "Live advantage of the adversary in points, on the same scenarios; brackets: 95 % intervals. Plain play: the attacker's "
    "speaker plays, nobody attacks and both choose; the target's points and agreement there are what a defence costs. No "
    "attack: the target alone chooses, as in all attacks. An attack is made for the target alone (an adversary that learned "
    "from it, sentences that won from it, a search that reads it) and meets each defence unaware of it; adaptive: it is made "
    "for what the column names (learned from it, won from it, reads it; of a filter, a search that knows its limit). "
    "Strongest: the best attack and adversary of a column, on each half of the dialogues the one that the other half chooses; "
    "tactics, which have other dialogues, are left out."
)
_NOTE_TACTICS_TARGETS_TABLE = (
    " Tactics: refined against the target, adaptive ones against what the column names; their scenarios are others."
)
_NOTE_UNFOUND = (
    " No sentence: none of the adversary's dialogues was won by enough points, or the speaker knows no sentence that won."
)


STRONGEST = "strongest"
"""Begins the name of the row of the strongest attack; the ending of a column follows."""


def endings_of(trained: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """Return the suffixes of attack rows by column: made for the target, and made for the column's agent.

    Args:
        trained: names of the target's trained counterparts.
    """
    endings = {TARGET: ("", "")}
    endings |= {title: (f"+{name}", f"+{name}{KNOWN}") for name, title in DEFENCES.items() if not name.endswith(KNOWN)}
    return endings | {
        name: (around_trained(number), around_trained(number, adaptive=True)) for number, name in enumerate(trained, start=1)
    }


def strongest_attack(gains: Sequence[Mapping[str, float]]) -> Estimate:
    """Estimate the gain of the strongest attack in the dialogues that all attacks have.

    Args:
        gains: of each attack by the dialogue's key.
    """
    keys = sorted(set.intersection(*map(set, gains))) if gains else []
    return best_of(np.array([[by_dialogue[key] for by_dialogue in gains] for key in keys])) if keys else NOTHING


def targets_table(
    metrics: Mapping[str, Estimate], trained: Sequence[str] = (), unfound: Collection[str] = ()
) -> EstimateTable | None:
    """Return the attacks by opponent; None if they meet the target alone.

    Args:
        metrics: estimates by "ROW.METRIC", the row a name of `attack_table.titles_of`.
        trained: names of the target's trained counterparts.
        unfound: rows that could not be played, or not those of all adversaries.
    """
    by_name = by_row(metrics)
    endings = endings_of(trained)
    columns = {
        name: suffixes for name, suffixes in endings.items() if any(row + end in by_name for row in ROWS for end in suffixes)
    }
    if len(columns) < 2:
        return None
    rows: list[tuple[str, ...]] = []
    if PLAIN in by_name:
        played = [by_name.get(PLAIN + end, {}) for end, _ in columns.values()]
        rows.append(
            ("plain play: target's points", *(_cell(row_metrics.get("score_target", NOTHING)) for row_metrics in played))
        )
        rows.append(("plain play: agreement", *(share_cell(row_metrics.get("agreement", NOTHING)) for row_metrics in played)))
    empty = False
    for row, title in _ATTACKS.items():
        for adaptive in (False, True):
            gains = {
                name: by_name.get(row + suffixes[adaptive], {}).get("advantage", NOTHING) for name, suffixes in columns.items()
            }
            cells = {
                name: _UNFOUND if not gain.n and row + columns[name][adaptive] in unfound else _cell(gain)
                for name, gain in gains.items()
            }
            # An adaptive attack is shown where there is one that is not the target's own.
            if not any(cell != ABSENT for name, cell in cells.items() if name != TARGET or not adaptive):
                continue
            rows.append((title + MADE_FOR_IT * adaptive, *cells.values()))
            empty |= _UNFOUND in cells.values()
    strongest = [by_name.get(STRONGEST + end, {}).get("advantage", NOTHING) for end, _ in columns.values()]
    if any(estimate.n for estimate in strongest):
        rows.append((STRONGEST, *map(_cell, strongest)))
    notes = {_NOTE_TARGETS_TABLE: True, _NOTE_TACTICS_TARGETS_TABLE: TACTIC in by_name, _NOTE_UNFOUND: empty}
    return EstimateTable(("attack", *columns), tuple(rows), "".join(note for note, wanted in notes.items() if wanted))


def _cell(estimate: Estimate) -> str:
    return number(estimate) if estimate.n else ABSENT
