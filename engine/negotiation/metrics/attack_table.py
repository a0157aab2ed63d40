"""The tables of attacks: a row for each attack on one target, and a column for each defence or trained counterpart.

Source of the rows: Cheng et al. 2019, tables 2 and 7; `attack.py` defines the figures. The second table begins with the cost
of a defence in ordinary play and ends with the strongest attack, because a defence is as good as the strongest attack on it.
That attack is chosen on one half of the dialogues and measured on the other (`engine/core/stats/known.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from parley.engine.core.stats.statistics import LOWER_FOR_ADVERSARY, NOTHING, Estimate, Metric, count
from parley.engine.core.tables.table import (
    ABSENT,
    DECIMAL,
    DIGITS,
    PERCENT,
    WHOLE,
    Column,
    EstimateTable,
    Form,
    MarkedEstimate,
    TableCell,
    TableRow,
    figure,
    metric_table,
    number,
    published_cell,
)
from parley.engine.negotiation.metrics.attack import UNUSUAL_PROBABILITY, PublishedAttack

PLAIN = "plain"
"""The row of ordinary play, in which both sides choose; it shows the cost of a defence."""
TABLE_2: dict[str, str] = {
    "none": "no attack",
    "rl": "RL attack",
    "transfer": "transfer",
    "reactive": "reactive",
    "preemptive": "preemptive",
    "ra-pa-da": "RA+PA+DA",
    "ra-pa-ta": "RA+PA+TA",
}
"""Titles of the default rows by name; "none" is the speaker without any attack."""
TURNS: dict[str, int] = {f"reactive-{n}": n for n in (1, 2, 3, 4)}
"""Rows of table 7: the reactive attack by n, the number of utterances of both sides before the attack's sentence.

With n = 2, as in the released runs and in the row "reactive", the adversary speaks, the target answers, and the third utterance
is the attack's. The adversary begins if n is even, the target if it is odd.
"""
TRIGGERS: dict[str, str] = {"trigger": "searched words", "trigger-random": "random words, as many tried"}
"""Rows of chat models with readable weights, the control among them."""
TACTIC = "tactic"
"""The row of an attacker that refines tactics; it also adds the rows of `TACTICS`."""
TACTICS: dict[str, str] = {"none": "chat player, no tactic", "gains": "tactics by gains", "blind": "tactics drawn blind"}
"""Titles of the rows beside a refined tactic, by their names in `engine.negotiation.attacks.tactics.ARMS`."""
ROWS: dict[str, str] = {
    PLAIN: "plain play, both choose",
    **TABLE_2,
    **{row: f"reactive after {n} utterance{'s' * (n > 1)}" for row, n in TURNS.items()},
    **TRIGGERS,
    TACTIC: "refined tactic",
}
"""Titles of all rows by name, in the order of a full table."""
DEFENCES: dict[str, str] = {
    "filter": "perplexity filter",
    "filter-known": "filter known to the attack",
    "own-demand": "own demand",
    "own-demand-known": "own demand known to the attack",
}
"""Titles of defences by name, and of attacks that are made for a defence."""
KNOWN = "-known"
"""Suffix of the rows of attacks that are made for a defence: by searches or adversaries that know it."""
UNATTACKED = (PLAIN, "none", f"{TACTIC}-none")
"""Rows without an attack."""
SEARCHES = tuple(row for row in ROWS if row not in (*UNATTACKED, "rl", "transfer", *TRIGGERS, TACTIC))
"""Rows whose search reads a negotiator's weights."""
LEARNED = ("rl", "transfer")
"""Rows that need a trained adversary."""
ADAPTIVE_TITLE = ", adaptive"
"""Suffix of the titles of attacks that are made for a defence of the target, or for its counterpart."""
ADAPTIVE = "-adaptive"
"""Suffix of the rows of attacks that are made for a trained counterpart of the target."""


def trained_suffix(number: int, adaptive: bool = False) -> str:
    """Return the suffix of rows against a trained counterpart, such as "+trained1-adaptive".

    Args:
        number: number of the counterpart, from 1.
        adaptive: True for attacks that are made for it.
    """
    return f"+trained{number}{ADAPTIVE if adaptive else ''}"


def titles_of(trained: Sequence[str] = ()) -> dict[str, str]:
    """Return the titles of all rows by name, in the order of a full table.

    Args:
        trained: names of the target's trained counterparts.

    Returns:
        Each attack is followed by those on a defended target ("reactive+filter") and on each counterpart. The rows that a
        tactic adds are last.
    """
    titles: dict[str, str] = {}
    for row, attack in (ROWS | {f"{TACTIC}-{name}": title for name, title in TACTICS.items()}).items():
        titles[row] = attack
        adapted = {*DEFENCES} if row in LEARNED else {"filter-known"} if row in SEARCHES else set()
        titles |= {
            f"{row}+{name}": f"{attack}, {title}"
            for name, title in DEFENCES.items()
            if not row.startswith(TACTIC) and (name in adapted or not name.endswith(KNOWN))
        }
        for index, name in enumerate(trained, start=1):
            if row not in TRIGGERS:
                titles[row + trained_suffix(index)] = f"{attack}, {name}"
            if row not in UNATTACKED:
                titles[row + trained_suffix(index, adaptive=True)] = f"{attack}, {name}{ADAPTIVE_TITLE}"
    return titles


REQUEST_METRICS: dict[str, Metric] = {
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
"""Metrics of an attack's requests to chat models."""

_NOTE = (
    "Live: the target answers and decides itself. Forced: the target must end where an attack sentence satisfies the end "
    "constraint. Points: adversary : target. PAR: ties count. Fluency: perplexity of the attack sentences under the "
    "judge; without a search, of all that the adversary says. Unusual: attack sentences with a special token or a token "
    f"less likely than 1 in {1 / UNUSUAL_PROBABILITY:,.0f}. Seconds: of one worker, per dialogue. A coin decides who "
    "begins; at a fixed turn (reactive, preemptive) the turn of the attack does. Brackets: 95 % intervals."
)
_NOTE_PUBLISHED = (
    " Published: Cheng et al. 2019, on 2,000 unknown scenarios; forced figures of attacks that search; without an attack "
    "both sides choose there."
)
_NOTE_BASELINE = " Before: the same attack on the other target named below."
_NOTE_DEFENCES = (
    " Stopped: share of the adversary's sentences that the filter stops. Known to the attack: a search respects the "
    "filter's limit, an adversary learned from the defended target, transferred sentences won from it. Refused: "
    "dialogues in which the target refused to end below its last demand. A defended target is never forced to end."
)
_NOTE_TRAINED = (
    " With the name of another agent: the same attack, made for the target and played against that agent; adaptive: made "
    "for that agent."
)
_NOTE_CHAT = (
    " The target is a chat model. Illegal: dialogues with a choice out of range; repairs: with a second request for the "
    "choice; answers and tokens (read + written): per dialogue; answers before: of chat models, to make the attack; "
    "cost: of those and of its dialogues, of tactics all attackers together."
)
_NOTE_TRIGGERS = (
    " Without the words: the target's choice after the same utterances without the searched words. Tried: candidates."
)
_NOTE_TACTICS = " Tactics: the attacker's model plays in dialogues of its own, none of which chose a tactic."
_NOTE_MET_BY_TACTICS = " With another agent play tactics that were refined against the target; adaptive: against that agent."
_NOTE_TRAININGS = " Each training: the live advantage of each trained adversary; the row has their means."


def attack_table(
    metrics: Mapping[str, Estimate],
    titles: Mapping[str, str] | None = None,
    *,
    published: Mapping[str, PublishedAttack] = MappingProxyType({}),
    baseline: Mapping[str, Estimate] = MappingProxyType({}),
    trainings: Mapping[str, Sequence[float]] = MappingProxyType({}),
    unfound: Mapping[str, str] = MappingProxyType({}),
    brief: bool = False,
) -> EstimateTable:
    """Return the table of at least one attack, with the columns that some row needs.

    Args:
        metrics: estimates by "ROW.METRIC": `parley.engine.negotiation.metrics.attack.ATTACK_METRICS`, or the metrics of
            negotiation alone for an attack without a search.
        titles: titles of rows in the order of the table; rows without metrics or a reason are left out. None: `titles_of`.
        published: published figures by row.
        baseline: metrics of the same attacks on another target, by "ROW.METRIC".
        trainings: values of several trained adversaries, by "ROW.METRIC".
        unfound: reasons why rows could not be played, or not with all adversaries, by row.
        brief: True for a screen: only advantages have intervals, and columns beside published figures are left out.
    """
    measured = {name.rpartition(".")[0] for name in metrics}
    titles = {row: title for row, title in (titles or titles_of()).items() if row in measured or row in unfound}
    trained = {row: trainings[f"{row}.advantage"] for row in titles if trainings.get(f"{row}.advantage")}
    printed = {row: published[row] for row in titles if row in published}
    before = any(name.rpartition(".")[0] in titles for name in baseline)

    def has(name: str) -> bool:
        return any(f"{row}.{name}" in metrics for row in titles)

    decimal, percent = replace(DECIMAL, bounded=not brief), replace(PERCENT, bounded=not brief)
    compared, words, chat = bool(printed) and not brief, has("untouched_advantage"), has("chat_repairs_target")
    columns = {
        Column("advantage, live", "{row}.advantage"): True,
        Column("each training"): bool(trained),
        Column("advantage, forced", "{row}.forced_advantage"): True,
        Column("forced, without the words", "{row}.untouched_advantage"): words,
        Column("advantage, published"): bool(printed),
        Column("before, live", "before.{row}.advantage"): before,
        Column("before, forced", "before.{row}.forced_advantage"): before,
        Column("points, live", cell=partial(_points, decimal, "")): True,
        Column("points, forced", cell=partial(_points, decimal, "forced_")): compared,
        Column("points, published"): compared,
        Column("PAR, live", "{row}.par", percent): True,
        Column("PAR, forced", "{row}.forced_par", percent): compared,
        Column("PAR, published"): compared,
        Column("wins", "{row}.par_strict", percent): True,
        Column("agreement", "{row}.agreement", percent): True,
        Column("agreement, forced", "{row}.forced_agreement", percent): compared,
        Column("agreement, published"): compared,
        Column("stopped", "{row}.stopped_share", percent): has("stopped_share"),
        Column("refused", "{row}.refused_share", percent): has("refused_share"),
        Column("illegal", "{row}.illegal_target", percent): chat,
        Column("repairs", "{row}.chat_repairs_target", percent): chat,
        Column("answers", "{row}.chat_answers_target", DIGITS): chat,
        Column("tokens", cell=_tokens): chat,
        Column("answers before", "{row}.answers_before", WHOLE): chat,
        Column("cost", "{row}.cost", DIGITS): any(metrics.get(f"{row}.cost", NOTHING).value > 0 for row in titles),
        Column("fluency", cell=partial(_fluency, decimal)): True,
        Column("unusual", "{row}.unusual_share", percent): True,
        Column("tried", "{row}.reads", DIGITS): words,
        Column("seconds", "{row}.seconds", DIGITS): True,
    }
    notes = {
        _NOTE: True,
        _NOTE_PUBLISHED: bool(printed),
        _NOTE_BASELINE: before,
        _NOTE_TRAININGS: bool(trained),
        _NOTE_TRIGGERS: words,
        _NOTE_CHAT: chat,
        _NOTE_TACTICS: ROWS[TACTIC] in titles.values(),
        _NOTE_MET_BY_TACTICS: any(title.startswith(f"{ROWS[TACTIC]}, ") for title in titles.values()),
        _NOTE_DEFENCES: has("stopped_share") or has("refused_share"),
        _NOTE_TRAINED: any(title.endswith(ADAPTIVE_TITLE) for title in titles.values()),
        **{f" {title[:1].upper()}{title[1:]}: {unfound[row]}.": True for row, title in titles.items() if unfound.get(row)},
    }
    return metric_table(
        {**metrics, **{f"before.{name}": estimate for name, estimate in baseline.items()}},
        "attack",
        [TableRow(title, {"row": row}, cells=_given(trained.get(row, ()), printed.get(row))) for row, title in titles.items()],
        [column for column, needed in columns.items() if needed],
        "".join(note for note, needed in notes.items() if needed),
        n="{row}.advantage",
    )


def _given(trainings: Sequence[float], published: PublishedAttack | None) -> dict[str, str]:
    """Return the cells of a row that no metric fills: each training's advantage, and published figures."""
    figures = (MarkedEstimate(count(value, 1)) for value in trainings)
    cells: dict[str, str] = {"each training": TableCell(" ".join(map(figure, trainings)), *figures)}
    if published is not None:
        cells |= {
            "advantage, published": published_cell(published.advantage),
            "points, published": DECIMAL.pair(*(Estimate(points, math.nan, math.nan, 0) for points in published.points)),
            "PAR, published": published_cell(published.par, PERCENT),
            "agreement, published": published_cell(published.agreement, PERCENT),
        }
    return cells


def _points(form: Form, protocol: str, metrics: Mapping[str, Estimate], row: TableRow) -> str:
    return form.pair(*(metrics.get(f"{row.fields['row']}.{protocol}score_{side}", NOTHING) for side in ("adversary", "target")))


def _tokens(metrics: Mapping[str, Estimate], row: TableRow) -> str:
    estimates = [metrics.get(f"{row.fields['row']}.chat_tokens_{way}_target", NOTHING) for way in ("in", "out")]
    if not all(math.isfinite(estimate.value) for estimate in estimates):
        return ABSENT
    return TableCell(" + ".join(WHOLE.value(estimate.value) for estimate in estimates), *map(MarkedEstimate, estimates))


def _fluency(form: Form, metrics: Mapping[str, Estimate], row: TableRow) -> str:
    spoken = metrics.get(f"{row.fields['row']}.fluency_ppl", NOTHING)
    return form.cell(metrics.get(f"{row.fields['row']}.attack_ppl", spoken))


TARGET = "target"
"""The column of the target itself."""
_ATTACKS = {
    **{row: title for row, title in ROWS.items() if row not in (PLAIN, TACTIC)},
    f"{TACTIC}-none": TACTICS["none"],
    TACTIC: ROWS[TACTIC],
}
"""Titles of the rows below plain play; the refined tactic comes after the same player without one."""
_UNFOUND = "no sentence"
_NOTE_TARGETS_TABLE = (
    "Live advantage of the adversary in points, on the same scenarios. Plain play: the attacker's speaker plays without "
    "an attack and both choose, which shows the cost of a defence. No attack: the target alone chooses, as in all "
    "attacks. An attack is made for the target alone; adaptive: for the column's agent or defence (it learned from it, "
    "won from it, reads it, or knows the filter's limit). Strongest: the best attack of a column, chosen on one half of "
    "the dialogues and measured on the other, without tactics. Brackets: 95 % intervals."
)
_NOTE_TACTICS_TARGETS_TABLE = (
    " Tactics: refined against the target, adaptive ones against the column's agent; their scenarios differ."
)
_NOTE_UNFOUND = (
    " No sentence: none of the adversary's dialogues was won by enough points, or the speaker knows no sentence that won."
)


STRONGEST = "strongest"
"""Prefix of the name of the row of the strongest attack; the suffix of a column follows."""


def suffixes_of(trained: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """Return the suffixes of attack rows by column: made for the target, and made for the column's agent.

    Args:
        trained: names of the target's trained counterparts.
    """
    endings = {TARGET: ("", "")}
    endings |= {title: (f"+{name}", f"+{name}{KNOWN}") for name, title in DEFENCES.items() if not name.endswith(KNOWN)}
    return endings | {
        name: (trained_suffix(number), trained_suffix(number, adaptive=True)) for number, name in enumerate(trained, start=1)
    }


def strongest_attack(gains: Sequence[Mapping[str, float]]) -> Estimate:
    """Estimate the gain of the strongest attack in the dialogues that all attacks have.

    Args:
        gains: gains of each attack by the dialogue's key.
    """
    from parley.engine.core.stats.known import best_of

    keys = sorted(set.intersection(*map(set, gains))) if gains else []
    return best_of(np.array([[by_dialogue[key] for by_dialogue in gains] for key in keys])) if keys else NOTHING


def targets_table(
    metrics: Mapping[str, Estimate], trained: Sequence[str] = (), unfound: Collection[str] = ()
) -> EstimateTable | None:
    """Return the attacks by opponent; None if they meet the target alone.

    Args:
        metrics: estimates by "ROW.METRIC", the row a name of `titles_of`.
        trained: names of the target's trained counterparts.
        unfound: rows that could not be played, or not with all adversaries.
    """
    rows = {name.partition(".")[0] for name in metrics}
    columns = {
        name: suffixes
        for name, suffixes in suffixes_of(trained).items()
        if any(row + end in rows for row in ROWS for end in suffixes)
    }
    if len(columns) < 2:
        return None

    def figures(row: str, adaptive: bool = False, metric: str = "advantage") -> list[Estimate]:
        return [metrics.get(f"{row}{suffixes[adaptive]}.{metric}", NOTHING) for suffixes in columns.values()]

    lines: list[tuple[str, ...]] = []
    if PLAIN in rows:
        lines.append(("plain play: target's points", *map(number, figures(PLAIN, metric="score_target"))))
        lines.append(("plain play: agreement", *map(PERCENT.cell, figures(PLAIN, metric="agreement"))))
    for row, title in _ATTACKS.items():
        for adaptive in (False, True):
            cells = {
                name: _UNFOUND if not gain.n and row + columns[name][adaptive] in unfound else number(gain)
                for name, gain in zip(columns, figures(row, adaptive), strict=True)
            }
            # An adaptive attack is shown if there is one besides the target's own.
            if any(cell != ABSENT for name, cell in cells.items() if name != TARGET or not adaptive):
                lines.append((title + ADAPTIVE_TITLE * adaptive, *cells.values()))
    if any(estimate.n for estimate in figures(STRONGEST)):
        lines.append((STRONGEST, *map(number, figures(STRONGEST))))
    note = _NOTE_TARGETS_TABLE + _NOTE_TACTICS_TARGETS_TABLE * (TACTIC in rows)
    return EstimateTable(("attack", *columns), tuple(lines), note + _NOTE_UNFOUND * any(_UNFOUND in line for line in lines))
