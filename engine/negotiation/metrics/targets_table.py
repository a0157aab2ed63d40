"""What stands up to which attack: a column for the target, for each defence around it and for each trained counterpart.

Every figure is one of the table of attacks (`attack_table.py`); here they stand side by side, with what a defence costs in
ordinary play above and the strongest attack below, for a defence is as good as the strongest attack on it. That one is chosen
on one half of the dialogues and measured on the other (`engine/core/stats/exploitability.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from parley.engine.core.stats.exploitability import best_of
from parley.engine.core.stats.statistics import NOTHING, Estimate
from parley.engine.core.stats.tables import ABSENT, TextTable, number
from parley.engine.negotiation.metrics.attack_table import (
    DEFENCES,
    KNOWN,
    MADE_FOR_IT,
    PLAIN,
    ROWS,
    TACTIC,
    TACTICS,
    around_trained,
    by_row,
    share_cell,
)

TARGET = "target"
"""The column of the target itself."""
_ATTACKS = {
    **{row: title for row, title in ROWS.items() if row not in (PLAIN, TACTIC)},
    f"{TACTIC}-none": TACTICS["none"],
    TACTIC: ROWS[TACTIC],
}
"""Titles of the lines below plain play by row; the refined tactic is behind the same player without one."""
_UNFOUND = "no sentence"
_NOTE = (
    "Live advantage of the adversary in points, on the same scenarios; brackets: 95 % intervals. Plain play: the attacker's "
    "speaker plays, nobody attacks and both choose; the target's points and agreement there are what a defence costs. No "
    "attack: the target alone chooses, as in all attacks. An attack is made for the target alone (an adversary that learned "
    "from it, sentences that won from it, a search that reads it) and meets each defence unaware of it; adaptive: it is made "
    "for what the column names (learned from it, won from it, reads it; of a filter, a search that knows its limit). "
    "Strongest: the best attack and adversary of a column, on each half of the dialogues the one that the other half chooses; "
    "tactics, which have other dialogues, are left out."
)
_NOTE_TACTICS = " Tactics: refined against the target, adaptive ones against what the column names; their scenarios are others."
_NOTE_UNFOUND = (
    " No sentence: none of the adversary's dialogues was won by enough points, or the speaker knows no sentence that won."
)


STRONGEST = "strongest"
"""Begins the name of the row of the strongest attack; the ending of a column follows."""


def endings_of(trained: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """Return how rows of attacks end by column: made for the target, and made for what the column names.

    Args:
        trained: names of the target's trained counterparts.
    """
    endings = {TARGET: ("", "")}
    endings |= {title: (f"+{name}", f"+{name}{KNOWN}") for name, title in DEFENCES.items() if not name.endswith(KNOWN)}
    return endings | {
        name: (around_trained(number), around_trained(number, adaptive=True)) for number, name in enumerate(trained, start=1)
    }


def strongest_attack(gains: Sequence[Mapping[str, float]]) -> Estimate:
    """Estimate what the strongest of some attacks gains in the dialogues that all of them have.

    Args:
        gains: of each attack by the dialogue's key.
    """
    keys = sorted(set.intersection(*map(set, gains))) if gains else []
    return best_of(np.array([[by_dialogue[key] for by_dialogue in gains] for key in keys])) if keys else NOTHING


def targets_table(
    metrics: Mapping[str, Estimate], trained: Sequence[str] = (), unfound: Collection[str] = ()
) -> TextTable | None:
    """The attacks by what they meet; None where they meet the target alone.

    Args:
        metrics: estimates by "ROW.METRIC", the row a name of `attack_table.titles_of`.
        trained: names of the target's trained counterparts.
        unfound: rows that could not be played, or not those of all adversaries.
    """
    found = by_row(metrics)
    endings = endings_of(trained)
    columns = {name: each for name, each in endings.items() if any(row + end in found for row in ROWS for end in each)}
    if len(columns) < 2:
        return None
    rows: list[tuple[str, ...]] = []
    if PLAIN in found:
        played = [found.get(PLAIN + end, {}) for end, _ in columns.values()]
        rows.append(("plain play: target's points", *(_cell(each.get("score_target", NOTHING)) for each in played)))
        rows.append(("plain play: agreement", *(share_cell(each.get("agreement", NOTHING)) for each in played)))
    empty = False
    for row, title in _ATTACKS.items():
        for adaptive in (False, True):
            gains = {name: found.get(row + each[adaptive], {}).get("advantage", NOTHING) for name, each in columns.items()}
            cells = {
                name: _UNFOUND if not one.n and row + columns[name][adaptive] in unfound else _cell(one)
                for name, one in gains.items()
            }
            # An adaptive attack is shown where there is one that is not the target's own.
            if not any(cell != ABSENT for name, cell in cells.items() if name != TARGET or not adaptive):
                continue
            rows.append((title + MADE_FOR_IT * adaptive, *cells.values()))
            empty |= _UNFOUND in cells.values()
    strongest = [found.get(STRONGEST + end, {}).get("advantage", NOTHING) for end, _ in columns.values()]
    if any(one.n for one in strongest):
        rows.append((STRONGEST, *map(_cell, strongest)))
    notes = {_NOTE: True, _NOTE_TACTICS: TACTIC in found, _NOTE_UNFOUND: empty}
    return TextTable(("attack", *columns), tuple(rows), "".join(note for note, wanted in notes.items() if wanted))


def _cell(estimate: Estimate) -> str:
    return number(estimate) if estimate.n else ABSENT
